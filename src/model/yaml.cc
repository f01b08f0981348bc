// SPDX-License-Identifier: Apache-2.0
#include "model/yaml.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/yaml.h>

#include "model/codec.h"

namespace rn {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxValues = 100'000;

std::string at(const YAML::Mark& mark) {
  return "line " + std::to_string(mark.line + 1) + ", column " + std::to_string(mark.column + 1);
}

/// A marker of documents has its line from the first column on, and nothing else may begin so:
/// YAML 1.2, section 9.1.2. (To load them all is no way: on broken text the library never ends.)
bool is_marker(std::string_view line, std::string_view mark) {
  return line.starts_with(mark) &&
         (line.size() == mark.size() ||
          std::string_view(" \t\r").find(line[mark.size()]) != std::string_view::npos);
}

bool is_blank_or_comment(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t\r");
  return first == std::string_view::npos || line[first] == '#';
}

bool has_second_document(std::string_view text) {
  bool has_begun = false;
  bool has_ended = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (is_marker(line, "...")) {
      has_ended = has_begun;
      continue;
    }
    const bool is_begin = is_marker(line, "---");
    if (!is_begin && (is_blank_or_comment(line) || (!has_begun && line.starts_with('%')))) continue;
    if (has_ended || (is_begin && has_begun)) return true;
    has_begun = true;
  }
  return false;
}

std::string too_deep() {
  return "nested deeper than " + std::to_string(kMaxNesting) + " levels";
}

template <class T>
bool reads_as(const std::string& text, T& out) {
  const char* end = text.data() + text.size();
  const auto [last, code] = std::from_chars(text.data(), end, out);
  return code == std::errc() && last == end;
}

json plain_scalar(const std::string& text) {
  if (text.empty() || text == "~" || text == "null") return nullptr;
  if (text == "true") return true;
  if (text == "false") return false;
  const char first = text.front() == '-' && text.size() > 1 ? text[1] : text.front();
  if (first < '0' || first > '9') return text;
  // Not a number: some would read 010 as eight, and a variable of a job keeps its zeros.
  const std::size_t digits = text.front() == '-' ? 1 : 0;
  if (first == '0' && text.size() > digits + 1 && text[digits + 1] >= '0' &&
      text[digits + 1] <= '9')
    return text;
  std::uint64_t whole = 0;
  if (reads_as(text, whole)) return whole;
  std::int64_t negative = 0;
  if (reads_as(text, negative)) return negative;
  double number = 0;
  if (reads_as(text, number) && std::isfinite(number)) return number;
  return text;
}

class Converter {
 public:
  Result<json> convert(const YAML::Node& node, std::size_t depth) {
    if (depth > kMaxNesting) return fail(ErrorCode::kInvalid, too_deep());
    if (++values_ > kMaxValues)
      return fail(
          ErrorCode::kExhausted, "more than " + std::to_string(kMaxValues) + " values in one file"
      );
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        return json(nullptr);
      case YAML::NodeType::Scalar:
        return node.Tag() == "?" ? plain_scalar(node.Scalar()) : json(node.Scalar());
      case YAML::NodeType::Sequence:
        return convert_list(node, depth);
      case YAML::NodeType::Map:
        return convert_map(node, depth);
    }
    return fail(ErrorCode::kInternal, "unknown kind of YAML node");
  }

 private:
  Result<json> convert_list(const YAML::Node& node, std::size_t depth) {
    json list = json::array();
    for (const auto& element : node) {
      RN_TRY(json value, convert(element, depth + 1));
      list.push_back(std::move(value));
    }
    return list;
  }

  Result<json> convert_map(const YAML::Node& node, std::size_t depth) {
    json map = json::object();
    for (const auto& entry : node) {
      if (!entry.first.IsScalar())
        return fail(ErrorCode::kInvalid, at(entry.first.Mark()) + ": a key must be a word");
      const std::string key = entry.first.Scalar();
      if (map.contains(key))
        return fail(ErrorCode::kInvalid, at(entry.first.Mark()) + ": '" + key + "' is there twice");
      RN_TRY(map[key], convert(entry.second, depth + 1));
    }
    return map;
  }

  std::size_t values_ = 0;
};

}  // namespace

Result<nlohmann::json> parse_yaml(std::string_view text) {
  // NOTE: yaml-cpp throws; nothing of it leaves this function.
  try {
    if (has_second_document(text))
      return fail(
          ErrorCode::kInvalid,
          "there is more than one document in it, separated by --- or ...",
          "give one file for each"
      );
    const YAML::Node root = YAML::Load(std::string(text));
    if (!root.IsDefined() || root.IsNull()) return json::object();
    return Converter().convert(root, 0);
  } catch (const YAML::DeepRecursion& error) {
    return fail(ErrorCode::kInvalid, at(error.mark) + ": " + too_deep());
  } catch (const YAML::Exception& error) {
    return fail(ErrorCode::kInvalid, at(error.mark) + ": " + error.msg);
  }
}

}  // namespace rn
