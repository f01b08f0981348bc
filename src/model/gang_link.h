// SPDX-License-Identifier: Apache-2.0
#pragma once

// Links between the members of a gang (ADR 0027, docs/formats/tunnel.md): TCP connections that go
// by the guests' PID 1 and the agents. In its own network a member finds each of the others at an
// address of one range, at all attempts the same. Nothing here allocates, and of ours only
// model/tunnel.h is included: PID 1 compiles it, too.

#include <cstddef>
#include <cstdint>

#include "model/tunnel.h"

namespace rn::gang_link {

/// 100.68.0.0/24, of the shared address space (RFC 6598): each gang has all of it for itself.
inline constexpr std::uint32_t kNetwork = 0x64440000;
inline constexpr char kRange[] = "100.68.0.0/24";
inline constexpr char kPrefix[] = "100.68.0.";

inline constexpr std::uint32_t kRanks = 32;  ///< of one gang at most

/// 100.68.0.(rank + 1), in the host's order. `rank` < kRanks.
constexpr std::uint32_t address_of(std::uint32_t rank) {
  return kNetwork + rank + 1;
}

/// Of an address in the host's order; kRanks for one that is no member's.
constexpr std::uint32_t rank_at(std::uint32_t address) {
  const std::uint32_t rank = address - kNetwork - 1;
  return rank < kRanks ? rank : kRanks;
}

static_assert(rank_at(address_of(0)) == 0 && rank_at(address_of(31)) == 31);
static_assert(rank_at(kNetwork) == kRanks && rank_at(kNetwork + 33) == kRanks);

/// Where PID 1 takes what the guest's programs connect to: a port of its loopback.
inline constexpr std::uint16_t kListenPort = 745;

/// Open at a time, of one guest; and connections on which PID 1 may begin the next one.
inline constexpr int kOpenAtOnce = 128;
inline constexpr int kOffered = 4;

/// Bytes in one packet: with its frame's header it fits into one record of TLS. No credit is
/// counted: who does not read is not written to.
inline constexpr std::size_t kDataMax = tunnel::kDataMax - 64;

inline constexpr std::size_t kAcceptBytes = 1;
inline constexpr std::size_t kDialBytes = 4;
inline constexpr std::size_t kFromBytes = 4;

/// What a kDial or a kFrom asks for.
struct Asked {
  std::uint32_t rank = kRanks;  ///< kRanks: it is no such packet
  std::uint16_t port = 0;
};

inline void write_dial(std::uint8_t (&packet)[kDialBytes], Asked asked) {
  packet[0] = static_cast<std::uint8_t>(tunnel::Kind::kDial);
  packet[1] = static_cast<std::uint8_t>(asked.rank);
  packet[2] = static_cast<std::uint8_t>(asked.port >> 8);
  packet[3] = static_cast<std::uint8_t>(asked.port & 255);
}

inline void write_from(std::uint8_t (&packet)[kFromBytes], Asked asked) {
  packet[0] = static_cast<std::uint8_t>(tunnel::Kind::kFrom);
  packet[1] = static_cast<std::uint8_t>(asked.port >> 8);
  packet[2] = static_cast<std::uint8_t>(asked.port & 255);
  packet[3] = static_cast<std::uint8_t>(asked.rank);
}

inline Asked asked_of(std::uint32_t rank, std::uint32_t port) {
  if (rank >= kRanks || port == 0) return {};
  return {rank, static_cast<std::uint16_t>(port)};
}

/// Port 0 is none.
inline Asked read_dial(const std::uint8_t* packet, std::size_t size) {
  if (size != kDialBytes || packet[0] != static_cast<std::uint8_t>(tunnel::Kind::kDial)) return {};
  return asked_of(packet[1], std::uint32_t{packet[2]} << 8 | packet[3]);
}

inline Asked read_from(const std::uint8_t* packet, std::size_t size) {
  if (size != kFromBytes || packet[0] != static_cast<std::uint8_t>(tunnel::Kind::kFrom)) return {};
  return asked_of(packet[3], std::uint32_t{packet[1]} << 8 | packet[2]);
}

}  // namespace rn::gang_link
