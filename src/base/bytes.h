// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace rn {

using Blob = std::vector<std::uint8_t>;          ///< owned bytes
using BlobView = std::span<const std::uint8_t>;  ///< borrowed bytes
using Digest = std::array<std::uint8_t, 32>;     ///< SHA-256 or HMAC-SHA-256

BlobView as_bytes(std::string_view text);
std::string_view as_text(BlobView bytes);

std::string to_hex(BlobView bytes);
/// kInvalid unless `text` is an even number of hex digits.
Result<Blob> from_hex(std::string_view text);
/// kInvalid unless `text` is 64 hex digits.
Result<Digest> digest_from_hex(std::string_view text);

std::string to_base64(BlobView bytes);  ///< RFC 4648 with padding
Result<Blob> from_base64(std::string_view text);

std::string to_base64url(BlobView bytes);  ///< RFC 4648's for URLs, without padding
/// kInvalid for anything else than what to_base64url() writes: padding, other letters, spare bits.
Result<Blob> from_base64url(std::string_view text);

}  // namespace rn
