// SPDX-License-Identifier: Apache-2.0
#include "reclaim/checkpoint_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <boost/math/special_functions/lambert_w.hpp>

#include "base/assert.h"

namespace rn::reclaim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kShortest_s = 1e-6;
constexpr double kLongest_s = 1e12;
constexpr double kForget = 0.8;
constexpr double kSaturated = 0.98;
constexpr double kSameNumber = 0.01;  // of itself, that it may change while a plan stands
constexpr double kReserve = 0.99;  // of a bound, that a plan uses: else none would stand for long

/// Derivative of the weighted waste and of the price paid, and its own derivative.
struct Slope {
  double value = 0;
  double derivative = 0;
};

Slope waste_slope(const CheckpointJob& job, double price, double rate, double t) {
  const double bytes = job.dirty.bytes(t);
  const double slope = job.dirty.slope(t);
  const double curvature = job.dirty.curvature(t);
  const double per_byte = job.weight * job.slowdown / rate + price;
  const double once = job.weight * job.pause_s + per_byte * bytes;
  const double late = job.weight * job.hazard / rate;
  return {
      .value = -once / (t * t) + per_byte * slope / t + job.weight * job.hazard / 2 + late * slope,
      .derivative = 2 * once / (t * t * t) - 2 * per_byte * slope / (t * t) +
                    per_byte * curvature / t + late * curvature};
}

/// The shortest interval that keeps the overhead bound. Iterated from above, so that every iterate
/// keeps it: β(τ)/τ falls with τ.
double shortest_interval(
    const CheckpointJob& job, const IntervalLimits& limits, double upload_bytes_per_s
) {
  double t = checkpoint_cost(job, kLongest_s, upload_bytes_per_s) / limits.max_overhead;
  for (int i = 0; i < 30; ++i) {
    t = checkpoint_cost(job, t, upload_bytes_per_s) / limits.max_overhead;
  }
  return std::max(t, limits.min_interval_s);
}

/// `value` within [0, highest]; not a number: 0.
double sane(double value, double highest) {
  return value > 0 ? std::min(value, highest) : 0;
}

/// A job whose numbers can be planned with, whatever was measured or declared.
CheckpointJob sane(CheckpointJob job) {
  constexpr double kMaxWeight = 1e6;
  constexpr double kMax_s = 1e9;
  constexpr double kMaxBytes = 1e15;
  job.weight = job.weight > 0 ? std::min(job.weight, kMaxWeight) : 1;
  job.hazard = sane(job.hazard, 1);
  job.pause_s = sane(job.pause_s, kMax_s);
  job.slowdown = sane(job.slowdown, 1);
  job.restart_s = sane(job.restart_s, kMax_s);
  job.dirty.state_bytes = sane(job.dirty.state_bytes, kMaxBytes);
  job.dirty.write_rate = job.dirty.write_rate >= 0 ? job.dirty.write_rate : kInfinity;
  job.dirty.stored_share = job.dirty.stored_share >= 0 ? std::min(job.dirty.stored_share, 1.0) : 1;
  return job;
}

class Planner {
 public:
  Planner(
      std::span<const CheckpointJob> jobs, const UplinkShare& uplink, const IntervalLimits& limits
  )
      : uplink_(uplink), limits_(limits) {
    for (const CheckpointJob& one : jobs) {
      const CheckpointJob& job = jobs_.emplace_back(sane(one));
      shortest_.push_back(shortest_interval(job, limits, uplink.upload_bytes_per_s));
    }
  }

  /// The price at which the demand just fits, and the intervals at it.
  CheckpointPlan solve() const {
    CheckpointPlan plan = at_price(0, true);
    if (fits(plan)) return plan;
    bool is_bounded = true;
    double high = 1e-12;
    while (!fits(at_price(high, is_bounded)) && high < 1e30) high *= 4;
    if (!fits(at_price(high, is_bounded))) {  // max_interval yields
      is_bounded = false;
      high = 1e-12;
      while (!fits(at_price(high, is_bounded)) && high < 1e30) high *= 4;
    }
    double low = 0;
    for (int i = 0; i < 200 && high - low > 1e-12 * high; ++i) {
      const double middle = low > 0 ? std::sqrt(low * high) : high / 16;
      const bool is_enough = fits(at_price(middle, is_bounded));
      (is_enough ? high : low) = middle;
      if (high < 1e-30) break;
    }
    return at_price(high, is_bounded);
  }

  bool fits(const CheckpointPlan& plan) const {
    return plan.demand_bytes_per_s <= uplink_.checkpoint_bytes_per_s;
  }

  bool keeps_overhead(std::size_t job, double interval_s) const {
    return interval_s >= shortest_[job];
  }

  void account(CheckpointPlan& plan) const {
    plan.demand_bytes_per_s = 0;
    plan.weighted_waste = 0;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      const double t = plan.interval_s[i];
      plan.demand_bytes_per_s += jobs_[i].dirty.bytes(t) / t;
      plan.weighted_waste += jobs_[i].weight * waste_rate(jobs_[i], t, uplink_.upload_bytes_per_s);
    }
  }

 private:
  CheckpointPlan at_price(double price, bool is_bounded) const {
    CheckpointPlan plan{.price = price};
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      double t = interval_at_price(jobs_[i], price, uplink_.upload_bytes_per_s);
      if (is_bounded) t = std::min(t, limits_.max_interval_s);
      plan.interval_s.push_back(std::max(t, shortest_[i]));
    }
    account(plan);
    return plan;
  }

  std::vector<CheckpointJob> jobs_;
  const UplinkShare& uplink_;
  const IntervalLimits& limits_;
  std::vector<double> shortest_;
};

}  // namespace

double chance_of_short_notice(const NoticeMix& mix, double evacuation_s) {
  double shares = 0;
  double too_short = 0;
  for (const NoticeRange& range : mix.notices) {
    const double width = range.max_s - range.min_s;
    const double below = width > 0 ? std::clamp((evacuation_s - range.min_s) / width, 0.0, 1.0)
                                   : (evacuation_s > range.min_s ? 1.0 : 0.0);
    shares += range.share;
    too_short += range.share * below;
  }
  if (shares <= 0) return 1;
  return mix.emergency_share + (1 - mix.emergency_share) * too_short / shares;
}

double effective_hazard(double hazard, const NoticeMix& mix, double evacuation_s) {
  return hazard * chance_of_short_notice(mix, evacuation_s);
}

double young_interval(double cost_s, double hazard) {
  return hazard > 0 ? std::sqrt(2 * cost_s / hazard) : kInfinity;
}

double exact_interval(double cost_s, double hazard) {
  if (hazard <= 0) return kInfinity;
  // Rounding must not lead below the branch point.
  const double at = std::max(-std::exp(-hazard * cost_s - 1), -std::exp(-1.0));
  return (1 + boost::math::lambert_w0(at)) / hazard;
}

double DirtyCurve::bytes(double interval_s) const {
  if (std::isinf(write_rate)) return stored_share * state_bytes;
  if (state_bytes <= 0) return 0;
  return -stored_share * state_bytes * std::expm1(-write_rate * interval_s / state_bytes);
}

double DirtyCurve::slope(double interval_s) const {
  if (std::isinf(write_rate) || state_bytes <= 0) return 0;
  return stored_share * write_rate * std::exp(-write_rate * interval_s / state_bytes);
}

double DirtyCurve::curvature(double interval_s) const {
  if (std::isinf(write_rate) || state_bytes <= 0) return 0;
  return -slope(interval_s) * write_rate / state_bytes;
}

double checkpoint_cost(const CheckpointJob& job, double interval_s, double upload_bytes_per_s) {
  if (job.slowdown <= 0) return job.pause_s;
  return job.pause_s + job.slowdown * job.dirty.bytes(interval_s) / upload_bytes_per_s;
}

double waste_rate(const CheckpointJob& job, double interval_s, double upload_bytes_per_s) {
  const double bytes = job.dirty.bytes(interval_s);
  const double upload_s = bytes > 0 ? bytes / upload_bytes_per_s : 0;
  const double at_risk = interval_s / 2 + upload_s + job.restart_s;
  const double lost = job.hazard > 0 ? job.hazard * at_risk : 0;
  return checkpoint_cost(job, interval_s, upload_bytes_per_s) / interval_s + lost;
}

double interval_at_price(const CheckpointJob& job, double price, double upload_bytes_per_s) {
  if (upload_bytes_per_s <= 0 || job.hazard <= 0 || job.weight <= 0) return kInfinity;
  double low = kShortest_s;
  double high = kLongest_s;
  const double all = job.dirty.bytes(kLongest_s);
  const double per_byte = job.weight * job.slowdown / upload_bytes_per_s + price;
  const double once = job.weight * job.pause_s + per_byte * all;
  double t = std::clamp(std::sqrt(2 * once / (job.weight * job.hazard)), low, high);
  for (int i = 0; i < 100; ++i) {
    const Slope slope = waste_slope(job, price, upload_bytes_per_s, t);
    (slope.value < 0 ? low : high) = t;
    double next = slope.derivative > 0 ? t - slope.value / slope.derivative : 0;
    if (!(next > low && next < high)) next = std::sqrt(low * high);
    if (std::abs(next - t) <= 1e-10 * t) return next;
    t = next;
  }
  return t;
}

CheckpointPlan plan_intervals(
    std::span<const CheckpointJob> jobs,
    const UplinkShare& uplink,
    const IntervalLimits& limits,
    std::span<const double> in_force
) {
  RN_ASSERT(in_force.empty() || in_force.size() == jobs.size(), "one interval in force per job");
  if (!(uplink.upload_bytes_per_s > 0) || !(uplink.checkpoint_bytes_per_s > 0)) {
    return {.interval_s = std::vector<double>(jobs.size(), kInfinity)};
  }
  const Planner planner(jobs, uplink, limits);
  const CheckpointPlan wanted = planner.solve();
  CheckpointPlan kept = wanted;
  for (std::size_t i = 0; i < in_force.size(); ++i) {
    if (!std::isfinite(in_force[i])) continue;  // the uplink carried nothing
    const double change = std::abs(wanted.interval_s[i] - in_force[i]);
    if (change <= limits.hysteresis * in_force[i] && planner.keeps_overhead(i, in_force[i])) {
      kept.interval_s[i] = in_force[i];
    }
  }
  planner.account(kept);
  return planner.fits(kept) ? kept : wanted;
}

namespace {

bool is_same(double a, double b) {
  if (a == b) return true;
  if (!std::isfinite(a) || !std::isfinite(b)) return false;
  return std::abs(a - b) <= kSameNumber * std::min(std::abs(a), std::abs(b));
}

bool is_same(const CheckpointJob& a, const CheckpointJob& b) {
  return is_same(a.weight, b.weight) && is_same(a.hazard, b.hazard) &&
         is_same(a.pause_s, b.pause_s) && is_same(a.slowdown, b.slowdown) &&
         is_same(a.restart_s, b.restart_s) && is_same(a.dirty.state_bytes, b.dirty.state_bytes) &&
         is_same(a.dirty.write_rate, b.dirty.write_rate) &&
         is_same(a.dirty.stored_share, b.dirty.stored_share);
}

}  // namespace

bool IntervalPlanner::keeps_bounds(std::span<const CheckpointJob> jobs, const UplinkShare& uplink)
    const {
  double demand = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const double t = plan_.interval_s[i];
    if (std::isinf(t)) continue;
    const CheckpointJob job = sane(jobs[i]);
    demand += job.dirty.bytes(t) / t;
    if (checkpoint_cost(job, t, uplink.upload_bytes_per_s) > limits_.max_overhead * t) return false;
  }
  return demand <= uplink.checkpoint_bytes_per_s;
}

bool IntervalPlanner::stands(
    std::span<const CheckpointJob> jobs, const UplinkShare& uplink, std::span<const double> in_force
) const {
  if (made_ == 0 || jobs.size() != jobs_.size()) return false;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (in_force[i] != plan_.interval_s[i] || !is_same(jobs[i], jobs_[i])) return false;
  }
  return is_same(uplink.upload_bytes_per_s, uplink_.upload_bytes_per_s) &&
         is_same(uplink.checkpoint_bytes_per_s, uplink_.checkpoint_bytes_per_s) &&
         keeps_bounds(jobs, uplink);
}

const CheckpointPlan& IntervalPlanner::plan(
    std::span<const CheckpointJob> jobs, const UplinkShare& uplink, std::span<const double> in_force
) {
  RN_ASSERT(in_force.size() == jobs.size(), "one interval in force per job");
  if (stands(jobs, uplink, in_force)) return plan_;
  UplinkShare planned = uplink;
  planned.checkpoint_bytes_per_s *= kReserve;
  IntervalLimits limits = limits_;
  limits.max_overhead *= kReserve;
  plan_ = plan_intervals(jobs, planned, limits, in_force);
  jobs_.assign(jobs.begin(), jobs.end());
  uplink_ = uplink;
  ++made_;
  return plan_;
}

void DirtyCurveFit::observe(double interval_s, double state, double dirty, double moved) {
  if (!(interval_s > 0) || !(state > 0) || !(dirty >= 0) || !(moved >= 0)) return;
  const double share = std::min(dirty / state, kSaturated);
  state_bytes = state;
  written_bytes = kForget * written_bytes - state * std::log1p(-share);
  seconds = kForget * seconds + interval_s;
  moved_bytes = kForget * moved_bytes + moved;
  dirty_bytes = kForget * dirty_bytes + dirty;
}

DirtyCurve DirtyCurveFit::curve() const {
  if (seconds <= 0) return {.state_bytes = state_bytes, .write_rate = kInfinity};
  return {
      .state_bytes = state_bytes,
      .write_rate = written_bytes / seconds,
      .stored_share = dirty_bytes > 0 ? moved_bytes / dirty_bytes : 1};
}

}  // namespace rn::reclaim
