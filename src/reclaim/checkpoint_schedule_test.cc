// SPDX-License-Identifier: Apache-2.0
#include "reclaim/checkpoint_schedule.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace rn::reclaim {
namespace {

constexpr double kHour_s = 3600;
constexpr double kMb = 1e6;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr IntervalLimits kNoLimits{
    .max_overhead = 1e9, .min_interval_s = 0, .max_interval_s = 1e9, .hysteresis = 0};

/// The same bytes at every checkpoint.
CheckpointJob a_job(double weight, double pause_s, double hazard, double bytes) {
  CheckpointJob job;
  job.weight = weight;
  job.pause_s = pause_s;
  job.hazard = hazard;
  job.dirty = {.state_bytes = bytes, .write_rate = kInfinity};
  return job;
}

CheckpointJob an_incremental_job() {
  CheckpointJob job = a_job(1, 3, 1 / (2 * kHour_s), 4000 * kMb);
  job.slowdown = 0.05;
  job.dirty = {.state_bytes = 4000 * kMb, .write_rate = 4 * kMb, .stored_share = 0.6};
  return job;
}

/// The joint example of the specification: uploads themselves take no time.
const std::vector<CheckpointJob> kTwoJobs = {
    a_job(1, 2, 1 / 3600.0, 4 * kMb), a_job(2, 5, 1 / 1800.0, 8 * kMb)};
constexpr UplinkShare kNarrow{.upload_bytes_per_s = 1e18, .checkpoint_bytes_per_s = 0.02 * kMb};
constexpr UplinkShare kWide{.upload_bytes_per_s = 1e18, .checkpoint_bytes_per_s = 1e18};

TEST(Interval, exact_and_first_order_optimum_have_the_known_values) {
  EXPECT_NEAR(exact_interval(600, 1 / kHour_s), 1699, 0.5);
  EXPECT_NEAR(young_interval(600, 1 / kHour_s), 2078, 0.5);
  EXPECT_NEAR(exact_interval(10, 1 / kHour_s), 261.7, 0.05);
  EXPECT_NEAR(young_interval(10, 1 / kHour_s), 268.3, 0.05);
  EXPECT_EQ(exact_interval(10, 0), kInfinity);
  EXPECT_EQ(young_interval(10, 0), kInfinity);
}

TEST(Interval, no_other_interval_wastes_less_under_exponential_failures) {
  for (const double cost : {1.0, 30.0, 600.0, 7200.0}) {
    const double h = 1 / kHour_s;
    const auto waste = [&](double t) { return std::expm1(h * (t + cost)) / t; };
    const double best = exact_interval(cost, h);

    for (double factor = 0.5; factor < 2; factor *= 1.01) {
      EXPECT_LE(waste(best), waste(best * factor) * (1 + 1e-12)) << cost << " " << factor;
    }
  }
}

TEST(Plan, a_constant_hazard_and_cost_give_young) {
  const CheckpointJob job = a_job(1, 10, 1 / kHour_s, 100 * kMb);

  const CheckpointPlan plan = plan_intervals({&job, 1}, kWide, kNoLimits);

  EXPECT_NEAR(plan.interval_s[0], young_interval(10, 1 / kHour_s), 0.01);
  EXPECT_NEAR(plan.interval_s[0], exact_interval(10, 1 / kHour_s), 0.03 * 261.7);
  EXPECT_EQ(plan.price, 0);
}

TEST(Plan, doubling_the_hazard_divides_the_interval_by_root_two) {
  const CheckpointJob calm = a_job(1, 10, 1 / kHour_s, 100 * kMb);
  const CheckpointJob restless = a_job(1, 10, 2 / kHour_s, 100 * kMb);

  const double before = plan_intervals({&calm, 1}, kWide, kNoLimits).interval_s[0];
  const double after = plan_intervals({&restless, 1}, kWide, kNoLimits).interval_s[0];

  EXPECT_NEAR(before / after, std::sqrt(2.0), 1e-6);
}

TEST(Plan, two_jobs_on_a_narrow_uplink_share_it_as_the_exhaustive_search_does) {
  const CheckpointPlan plan = plan_intervals(kTwoJobs, kNarrow, kNoLimits);

  EXPECT_NEAR(plan.interval_s[0], 755.2, 0.1);
  EXPECT_NEAR(plan.interval_s[1], 544.1, 0.1);
  EXPECT_NEAR(plan.weighted_waste, 0.42819, 5e-6);
  EXPECT_GT(plan.price, 0);
  EXPECT_LE(plan.demand_bytes_per_s, 0.02 * kMb);
  EXPECT_NEAR(plan.demand_bytes_per_s, 0.02 * kMb, 1);
}

TEST(Plan, incremental_checkpoints_waste_no_more_than_the_best_of_a_brute_force) {
  const CheckpointJob job = an_incremental_job();
  constexpr double kRate = 60 * kMb;

  const double chosen = interval_at_price(job, 0, kRate);

  double best = kInfinity;
  for (double t = 1; t < 20'000; t *= 1.002) best = std::min(best, waste_rate(job, t, kRate));
  EXPECT_LE(waste_rate(job, chosen, kRate), best * 1.0001);
  EXPECT_LT(chosen, interval_at_price(a_job(1, 5, job.hazard, 4000 * kMb), 0, kRate));
}

TEST(Plan, jobs_of_random_kinds_waste_within_two_percent_of_a_brute_force) {
  SeededRng rng(5);
  for (int round = 0; round < 12; ++round) {
    std::vector<CheckpointJob> jobs(2);
    for (CheckpointJob& job : jobs) {
      job = an_incremental_job();
      job.weight = 1 + static_cast<double>(rng.below(8));
      job.pause_s = 1 + 20 * rng.unit();
      job.hazard = 1 / (kHour_s * (0.3 + 10 * rng.unit()));
      job.dirty.state_bytes = (0.5 + 8 * rng.unit()) * 1000 * kMb;
      job.dirty.write_rate = (0.5 + 20 * rng.unit()) * kMb;
    }
    const UplinkShare uplink{
        .upload_bytes_per_s = 100 * kMb, .checkpoint_bytes_per_s = (0.5 + 8 * rng.unit()) * kMb};

    const CheckpointPlan plan = plan_intervals(jobs, uplink, kNoLimits);

    EXPECT_LE(plan.demand_bytes_per_s, uplink.checkpoint_bytes_per_s);
    double best = kInfinity;
    for (double a = 20; a < 40'000; a *= 1.04) {
      for (double b = 20; b < 40'000; b *= 1.04) {
        if (jobs[0].dirty.bytes(a) / a + jobs[1].dirty.bytes(b) / b >
            uplink.checkpoint_bytes_per_s) {
          continue;
        }
        best = std::min(
            best,
            jobs[0].weight * waste_rate(jobs[0], a, 100 * kMb) +
                jobs[1].weight * waste_rate(jobs[1], b, 100 * kMb)
        );
      }
    }
    EXPECT_LE(plan.weighted_waste, best * 1.02) << "round " << round;
  }
}

TEST(Plan, never_asks_for_more_than_the_uplink_gives_and_never_breaks_the_overhead_bound) {
  SeededRng rng(9);
  std::vector<double> in_force;
  std::vector<CheckpointJob> jobs(5);
  for (int round = 0; round < 500; ++round) {
    for (CheckpointJob& job : jobs) {
      if (round > 0 && rng.below(3) > 0) continue;  // some stay as they are
      job = an_incremental_job();
      job.pause_s = 30 * rng.unit();
      job.hazard = rng.below(4) == 0 ? 0 : 1 / (kHour_s * (0.05 + 20 * rng.unit()));
      job.dirty.state_bytes = 40'000 * kMb * rng.unit();
    }
    const UplinkShare uplink{
        .upload_bytes_per_s = 125 * kMb,
        .checkpoint_bytes_per_s = std::pow(10, 4 + 4 * rng.unit())};

    const CheckpointPlan plan = plan_intervals(jobs, uplink, {}, in_force);

    EXPECT_LE(plan.demand_bytes_per_s, uplink.checkpoint_bytes_per_s);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const double t = plan.interval_s[i];
      EXPECT_LE(checkpoint_cost(jobs[i], t, 125 * kMb), 0.035 * t * (1 + 1e-9));
      EXPECT_GE(t, 10);
    }
    in_force = plan.interval_s;
  }
}

TEST(Plan, is_monotone_in_the_weight) {
  double last = kInfinity;
  for (const double weight : {0.5, 1.0, 2.0, 8.0}) {
    std::vector<CheckpointJob> jobs = kTwoJobs;
    jobs[0].weight = weight;
    const double interval = plan_intervals(jobs, kNarrow, kNoLimits).interval_s[0];
    EXPECT_LT(interval, last);
    last = interval;
  }
}

TEST(Plan, a_safe_job_still_saves_every_two_hours_and_a_link_without_room_carries_nothing) {
  const CheckpointJob safe = a_job(1, 5, 0, 100 * kMb);

  EXPECT_EQ(plan_intervals({&safe, 1}, kWide, {}).interval_s[0], 7200);
  EXPECT_EQ(plan_intervals({&safe, 1}, {.upload_bytes_per_s = 1e6}, {}).interval_s[0], kInfinity);
}

TEST(Plan, the_uplink_wins_over_the_longest_interval) {
  const CheckpointJob large = a_job(1, 1, 1 / kHour_s, 100'000 * kMb);
  const UplinkShare uplink{.upload_bytes_per_s = 100 * kMb, .checkpoint_bytes_per_s = 2 * kMb};

  const CheckpointPlan plan = plan_intervals({&large, 1}, uplink, {});

  EXPECT_NEAR(plan.interval_s[0], 50'000, 1);
}

TEST(Plan, small_changes_do_not_move_the_interval_and_large_ones_do) {
  const std::vector<double> in_force = plan_intervals(kTwoJobs, kWide, {}).interval_s;
  std::vector<CheckpointJob> slightly = kTwoJobs;
  slightly[0].hazard *= 1.15;
  std::vector<CheckpointJob> much = kTwoJobs;
  much[0].hazard *= 1.5;

  EXPECT_EQ(plan_intervals(slightly, kWide, {}, in_force).interval_s, in_force);
  EXPECT_LT(plan_intervals(much, kWide, {}, in_force).interval_s[0], in_force[0]);
}

TEST(Plan, a_link_that_becomes_narrow_is_obeyed_at_once) {
  std::vector<double> in_force = plan_intervals(kTwoJobs, kNarrow, {}).interval_s;
  const UplinkShare narrower{.upload_bytes_per_s = 1e18, .checkpoint_bytes_per_s = 0.019 * kMb};

  const CheckpointPlan plan = plan_intervals(kTwoJobs, narrower, {}, in_force);

  EXPECT_LE(plan.demand_bytes_per_s, 0.019 * kMb);
}

TEST(Plan, an_interval_that_became_too_expensive_does_not_stay_however_close_it_is) {
  const CheckpointJob before = a_job(1, 7, 1 / 600.0, 0);
  const CheckpointJob now = a_job(1, 7.35, 1 / 600.0, 0);
  const std::vector<double> in_force = plan_intervals({&before, 1}, kWide, {}).interval_s;
  ASSERT_NEAR(in_force[0], 200, 1e-6);  // held by the overhead bound

  EXPECT_NEAR(plan_intervals({&now, 1}, kWide, {}, in_force).interval_s[0], 210, 1e-6);
}

TEST(Plan, a_link_that_comes_back_carries_checkpoints_again) {
  const std::vector<double> nothing = plan_intervals(kTwoJobs, {}, {}).interval_s;
  ASSERT_EQ(nothing[0], kInfinity);

  const CheckpointPlan plan = plan_intervals(kTwoJobs, kWide, {}, nothing);

  EXPECT_EQ(plan.interval_s, plan_intervals(kTwoJobs, kWide, {}).interval_s);
}

TEST(Plan, absurd_numbers_give_a_plan_that_still_saves) {
  const double nan = std::nan("");
  for (const double absurd : {nan, -1.0, kInfinity, -kInfinity}) {
    std::vector<CheckpointJob> jobs = kTwoJobs;
    jobs[0] = {
        .weight = absurd,
        .hazard = absurd,
        .pause_s = absurd,
        .slowdown = absurd,
        .restart_s = absurd,
        .dirty = {.state_bytes = absurd, .write_rate = absurd, .stored_share = absurd}};

    const CheckpointPlan plan =
        plan_intervals(jobs, {.upload_bytes_per_s = 1e8, .checkpoint_bytes_per_s = 2e4}, {});

    EXPECT_LE(plan.demand_bytes_per_s, 2e4) << absurd;
    EXPECT_GE(plan.interval_s[0], 10) << absurd;
    EXPECT_TRUE(std::isfinite(plan.interval_s[1])) << absurd;
  }
  const CheckpointJob job = a_job(1, 5, nan, 1e6);
  EXPECT_EQ(plan_intervals({&job, 1}, kWide, {}).interval_s[0], 7200);
  EXPECT_EQ(plan_intervals({&job, 1}, {nan, nan}, {}).interval_s[0], kInfinity);
}

TEST(Plan, a_hazard_that_is_three_times_wrong_costs_at_most_a_sixth_more) {
  const CheckpointJob job = a_job(1, 10, 1 / kHour_s, 100 * kMb);
  const double best = waste_rate(job, plan_intervals({&job, 1}, kWide, {}).interval_s[0], 1e18);
  for (const double wrong : {3.0, 1 / 3.0}) {
    CheckpointJob believed = job;
    believed.hazard *= wrong;
    const double interval = plan_intervals({&believed, 1}, kWide, {}).interval_s[0];

    EXPECT_LE(waste_rate(job, interval, 1e18), best * 1.16) << wrong;
  }
}

/// Jobs whose numbers go up and down a little from look to look.
struct SlowChange {
  SeededRng rng{11};
  std::vector<CheckpointJob> jobs = {
      an_incremental_job(), a_job(2, 5, 1 / 1800.0, 800 * kMb), a_job(1, 2, 1 / kHour_s, 90 * kMb)};
  double rate = 100 * kMb;

  void go_on() {
    const auto change = [this](double& number) { number *= std::exp(0.004 * (rng.unit() - 0.5)); };
    change(rate);
    for (CheckpointJob& job : jobs) {
      for (double* number : {&job.hazard, &job.pause_s, &job.dirty.state_bytes}) change(*number);
    }
  }
};

TEST(IntervalPlanner, makes_few_plans_and_stays_close_to_those_that_would_be_made_at_each_look) {
  constexpr int kLooks = 5000;
  SlowChange now;
  IntervalPlanner planner({.hysteresis = 0});
  std::vector<double> in_force(now.jobs.size(), kInfinity);
  for (int look = 0; look < kLooks; ++look) {
    now.go_on();
    const UplinkShare wide{
        .upload_bytes_per_s = now.rate, .checkpoint_bytes_per_s = 1000 * now.rate};
    in_force = planner.plan(now.jobs, wide, in_force).interval_s;
    const CheckpointPlan anew = plan_intervals(now.jobs, wide, {.hysteresis = 0});
    for (std::size_t i = 0; i < in_force.size(); ++i)
      ASSERT_NEAR(in_force[i], anew.interval_s[i], 0.03 * anew.interval_s[i]) << look;
  }
  EXPECT_GT(planner.made(), 10u);
  EXPECT_LT(planner.made(), kLooks / 10);
}

double demand_of(const std::vector<CheckpointJob>& jobs, const std::vector<double>& intervals) {
  double demand = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i)
    demand += jobs[i].dirty.bytes(intervals[i]) / intervals[i];
  return demand;
}

TEST(IntervalPlanner, never_asks_for_more_than_a_narrow_link_gives_and_still_makes_few_plans) {
  SlowChange now;
  IntervalPlanner planner(IntervalLimits{});
  std::vector<double> in_force(now.jobs.size(), kInfinity);
  for (int look = 0; look < 2000; ++look) {
    now.go_on();
    const UplinkShare narrow{
        .upload_bytes_per_s = now.rate, .checkpoint_bytes_per_s = 0.01 * now.rate};
    in_force = planner.plan(now.jobs, narrow, in_force).interval_s;
    ASSERT_LE(demand_of(now.jobs, in_force), narrow.checkpoint_bytes_per_s) << look;
    ASSERT_GE(demand_of(now.jobs, in_force), 0.9 * narrow.checkpoint_bytes_per_s) << look;
  }
  EXPECT_LT(planner.made(), 500u);
}

TEST(IntervalPlanner, keeps_both_bounds_for_random_jobs_and_links_at_every_look) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SeededRng rng(seed);
    std::vector<CheckpointJob> jobs(1 + rng.below(6));
    double share = 0;
    IntervalPlanner planner(IntervalLimits{});
    std::vector<double> in_force;
    for (int look = 0; look < 400; ++look) {
      for (CheckpointJob& job : jobs) {
        job.hazard *= std::exp(0.01 * (rng.unit() - 0.5));
        job.pause_s *= std::exp(0.01 * (rng.unit() - 0.5));
        job.dirty.state_bytes *= std::exp(0.01 * (rng.unit() - 0.5));
        job.dirty.write_rate *= std::exp(0.01 * (rng.unit() - 0.5));
        if (look > 0 && rng.below(200) > 0) continue;  // another one in its place, now and then
        job = an_incremental_job();
        job.pause_s = 30 * rng.unit();
        job.hazard = rng.below(4) == 0 ? 0 : 1 / (kHour_s * (0.05 + 20 * rng.unit()));
        job.dirty.state_bytes = 40'000 * kMb * rng.unit();
      }
      share *= std::exp(0.01 * (rng.unit() - 0.5));
      if (look == 0 || rng.below(100) == 0) share = std::pow(10, 4 + 4 * rng.unit());
      in_force.resize(jobs.size(), kInfinity);
      const UplinkShare uplink{.upload_bytes_per_s = 125 * kMb, .checkpoint_bytes_per_s = share};

      in_force = planner.plan(jobs, uplink, in_force).interval_s;

      ASSERT_LE(demand_of(jobs, in_force), share) << seed << " " << look;
      for (std::size_t i = 0; i < jobs.size(); ++i)
        ASSERT_LE(checkpoint_cost(jobs[i], in_force[i], 125 * kMb), 0.035 * in_force[i]) << seed;
    }
  }
}

TEST(IntervalPlanner, another_job_or_a_jump_is_planned_for_at_once) {
  std::vector<CheckpointJob> jobs = kTwoJobs;
  IntervalPlanner planner(IntervalLimits{});
  std::vector<double> in_force(2, kInfinity);
  in_force = planner.plan(jobs, kWide, in_force).interval_s;
  planner.plan(jobs, kWide, in_force);
  EXPECT_EQ(planner.made(), 1u);

  jobs[1].hazard /= 4;
  EXPECT_GT(planner.plan(jobs, kWide, in_force).interval_s[1], 1.5 * in_force[1]);
  in_force[1] = kInfinity;
  in_force = planner.plan(jobs, kWide, in_force).interval_s;
  EXPECT_EQ(planner.made(), 3u) << "another job has no interval yet";
  jobs.push_back(a_job(1, 5, 1 / kHour_s, kMb));
  in_force.push_back(kInfinity);
  EXPECT_EQ(planner.plan(jobs, kWide, in_force).interval_s.size(), 3u);
}

TEST(Notice, departures_that_it_absorbs_are_no_hazard) {
  const NoticeMix mix{
      .emergency_share = 0.1,
      .notices = {{.share = 2, .min_s = 60, .max_s = 600}, {.share = 1, .min_s = 30, .max_s = 30}}};

  EXPECT_DOUBLE_EQ(chance_of_short_notice(mix, 10), 0.1);
  EXPECT_DOUBLE_EQ(chance_of_short_notice(mix, 40), 0.1 + 0.9 / 3);
  EXPECT_DOUBLE_EQ(chance_of_short_notice(mix, 330), 0.1 + 0.9 * (1.0 / 3 + 2.0 / 3 * 0.5));
  EXPECT_DOUBLE_EQ(chance_of_short_notice(mix, 1e9), 1);
  EXPECT_DOUBLE_EQ(chance_of_short_notice({}, 0), 1);
  EXPECT_DOUBLE_EQ(effective_hazard(0.01, mix, 10), 0.001);
}

TEST(DirtyCurve, the_measured_write_rate_is_found_again) {
  const DirtyCurve truth{.state_bytes = 1000 * kMb, .write_rate = 3 * kMb, .stored_share = 0.5};
  DirtyCurveFit fit;

  for (const double t : {60.0, 400.0, 120.0, 200.0}) {
    const double dirty = truth.bytes(t) / 0.5;
    fit.observe(t, 1000 * kMb, dirty, dirty / 2);
  }

  EXPECT_NEAR(fit.curve().write_rate, 3 * kMb, 1);
  EXPECT_NEAR(fit.curve().stored_share, 0.5, 1e-9);
  EXPECT_NEAR(fit.curve().bytes(300), truth.bytes(300), 100);
}

TEST(DirtyCurve, follows_a_job_that_changes_its_habits) {
  DirtyCurveFit fit;
  for (int i = 0; i < 20; ++i) fit.observe(100, 1e9, 1e7, 1e7);
  for (int i = 0; i < 20; ++i) fit.observe(100, 1e9, 3e8, 3e8);

  EXPECT_NEAR(fit.curve().bytes(100), 3e8, 1e7);
}

TEST(DirtyCurve, an_unmeasured_or_rewritten_state_is_dirty_as_a_whole) {
  DirtyCurveFit fit;
  fit.observe(-1, 1e9, 1e7, 1e7);
  EXPECT_EQ(fit.seconds, 0);
  fit.state_bytes = 5e8;
  EXPECT_EQ(fit.curve().bytes(1), 5e8);

  fit.observe(10, 1e9, 1e9, 1e9);
  EXPECT_GT(fit.curve().bytes(10), 0.97e9);
}

}  // namespace
}  // namespace rn::reclaim
