// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/bytes.h"
#include "base/error.h"

namespace rn {

/// kStrict refuses fields that the structure doesn't have (people's input); kLenient ignores them
/// (a newer peer).
enum class Unknown { kStrict, kLenient };

inline constexpr std::size_t kMaxNesting = 32;

/// JSON text of any structure with RN_FIELDS that is listed in codec.cc. Digests are hex, blobs
/// base64, epochs "g.a".
template <class T>
std::string to_json(const T& value);

/// kInvalid with the path of the offending field ("resources.gpus: expected a whole number from 0
/// to 4294967295") and, for an unknown field, the nearest known name. kExhausted above
/// `kMaxNesting` levels. Missing fields keep their defaults.
template <class T>
Result<T> from_json(std::string_view text, Unknown unknown = Unknown::kStrict);

/// The same in CBOR, deterministic: equal values give equal bytes (signatures and hashes rely on
/// it).
template <class T>
Blob to_cbor(const T& value);

template <class T>
Result<T> from_cbor(BlobView bytes, Unknown unknown = Unknown::kLenient);

/// Parsed JSON with bounds on nesting, and never an exception. kInvalid with line and column.
Result<nlohmann::json> parse_json(std::string_view text);
Result<nlohmann::json> parse_cbor(BlobView bytes);

/// For handlers that build documents by hand.
template <class T>
nlohmann::json to_document(const T& value);
template <class T>
Result<T> from_document(const nlohmann::json& document, Unknown unknown = Unknown::kStrict);

}  // namespace rn
