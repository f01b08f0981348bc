// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/glob.h"

#include <algorithm>

namespace rn::checkpoint {

namespace {

/// Length of the class that starts at pattern[0] == '[', or 0 if it has no end.
std::size_t class_length(std::string_view pattern) {
  std::size_t at = 1;
  if (at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^')) ++at;
  if (at < pattern.size() && pattern[at] == ']') ++at;  // a first ']' is a member
  const auto end = pattern.find(']', at);
  return end == std::string_view::npos ? 0 : end + 1;
}

bool class_contains(std::string_view members, char c) {
  members = members.substr(1, members.size() - 2);
  const bool negated = !members.empty() && (members.front() == '!' || members.front() == '^');
  if (negated) members.remove_prefix(1);
  bool found = false;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i + 2 < members.size() && members[i + 1] == '-') {
      found = found || (members[i] <= c && c <= members[i + 2]);
      i += 2;
    } else {
      found = found || members[i] == c;
    }
  }
  return found != negated;
}

/// Pattern characters consumed when one of them matches `c`; 0 if none does. '*' is the caller's.
std::size_t match_one(std::string_view pattern, char c) {
  if (pattern.empty()) return 0;
  if (pattern[0] == '?') return 1;
  if (pattern[0] == '\\' && pattern.size() > 1) return pattern[1] == c ? 2 : 0;
  if (pattern[0] == '[') {
    const std::size_t length = class_length(pattern);
    if (length != 0) return class_contains(pattern.substr(0, length), c) ? length : 0;
  }
  return pattern[0] == c ? 1 : 0;
}

/// One component against one component; the classic backtracking to the last star only.
bool match_component(std::string_view pattern, std::string_view name) {
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
      continue;
    }
    const std::size_t taken = match_one(pattern.substr(p), name[n]);
    if (taken != 0) {
      p += taken;
      ++n;
      continue;
    }
    if (star == std::string_view::npos) return false;
    p = star + 1;
    n = ++resume;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<std::string_view> split(std::string_view path) {
  std::vector<std::string_view> parts;
  std::size_t start = 0;
  while (start <= path.size()) {
    const std::size_t end = std::min(path.find('/', start), path.size());
    parts.push_back(path.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

/// The same backtracking one level up: "**" is the star, components are the characters.
bool match_parts(
    const std::vector<std::string_view>& pattern, const std::vector<std::string_view>& path
) {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = kNone;
  std::size_t resume = 0;
  while (n < path.size()) {
    if (p < pattern.size() && pattern[p] == "**") {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && match_component(pattern[p], path[n])) {
      ++p;
      ++n;
    } else if (star != kNone) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == "**") ++p;
  return p == pattern.size();
}

}  // namespace

bool matches_glob(std::string_view pattern, std::string_view path) {
  if (pattern.empty() || path.empty()) return false;
  const bool is_folder = pattern.size() > 1 && pattern.ends_with('/');
  if (is_folder) pattern.remove_suffix(1);
  const bool is_anchored = pattern.find('/') != std::string_view::npos;
  if (pattern.starts_with('/')) pattern.remove_prefix(1);

  auto parts = split(pattern);
  if (!is_anchored) parts.insert(parts.begin(), "**");
  if (is_folder) parts.insert(parts.end(), {"*", "**"});
  return match_parts(parts, split(path));
}

bool matches_any(const std::vector<std::string>& patterns, std::string_view path) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) {
    return matches_glob(p, path);
  });
}

}  // namespace rn::checkpoint
