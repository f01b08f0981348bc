// SPDX-License-Identifier: Apache-2.0
#include "sched/survival.h"

#include <cmath>

#include <gtest/gtest.h>

namespace rn::sched {
namespace {

TEST(Survival, a_constant_rate_is_exact_between_and_after_the_horizons) {
  const SurvivalCurve curve = constant_curve(1.0 / 36'000, 2.0 / 36'000);

  for (const double seconds : {60.0, 300.0, 1000.0, 36'000.0, 200'000.0}) {
    EXPECT_NEAR(survival(curve, seconds), std::exp(-seconds / 36'000), 1e-9) << seconds;
    EXPECT_NEAR(cautious_survival(curve, seconds), std::exp(-seconds / 18'000), 1e-9) << seconds;
  }
  EXPECT_NEAR(mean_survival(curve, 36'000), 0.63212056, 1e-8);
  EXPECT_NEAR(cautious_mean_survival(curve, 18'000), 0.63212056, 1e-8);
}

TEST(Survival, who_is_sure_to_stay_is_there_all_the_time) {
  EXPECT_DOUBLE_EQ(survival(SurvivalCurve{}, 1e9), 1);
  EXPECT_DOUBLE_EQ(mean_survival(SurvivalCurve{}, 1e6), 1);
  EXPECT_DOUBLE_EQ(survival(SurvivalCurve{}, 0), 1);
}

TEST(Survival, a_risk_that_is_over_soon_counts_less_for_a_longer_job) {
  SurvivalCurve soon;
  soon.mean = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5};  // half leave within five minutes, nobody later

  EXPECT_NEAR(survival(soon, 300), 0.5, 1e-12);
  EXPECT_NEAR(survival(soon, 86'400), 0.5, 1e-12);
  EXPECT_NEAR(mean_survival(soon, 300), 0.5 / std::log(2.0), 1e-9);
  EXPECT_NEAR(mean_survival(soon, 28'800), 0.5, 0.003);
}

TEST(Survival, an_announced_departure_ends_it) {
  SurvivalCurve curve;
  curve.leaves_in_s = 1800;

  EXPECT_DOUBLE_EQ(survival(curve, 1799), 1);
  EXPECT_DOUBLE_EQ(survival(curve, 1800), 0);
  EXPECT_DOUBLE_EQ(mean_survival(curve, 900), 1);
  EXPECT_DOUBLE_EQ(mean_survival(curve, 7200), 0.25);
  EXPECT_DOUBLE_EQ(cautious_mean_survival(curve, 7200), 0.25);
  EXPECT_DOUBLE_EQ(cautious_survival(curve, 7200), 1) << "what it keeps stays there";
}

TEST(Survival, who_has_left_is_not_there) {
  SurvivalCurve curve;
  curve.leaves_in_s = 0;

  EXPECT_DOUBLE_EQ(survival(curve, 0), 0);
  EXPECT_DOUBLE_EQ(mean_survival(curve, 0), 0);
  EXPECT_DOUBLE_EQ(mean_survival(curve, 3600), 0);
}

TEST(Survival, an_impossible_curve_does_no_harm) {
  SurvivalCurve curve;
  curve.mean = {0, 0, 0.5, 0, 0, 0};  // and rising

  for (const double seconds : {0.0, 1.0, 300.0, 3600.0, 1e7}) {
    EXPECT_GE(survival(curve, seconds), 0);
    EXPECT_LE(survival(curve, seconds), 1);
    EXPECT_TRUE(std::isfinite(mean_survival(curve, seconds)));
  }
}

}  // namespace
}  // namespace rn::sched
