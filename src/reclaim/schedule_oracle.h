// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

// The best schedule for a known distribution of departures. For tests and benches only: no product
// program knows the distribution. Dynamic program over ages (DPNextFailure of Bougeret et
// al., SC'11): a snapshot at age s, durable at s + latency, saves the work since the one before.
namespace rn::reclaim {

struct OracleCosts {
  double cost_s = 0;     ///< work lost to each snapshot
  double latency_s = 0;  ///< from the snapshot's instant until it is durable
  double min_interval_s = 0;
  double max_interval_s = 7200;
};

struct OracleSchedule {
  std::vector<double> ages_s;  ///< of the snapshots
  double saved_s = 0;          ///< expected work that is durable at the departure
};

/// Work that is durable when a departure comes at age `end_s`: of each snapshot whose last byte was
/// durable by then, the time since the one before, less that one's cost.
inline double saved_work(
    const std::vector<double>& ages_s, const OracleCosts& costs, double end_s
) {
  double saved = 0;
  double last = 0;
  for (std::size_t i = 0; i < ages_s.size() && ages_s[i] + costs.latency_s <= end_s; ++i) {
    saved += ages_s[i] - last - (i > 0 ? costs.cost_s : 0);
    last = ages_s[i];
  }
  return saved;
}

/// `survival(age)` = P(departure at or after age), for ages up to `longest_s` in steps of `step_s`.
/// Maximises the expectation of saved_work:
///   V(x) = max(0, max over s of S(s + latency)·(s − x − c) + V(s)), x = age of the last snapshot.
inline OracleSchedule best_schedule(
    const std::function<double(double)>& survival,
    const OracleCosts& costs,
    double longest_s,
    double step_s
) {
  const auto steps = static_cast<std::size_t>(longest_s / step_s) + 1;
  const auto in_steps = [&](double seconds) {
    return static_cast<std::size_t>(std::max(1.0, seconds / step_s + 0.999999));
  };
  // The next snapshot waits until the last one is durable: one upload at a time.
  const std::size_t shortest = in_steps(std::max(costs.min_interval_s, costs.latency_s));
  const std::size_t longest = std::max(shortest, in_steps(costs.max_interval_s));
  std::vector<double> durable(steps);
  for (std::size_t s = 0; s < steps; ++s) {
    durable[s] = survival(static_cast<double>(s) * step_s + costs.latency_s);
  }
  std::vector<double> value(steps, 0.0);
  std::vector<std::size_t> next(steps, 0);
  for (std::size_t x = steps; x-- > 0;) {
    // The work before the first snapshot has paid for none.
    const double cost = x > 0 ? costs.cost_s : 0;
    for (std::size_t s = x + (x > 0 ? shortest : 1); s < steps && s <= x + longest; ++s) {
      const double gain = durable[s] * (static_cast<double>(s - x) * step_s - cost) + value[s];
      if (gain > value[x]) {
        value[x] = gain;
        next[x] = s;
      }
    }
  }
  OracleSchedule schedule{.saved_s = value[0]};
  for (std::size_t x = next[0]; x != 0; x = next[x]) {
    schedule.ages_s.push_back(static_cast<double>(x) * step_s);
  }
  return schedule;
}

}  // namespace rn::reclaim
