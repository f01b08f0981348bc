// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coordinator/core_state.h"
#include "model/plan.h"

// What would become of a job if it were submitted now: the checks of a submit, the queue's order
// and placement's own judgement and rank, without a job. Nobody is asked and nothing changes.
namespace rn::coordinator {

/// Of a gang of so many such jobs, if `members` is not 0. Errors as a submit's. Reads State::now.
Result<api::Plan> make_plan(
    const State& state,
    const Caller& caller,
    const JobSpec& spec,
    std::uint32_t members = 0,
    GangSpread spread = GangSpread::kNode
);

}  // namespace rn::coordinator
