// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rn::checkpoint {

/// True if the relative path matches the pattern, as .gitignore and rsync users expect:
/// `*` any characters but '/', `?` one of them, `[a-z]` and `[!a-z]` a class, `**` any number of
/// whole folders
/// ("a/**/b" matches "a/b"), backslash quotes the next character. A pattern without '/' is matched
/// against the last component ("*.tmp" matches "a/b.tmp"); a leading '/' anchors it at the root. A
/// pattern that ends in '/' matches everything below such a folder. Runs in O(pattern × path),
/// whatever both contain.
bool matches_glob(std::string_view pattern, std::string_view path);

bool matches_any(const std::vector<std::string>& patterns, std::string_view path);

}  // namespace rn::checkpoint
