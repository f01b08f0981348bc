// SPDX-License-Identifier: Apache-2.0
#include "reclaim/link_budget.h"

#include <algorithm>
#include <cmath>

#include "base/assert.h"

namespace rn::reclaim {

namespace {

bool is_rate(double bytes_per_s) {
  return std::isfinite(bytes_per_s) && bytes_per_s >= 0 && bytes_per_s <= kMaxBytesPerS;
}

bool is_time(double value_s) {
  return std::isfinite(value_s) && value_s >= 0;
}

}  // namespace

double seconds_between(Instant earlier, Instant later) {
  return std::chrono::duration<double>(later - earlier).count();
}

Status check_link(const LinkState& link) {
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::kInvalid, "link " + link.name + ": " + why);
  };
  if (link.name.empty()) return fail(ErrorCode::kInvalid, "a link has no name");
  if (link.capacity.empty()) return refuse("its capacity is not said");
  if (link.capacity.size() > kMaxCapacitySteps)
    return refuse("a forecast has at most " + std::to_string(kMaxCapacitySteps) + " steps");
  for (std::size_t i = 0; i < link.capacity.size(); ++i) {
    if (!is_rate(link.capacity[i].bytes_per_s))
      return refuse(
          "a capacity of " + std::to_string(link.capacity[i].bytes_per_s) +
          " bytes per second is not between 0 and 1e12"
      );
    if (i > 0 && link.capacity[i].from <= link.capacity[i - 1].from)
      return refuse("the steps of its forecast are not in order");
  }
  if (!is_rate(link.background_bytes_per_s) || !is_rate(link.guard_bytes_per_s))
    return refuse("background and guard must lie between 0 and 1e12 bytes per second");
  if (!(link.evacuation_share >= 0 && link.evacuation_share <= 1))
    return refuse("an evacuation's share lies between 0 and 1");
  if (link.evacuation_limit < seconds(0)) return refuse("an evacuation's limit is negative");
  if (!is_time(link.probe_rtt_s) || !is_time(link.least_rtt_s))
    return refuse("a round trip time is negative or not a number");
  return {};
}

double capacity_at(const LinkState& link, Instant at) {
  double capacity = link.capacity.front().bytes_per_s;
  for (const CapacityStep& step : link.capacity) {
    if (step.from > at) break;
    capacity = step.bytes_per_s;
  }
  return capacity;
}

double steady_budget(const LinkState& link, double capacity) {
  return std::max(0.0, capacity - link.background_bytes_per_s - link.guard_bytes_per_s);
}

double evacuation_budget(const LinkState& link, double capacity) {
  return std::max(capacity * link.evacuation_share, steady_budget(link, capacity));
}

void BudgetCurve::add(double from_s, double bytes_per_s) {
  RN_ASSERT(from_s > steps_.back().from_s, "steps of a budget ascend");
  steps_.push_back({from_s, bytes_per_s});
}

double BudgetCurve::at(double t_s) const {
  double rate = steps_.front().bytes_per_s;
  for (const Step& step : steps_) {
    if (step.from_s > t_s) break;
    rate = step.bytes_per_s;
  }
  return rate;
}

double BudgetCurve::bytes_until(double t_s) const {
  double bytes = 0;
  for (std::size_t i = 0; i < steps_.size() && steps_[i].from_s < t_s; ++i) {
    const double end = i + 1 < steps_.size() ? std::min(t_s, steps_[i + 1].from_s) : t_s;
    bytes += steps_[i].bytes_per_s * (end - steps_[i].from_s);
  }
  return bytes;
}

BudgetCurve evacuation_curve(const LinkState& link, Instant now, Instant share_until) {
  const auto budget = [&](Instant at) {
    const double capacity = capacity_at(link, at);
    return at < share_until ? evacuation_budget(link, capacity) : steady_budget(link, capacity);
  };
  std::vector<Instant> changes;
  for (const CapacityStep& step : link.capacity) {
    if (step.from > now) changes.push_back(step.from);
  }
  if (share_until > now) changes.push_back(share_until);
  std::sort(changes.begin(), changes.end());
  changes.erase(std::unique(changes.begin(), changes.end()), changes.end());

  BudgetCurve curve(budget(now));
  for (const Instant at : changes) {
    if (budget(at) != curve.steps().back().bytes_per_s)
      curve.add(seconds_between(now, at), budget(at));
  }
  return curve;
}

}  // namespace rn::reclaim
