// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// Whether a displaced job goes home. Pure.
namespace rn::reclaim {

struct MigrateBackInput {
  double speed_home = 1;  ///< useful work per second there, relative to the job's wish
  double speed_here = 1;
  /// Mean survival over the horizon (horizon_of), 0 … 1; the home's cautiously.
  double presence_home = 1;
  double presence_here = 1;
  double remaining_s = 0;    ///< known or guessed remaining run time at speed 1; 0 = unknown
  double bytes_missing = 0;  ///< that home would have to fetch
  double bytes_per_s = 0;    ///< on the way there; 0 = unknown (default_bytes_per_s)
  double restore_s = 10;     ///< start and restore, without the transfer
  double unsaved_s = 0;      ///< work that a save-first stop is expected to lose
  double residence_s = 0;    ///< since it runs here
  double home_open_s = 0;    ///< since home takes guests again
};

struct MigrateBackPolicy {
  double horizon_s = 4 * 3600.0;  ///< for jobs of unknown length
  double gain_over_cost = 2.0;    ///< the gain must be more than so many times the cost
  double hysteresis = 0.10;       ///< home must be better by this share, or we would swing
  double min_residence_s = 300;
  double home_settle_s = 60;
  double default_bytes_per_s = 12.5e6;  ///< 100 Mbit/s
};

/// Every number that the decision was made from, for the event that people read.
struct MigrateBackDecision {
  bool moves = false;
  double gain_s = 0;  ///< useful seconds won over the horizon
  double cost_s = 0;  ///< useful seconds lost by moving
  double horizon_s = 0;
  double value_home = 0;  ///< speed · presence
  double value_here = 0;
  std::string
      sentence;  ///< "goes home: gains 5400 s over 4.0 h for 34 s (speed 1.00 against 0.50)"
};

/// Remaining run time, or the policy's for jobs of unknown length.
double horizon_of(double remaining_s, const MigrateBackPolicy& policy);

///   horizon = horizon_of(remaining)
///   value   = speed · presence
///   gain    = (value_home − value_here) · horizon
///   cost    = (bytes / rate + restore) · speed_here + unsaved
///   moves   = residence and settling are over, value_home > (1 + hysteresis) · value_here,
///             gain > gain_over_cost · cost
MigrateBackDecision decide_migrate_back(
    const MigrateBackInput& input, const MigrateBackPolicy& policy
);

}  // namespace rn::reclaim
