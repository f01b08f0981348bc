// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/time.h"
#include "reclaim/checkpoint_clock.h"
#include "reclaim/checkpoint_schedule.h"

namespace rn::agent {

inline constexpr seconds kTellRest{30};  ///< before a guest is told to save again
inline constexpr reclaim::IntervalLimits kIntervalLimits{.min_interval_s = 1};

/// When what a guest saves goes elsewhere, and when it is told to save. In memory: after a restart
/// of the agent it is learnt anew.
struct SaveSchedule {
  bool is_planned = false;         ///< the owner's habits are known: copies wait until it pays
  reclaim::CheckpointClock clock;  ///< since the snapshot of the newest copy that was let go
  reclaim::DirtyCurveFit dirty;    ///< measured from generation to generation
  double taking_s = 0;             ///< of a core, to make a generation; 0 = not measured
  double interval_s = 0;           ///< τ in force; not positive or infinite = none yet
  double hazard = 0;               ///< effective: of departures that a notice does not absorb
  double owner_hazard = 0;         ///< of all departures, the cautious end of what is known
  double cost_s = 0;               ///< of one save, to the guest
  double gap_s = 0;                ///< from its newest generation to the one before
  reclaim::SnapshotAnswer answer = reclaim::SnapshotAnswer::kTake;
  std::uint32_t going = 0;  ///< the generation that is on its way; 0 = none
  double sent_s = 0;        ///< for so long it has had the uplink

  double pause_s = 5;  ///< from the word to a complete generation; a guess at first
  bool is_pause_measured = false;
  std::uint32_t tells_unheard = 0;  ///< told so often since its newest generation
  bool is_word_standing = false;    ///< when it was to be told last
  std::optional<Instant> told_at;
  Instant tell_after{};
};

}  // namespace rn::agent
