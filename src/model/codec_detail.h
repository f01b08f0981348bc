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
  typename T::Described;
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

// What does not depend on the type stands in codec.cc: the templates below are compiled for every
// structure, and how much stands in them decides what a build costs.

json write_bytes(BlobView bytes, Format format, bool as_hex);
json write_text(std::string_view text);
json write_texts(const std::map<std::string, std::string>& texts);
void put_field(json& document, std::string_view name, json&& value);
std::string to_text(const json& document);
Blob to_binary(const json& document);

template <class T>
json write(const T& value, Format format);

template <class T>
void write_field(json& document, std::string_view name, const T& value, Format format) {
  put_field(document, name, write(value, format));
}

template <class T>
json write(const T& value, Format format) {
  if constexpr (Described<T>) {
    json document = json::object();
    T::with_fields([&](const auto&... f) {
      (write_field(document, f.name, value.*(f.member), format), ...);
    });
    return document;
  } else if constexpr (Enumerated<T>) {
    return write_text(to_string(value));
  } else if constexpr (IsStrongId<T>::value) {
    return write_text(value.str());
  } else if constexpr (std::is_same_v<T, LeaseEpoch>) {
    return write_text(to_string(value));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return write_text(value);
  } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
    return write_texts(value);
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
    return json(value);  // numbers, bool
  }
}

// ---- reading
// ----------------------------------------------------------------------------------------------------

template <class T>
Status read(const json& document, T& out, const std::string& path, Unknown unknown);

/// The whole number of `document` if it lies between the bounds, else the error that names them.
Result<std::uint64_t> read_unsigned(
    const json& document, std::uint64_t max, const std::string& path
);
Result<std::int64_t> read_signed(
    const json& document, std::int64_t min, std::int64_t max, const std::string& path
);
/// The index of the word.
Result<std::size_t> read_word(
    const json& document, std::span<const std::string_view> words, const std::string& path
);
Status read_bool(const json& document, bool& out, const std::string& path);
Status read_string(const json& document, std::string& out, const std::string& path);
Status read_epoch(const json& document, LeaseEpoch& out, const std::string& path);
Status read_digest(const json& document, Digest& out, const std::string& path);
Status read_texts(
    const json& document, std::map<std::string, std::string>& out, const std::string& path
);
Status expect_list(const json& document, const std::string& path);
Status expect_number(const json& document, const std::string& path);
std::string at_index(const std::string& path, std::size_t index);

/// Goes through one object's fields: knows what was asked for, where it stands and the first error.
class FieldReader {
 public:
  FieldReader(const json& document, const std::string& path, Unknown unknown);

  /// The field's value; null when it is missing or an error came before.
  const json* find(std::string_view name);

  /// Of the field found last.
  const std::string& field_path() const { return field_path_; }

  Unknown unknown() const { return unknown_; }

  void note(Status status);

  /// The first error; fields that nobody asked for are one if they are refused.
  Status finish();

 private:
  std::string path_of(std::string_view name) const;

  const json& document_;
  const std::string& path_;
  Unknown unknown_;
  std::vector<std::string> known_;
  std::string field_path_;
  Status result_;
};

template <class T>
Status read_integer(const json& document, T& out, const std::string& path) {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_unsigned_v<T>) {
    RN_TRY(const std::uint64_t raw, read_unsigned(document, Limits::max(), path));
    out = static_cast<T>(raw);
  } else {
    RN_TRY(const std::int64_t raw, read_signed(document, Limits::min(), Limits::max(), path));
    out = static_cast<T>(raw);
  }
  return {};
}

template <class T>
Status read_enum(const json& document, T& out, const std::string& path) {
  RN_TRY(const std::size_t index, read_word(document, EnumWords<T>::kWords, path));
  out = static_cast<T>(index);
  return {};
}

template <class T>
void read_field(FieldReader& reader, std::string_view name, T& out) {
  if (const json* found = reader.find(name))
    reader.note(read(*found, out, reader.field_path(), reader.unknown()));
}

template <class T>
Status read_fields(const json& document, T& out, const std::string& path, Unknown unknown) {
  FieldReader reader(document, path, unknown);
  T::with_fields([&](const auto&... f) { (read_field(reader, f.name, out.*(f.member)), ...); });
  return reader.finish();
}

template <class T>
Status read_list(const json& document, T& out, const std::string& path, Unknown unknown) {
  RN_CHECK(expect_list(document, path));
  out.clear();
  out.reserve(document.size());
  for (std::size_t i = 0; i < document.size(); ++i) {
    typename T::value_type element{};
    RN_CHECK(read(document[i], element, at_index(path, i), unknown));
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
    return read_bool(document, out, path);
  } else if constexpr (std::integral<T>) {
    return read_integer(document, out, path);
  } else if constexpr (std::floating_point<T>) {
    RN_CHECK(expect_number(document, path));
    out = document.get<T>();
    return {};
  } else if constexpr (std::is_same_v<T, std::string>) {
    return read_string(document, out, path);
  } else if constexpr (IsStrongId<T>::value) {
    std::string text;
    RN_CHECK(read_string(document, text, path));
    out = T(std::move(text));
    return {};
  } else if constexpr (std::is_same_v<T, LeaseEpoch>) {
    return read_epoch(document, out, path);
  } else if constexpr (std::is_same_v<T, Digest>) {
    return read_digest(document, out, path);
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
    return read_texts(document, out, path);
  }
}

json envelope_of(std::string_view word, json&& body);

/// The index of the message's type in `names`, and its body, which stays the envelope's.
struct Opened {
  std::size_t index;
  const json* body;
};

/// kInvalid for what is no envelope, kUnsupported for an unknown type.
Result<Opened> open_envelope(const json& envelope, std::span<const std::string_view> names);

/// {"type": word, "body": {...}} of a variant whose alternatives' words stand in `names`.
template <class Variant>
json write_variant(const Variant& value, std::span<const std::string_view> names) {
  return envelope_of(
      names[value.index()],
      std::visit([](const auto& body) { return write(body, Format::kBinary); }, value)
  );
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

template <class Variant>
Result<Variant> read_variant(const json& envelope, std::span<const std::string_view> names) {
  RN_TRY(const Opened opened, open_envelope(envelope, names));
  return read_alternative<Variant>(opened.index, *opened.body);
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
  return detail::to_text(to_document(value));
}

template <class T>
Result<T> from_json(std::string_view text, Unknown unknown) {
  RN_TRY(const nlohmann::json document, parse_json(text));
  return from_document<T>(document, unknown);
}

template <class T>
Blob to_cbor(const T& value) {
  return detail::to_binary(detail::write(value, detail::Format::kBinary));
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
