// SPDX-License-Identifier: Apache-2.0
#pragma once

// Jobs of one submit that begin, stop and go on together (ADR 0027). Each member is a job of its
// own; what belongs to all of them is the gang's.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/checkpoint.h"
#include "model/fields.h"

namespace rn {

inline constexpr std::uint32_t kGangSizeMin = 2;
inline constexpr std::uint32_t kGangSizeMax = 32;

/// NodeFacts::features of a node whose agent and warden know gangs.
inline constexpr const char* kGangsFeature = "gangs";
/// Of a node whose agent keeps what `CollectGarbage::also_keep` names, and so may hold copies of
/// gangs' generations. The agent alone says it.
inline constexpr const char* kKeepsSetsFeature = "keeps-sets";

enum class GangState : std::uint8_t {
  kWaiting,    ///< in the queue; a round of placement is memory alone
  kPreparing,  ///< committed; its members wait behind the barrier
  kRunning,    ///< told to go
  kStopping,   ///< all were told to stop, and not all have ended
  kOver
};
RN_ENUM(GangState, "waiting", "preparing", "running", "stopping", "over")

/// Whose saves make a set. kAuto: rank 0's, until an agent of another rank finds a checkpoint.
enum class GangSaves : std::uint8_t { kAuto, kFirst, kAll };
RN_ENUM(GangSaves, "auto", "first", "all")

/// What a member that is resumed finds in its folder: also the others' saves, or its own alone.
enum class GangShare : std::uint8_t { kAll, kOwn };
RN_ENUM(GangShare, "all", "own")

/// It is over when all members have ended with 0, or when rank 0 has.
enum class GangEnds : std::uint8_t { kAll, kFirst };
RN_ENUM(GangEnds, "all", "first")

/// Members run on different nodes, or wherever they fit.
enum class GangSpread : std::uint8_t { kNode, kAny };
RN_ENUM(GangSpread, "node", "any")

/// What a member runs: its job's command, or the steps that rank 0's script sends it.
enum class GangRuns : std::uint8_t { kCommand, kSteps };
RN_ENUM(GangRuns, "command", "steps")

/// Where a member belongs. Of a job it never changes.
struct GangPlace {
  GangId gang;
  std::uint32_t rank = 0;          ///< 0 … size - 1
  std::uint32_t size = 0;          ///< of the whole gang
  std::uint64_t first_number = 0;  ///< of rank 0's job
  GangEnds ends = GangEnds::kAll;
  GangRuns runs = GangRuns::kCommand;

  RN_FIELDS(GangPlace, gang, rank, size, first_number, ends, runs)
};

/// One consistent state of the whole gang: durable generations of the members, of one mark.
struct GangSet {
  std::uint32_t number = 0;  ///< grows by one for each set; 0 = none
  std::int64_t mark = -1;    ///< GenerationRef::step of all; -1: rank 0's alone, without a step
  LeaseEpoch epoch;          ///< in which it was saved
  /// By rank; generation 0 = this member saves nothing. Of no set: empty.
  std::vector<GenerationRef> refs;

  RN_FIELDS(GangSet, number, mark, epoch, refs)
};

/// Why a gang stops.
enum class GangCauseKind : std::uint8_t {
  kNone,
  kAbort,    ///< before it was told to go
  kNotice,   ///< a member's node is taken back
  kReclaim,  ///< a member's node was taken back at once
  kLost,     ///< a member's node is lost
  kUnclear,  ///< a member ended badly, and another one's trouble may explain that
  kCrash,    ///< a member's own crash
  kRestart,  ///< a member asked to be started again
  kStopped,  ///< it was asked to stop, or its time is up: GangRow::stop_end
  kSucceeded
};
RN_ENUM(
    GangCauseKind,
    "none",
    "abort",
    "notice",
    "reclaim",
    "lost",
    "unclear",
    "crash",
    "restart",
    "stopped",
    "succeeded"
)

struct GangCause {
  GangCauseKind kind = GangCauseKind::kNone;
  std::uint32_t rank = 0;  ///< of the member whose end or node it is
  NodeId node;             ///< of that member; empty: no node's
  std::string reason;      ///< for people

  RN_FIELDS(GangCause, kind, rank, node, reason)
};

}  // namespace rn
