// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "reclaim/link_budget.h"

// Which transfers fit their deadlines on one link. Pure, exact. spec-reclaim.md 5.2.
namespace rn::reclaim {

struct Demand {
  double bytes = 0;
  double due_s = 0;  ///< seconds after now
  double value = 1;  ///< expected loss averted; any unit, at least 0
};

struct DemandBound {
  bool fits = true;
  std::size_t first_late = 0;  ///< index of the first demand, by due time, that cannot be met
  double lacking_bytes = 0;    ///< greatest shortfall over all due times
};

/// Earliest deadline first meets every due time of transfers that may all begin now if and only if,
/// for every due time d, the bytes due until d are at most ∫ budget from 0 to d (Liu and Layland
/// 1973; Baruah et al. 1990, for preemptive work on one resource). O(n log n + n · steps).
DemandBound edf_demand_bound(const BudgetCurve& budget, const std::vector<Demand>& demands);

/// Indices, ascending, of demands without which the others fit. In order of due times, the demand
/// with the least value per byte goes whenever the bytes so far do not fit. With equal values this
/// is Moore and Hodgson (1968): as many as possible stay. O(n log n + n · steps).
std::vector<std::size_t> drop_least_dense(
    const BudgetCurve& budget, const std::vector<Demand>& demands
);

/// Bytes that rounding may leave over without a transfer counting as late.
double rounding_bytes(double bytes);

}  // namespace rn::reclaim
