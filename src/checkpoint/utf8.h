// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace rn::checkpoint {

/// True for well-formed UTF-8 (RFC 3629). Manifests carry paths as text; a file name that is not
/// text cannot travel.
bool is_utf8(std::string_view text);

}  // namespace rn::checkpoint
