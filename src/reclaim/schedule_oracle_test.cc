// SPDX-License-Identifier: Apache-2.0
#include "reclaim/schedule_oracle.h"

#include <cmath>

#include <gtest/gtest.h>

#include "reclaim/checkpoint_clock.h"
#include "reclaim/checkpoint_schedule.h"

namespace rn::reclaim {
namespace {

constexpr OracleCosts kCosts{.cost_s = 10, .latency_s = 40};

/// Expected durable work of any schedule.
double expected_saved(
    const std::vector<double>& ages, const std::function<double(double)>& survival
) {
  double saved = 0;
  double last = 0;
  for (std::size_t i = 0; i < ages.size(); ++i) {
    saved += survival(ages[i] + kCosts.latency_s) * (ages[i] - last - (i > 0 ? kCosts.cost_s : 0));
    last = ages[i];
  }
  return saved;
}

/// What the product's rule does when it knows the hazard.
std::vector<double> rule(const std::function<double(double)>& hazard, double longest_s) {
  std::vector<double> ages;
  CheckpointClock clock;
  for (double age = 0; age < longest_s; age += 10) {
    const CheckpointJob job{.hazard = hazard(age), .pause_s = 10};
    const UplinkShare uplink{.upload_bytes_per_s = 1e18, .checkpoint_bytes_per_s = 1e18};
    clock.advance(10, plan_intervals({&job, 1}, uplink, {.max_overhead = 1}).interval_s[0]);
    if (!clock.is_due()) continue;
    clock.snapshot_taken();
    ages.push_back(age);
  }
  return ages;
}

TEST(SavedWork, counts_snapshots_whose_last_byte_was_durable) {
  const std::vector<double> ages = {100, 300, 500};

  EXPECT_EQ(saved_work(ages, kCosts, 139), 0);
  EXPECT_EQ(saved_work(ages, kCosts, 140), 100);
  EXPECT_EQ(saved_work(ages, kCosts, 339), 100);
  EXPECT_EQ(saved_work(ages, kCosts, 1000), 480);
}

TEST(Oracle, finds_the_constant_optimum_for_exponential_departures) {
  const double h = 1 / 3600.0;
  const auto survival = [h](double age) { return std::exp(-h * age); };

  const OracleSchedule best = best_schedule(survival, kCosts, 40'000, 10);

  ASSERT_GT(best.ages_s.size(), 5u);
  EXPECT_NEAR(best.ages_s[3] - best.ages_s[2], young_interval(10, h), 20);
  EXPECT_NEAR(best.saved_s, expected_saved(best.ages_s, survival), 1e-6);
}

TEST(Oracle, waits_for_a_departure_that_is_certain) {
  const auto survival = [](double age) { return age <= 1000 ? 1.0 : 0.0; };

  const OracleSchedule best = best_schedule(survival, kCosts, 3000, 10);

  ASSERT_EQ(best.ages_s.size(), 1u);
  EXPECT_EQ(best.ages_s[0], 960);
}

TEST(Oracle, the_rule_is_within_two_percent_when_the_hazard_is_constant) {
  const double h = 1 / 3600.0;
  const auto survival = [h](double age) { return std::exp(-h * age); };
  const double best = best_schedule(survival, kCosts, 40'000, 10).saved_s;

  const double saved = expected_saved(rule([h](double) { return h; }, 40'000), survival);

  EXPECT_LE(3600 - saved, (3600 - best) * 1.02);
}

TEST(Oracle, the_rule_is_within_fifteen_percent_when_the_hazard_falls_with_age) {
  // Weibull with shape 0.5 and scale 2 h, from an age of a minute on.
  const auto survival = [](double age) { return std::exp(-std::sqrt(age / 7200)); };
  const auto hazard = [](double age) { return 0.5 / std::sqrt(7200 * std::max(age, 60.0)); };
  const double mean = 2 * 7200;

  const double best = best_schedule(survival, kCosts, 400'000, 20).saved_s;
  const double saved = expected_saved(rule(hazard, 400'000), survival);

  EXPECT_LE(mean - saved, (mean - best) * 1.15);
  EXPECT_GE(mean - saved, mean - best);
}

}  // namespace
}  // namespace rn::reclaim
