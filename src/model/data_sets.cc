// SPDX-License-Identifier: Apache-2.0
#include "model/data_sets.h"

#include <algorithm>
#include <set>

namespace rn {

namespace {

constexpr std::size_t kNameBytesMax = 64;

bool is_name_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

bool is_data_set_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), is_name_character);
}

Status check_data_sets(
    const std::vector<std::string>& names, std::size_t max, const std::string& field
) {
  if (names.size() > max)
    return fail(ErrorCode::kInvalid, field + ": more than " + std::to_string(max) + " data sets");
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (!is_data_set_name(name))
      return fail(
          ErrorCode::kInvalid,
          field + ": '" + name.substr(0, kNameBytesMax) + "' is no name of a data set",
          "use 1 to 64 letters, digits, '.', '_' and '-'"
      );
    if (!seen.insert(name).second)
      return fail(ErrorCode::kInvalid, field + ": '" + name + "' is named twice", "name it once");
  }
  return {};
}

std::string missing_data_set(
    const std::vector<std::string>& wanted, const std::vector<std::string>& offered
) {
  for (const std::string& name : wanted) {
    if (std::find(offered.begin(), offered.end(), name) == offered.end()) return name;
  }
  return {};
}

bool is_in_data_folder(std::string_view path) {
  const std::string_view folder = kDataFolder;
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

}  // namespace rn
