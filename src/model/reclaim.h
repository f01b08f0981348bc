// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/fields.h"

namespace rn {

/// How a node was taken back: every number that is reported is split by these.
enum class ReclaimKind : std::uint8_t { kAnnounced, kNotice, kEmergency, kLost };
RN_ENUM(ReclaimKind, "announced", "notice", "emergency", "lost")

enum class ReclaimPhase : std::uint8_t {
  kDeclared,
  kEvacuating,
  kCut,
  kCleared,
  kReturned,
  kWedged
};
RN_ENUM(ReclaimPhase, "declared", "evacuating", "cut", "cleared", "returned", "wedged")

/// One taking-back, as the node recorded it. Times are the node's boot-time clock; 0 = has not
/// happened.
struct ReclaimRecord {
  ReclaimId id;
  NodeId node;
  ReclaimKind kind = ReclaimKind::kNotice;
  ReclaimPhase phase = ReclaimPhase::kDeclared;
  std::vector<std::uint32_t> gpus;  ///< empty = the whole node
  std::string boot_id;
  std::int64_t declared_ns = 0;
  std::int64_t deadline_ns = 0;
  std::int64_t cut_ns = 0;
  std::int64_t killed_ns = 0;
  std::int64_t cleared_ns = 0;
  std::int64_t returned_ns = 0;
  std::int64_t declared_wall_ms = 0;
  std::string message;               ///< the owner's words to the guests
  std::vector<std::string> remains;  ///< what verification still saw, when wedged
  std::uint32_t processes_killed = 0;

  RN_FIELDS(
      ReclaimRecord,
      id,
      node,
      kind,
      phase,
      gpus,
      boot_id,
      declared_ns,
      deadline_ns,
      cut_ns,
      killed_ns,
      cleared_ns,
      returned_ns,
      declared_wall_ms,
      message,
      remains,
      processes_killed
  )
};

/// What a node's owner has done since it joined, never forgotten: for people. Forecasts come from
/// the hazard model (reclaim/hazard.h). Reclaims of single GPUs count too.
struct NodeHistory {
  std::uint64_t exposure_s = 0;  ///< time it was lent
  std::uint32_t announced = 0;
  std::uint32_t notice = 0;
  std::uint32_t emergency = 0;
  std::uint32_t lost = 0;
  /// Lengths of the notices, in seconds; 0 while there was none.
  std::uint32_t notice_s_min = 0;
  std::uint32_t notice_s_max = 0;

  RN_FIELDS(NodeHistory, exposure_s, announced, notice, emergency, lost, notice_s_min, notice_s_max)
};

/// True if a record may go from one phase to the other (equal phases are a repetition, and fine).
constexpr bool may_follow(ReclaimPhase from, ReclaimPhase to) {
  if (from == to) return true;
  switch (from) {
    case ReclaimPhase::kDeclared:
      return to != ReclaimPhase::kDeclared;
    case ReclaimPhase::kEvacuating:
      return to == ReclaimPhase::kCut || to == ReclaimPhase::kReturned;
    case ReclaimPhase::kCut:
      return to == ReclaimPhase::kCleared || to == ReclaimPhase::kWedged;
    case ReclaimPhase::kWedged:
      return to == ReclaimPhase::kCleared || to == ReclaimPhase::kReturned;
    case ReclaimPhase::kCleared:
      return to == ReclaimPhase::kReturned;
    case ReclaimPhase::kReturned:
      return false;
  }
  return false;
}

}  // namespace rn
