// SPDX-License-Identifier: Apache-2.0
#pragma once

// Templates behind codec.h. Include only from .cc files that instantiate them for structures of
// their own module (RN_INSTANTIATE_CODEC(T)), because json.hpp is heavy.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/ids.h"
#include "model/codec.h"
#include "model/fields.h"

namespace rn::detail {

using nlohmann::json;

enum class Format { kText, kBinary };

template <class T>
concept Described = requires {
  T::fields();
};

template <class T>
concept Enumerated = std::is_enum_v<T> && requires {
  EnumWords<T>::kName;
};

template <class T>
struct IsVector : std::false_type {};

template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

template <class T>
struct IsStrongId : std::false_type {};

template <class Tag>
struct IsStrongId<StrongId<Tag>> : std::true_type {};

template <class T>
struct IsOptional : std::false_type {};

template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

std::string nearest_word(const std::string& word, const std::vector<std::string>& known);
Error at_field(const std::string& path, const std::string& what);
Result<Blob> blob_from(const json& document, const std::string& path);

// ---- writing
// ----------------------------------------------------------------------------------------------------

json write_bytes(BlobView bytes, Format format, bool as_hex);

template <class T>
json write(const T& value, Format format) {
  if constexpr (Described<T>) {
    json document = json::object();
    std::apply(
        [&](const auto&... f) {
          ((document[std::string(f.name)] = write(value.*(f.member), format)), ...);
        },
        T::fields()
    );
    return document;
  } else if constexpr (Enumerated<T>) {
    return std::string(to_string(value));
  } else if constexpr (IsStrongId<T>::value) {
    return value.str();
  } else if constexpr (std::is_same_v<T, LeaseEpoch>) {
    return to_string(value);
  } else if constexpr (std::is_same_v<T, Digest>) {
    return write_bytes(value, format, true);
  } else if constexpr (std::is_same_v<T, Blob>) {
    return write_bytes(value, format, false);
  } else if constexpr (IsVector<T>::value) {
    json list = json::array();
    for (const auto& element : value) list.push_back(write(element, format));
    return list;
  } else if constexpr (IsOptional<T>::value) {
    return value ? write(*value, format) : json(nullptr);
  } else {
    return json(value);  // numbers, bool, string, map of strings
  }
}

// ---- reading
// ----------------------------------------------------------------------------------------------------

template <class T>
Status read(const json& document, T& out, const std::string& path, Unknown unknown);

template <class T>
Status read_integer(const json& document, T& out, const std::string& path) {
  using Limits = std::numeric_limits<T>;
  const auto refuse = [&] {
    return fail(at_field(
        path,
        "expected a whole number from " + std::to_string(Limits::min()) + " to " +
            std::to_string(Limits::max())
    ));
  };
  if (document.is_number_unsigned()) {
    const auto raw = document.get<std::uint64_t>();
    if (raw > static_cast<std::uint64_t>(Limits::max())) return refuse();
    out = static_cast<T>(raw);
    return {};
  }
  if (!document.is_number_integer()) return refuse();
  const auto raw = document.get<std::int64_t>();
  if (!std::in_range<T>(raw)) return refuse();
  out = static_cast<T>(raw);
  return {};
}

template <class T>
Status read_enum(const json& document, T& out, const std::string& path) {
  std::string words;
  if (document.is_string()) {
    const auto& word = document.get_ref<const std::string&>();
    for (std::size_t i = 0; i < std::size(EnumWords<T>::kWords); ++i) {
      if (EnumWords<T>::kWords[i] == word) {
        out = static_cast<T>(i);
        return {};
      }
    }
  }
  for (const auto known : EnumWords<T>::kWords)
    words += (words.empty() ? "" : ", ") + std::string(known);
  return fail(at_field(path, "expected one of " + words));
}

template <class T>
Status read_fields(const json& document, T& out, const std::string& path, Unknown unknown) {
  if (!document.is_object()) return fail(at_field(path, "expected an object"));
  Status result;
  std::vector<std::string> known;
  const auto one = [&](const auto& f) {
    known.emplace_back(f.name);
    if (!result) return;
    const auto found = document.find(std::string(f.name));
    if (found == document.end()) return;
    result = read(
        *found,
        out.*(f.member),
        path.empty() ? std::string(f.name) : path + "." + std::string(f.name),
        unknown
    );
  };
  std::apply([&](const auto&... f) { (one(f), ...); }, T::fields());
  if (!result || unknown == Unknown::kLenient) return result;
  for (const auto& [key, value] : document.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    Error error = at_field(path.empty() ? key : path + "." + key, "no such field");
    const std::string near = nearest_word(key, known);
    error.hint = near.empty() ? "remove it" : "did you mean '" + near + "'?";
    return fail(error);
  }
  return {};
}

template <class T>
Status read_list(const json& document, T& out, const std::string& path, Unknown unknown) {
  if (!document.is_array()) return fail(at_field(path, "expected a list"));
  out.clear();
  out.reserve(document.size());
  for (std::size_t i = 0; i < document.size(); ++i) {
    typename T::value_type element{};
    RN_CHECK(read(document[i], element, path + "[" + std::to_string(i) + "]", unknown));
    out.push_back(std::move(element));
  }
  return {};
}

template <class T>
Status read(const json& document, T& out, const std::string& path, Unknown unknown) {
  if constexpr (Described<T>) {
    return read_fields(document, out, path, unknown);
  } else if constexpr (Enumerated<T>) {
    return read_enum(document, out, path);
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!document.is_boolean()) return fail(at_field(path, "expected true or false"));
    out = document.get<bool>();
    return {};
  } else if constexpr (std::integral<T>) {
    return read_integer(document, out, path);
  } else if constexpr (std::floating_point<T>) {
    if (!document.is_number()) return fail(at_field(path, "expected a number"));
    out = document.get<T>();
    return {};
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!document.is_string()) return fail(at_field(path, "expected a string"));
    out = document.get<std::string>();
    return {};
  } else if constexpr (IsStrongId<T>::value) {
    if (!document.is_string()) return fail(at_field(path, "expected a string"));
    out = T(document.get<std::string>());
    return {};
  } else if constexpr (std::is_same_v<T, LeaseEpoch>) {
    if (!document.is_string()) return fail(at_field(path, "expected an epoch such as \"3.7\""));
    const auto& text = document.get_ref<const std::string&>();
    out = parse_epoch(text);
    if (out.is_none() && text != "0.0")
      return fail(at_field(path, "expected an epoch such as \"3.7\""));
    return {};
  } else if constexpr (std::is_same_v<T, Digest>) {
    RN_TRY(const Blob raw, [&]() -> Result<Blob> {
      if (document.is_binary()) return Blob(document.get_binary());
      if (document.is_string()) return from_hex(document.get_ref<const std::string&>());
      return Blob{};
    }());
    if (raw.size() != out.size())
      return fail(at_field(path, "expected a SHA-256 of 64 hex digits"));
    std::copy(raw.begin(), raw.end(), out.begin());
    return {};
  } else if constexpr (std::is_same_v<T, Blob>) {
    RN_TRY(out, blob_from(document, path));
    return {};
  } else if constexpr (IsVector<T>::value) {
    return read_list(document, out, path, unknown);
  } else if constexpr (IsOptional<T>::value) {
    if (document.is_null()) {
      out.reset();
      return {};
    }
    out.emplace();
    return read(document, *out, path, unknown);
  } else {
    static_assert(
        std::is_same_v<T, std::map<std::string, std::string>>, "codec: unsupported field type"
    );
    if (!document.is_object()) return fail(at_field(path, "expected an object of strings"));
    out.clear();
    for (const auto& [key, value] : document.items())
      RN_CHECK(read(value, out[key], path + "." + key, unknown));
    return {};
  }
}

/// {"type": word, "body": {...}} of a variant whose alternatives' words stand in `names`.
template <class Variant>
json write_variant(const Variant& value, std::span<const std::string_view> names) {
  json envelope;
  envelope["type"] = names[value.index()];
  envelope["body"] =
      std::visit([](const auto& body) { return write(body, Format::kBinary); }, value);
  return envelope;
}

template <class Variant, std::size_t I = 0>
Result<Variant> read_alternative(std::size_t index, const json& body) {
  if constexpr (I == std::variant_size_v<Variant>) {
    return fail(ErrorCode::kInternal, "message index out of range");
  } else {
    if (index != I) return read_alternative<Variant, I + 1>(index, body);
    std::variant_alternative_t<I, Variant> value{};
    RN_CHECK(read(body, value, "", Unknown::kLenient));
    return Variant(std::in_place_index<I>, std::move(value));
  }
}

/// kInvalid for what is no envelope, kUnsupported for an unknown type.
template <class Variant>
Result<Variant> read_variant(const json& envelope, std::span<const std::string_view> names) {
  if (!envelope.is_object()) return fail(ErrorCode::kInvalid, "message is not an object");
  const auto type = envelope.find("type");
  const auto body = envelope.find("body");
  if (type == envelope.end() || !type->is_string() || body == envelope.end()) {
    return fail(ErrorCode::kInvalid, "message has no type or no body");
  }
  const auto& word = type->get_ref<const std::string&>();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == word) return read_alternative<Variant>(i, *body);
  }
  return fail(ErrorCode::kUnsupported, "unknown message type '" + word.substr(0, 40) + "'");
}

}  // namespace rn::detail

namespace rn {

template <class T>
nlohmann::json to_document(const T& value) {
  return detail::write(value, detail::Format::kText);
}

template <class T>
Result<T> from_document(const nlohmann::json& document, Unknown unknown) {
  T out{};
  RN_CHECK(detail::read(document, out, "", unknown));
  return out;
}

template <class T>
std::string to_json(const T& value) {
  return to_document(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

template <class T>
Result<T> from_json(std::string_view text, Unknown unknown) {
  RN_TRY(const nlohmann::json document, parse_json(text));
  return from_document<T>(document, unknown);
}

template <class T>
Blob to_cbor(const T& value) {
  return nlohmann::json::to_cbor(detail::write(value, detail::Format::kBinary));
}

template <class T>
Result<T> from_cbor(BlobView bytes, Unknown unknown) {
  RN_TRY(const nlohmann::json document, parse_cbor(bytes));
  return from_document<T>(document, unknown);
}

}  // namespace rn

/// At namespace rn scope in one .cc file per structure.
#define RN_INSTANTIATE_CODEC(T)                               \
  template std::string to_json<T>(const T&);                  \
  template Result<T> from_json<T>(std::string_view, Unknown); \
  template Blob to_cbor<T>(const T&);                         \
  template Result<T> from_cbor<T>(BlobView, Unknown);         \
  template nlohmann::json to_document<T>(const T&);           \
  template Result<T> from_document<T>(const nlohmann::json&, Unknown);
