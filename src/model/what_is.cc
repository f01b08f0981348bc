// SPDX-License-Identifier: Apache-2.0
#include "model/what_is.h"

#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace rn {

std::string what_is(const nlohmann::json& value) {
  constexpr std::size_t kShownMax = 40;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_null()) return "nothing";
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return "the number " + value.dump();
  if (!value.is_string()) return "bytes";
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() > kShownMax || !is_utf8(text)) return "a string";
  return "the string " + value.dump();
}

}  // namespace rn
