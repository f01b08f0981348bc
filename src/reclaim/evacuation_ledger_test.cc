// SPDX-License-Identifier: Apache-2.0
#include "reclaim/evacuation_ledger.h"

#include <cmath>

#include <gtest/gtest.h>

#include "reclaim/evacuation_cases.h"

namespace rn::reclaim {
namespace {

TEST(Bandwidth, its_quantiles_are_those_that_it_was_given) {
  const Bandwidth b{.q10 = 40, .median = 100};

  EXPECT_NEAR(chance_of_rate(b, 40), 0.90, 1e-9);
  EXPECT_NEAR(chance_of_rate(b, 100), 0.50, 1e-9);
  EXPECT_NEAR(rate_with_chance(b, 0.90), 40, 1e-6);
  EXPECT_LT(rate_with_chance(b, 0.95), 40);
  EXPECT_NEAR(chance_of_rate(b, rate_with_chance(b, 0.95)), 0.95, 1e-9);
}

TEST(Bandwidth, a_certain_rate_is_reached_or_not_and_none_carries_nothing) {
  EXPECT_EQ(chance_of_rate({.q10 = 10, .median = 10}, 10), 1);
  EXPECT_EQ(chance_of_rate({.q10 = 10, .median = 10}, 10.1), 0);
  EXPECT_EQ(rate_with_chance({.q10 = 10, .median = 10}, 0.95), 10);
  EXPECT_EQ(chance_of_rate({.q10 = 0, .median = 10}, 1), 0);
  EXPECT_EQ(chance_of_rate({.q10 = -5, .median = std::nan("")}, 1), 0);
  EXPECT_EQ(chance_of_rate({.q10 = 0, .median = 0}, 0), 1);
}

TEST(Stay, of_a_constant_hazard_it_is_the_closed_form) {
  const StayCurve curve = a_stay_curve(1e-4);

  EXPECT_NEAR(expected_stay_s(curve, 0, 7200), (1 - std::exp(-0.72)) / 1e-4, 1e-6);
  EXPECT_NEAR(
      expected_stay_s(curve, 100, 200'000), (std::exp(-0.01) - std::exp(-20.0)) / 1e-4, 1e-6
  );
  EXPECT_EQ(expected_stay_s({}, 5, 10), 5);
  EXPECT_EQ(expected_stay_s(curve, 10, 10), 0);
}

TEST(Stay, nothing_is_expected_after_an_announced_departure) {
  StayCurve curve = a_stay_curve(0);
  curve.leaves_in_s = 600;

  EXPECT_EQ(expected_stay_s(curve, 100, 3600), 500);
  EXPECT_EQ(expected_stay_s(curve, 700, 3600), 0);
}

TEST(Stay, samples_that_rise_or_cannot_be_do_not_make_a_node_immortal) {
  StayCurve curve;
  curve.samples = {{300, 0.5}, {200, 0.9}, {600, 0.8}, {1200, std::nan("")}};
  const double stay = expected_stay_s(curve, 0, 1e6);

  EXPECT_GT(stay, 0);
  EXPECT_LT(stay, 1200);
}

TEST(Ledger, what_is_undone_leaves_no_trace) {
  EvacuationCase c = a_case(3, 2, 8, 4);
  for (auto& job : c.jobs)
    for (std::size_t n = 2; n < 10; ++n) job.options[n].can_run = true;
  const EvacuationPolicy policy;
  Ledger ledger(c.site, c.jobs, policy);
  std::vector<std::optional<double>> before;
  for (std::size_t n = 0; n < 10; ++n) before.push_back(ledger.assess(1, n));

  for (std::size_t n = 2; n < 10; ++n) {
    ledger.send(0, n);
    ledger.place(0, n);
    ledger.unplace(0, n);
    ledger.unsend(0, n);
  }

  for (std::size_t n = 0; n < 10; ++n) EXPECT_EQ(ledger.assess(1, n), before[n]);
}

TEST(ForecastTrust, forecasts_that_tell_owners_apart_keep_it_and_a_common_factor_changes_nothing) {
  ForecastTrust once;
  ForecastTrust thrice;
  SeededRng rng(4);
  for (int i = 0; i < 200; ++i) {
    const std::vector<double> rates = {1e-5, 1e-4, 1e-3};
    std::vector<double> threefold = {3e-5, 3e-4, 3e-3};
    const double draw = rng.unit() * 1.11e-3;
    const std::size_t who = draw < 1e-5 ? 0 : draw < 1.1e-4 ? 1 : 2;
    once.departed(rates, who);
    thrice.departed(threefold, who);
  }

  EXPECT_EQ(once.trust(), 1);
  EXPECT_EQ(once.trust(), thrice.trust());
}

TEST(ForecastTrust, forecasts_that_blame_the_wrong_ones_lose_it_and_may_win_it_back) {
  ForecastTrust trust;
  const std::vector<double> rates = {1e-5, 1e-3};
  trust.departed(rates, 0);
  EXPECT_EQ(trust.trust(), 0);
  for (int i = 0; i < 20; ++i) trust.departed(rates, 1);
  EXPECT_EQ(trust.trust(), 1);

  trust.departed(std::vector<double>{1e-3}, 0);
  trust.departed(std::vector<double>{0, 1e-3}, 0);
  EXPECT_EQ(trust.trust(), 1) << "nothing can be learnt from one, or from what cannot be";
}

}  // namespace
}  // namespace rn::reclaim
