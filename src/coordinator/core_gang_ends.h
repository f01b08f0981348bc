// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "coordinator/core_state.h"

// Where a gang goes when all its members have ended: over, or back into the queue, all in one
// transaction. Part of core_gang_life.
namespace rn::coordinator {

/// All members are over; what lives of them is fenced.
void finish_gang(State& state, GangEntry& gang, JobState to, const std::string& reason);
/// By its cause, from GangState::kStopping. The epoch is burnt, but for what drains: that is taken
/// until the next epoch is issued.
void leave_stopping(State& state, GangEntry& gang);

}  // namespace rn::coordinator
