// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "model/job.h"

// Half-life usage, net of what the user's lab lends. Pure.
//
//   decay      u(t + Δ) = u(t) · 2^(−Δ / half-life)
//   charge     c(user) = u(user) · max(0, 1 − lent(lab) / used(lab))
//
// where lent(lab) is what the lab's nodes gave to other labs, used(lab) what the lab's users took
// anywhere, both decayed alike: a lab that lends as much as it takes pays nothing, and its credit
// is shared by its users in proportion to their use.
namespace rn::sched {

/// A sum of GPU-seconds that halves every half-life.
class DecayedSum {
 public:
  DecayedSum() = default;

  DecayedSum(double value, std::int64_t as_of_wall_ms) : value_(value), as_of_(as_of_wall_ms) {}

  /// A clock that went backwards decays nothing.
  void add(double amount, std::int64_t now_wall_ms, double half_life_s);
  double at(std::int64_t now_wall_ms, double half_life_s) const;

 private:
  double value_ = 0;
  std::int64_t as_of_ = 0;
};

double charge(double used_by_user, double used_by_lab, double lent_by_lab);

/// What a job uses, in GPUs: its GPUs, and a twentieth of a GPU per core for what is only CPU work.
double gpu_equivalents(const Resources& resources);

}  // namespace rn::sched
