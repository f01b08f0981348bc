// SPDX-License-Identifier: Apache-2.0
#include "cli_ignore.h"

#include <string_view>

namespace rn::cli {

namespace {

/// Matches one "[...]" at the front of `pattern` against `c`; `used` is its length, 0 if it is no
/// class.
bool class_matches(std::string_view pattern, char c, std::size_t& used) {
  used = 0;
  const std::size_t end = pattern.find(']', 2);
  if (pattern.empty() || pattern.front() != '[' || end == std::string_view::npos) return false;
  std::string_view body = pattern.substr(1, end - 1);
  const bool is_negated = body.front() == '!' || body.front() == '^';
  if (is_negated) body.remove_prefix(1);
  bool is_in = false;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (i + 2 < body.size() && body[i + 1] == '-') {
      is_in = is_in || (body[i] <= c && c <= body[i + 2]);
      i += 2;
    } else {
      is_in = is_in || body[i] == c;
    }
  }
  used = end + 1;
  return is_in != is_negated && c != '/';
}

/// `budget` bounds the work on patterns such as "*a*a*a*a".
bool match(std::string_view pattern, std::string_view text, int& budget) {
  while (!pattern.empty()) {
    if (--budget < 0) return false;
    if (pattern.starts_with("**/")) {
      if (match(pattern.substr(3), text, budget)) return true;
      const std::size_t slash = text.find('/');
      if (slash == std::string_view::npos) return false;
      text.remove_prefix(slash + 1);
      continue;
    }
    if (pattern == "**") return !text.empty();
    if (pattern.front() == '*') {
      const std::string_view rest = pattern.substr(1);
      for (std::size_t i = 0;; ++i) {
        if (match(rest, text.substr(i), budget)) return true;
        if (i == text.size() || text[i] == '/') return false;
      }
    }
    if (text.empty()) return false;
    std::size_t used = 0;
    if (class_matches(pattern, text.front(), used)) {
      pattern.remove_prefix(used);
      text.remove_prefix(1);
      continue;
    }
    if (used > 0) return false;
    if (pattern.front() == '\\' && pattern.size() > 1)
      pattern.remove_prefix(1);
    else if (pattern.front() == '?' && text.front() != '/') {
      pattern.remove_prefix(1);
      text.remove_prefix(1);
      continue;
    }
    if (pattern.front() != text.front()) return false;
    pattern.remove_prefix(1);
    text.remove_prefix(1);
  }
  return text.empty();
}

}  // namespace

bool glob_matches(const std::string& pattern, const std::string& text) {
  int budget = 100'000;
  return match(pattern, text, budget);
}

void IgnoreRules::add(const std::string& folder, const std::string& text) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    Rule rule;
    rule.folder = folder;
    rule.takes_back = line.front() == '!';
    if (rule.takes_back) line.erase(0, 1);
    if (!line.empty() && line.back() == '/') {
      rule.is_for_folders = true;
      line.pop_back();
    }
    rule.is_anchored = line.find('/') != std::string::npos;
    if (!line.empty() && line.front() == '/') line.erase(0, 1);
    if (line.empty()) continue;
    rule.pattern = std::move(line);
    rules_.push_back(std::move(rule));
  }
}

bool IgnoreRules::ignores(const std::string& path, bool is_folder) const {
  bool is_ignored = false;
  for (const Rule& rule : rules_) {
    if (rule.is_for_folders && !is_folder) continue;
    std::string below = path;
    if (!rule.folder.empty()) {
      if (!path.starts_with(rule.folder + "/")) continue;
      below = path.substr(rule.folder.size() + 1);
    }
    if (!rule.is_anchored) below = below.substr(below.rfind('/') + 1);
    if (glob_matches(rule.pattern, below)) is_ignored = !rule.takes_back;
  }
  return is_ignored;
}

}  // namespace rn::cli
