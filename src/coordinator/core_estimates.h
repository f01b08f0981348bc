// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "coordinator/core_state.h"
#include "model/plan.h"

// What a job will use, by jobs like it (sched/estimate.h), as far as they are in memory.
namespace rn::coordinator {

/// Of jobs like it so many lie within the interval.
inline constexpr double kEstimatedShare = 0.9;
/// That have ended well, the newest: older ones say little of today, and each plan looks through
/// them.
inline constexpr std::size_t kEstimatedFrom = 2000;

/// One for each Estimated, in their order.
std::vector<api::PlanEstimate> estimates_for(const State& state, const JobEntry& job);

}  // namespace rn::coordinator
