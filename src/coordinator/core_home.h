// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coordinator/core_state.h"

namespace rn::coordinator {

/// Weighs for every running job that was displaced whether it goes home (reclaim/migrate_back.h),
/// and asks those that do to save and stop. The numbers go into an event. Every heartbeat.
void look_for_homecomers(State& state);

}  // namespace rn::coordinator
