// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "base/bytes.h"

// SHA-256 of several messages at once, each in a lane of its own of the processor's vectors. One
// message alone cannot be hashed faster than its chain of blocks allows; on a processor without
// SHA-256 instructions eight of them take little longer than one. Gueron and Krasnov,
// "Simultaneous Hashing of Multiple Messages", 2012.

namespace rn::crypto {

/// How many messages are worth gathering; 1 where this processor gains nothing from more.
std::size_t sha256_lanes();

/// The SHA-256 of each message, in order. Any number, any lengths; equal lengths are fastest. Pure.
std::vector<Digest> sha256_each(std::span<const BlobView> messages);

/// The HMAC-SHA-256 of each message under one key.
std::vector<Digest> hmac_sha256_each(BlobView key, std::span<const BlobView> messages);

/// The ways of this file that this processor can go, for tests: each answers as sha256_each.
enum class LaneWay : std::uint8_t { kOneByOne, kAvx2, kAvx512 };
bool has_way(LaneWay way);
std::vector<Digest> sha256_each(std::span<const BlobView> messages, LaneWay way);

}  // namespace rn::crypto
