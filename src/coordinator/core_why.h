// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "coordinator/core_quota.h"
#include "coordinator/core_state.h"

namespace rn::coordinator {

/// One sentence on a job: what it does, or what it waits for. Reads State::now.
std::string why(const State& state, const JobEntry& job);

/// What the next attempt finds of its checkpoints, for people, and no more than is known: whether a
/// script goes on from the files is the script's own matter. Pure.
std::string resume_words(const JobEntry& job);

/// Why the job is not placed now, for its row's `reason` while it is queued. Pure.
std::string waits_for(
    const State& state,
    const JobEntry& job,
    const std::vector<sched::Candidate>& candidates,
    const QuotaBook& quotas
);

}  // namespace rn::coordinator
