// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "reclaim/deadline_rates.h"

// What no admission can pass: bounds from above on the value that arrives in time, for
// bench/deadline_rates. Pure; for studies, not for a site (the second takes 2^n steps).
namespace rn::reclaim {

struct Arrival {
  double at_s;
  Transfer transfer;
};

struct Evening {
  std::vector<Link> links;
  std::vector<Arrival> arrivals;
};

/// Of all arrivals of an evening, known beforehand, in parts and freely moved: the value of a dual
/// solution of that linear program. Each link and stretch of time has a price per byte; a transfer
/// buys its bytes in the cheapest stretches of its time, or nothing. Any prices give a bound (weak
/// duality); the least bound may be lower still.
double value_bound(const Evening& evening);

/// Of one set that is known at once: the best of all subsets whose demand each link alone could
/// carry by its deadlines (the EDF demand bound, which is necessary on every link). kMostTogether
/// at most.
double best_set_bound(std::span<const Transfer> set, std::span<const Link> links);

inline constexpr std::size_t kMostTogether = 20;

}  // namespace rn::reclaim
