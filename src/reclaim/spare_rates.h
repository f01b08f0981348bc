// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "reclaim/deadline_rates.h"

namespace rn::reclaim {

/// RatePlanner gives each transfer what is of use within a tick. What that leaves of the links goes
/// the same way once more, without that bound: a transfer of few bytes need not stretch them over
/// a whole tick, and one that turns out to be larger is not held up until the next plan. Promised
/// evacuations first, the earliest deadline first, within the burst; then restores, checkpoints,
/// prefetches and what is not promised, within the guard. Infinite for one that crosses no link and
/// has no max_rate. Pure; O(n log n) for n transfers.
void give_spare(
    std::span<const Transfer> transfers,
    std::span<const Link> links,
    const LinkGuard& guard,
    RatePlan& plan
);

}  // namespace rn::reclaim
