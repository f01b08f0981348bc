// SPDX-License-Identifier: Apache-2.0
// The checkers' part that adds up what is charged (I11).
#include <chrono>
#include <cmath>
#include <set>

#include "sim/checkers.h"

namespace rn::sim {

namespace {

// A running job asks for a core, which is a twentieth of a GPU, or for GPUs.
constexpr double kShare = 1.0 / 20;
constexpr double kTickS = 12;      ///< charged at most beyond a change of the attempt's row
constexpr double kHearingS = 150;  ///< from a guest's end until the coordinator hears or misses it
constexpr double kStartS = 20;     ///< from a guest's start until the coordinator hears of it
constexpr double kHalfLifeS = 7 * 86'400;

}  // namespace

double seconds_of(nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

Checkers::Running Checkers::running() const {
  Running sum;
  for (const auto& [key, attempt] : attempts_) {
    const auto job = jobs_.find(key.first);
    const std::uint32_t gpus = job == jobs_.end() ? 0 : job->second.gpus;
    const double weight = gpus == 0 ? 1 : gpus / kShare;
    double table_s = attempt.table_s;
    if (attempt.running_since) table_s += seconds_of(world_.now() - *attempt.running_since);
    sum.attempts += weight;
    if (attempt.running_since) sum.running += weight;
    sum.ran_s += weight * attempt.ran_s;
    sum.table_s += weight * table_s;
    if (!attempt.is_elsewhere) continue;
    sum.ran_elsewhere_s += weight * attempt.ran_s;
    sum.table_elsewhere_s += weight * table_s;
  }
  return sum;
}

void Checkers::on_usage(const coordinator::UsageRow& row) {
  const Usage usage{row.used_gpu_s, row.lent_gpu_s, row.as_of_wall_ms};
  if (row.user.empty())
    used_by_lab_[row.lab] = usage;
  else
    used_by_user_[row.user] = usage;
  double by_user = 0;
  double by_lab = 0;
  double lent = 0;
  std::set<std::int64_t> instants;
  for (const auto& [user, one] : used_by_user_) {
    by_user += one.used;
    instants.insert(one.as_of_wall_ms);
  }
  for (const auto& [lab, one] : used_by_lab_) {
    by_lab += one.used;
    lent += one.lent;
    instants.insert(one.as_of_wall_ms);
  }
  ++checks_;
  const Running sum = running();
  const double n = sum.attempts;
  // Sums only decay, so these hold whatever the clocks do.
  const auto at_most = [&](double charged, double seconds, const char* what) {
    if (charged <= seconds * kShare) return;
    world_.violate(
        "I11",
        std::to_string(charged) + " GPU-seconds are " + what + ", for " + std::to_string(seconds) +
            " core-seconds at most"
    );
  };
  at_most(by_user, sum.table_s + kTickS * n, "charged to users");
  at_most(by_user, sum.ran_s * 1.02 + kHearingS * n, "charged to users by the guests' own time");
  at_most(by_lab, sum.table_s + kTickS * n, "charged to labs");
  at_most(lent, sum.table_elsewhere_s + kTickS * n, "put down as lent");
  if (instants.size() != 1 || used_by_lab_.empty() || has_clock_jumped_) return;
  if (std::abs(by_user - by_lab) > 1e-6 * (1 + by_user))
    world_.violate(
        "I11",
        "users are charged " + std::to_string(by_user) + " GPU-seconds, their labs " +
            std::to_string(by_lab)
    );
}

void Checkers::on_calm(std::uint64_t process_life) {
  Calm calm;
  for (const auto& [lab, one] : used_by_lab_) {
    calm.used += one.used;
    calm.lent += one.lent;
  }
  const Running sum = running();
  calm.ran_s = sum.ran_s;
  calm.ran_elsewhere_s = sum.ran_elsewhere_s;
  calm.since = world_.now();
  calm.attempts = sum.attempts;
  calm.running = sum.running;
  calm_ = calm;
  calm_life_ = process_life;
}

void Checkers::check_charged(std::uint64_t process_life) {
  // What a process has charged and not yet saved dies with it.
  if (!calm_ || calm_life_ != process_life || has_clock_jumped_) return;
  ++checks_;
  double used = 0;
  double lent = 0;
  for (const auto& [lab, one] : used_by_lab_) {
    used += one.used;
    lent += one.lent;
  }
  const Running sum = running();
  const double decay = std::exp2(-seconds_of(world_.now() - calm_->since) / kHalfLifeS);
  // Those that ran already may have been fenced, and told of late.
  const double late_s = kHearingS * calm_->running + kStartS * (sum.attempts - calm_->attempts);
  const auto at_least = [&](double now, double before, double ran_s, const char* what) {
    const double wanted = (before + (ran_s * 0.97 - late_s) * kShare) * decay * 0.99;
    if (now >= wanted) return;
    world_.violate(
        "I11",
        std::to_string(now) + " GPU-seconds are " + what + ", " + std::to_string(wanted) +
            " at least were used"
    );
  };
  at_least(used, calm_->used, sum.ran_s - calm_->ran_s, "charged");
  at_least(lent, calm_->lent, sum.ran_elsewhere_s - calm_->ran_elsewhere_s, "put down as lent");
}

}  // namespace rn::sim
