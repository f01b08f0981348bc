// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

// The columns of the coverage table: what may happen in the moment when a process passes a crash
// point.

namespace rn::sim {

enum class PointFault : std::uint8_t {
  kKill,        ///< SIGKILL of the process that passes
  kPower,       ///< its machine loses power, and what was not synced
  kStop,        ///< SIGSTOP at the end of this event, for up to two minutes
  kDiskFull,    ///< of its machine, for up to five minutes
  kFailedSync,  ///< the next sync of its machine's disk loses what it was told to keep
  kCut,         ///< its host and all others hear nothing of each other, for up to two minutes
  kCutOut,      ///< … nobody hears it
  kCutIn,       ///< … it hears nobody
  kBreak,       ///< all its host's connections, with what is on its way
  kTwice,       ///< the message that it sends arrives again, as a replay would
  kLate,        ///< … is overtaken by later ones
  kClock,       ///< its host's wall clock jumps, by up to ten years, and back
  kNow,         ///< the owner takes the machine at once
  kNotice,      ///< … with notice
  kOther,  ///< SIGKILL of the machine's other daemon; a node's agent at the coordinator's points
  kCoordinator,  ///< SIGKILL of the coordinator
  kEngine,       ///< the container engine answers late, for up to a minute and a half
  kLie,  ///< its node says what its agent did not say, and serves changed bytes for a minute
};

inline constexpr std::array<const char*, 18> kPointFaultNames = {
    "kill",
    "power",
    "stop",
    "full",
    "sync",
    "cut",
    "out",
    "in",
    "break",
    "twice",
    "late",
    "clock",
    "now",
    "notice",
    "other",
    "coord",
    "engine",
    "lie"};

inline constexpr std::size_t kPointFaults = kPointFaultNames.size();

/// Whether there is such a cell in the table.
bool applies(PointFault fault, std::string_view point);

}  // namespace rn::sim
