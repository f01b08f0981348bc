// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/fields.h"

// How often jobs that share an uplink make checkpoints. Pure. After Young (1974)
// and Daly (2006), to first order; an upload takes time, and the age of unsaved work counts.
// Seconds, bytes, departures per second.
namespace rn::reclaim {

// ---- what a departure costs

/// A share of departures comes with a notice, spread evenly between two lengths.
struct NoticeRange {
  double share = 1;  ///< of the departures with notice; the shares need not add up to 1
  double min_s = 0;
  double max_s = 0;
};

struct NoticeMix {
  double emergency_share = 1;        ///< of all departures: no notice at all (p0)
  std::vector<NoticeRange> notices;  ///< none: every departure is like an emergency
};

/// P(evacuation > notice), emergencies included. `evacuation_s` at pessimistic (10 %) bandwidth.
double chance_of_short_notice(const NoticeMix& mix, double evacuation_s);

/// The hazard that the notice cannot absorb: h · [p0 + (1 − p0) · P(T_evac > N)].
double effective_hazard(double hazard, const NoticeMix& mix, double evacuation_s);

// ---- one job, constant hazard

/// √(2c/h), first order (Young 1974). Infinite without a hazard.
double young_interval(double cost_s, double hazard);

/// The work between checkpoints that minimises (e^(h(τ+C)) − 1)/τ under exponential failures:
/// (1 + W(−e^(−hC−1))) / h. Infinite without a hazard.
double exact_interval(double cost_s, double hazard);

// ---- several jobs, one uplink

/// Bytes that a job's checkpoint has to move after τ seconds: κ·S·(1 − e^(−ρτ/S)).
struct DirtyCurve {
  double state_bytes = 0;   ///< S
  double write_rate = 0;    ///< ρ, bytes/s of raw writes; infinite: everything is dirty at once
  double stored_share = 1;  ///< κ: left after compression and deduplication

  double bytes(double interval_s) const;
  double slope(double interval_s) const;      ///< first derivative
  double curvature(double interval_s) const;  ///< second derivative
};

struct CheckpointJob {
  double weight = 1;    ///< value of its second: its GPUs
  double hazard = 0;    ///< effective, 1/s
  double pause_s = 0;   ///< δ: stopped while the snapshot is taken
  double slowdown = 0;  ///< σ: share of its speed lost while uploading
  double restart_s = 0;
  DirtyCurve dirty;
};

struct UplinkShare {
  double upload_bytes_per_s = 0;      ///< b: one upload's rate while it runs (one at a time)
  double checkpoint_bytes_per_s = 0;  ///< B: what all checkpoints may use in the long run
};

struct IntervalLimits {
  double max_overhead = 0.035;  ///< pause and slowdown, of the time (CheckFreq, FAST'21)
  double min_interval_s = 10;
  double max_interval_s = 7200;
  double hysteresis = 0.10;  ///< an interval in force stays while the new one is this close
};

/// δ + σ·β(τ)/b.
double checkpoint_cost(const CheckpointJob& job, double interval_s, double upload_bytes_per_s);

/// Share of the job's time that is wasted: c(τ)/τ + h·(τ/2 + L(τ) + R). Not weighted.
double waste_rate(const CheckpointJob& job, double interval_s, double upload_bytes_per_s);

/// What one job does when a byte on the uplink costs `price` weighted seconds: the root of
/// d/dτ { w·[c(τ)/τ + h·(τ/2 + β(τ)/b)] + price·β(τ)/τ }, by Newton inside a bracket. With a
/// constant β it is √(2(w·c + price·β)/(w·h)). No limits applied.
double interval_at_price(const CheckpointJob& job, double price, double upload_bytes_per_s);

struct CheckpointPlan {
  std::vector<double> interval_s;  ///< per job; infinite: the uplink carries no checkpoints
  double price = 0;                ///< λ: what another byte/s of uplink would save, in seconds
  double demand_bytes_per_s = 0;   ///< Σ β/τ, at most B
  double weighted_waste = 0;       ///< predicted Σ w·waste
};

/// Intervals that minimise the weighted waste under Σ β(τ)/τ ≤ B (KKT; the price by bisection).
/// Limits: the overhead bound and B always hold; max_interval yields to both. `in_force` is the
/// last plan's, empty or of the same length; an interval that would change by less than the
/// hysteresis stays, unless that broke one of the two bounds. Numbers that cannot be (negative, not
/// a number) are taken as 0, an unknown write rate as "all is dirty". O(jobs · 60).
CheckpointPlan plan_intervals(
    std::span<const CheckpointJob> jobs,
    const UplinkShare& uplink,
    const IntervalLimits& limits,
    std::span<const double> in_force = {}
);

/// plan_intervals(), for who asks again and again while the numbers hardly change: a plan stands as
/// long as the intervals in force are its own, no number that it was made from has changed by more
/// than a hundredth, and it keeps B and the overhead bound with the numbers of now. Both hold at
/// every look, then; a plan is made for 99 % of them, so that it can stand. Intervals are within
/// three hundredths of what a new plan would have where no bound holds them; the plan's price,
/// demand and waste are of the moment of its making.
class IntervalPlanner {
 public:
  explicit IntervalPlanner(const IntervalLimits& limits) : limits_(limits) {}

  /// Valid until the next call. Arguments as of plan_intervals(), with an interval in force for
  /// each job.
  const CheckpointPlan& plan(
      std::span<const CheckpointJob> jobs,
      const UplinkShare& uplink,
      std::span<const double> in_force
  );

  /// How many plans were made so far.
  std::uint64_t made() const { return made_; }

 private:
  bool stands(
      std::span<const CheckpointJob> jobs,
      const UplinkShare& uplink,
      std::span<const double> in_force
  ) const;
  bool keeps_bounds(std::span<const CheckpointJob> jobs, const UplinkShare& uplink) const;

  IntervalLimits limits_;
  std::vector<CheckpointJob> jobs_;  ///< that the plan was made from
  UplinkShare uplink_;
  CheckpointPlan plan_;
  std::uint64_t made_ = 0;
};

// ---- the dirty curve, measured

/// Fit of ρ to what checkpoints really moved, newest first (each older one counts 0.8 as much).
/// Inverts D = S(1 − e^(−ρτ/S)) per observation and adds up. An observation with D ≥ 0.98·S says
/// only that ρ is at least so large, and is taken as 0.98.
struct DirtyCurveFit {
  double state_bytes = 0;
  double written_bytes = 0;  ///< Σ −S·ln(1 − D/S)
  double seconds = 0;        ///< Σ τ
  double moved_bytes = 0;    ///< Σ κ·D, Σ D: the stored share
  double dirty_bytes = 0;

  RN_FIELDS(DirtyCurveFit, state_bytes, written_bytes, seconds, moved_bytes, dirty_bytes)

  /// `dirty` unique bytes changed in `interval_s`, of which `moved` remained after compression and
  /// deduplication. Ignored unless interval and state are positive and dirty is not negative.
  void observe(double interval_s, double state, double dirty, double moved);
  /// Before the first observation everything counts as dirty: the safe assumption.
  DirtyCurve curve() const;
};

}  // namespace rn::reclaim
