// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coordinator/core_state.h"

// Commands on arrays: jobs of one submit that differ by their index (ADR 0021). How their tasks
// take turns is core_waiting.h's.
namespace rn::coordinator {

Result<Answer> submit_array(State& state, const Caller& caller, const SubmitArray& command);
Result<Answer> stop_array(State& state, const Caller& caller, const StopArray& command);

}  // namespace rn::coordinator
