// SPDX-License-Identifier: Apache-2.0
#include "coordinator/strict_json.h"

#include <set>
#include <utility>
#include <vector>

namespace rn::coordinator {

std::optional<nlohmann::json> strict_object(std::string_view text) {
  using nlohmann::json;
  constexpr int kMaxDepth = 16;
  std::vector<std::set<std::string>> names;  // of each open object
  bool is_odd = false;
  const json::parser_callback_t watch = [&](int depth, json::parse_event_t event, json& value) {
    is_odd = is_odd || depth > kMaxDepth;
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end && !names.empty()) names.pop_back();
    if (event == json::parse_event_t::key && !names.empty() && value.is_string())
      is_odd = !names.back().insert(value.get<std::string>()).second || is_odd;
    return true;
  };
  json document = json::parse(text.begin(), text.end(), watch, false);
  if (is_odd || document.is_discarded() || !document.is_object()) return std::nullopt;
  return std::make_optional<json>(std::move(document));
}

std::string text_member(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return {};
  return found->get<std::string>();
}

}  // namespace rn::coordinator
