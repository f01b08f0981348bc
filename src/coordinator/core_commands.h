// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coordinator/core_state.h"
#include "model/job_rules.h"

// What people ask for, checked against who they are. Deny by default.
namespace rn::coordinator {

void on_command(State& state, const ApiCommand& event);

/// What the submitter should know although the job is accepted.
std::vector<std::string> warnings_for(const State& state, const JobEntry& job);

}  // namespace rn::coordinator
