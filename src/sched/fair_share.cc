// SPDX-License-Identifier: Apache-2.0
#include "sched/fair_share.h"

#include <algorithm>
#include <cmath>

namespace rn::sched {

double DecayedSum::at(std::int64_t now_wall_ms, double half_life_s) const {
  const double elapsed_s =
      static_cast<double>(std::max<std::int64_t>(0, now_wall_ms - as_of_)) / 1e3;
  return half_life_s > 0 ? value_ * std::exp2(-elapsed_s / half_life_s) : value_;
}

void DecayedSum::add(double amount, std::int64_t now_wall_ms, double half_life_s) {
  value_ = at(now_wall_ms, half_life_s) + amount;
  as_of_ = std::max(as_of_, now_wall_ms);
}

double charge(double used_by_user, double used_by_lab, double lent_by_lab) {
  if (used_by_lab <= 0) return std::max(0.0, used_by_user);
  return used_by_user * std::max(0.0, 1.0 - lent_by_lab / used_by_lab);
}

double gpu_equivalents(const Resources& resources) {
  if (resources.gpus > 0) return resources.gpus;
  return static_cast<double>(resources.cpu_milli) / 1000.0 / 20.0;
}

}  // namespace rn::sched
