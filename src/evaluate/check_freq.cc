// SPDX-License-Identifier: Apache-2.0
#include "evaluate/check_freq.h"

#include <algorithm>
#include <cmath>

namespace rn::evaluate {

double CheckFreq::interval(double pause_s, double whole_s) {
  return std::ceil(std::max(whole_s, pause_s / kBound) / kStep_s) * kStep_s;
}

std::optional<double> CheckFreq::interval_s(JobNumber job) {
  const StateKind& kind = world().kind(job);
  const auto took = took_s_.find(job);
  return interval(kind.bytes / kind.pause_bytes_per_s, took == took_s_.end() ? 0 : took->second);
}

}  // namespace rn::evaluate
