// SPDX-License-Identifier: Apache-2.0
#include "reclaim/demand_bound.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace rn::reclaim {

namespace {

std::vector<std::size_t> by_due_time(const std::vector<Demand>& demands) {
  std::vector<std::size_t> order(demands.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return demands[a].due_s < demands[b].due_s;
  });
  return order;
}

}  // namespace

double rounding_bytes(double bytes) {
  return 1 + 1e-9 * bytes;
}

DemandBound edf_demand_bound(const BudgetCurve& budget, const std::vector<Demand>& demands) {
  DemandBound bound;
  double bytes = 0;
  for (const std::size_t index : by_due_time(demands)) {
    bytes += demands[index].bytes;
    const double lacking = bytes - budget.bytes_until(demands[index].due_s);
    if (lacking <= rounding_bytes(bytes)) continue;
    if (bound.fits) bound.first_late = index;
    bound.fits = false;
    bound.lacking_bytes = std::max(bound.lacking_bytes, lacking);
  }
  return bound;
}

std::vector<std::size_t> drop_least_dense(
    const BudgetCurve& budget, const std::vector<Demand>& demands
) {
  // The first goes first: least value per byte, then most bytes, then the last in the list.
  const auto density = [&](std::size_t i) { return demands[i].value / demands[i].bytes; };
  const auto goes_before = [&](std::size_t a, std::size_t b) {
    if (density(a) != density(b)) return density(a) < density(b);
    if (demands[a].bytes != demands[b].bytes) return demands[a].bytes > demands[b].bytes;
    return a > b;
  };
  std::set<std::size_t, decltype(goes_before)> kept(goes_before);
  std::vector<std::size_t> dropped;
  double bytes = 0;
  for (const std::size_t index : by_due_time(demands)) {
    if (demands[index].bytes <= 0) continue;
    kept.insert(index);
    bytes += demands[index].bytes;
    const double supply = budget.bytes_until(demands[index].due_s);
    while (!kept.empty() && bytes - supply > rounding_bytes(bytes)) {
      bytes -= demands[*kept.begin()].bytes;
      dropped.push_back(*kept.begin());
      kept.erase(kept.begin());
    }
  }
  std::sort(dropped.begin(), dropped.end());
  return dropped;
}

}  // namespace rn::reclaim
