// SPDX-License-Identifier: Apache-2.0
#pragma once

// What agents and coordinator say of the copies that are under way, and how fast each may go
// (ADR 0008, docs/formats/wire.md). Nothing here is journalled or repeated: the next message says
// all of it again, and who hears nothing goes on by its own rules. Rates are bits per second.

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "model/fields.h"

namespace rn {

enum class TransferKind : std::uint8_t {
  kEvacuation,  ///< its node is taken back, and it has a deadline
  kCheckpoint,
  kPrefetch,
};
RN_ENUM(TransferKind, "evacuation", "checkpoint", "prefetch")

}  // namespace rn

namespace rn::wire {

/// One copy of a generation to a peer, as its sender sees it. What it is worth is not asked: the
/// coordinator knows.
struct TransferReport {
  std::uint64_t id = 0;  ///< the sender's own, for the answer
  JobId job;
  LeaseEpoch epoch;
  NodeId peer;
  TransferKind kind = TransferKind::kCheckpoint;
  std::uint64_t bytes_left = 0;   ///< that the peer does not have yet
  bool is_size_known = false;     ///< else a guess: the peer has not said what it has
  std::uint32_t deadline_ms = 0;  ///< from now; 0 = none
  std::uint64_t sent_bps = 0;     ///< measured lately

  RN_FIELDS(
      TransferReport, id, job, epoch, peer, kind, bytes_left, is_size_known, deadline_ms, sent_bps
  )
};

inline constexpr std::size_t kMaxTransfers = 64;

/// Agent to coordinator, while something is sent: all that is. The last one is empty.
struct Transfers {
  std::vector<TransferReport> transfers;
  std::uint64_t foreign_bps = 0;  ///< what others than these send by the node's uplink

  RN_FIELDS(Transfers, transfers, foreign_bps)
};

struct TransferRate {
  std::uint64_t id = 0;
  std::uint64_t rate_bps = 0;  ///< 0 = nothing that is known of bounds it
  bool is_promised = false;    ///< it arrives before its deadline if the lines hold what they did

  RN_FIELDS(TransferRate, id, rate_bps, is_promised)
};

/// Coordinator to agent. What is not in it, or older than `valid_ms`, is the agent's to decide.
struct TransferRates {
  std::vector<TransferRate> rates;
  std::uint32_t valid_ms = 0;

  RN_FIELDS(TransferRates, rates, valid_ms)
};

}  // namespace rn::wire
