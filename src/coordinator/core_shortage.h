// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "coordinator/core_state.h"
#include "coordinator/transfer_links.h"

// Copies of evacuations that are not promised: the way is chosen anew, by what the lines really
// have left (ADR 0008).
namespace rn::coordinator {

/// One plan's copies, what stands behind them and what they cross.
struct SitePlan {
  std::vector<reclaim::Transfer> transfers;
  std::vector<std::map<TransferKey, TransferEntry>::iterator> entries;
  TransferLinks links;
};

/// After the verdicts of `plan`: of copies that were refused, would be late by what they have now,
/// and are the last of their attempt, some are broken off and sent where they arrive in time: to
/// another node that can go on with the job, else only what is new to who has the rest, else to
/// who keeps it. What finds no such way goes on as it did. An agent that knows nothing of it goes
/// on as well. Cheap if nothing is refused; at most four are looked at in one plan.
void move_refused(State& state, SitePlan& site, const reclaim::RatePlan& plan);

}  // namespace rn::coordinator
