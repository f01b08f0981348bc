// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "forecast_replay.h"

#include "reclaim/checkpoint_schedule.h"
#include "reclaim/schedule_oracle.h"

// The checkpoint rule on the spells of held-back days and labs, beside other rules and oracles. One
// job per node runs for the whole spell; the owner comes without notice.
namespace rn::bench {

struct ScheduleScore {
  std::string rule;
  double waste_share = 0;     ///< (lent time − work durable at the reclaim) / lent time
  double overhead_share = 0;  ///< pauses and slowdown / lent time
  double snapshots_per_hour = 0;
  double waste_s = 0;
};

struct ScheduleScores {
  std::size_t spells = 0;
  double lent_h = 0;
  std::vector<ScheduleScore> rules;  ///< the product's first
  /// Dynamic program that knows the distribution of each lab's spells in the tested days: constant
  /// hazards in bands of age that double from 5 minutes on.
  double oracle_waste_s = 0;
  /// The same with the spells' own lengths: the best ages in hindsight, which no rule can know
  /// (with a few dozen spells a lab it places a snapshot just before single reclaims).
  double hindsight_waste_s = 0;
  double clairvoyant_waste_s = 0;  ///< knows each reclaim
};

/// Plays the rules for `job` (its hazard is replaced) on `spells`. Oracles are schedules by age,
/// one for each lab, under the same limits.
ScheduleScores score_schedules(
    const std::vector<RatedSpell>& spells,
    const reclaim::CheckpointJob& job,
    double upload_bytes_per_s
);

}  // namespace rn::bench
