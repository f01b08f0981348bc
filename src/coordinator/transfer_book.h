// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "base/time.h"
#include "model/wire.h"
#include "reclaim/deadline_rates.h"
#include "reclaim/shown_rate.h"

// What the coordinator knows of copies that are under way (core_transfers.h). Memory only: a second
// after a restart the agents have told all of it again.
namespace rn::coordinator {

/// Sender, job, epoch, receiver: one copy at a time, also over several connections. Of a fetch the
/// attempt is the receiver's, of everything else the sender's. What the coordinator itself sends
/// has no sender's name, and no job's if its receiver has no attempt; one for each receiver. What
/// comes to the coordinator (outputs) has no receiver's.
using TransferKey = std::tuple<NodeId, JobId, LeaseEpoch, NodeId>;

enum class EvacuationVerdict : std::uint8_t { kNone, kPromised, kRefused };

struct TransferEntry {
  std::uint64_t number = 0;  ///< the planner's
  wire::TransferReport report;
  bool is_fetch = false;    ///< the receiver asks for it
  bool is_awaited = false;  ///< and its attempt cannot start before it has it
  std::string image;        ///< of such a fetch; empty: a generation
  bool is_upload = false;   ///< outputs on their way to us
  Instant begun;            ///< when it was heard of first
  Instant heard;
  Instant due;       ///< of an evacuation, and of outputs that have one: the deadline, on our clock
  double bytes = 0;  ///< left, as far as it is believed
  double rate = 0;   ///< granted, bytes/s; infinite: nothing bounds it
  std::uint64_t told_bps = 0;
  Instant told_at;
  reclaim::ShownRate shown;  ///< less than its lines where it has long got less than was granted
  EvacuationVerdict verdict = EvacuationVerdict::kNone;
  Instant refused_at;
  double sent = 0;          ///< so far, by what the bytes left have sunk
  double behind = 0;        ///< of an image that we send: what was not asked yet
  std::uint64_t given = 0;  ///< of what we send: BlobsToNode::bytes_sent at the last look
  Instant moved_at;         ///< another way was looked for; epoch (0) = never

  /// A look at what it got since it was heard of last, and at what is left now.
  void see(double got, double left, Instant now);
};

/// Kept until the generation is durable or the deadline has passed, also when the copy breaks off.
struct EvacuationPromise {
  Instant due;
  std::uint32_t durable_then = 0;  ///< newest generation when it was given
  double bytes = 0;
  Instant made;
};

/// A copy that was sent elsewhere, until its agent tells of it.
struct CopyMove {
  double bytes = 0;
  Instant until;
};

struct TransferBook {
  std::map<TransferKey, TransferEntry> entries;
  std::map<TransferKey, CopyMove> moves;
  std::map<TransferKey, EvacuationPromise> promises;
  std::map<NodeId, std::uint64_t> foreign_bps;  ///< of senders
  std::map<std::string, Instant> burst_since;   ///< by link, of evacuations over it
  reclaim::RatePlanner planner{reclaim::LinkGuard{}};
  std::uint64_t next_number = 1;
  Instant planned_at;
  Instant freed_at;         ///< when a copy ended: what was refused is looked at again
  bool is_changed = false;  ///< since then, more than what time changes
  double planned_rate = 0;  ///< bytes/s of all that is bounded

  /// It is over: others have its room.
  void end(std::map<TransferKey, TransferEntry>::iterator at, Instant now);
};

inline constexpr double kRatesTick_s = 0.25;  ///< for so long a plan gives rates

inline double seconds_between(Instant from, Instant to) {
  return std::chrono::duration<double>(to - from).count();
}

/// For people.
std::string megabytes(double bytes);
std::string megabits(double bytes_per_s);

}  // namespace rn::coordinator
