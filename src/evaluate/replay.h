// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "evaluate/production.h"
#include "model/fields.h"

// A run of the testbed once more, by the evaluation's simulator: the same topology, owners and
// guests. What stands in here is all that the simulator is told of that run
// (docs/formats/replay.md); what transfers and starts took is not among it.
namespace rn::evaluate {

struct ReplayLine {
  std::string link;        ///< of the topology: "building-b up"
  double bytes_per_s = 0;  ///< of payload, beside what others send

  RN_FIELDS(ReplayLine, link, bytes_per_s)
};

/// Seconds since the run's begin, here and below.
struct ReplayOwner {
  std::string node;
  std::string kind;  ///< announced, notice, emergency, lost
  double declared_s = 0;
  double deadline_s = 0;
  double returns_s = 0;

  RN_FIELDS(ReplayOwner, node, kind, declared_s, deadline_s, returns_s)
};

struct ReplaySave {
  double at_s = 0;
  std::uint32_t step = 0;

  RN_FIELDS(ReplaySave, at_s, step)
};

/// Who was to hold what was saved then.
struct ReplayCopy {
  double at_s = 0;
  std::string holder;

  RN_FIELDS(ReplayCopy, at_s, holder)
};

/// Of a guest on a node. Only used where places are given.
struct ReplayStay {
  std::string node;
  double began_s = 0;
  std::vector<ReplaySave> saves;  ///< by time, until its owner said that they come
  std::vector<ReplayCopy> copies;

  RN_FIELDS(ReplayStay, node, began_s, saves, copies)
};

struct ReplayGuest {
  std::string name;
  double submitted_s = 0;
  std::uint32_t steps = 0;
  std::uint32_t save_every = 0;  ///< steps
  double step_s = 0;             ///< with its share of a save
  double state_bytes = 0;
  double step_bytes = 0;  ///< rewritten by a step
  bool handles_term = false;
  double told_s = 0;   ///< from a signal to a whole save; of who hears none, as if it did
  double ended_s = 0;  ///< when it had done its last step; 0: not known. Where places are given
  std::vector<ReplayStay> stays;

  RN_FIELDS(
      ReplayGuest,
      name,
      submitted_s,
      steps,
      save_every,
      step_s,
      state_bytes,
      step_bytes,
      handles_term,
      told_s,
      ended_s,
      stays
  )
};

struct Replay {
  std::string topology;  ///< the file's text
  double seconds = 0;
  std::uint32_t heartbeat_ms = 3000;
  std::uint32_t guest_cpu_milli = 400;  ///< lent by each node
  std::uint32_t cpu_milli = 200;        ///< wanted by each guest
  std::uint32_t cpu_milli_min = 100;
  double copy_share = 0;  ///< of a node's line that its owner grants to copies; 0 = no bound
  std::vector<std::string> nodes;  ///< with daemons
  std::vector<ReplayLine> carries;
  std::vector<ReplayOwner> owners;
  std::vector<ReplayGuest> guests;  ///< by submission
  MachineTimes machine;

  RN_FIELDS(
      Replay,
      topology,
      seconds,
      heartbeat_ms,
      guest_cpu_milli,
      cpu_milli,
      cpu_milli_min,
      copy_share,
      nodes,
      carries,
      owners,
      guests,
      machine
  )
};

/// kInvalid says which field, guest or owner cannot be, and why. Pure.
Result<Replay> parse_replay(std::string_view text);

struct ReplayOptions {
  /// Where guests go, and who holds what they save, is what the testbed's coordinator decided, and
  /// guests save at the moments at which they did, as long as nobody had come. Else the simulated
  /// coordinator decides, and guests save at their own pace.
  bool are_places_given = false;
  std::uint64_t seed = 1;
};

/// Plays it. `tell` hears what happened, one JSON object after the other, without a line's end.
/// kInvalid for what parse_replay() would refuse.
Status play_replay(
    const Replay& replay,
    const ReplayOptions& options,
    const std::function<void(const std::string&)>& tell
);

}  // namespace rn::evaluate
