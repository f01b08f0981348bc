// SPDX-License-Identifier: Apache-2.0
#include "reclaim/fluid_play.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "reclaim/demand_bound.h"
#include "reclaim/fluid_cases.h"

namespace rn::reclaim {
namespace {

Flow a_flow(double bytes, double due_s, LinkPath path = {0}) {
  return {.bytes = bytes, .due_s = due_s, .path = std::move(path)};
}

std::vector<BudgetCurve> links(std::initializer_list<double> rates) {
  std::vector<BudgetCurve> all;
  for (const double rate : rates) all.emplace_back(rate);
  return all;
}

std::vector<Demand> demands_of(const FluidCase& one) {
  std::vector<Demand> demands;
  for (std::size_t i = 0; i < one.flows.size(); ++i)
    demands.push_back({one.flows[i].bytes, one.flows[i].due_s, one.value[i]});
  return demands;
}

TEST(DemandBound, a_set_that_fills_every_window_fits_and_one_more_does_not) {
  const BudgetCurve budget(100);
  EXPECT_TRUE(edf_demand_bound(budget, {{1000, 20}, {1000, 10}, {1000, 30}}).fits);

  const DemandBound bound = edf_demand_bound(budget, {{1000, 10}, {1100, 20}, {800, 30}});
  EXPECT_FALSE(bound.fits);
  EXPECT_EQ(bound.first_late, 1u);
  EXPECT_DOUBLE_EQ(bound.lacking_bytes, 100);
}

TEST(DemandBound, a_forecast_that_drops_counts_from_when_it_drops) {
  BudgetCurve budget(100);
  budget.add(5, 0);
  budget.add(20, 200);

  EXPECT_TRUE(edf_demand_bound(budget, {{500, 10}, {200, 21}}).fits);
  EXPECT_FALSE(edf_demand_bound(budget, {{510, 10}}).fits);
  EXPECT_FALSE(edf_demand_bound(budget, {{500, 10}, {100, 20}}).fits);
}

TEST(DemandBound, a_deadline_in_the_past_fits_only_without_bytes) {
  EXPECT_TRUE(edf_demand_bound(BudgetCurve(100), {{0, -5}}).fits);
  EXPECT_FALSE(edf_demand_bound(BudgetCurve(100), {{10, -5}}).fits);
}

TEST(DemandBound, what_is_dropped_is_worth_least_per_byte) {
  const std::vector<Demand> demands = {{500, 10, 50}, {600, 10, 30}, {400, 10, 40}};

  EXPECT_EQ(drop_least_dense(BudgetCurve(100), demands), (std::vector<std::size_t>{1}));
}

TEST(DemandBound, with_equal_values_no_subset_that_fits_has_more_members) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SeededRng rng(seed);
    const FluidCase one = random_case(
        rng,
        {.flows = 9, .links = 1, .load = 1 + rng.unit(), .varies = true, .has_equal_values = true}
    );
    const auto dropped = drop_least_dense(one.budgets[0], demands_of(one));
    FlowSet kept;
    for (std::uint32_t i = 0; i < one.flows.size(); ++i)
      if (std::find(dropped.begin(), dropped.end(), i) == dropped.end()) kept.push_back(i);

    EXPECT_TRUE(no_link_forbids(one, kept)) << "seed " << seed;
    const double most =
        best_subset_value(one.value, [&](const FlowSet& set) { return no_link_forbids(one, set); });
    EXPECT_EQ(static_cast<double>(kept.size()), most) << "seed " << seed;
  }
}

TEST(FluidPlay, on_one_link_it_meets_exactly_what_the_demand_bound_allows) {
  int met = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SeededRng rng(seed);
    const FluidCase one = random_case(
        rng, {.flows = 8, .links = 1, .load = 0.96 + 0.08 * rng.unit(), .varies = seed % 2 == 0}
    );
    FluidPlay play(one.budgets, one.flows);
    const bool is_met = !play.first_late(all_of(one));
    met += is_met ? 1 : 0;

    EXPECT_EQ(is_met, edf_demand_bound(one.budgets[0], demands_of(one)).fits) << "seed " << seed;
  }
  EXPECT_GT(met, 100);
  EXPECT_LT(met, 300);
}

TEST(FluidPlay, what_it_meets_on_several_links_no_link_forbids) {
  int met = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SeededRng rng(seed);
    const FluidCase one =
        random_case(rng, {.flows = 10, .links = 4, .load = 0.9 + 0.2 * rng.unit(), .varies = true});
    FluidPlay play(one.budgets, one.flows);
    if (play.first_late(all_of(one))) continue;
    ++met;
    EXPECT_TRUE(no_link_forbids(one, all_of(one))) << "seed " << seed;
  }
  EXPECT_GT(met, 40);
  EXPECT_LT(met, 150);
}

TEST(FluidPlay, the_sum_of_rates_never_exceeds_a_links_budget) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SeededRng rng(seed);
    const FluidCase one = random_case(rng, {.flows = 20, .links = 5, .load = 0.5 + rng.unit()});
    FluidPlay play(one.budgets, one.flows);
    const auto rates = play.rates_now(all_of(one));
    for (LinkIndex link = 0; link < one.budgets.size(); ++link) {
      double sum = 0;
      for (std::size_t i = 0; i < one.flows.size(); ++i) {
        const LinkPath& path = one.flows[i].path;
        if (std::find(path.begin(), path.end(), link) != path.end()) sum += rates.granted[i];
      }
      EXPECT_LE(sum, one.budgets[link].at(0) * (1 + 1e-9)) << "seed " << seed;
    }
  }
}

TEST(FluidPlay, all_get_their_minimum_and_the_earliest_gets_what_is_left) {
  FluidPlay play(links({100}), {a_flow(200, 10), a_flow(600, 20)});

  const auto rates = play.rates_now({0, 1});

  EXPECT_DOUBLE_EQ(rates.minimum[0], 20);
  EXPECT_DOUBLE_EQ(rates.minimum[1], 30);
  EXPECT_DOUBLE_EQ(rates.granted[0], 70);
  EXPECT_DOUBLE_EQ(rates.granted[1], 30);
}

TEST(FluidPlay, when_minimum_rates_do_not_fit_the_earliest_goes_alone) {
  FluidPlay play(links({100}), {a_flow(1000, 10), a_flow(1000, 20)});

  const auto rates = play.rates_now({0, 1});

  EXPECT_DOUBLE_EQ(rates.granted[0], 100);
  EXPECT_DOUBLE_EQ(rates.granted[1], 0);
  EXPECT_FALSE(play.first_late({0, 1}));
}

TEST(FluidPlay, a_capped_sender_leaves_its_rest_to_the_next) {
  Flow first = a_flow(100, 10);
  first.cap_bytes_per_s = 15;
  FluidPlay play(links({100}), {first, a_flow(600, 20)});

  const auto rates = play.rates_now({0, 1});

  EXPECT_DOUBLE_EQ(rates.granted[0], 15);
  EXPECT_DOUBLE_EQ(rates.granted[1], 85);
}

TEST(FluidPlay, a_conflict_on_one_link_leaves_the_minimum_rates_of_another_alone) {
  // 0 and 1 fight for link 0; 2 and 3 share link 1 easily.
  FluidPlay play(
      links({100, 100}),
      {a_flow(1000, 10), a_flow(100, 15, {1}), a_flow(1000, 20), a_flow(400, 40, {1})}
  );

  const auto rates = play.rates_now({0, 1, 2, 3});

  EXPECT_DOUBLE_EQ(rates.granted[2], 0);
  EXPECT_DOUBLE_EQ(rates.granted[3], 10);
  EXPECT_DOUBLE_EQ(rates.granted[1], 90);
}

TEST(FluidPlay, nothing_is_met_over_a_path_that_carries_nothing) {
  FluidPlay play(links({0}), {a_flow(10, 10)});
  EXPECT_EQ(play.first_late({0}), 0u);
  EXPECT_TRUE(play.is_hopeless(0));

  BudgetCurve comes_back(0);
  comes_back.add(8, 100);
  FluidPlay later({comes_back}, {a_flow(150, 10)});
  EXPECT_FALSE(later.first_late({0}));
}

TEST(FluidPlay, the_late_ones_are_left_out_and_the_others_are_met) {
  FluidPlay play(links({100}), {a_flow(600, 5), a_flow(400, 10), a_flow(500, 15)});

  EXPECT_EQ(play.without_late({0, 1, 2}), (FlowSet{1, 2}));
}

TEST(FluidPlay, many_flows_are_played_in_bounded_work) {
  SeededRng rng(7);
  const FluidCase one = random_case(rng, {.flows = 800, .links = 40, .load = 1.02});
  FluidPlay play(one.budgets, one.flows);

  (void)play.first_late(all_of(one));

  EXPECT_LT(play.work(), 800u * (1024 + 800));
}

}  // namespace
}  // namespace rn::reclaim
