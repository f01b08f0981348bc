// SPDX-License-Identifier: Apache-2.0
#pragma once

// What agents and coordinator say of the copies that are under way, and how fast each may go
// (ADR 0008, docs/formats/wire.md). Nothing here is journalled or repeated: the next message says
// all of it again, and who hears nothing goes on by its own rules. Rates are bits per second.

#include <cstdint>
#include <string>
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
  std::uint64_t bytes_left = 0;  ///< that the peer does not have yet
  /// Else as much as is expected: the peer has not said what it has, and a save with which it began
  /// is not whole.
  bool is_size_known = false;
  std::uint32_t deadline_ms = 0;  ///< from now; 0 = none
  std::uint64_t sent_bps = 0;     ///< measured lately

  RN_FIELDS(
      TransferReport, id, job, epoch, peer, kind, bytes_left, is_size_known, deadline_ms, sent_bps
  )
};

/// What one peer fetches from the node that tells it, by one ticket: a generation of the job for
/// its attempt there, or pieces of an image.
struct FetchReport {
  std::uint64_t id = 0;  ///< the sender's own, and no copy's
  JobId job;
  LeaseEpoch epoch;   ///< of the attempt that fetches
  NodeId peer;        ///< on which that is
  std::string image;  ///< its digest; empty: a generation is restored
  std::uint64_t bytes_left = 0;
  bool is_size_known = false;  ///< else a guess: the peer has not said what it lacks
  std::uint64_t sent_bps = 0;  ///< measured lately

  RN_FIELDS(FetchReport, id, job, epoch, peer, image, bytes_left, is_size_known, sent_bps)
};

inline constexpr std::size_t kMaxTransfers = 64;  ///< and as many fetches

/// Agent to coordinator, while something is sent: all that is. The last one is empty.
struct Transfers {
  std::vector<TransferReport> transfers;
  std::uint64_t foreign_bps = 0;          ///< what others than these send by the node's uplink
  std::vector<FetchReport> fetches = {};  ///< of peers; an older agent tells none

  RN_FIELDS(Transfers, transfers, foreign_bps, fetches)
};

struct TransferRate {
  std::uint64_t id = 0;
  std::uint64_t rate_bps = 0;  ///< 0 = nothing that is known of bounds it
  bool is_promised = false;    ///< it arrives before its deadline if the lines hold what they did
  bool is_awaited = false;     ///< of a fetch: the start of a job waits for it

  RN_FIELDS(TransferRate, id, rate_bps, is_promised, is_awaited)
};

/// Coordinator to agent. What is not in it, or older than `valid_ms`, is the agent's to decide.
struct TransferRates {
  std::vector<TransferRate> rates;
  std::uint32_t valid_ms = 0;

  RN_FIELDS(TransferRates, rates, valid_ms)
};

}  // namespace rn::wire
