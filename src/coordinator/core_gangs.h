// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "coordinator/core_state.h"

// Commands on gangs, and what is shown of them: jobs of one submit that begin, stop and go on
// together (ADR 0027). What becomes of them is core_gang_life.h's.
namespace rn::coordinator {

/// Administrators alone, as long as people's formats have no gangs. Errors: as a job's, and what
/// cannot be a gang.
Result<Answer> submit_gang(State& state, const Caller& caller, const SubmitGang& command);
/// kNotFound also for a gang that the caller may not stop.
Result<Answer> stop_gang_by(State& state, const Caller& caller, const StopGang& command);

/// Of a member that has an attempt, for `why`: where it belongs, who is not ready or has not ended,
/// and what all would go on from. Empty for any other job.
std::string gang_words(const State& state, const JobEntry& job);

api::GangInfo gang_info(const State& state, const GangEntry& gang);

}  // namespace rn::coordinator
