// SPDX-License-Identifier: Apache-2.0
#include "reclaim/copy_cost.h"

#include <algorithm>

namespace rn::reclaim {

namespace {

constexpr double kForgetCost = 0.8;
constexpr double kMostBytes = 1e15;

}  // namespace

void CopyCost::observe(double bytes, double cpu_s) {
  if (!(cpu_s > 0) || !(bytes >= 0)) return;
  bytes = std::min(bytes, kMostBytes);
  const double spent_s = std::min(cpu_s, kMostOnce_s + kMostByte_s * bytes);
  if (bytes < kTellingBytes) {
    once_s_ =
        kForgetCost * once_s_ + (1 - kForgetCost) * std::clamp(spent_s, kLeastOnce_s, kMostOnce_s);
    return;
  }
  // Half of it at most was spent once: else a first one that is cheap would make bytes cost
  // nothing.
  const double once_s = std::min(once_s_, spent_s / 2);
  once_s_ = std::max(once_s, kLeastOnce_s);
  cpu_s_ = kForgetCost * cpu_s_ + spent_s - once_s;
  bytes_ = kForgetCost * bytes_ + bytes;
}

double CopyCost::per_byte_s() const {
  if (!is_measured()) return 0;
  return std::clamp(cpu_s_ / bytes_, kLeastByte_s, kMostByte_s);
}

double CopyCost::busy_cores(double bytes_per_s) const {
  return is_measured() ? per_byte_s() * std::max(bytes_per_s, 0.0) : 1;
}

}  // namespace rn::reclaim
