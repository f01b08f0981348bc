// SPDX-License-Identifier: Apache-2.0
#include "reclaim/precopy.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rn::reclaim {

bool goes_another_round(const Precopy& left, double budget_s) {
  return left.whole_s > budget_s && left.dirty < kDirtyMost;
}

double used_share(const AheadUse& use) {
  constexpr double kAll = 0.98;  // of a state: what is more says nothing of how much more
  if (!(use.state_bytes > 0) || !(use.gap_s > 0) || !(use.departures > 0)) return 0;
  const double share = std::clamp(use.new_bytes / use.state_bytes, 0.0, kAll);
  if (!(share > 0)) return std::numeric_limits<double>::infinity();
  const double rewritten = -std::log1p(-share) / use.gap_s;
  return use.departures / rewritten * (1 - share);
}

}  // namespace rn::reclaim
