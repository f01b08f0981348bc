// SPDX-License-Identifier: Apache-2.0
#include "reclaim/last_moment.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rn::reclaim {

namespace {

constexpr double kStop_s = 2;        // a kill, and a look at what is newer
constexpr double kTalk_s = 10;       // warden, coordinator and holders answer, on a busy machine
constexpr double kRateMargin = 2;    // a line has been seen to carry half of what it did
constexpr double kTimeMargin = 1.1;  // of everything
constexpr double kGapMargin = 1.25;  // a save may take its time

double at_least_nothing(double value) {
  return std::isnan(value) || value < 0 ? 0 : value;
}

}  // namespace

LastMoments last_moments(const LeavingCosts& costs) {
  const double after_s = kTimeMargin * (kStop_s + kTalk_s);
  if (costs.has_nothing_to_save) return {.tell_s = after_s, .save_s = after_s};
  const double bytes = at_least_nothing(costs.bytes);
  const double rate = at_least_nothing(costs.bytes_per_s) / kRateMargin;
  double copy_s = 0;
  if (bytes > 0) copy_s = rate > 0 ? bytes / rate : std::numeric_limits<double>::infinity();
  const double save_s = std::max(at_least_nothing(costs.save_s), at_least_nothing(costs.asked_s));
  LastMoments out;
  out.tell_s = after_s + kTimeMargin * (save_s + at_least_nothing(costs.take_s) + copy_s);
  out.save_s = out.tell_s;
  if (!costs.saves_when_told) out.save_s += kGapMargin * at_least_nothing(costs.gap_s);
  return out;
}

}  // namespace rn::reclaim
