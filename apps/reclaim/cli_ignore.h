// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace rn::cli {

/// Patterns of .gitignore and .reclaimignore files, as git reads them: the last match decides, '!'
/// takes back, a '/' inside anchors to the file's folder, a '/' at the end means folders only, '**'
/// crosses folders.
class IgnoreRules {
 public:
  /// Adds one file's lines; `folder` is where it lies, relative to the root ("" = root).
  void add(const std::string& folder, const std::string& text);
  /// True if the path (relative to the root) is left out. Parents are the caller's: an ignored
  /// folder is not entered.
  bool ignores(const std::string& path, bool is_folder) const;

 private:
  struct Rule {
    std::string folder;
    std::string pattern;
    bool is_anchored = false;
    bool is_for_folders = false;
    bool takes_back = false;
  };

  std::vector<Rule> rules_;
};

/// '*' and '?' don't cross '/', '**' does, "[a-z]" is a class.
bool glob_matches(const std::string& pattern, const std::string& text);

}  // namespace rn::cli
