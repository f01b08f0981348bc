// SPDX-License-Identifier: Apache-2.0
#include "reclaim/shown_rate.h"

#include <algorithm>
#include <cmath>

namespace rn::reclaim {

namespace {

constexpr double kSlowShare = 0.5;
constexpr double kProbeGrowth = 1.5;
constexpr double kNoLine = 1e12;  ///< bytes/s

}  // namespace

void ShownRate::observe(double got, double granted, bool has_more) {
  const bool is_slow = std::isfinite(granted) && has_more && got < granted * kSlowShare;
  slow_looks_ = is_slow ? slow_looks_ + 1 : 0;
  if (slow_looks_ >= kSlowLooks) {
    most_ = std::max(got * kProbeGrowth, kProbeRate);
    slow_looks_ = 0;
  } else if (!is_slow && std::isfinite(most_) && got >= most_ * kSlowShare) {
    most_ *= kProbeGrowth;
    if (most_ > kNoLine) most_ = std::numeric_limits<double>::infinity();
  }
}

}  // namespace rn::reclaim
