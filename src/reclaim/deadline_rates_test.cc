// SPDX-License-Identifier: Apache-2.0
#include "reclaim/deadline_rates.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace rn::reclaim {
namespace {

constexpr double kMega = 1e6;
constexpr double kTick_s = 0.2;
constexpr LinkGuard kNoGuard{.margin_share = 0, .burst_share = 0};

RatePlan plan_rates(
    const std::vector<Transfer>& set, std::span<const Link> links, const LinkGuard& guard
) {
  return RatePlanner(guard).plan(0, set, links, kTick_s);
}

Link a_link(double rate) {
  return {.capacity = rate};
}

/// Due at `due`: its deadline holds the slack of 5 %.
Transfer an_evacuation(
    double bytes, double due, double value, std::vector<std::uint32_t> links = {0}
) {
  return {.bytes = bytes, .deadline_s = due / 0.95, .value = value, .links = std::move(links)};
}

Transfer background(TransferClass kind, double bytes, double value) {
  return {.bytes = bytes, .value = value, .kind = kind, .links = {0}};
}

double uniform(Rng& rng, double from, double to) {
  return from + (to - from) * static_cast<double>(rng.next() >> 11) * 0x1p-53;
}

/// No schedule of one link can do more.
bool meets_demand_bound(const std::vector<Transfer>& set, double rate) {
  return std::all_of(set.begin(), set.end(), [&](const Transfer& last) {
    double demand = 0;
    for (const Transfer& one : set) demand += due_s(one) <= due_s(last) ? one.bytes : 0;
    return demand <= rate * due_s(last) * (1 + 1e-9);
  });
}

std::vector<Transfer> some_evacuations(Rng& rng, std::size_t count, double load) {
  std::vector<Transfer> set;
  for (std::size_t i = 0; i < count; ++i) {
    const double due = uniform(rng, 5, 120);
    const double bytes =
        uniform(rng, 0.1, 1.9) * load * 100 * kMega * 120 / static_cast<double>(count);
    const double value = uniform(rng, 1, 100);
    set.push_back(an_evacuation(bytes, due, value));
    set.back().id = i;
  }
  return set;
}

double best_value(const std::vector<Transfer>& set, double rate) {
  double best = 0;
  for (std::size_t mask = 0; mask < (std::size_t{1} << set.size()); ++mask) {
    std::vector<Transfer> chosen;
    double value = 0;
    for (std::size_t i = 0; i < set.size(); ++i) {
      if ((mask >> i & 1) == 0) continue;
      chosen.push_back(set[i]);
      value += set[i].value;
    }
    if (value > best && meets_demand_bound(chosen, rate)) best = value;
  }
  return best;
}

TEST(Admission, what_the_demand_bound_allows_is_admitted_and_nothing_more) {
  SeededRng rng(41);
  int fitting = 0;
  for (int round = 0; round < 300; ++round) {
    const auto set = some_evacuations(rng, 8, uniform(rng, 0.1, 0.9));
    const Link link = a_link(100 * kMega);

    const RatePlan plan = plan_rates(set, {&link, 1}, kNoGuard);

    std::vector<Transfer> admitted;
    for (std::size_t i = 0; i < set.size(); ++i) {
      if (plan.is_admitted[i]) admitted.push_back(set[i]);
    }
    EXPECT_TRUE(meets_demand_bound(admitted, link.capacity)) << round;
    const bool all_fit = meets_demand_bound(set, link.capacity);
    EXPECT_EQ(admitted.size() == set.size(), all_fit) << round;
    fitting += all_fit ? 1 : 0;
  }
  EXPECT_GT(fitting, 30);
  EXPECT_LT(fitting, 270);
}

TEST(Admission, it_is_within_five_percent_of_the_best_set_at_every_load) {
  for (const double load : {0.5, 0.8, 1.0, 1.5, 3.0}) {
    SeededRng rng(static_cast<std::uint64_t>(load * 100));
    double admitted = 0;
    double possible = 0;
    for (int round = 0; round < 40; ++round) {
      const auto set = some_evacuations(rng, 10, load);
      const Link link = a_link(100 * kMega);
      const double best = best_value(set, link.capacity);
      const double mine = plan_rates(set, {&link, 1}, kNoGuard).admitted_value;
      EXPECT_LE(mine, best * (1 + 1e-9)) << "better than the best: " << load << " " << round;
      admitted += mine;
      possible += best;
    }
    EXPECT_GE(admitted, 0.95 * possible) << "load " << load;
  }
}

TEST(Admission, a_promise_is_not_broken_for_something_more_valuable) {
  RatePlanner planner(kNoGuard);
  std::vector<Transfer> set = {an_evacuation(900 * kMega, 10, 1)};
  const Link link = a_link(100 * kMega);
  ASSERT_TRUE(planner.plan(0, set, {&link, 1}, kTick_s).is_admitted[0]);
  set.push_back(an_evacuation(900 * kMega, 10, 1000));
  set.back().id = 1;

  const RatePlan plan = planner.plan(0, set, {&link, 1}, kTick_s);

  EXPECT_EQ(plan.is_admitted, (std::vector<bool>{true, false}));
  EXPECT_DOUBLE_EQ(plan.rates[0], 100 * kMega);
}

TEST(Admission, when_a_link_gets_slower_the_more_valuable_promise_is_kept) {
  RatePlanner planner(kNoGuard);
  std::vector<Transfer> set = {
      an_evacuation(450 * kMega, 10, 5), an_evacuation(450 * kMega, 10, 6)};
  set[1].id = 1;
  const Link fast = a_link(100 * kMega);
  const Link slow = a_link(50 * kMega);
  ASSERT_EQ(planner.plan(0, set, {&fast, 1}, kTick_s).admitted_value, 11);

  EXPECT_EQ(
      planner.plan(0, set, {&slow, 1}, kTick_s).is_admitted, (std::vector<bool>{false, true})
  );
}

TEST(Admission, a_link_that_is_down_or_nonsense_admits_nothing) {
  for (const double capacity : {0.0, -5.0, std::nan("")}) {
    const std::vector<Transfer> set = {an_evacuation(1, 60, 1)};
    const Link link = a_link(capacity);

    const RatePlan plan = plan_rates(set, {&link, 1}, LinkGuard{});

    EXPECT_FALSE(plan.is_admitted[0]) << capacity;
    EXPECT_EQ(plan.rates[0], 0) << capacity;
  }
}

TEST(Admission, what_is_too_late_or_not_a_number_takes_no_room_from_others) {
  auto late = an_evacuation(10 * kMega, 1, 1e6);
  late.deadline_s = -3;
  auto nonsense = an_evacuation(std::nan(""), 10, std::nan(""));
  std::vector<Transfer> set = {late, nonsense, an_evacuation(990 * kMega, 10, 1)};
  for (std::size_t i = 0; i < set.size(); ++i) set[i].id = i;
  const Link link = a_link(100 * kMega);

  const RatePlan plan = plan_rates(set, {&link, 1}, kNoGuard);

  EXPECT_FALSE(plan.is_admitted[0]);
  EXPECT_TRUE(plan.is_admitted[2]);
  EXPECT_EQ(plan.rates[1], 0);
}

TEST(Rates, the_earliest_deadline_takes_what_is_spare_and_checkpoints_come_before_prefetches) {
  std::vector<Transfer> set = {
      background(TransferClass::kPrefetch, 1000 * kMega, 1),
      background(TransferClass::kCheckpoint, 5 * kMega, 1),
      an_evacuation(10 * kMega, 60, 1),
      an_evacuation(4 * kMega, 30, 1)};
  for (std::size_t i = 0; i < set.size(); ++i) set[i].id = i;
  const Link link = a_link(100 * kMega);

  const auto rates = plan_rates(set, {&link, 1}, kNoGuard).rates;

  EXPECT_DOUBLE_EQ(rates[3], 20 * kMega) << "all 4 MB in this tick";
  EXPECT_DOUBLE_EQ(rates[2], 50 * kMega);
  EXPECT_DOUBLE_EQ(rates[1], 25 * kMega);
  EXPECT_DOUBLE_EQ(rates[0], 5 * kMega) << "what is left";
}

TEST(Rates, without_an_evacuation_guests_leave_the_background_and_a_margin_alone) {
  const std::vector<Transfer> set = {background(TransferClass::kCheckpoint, 1e12, 1)};
  const Link link{.capacity = 100 * kMega, .background = 30 * kMega, .burst_left_s = 60};

  EXPECT_DOUBLE_EQ(plan_rates(set, {&link, 1}, LinkGuard{}).rates[0], 65 * kMega);
}

TEST(Rates, an_evacuation_may_take_the_burst_for_as_long_as_it_lasts) {
  const Link link{.capacity = 100 * kMega, .background = 70 * kMega, .burst_left_s = 10};
  const auto admitted = [&](double bytes) {
    const std::vector<Transfer> set = {an_evacuation(bytes, 20, 1)};
    return plan_rates(set, {&link, 1}, LinkGuard{});
  };

  // 10 s of 90 MB/s, then 10 s of the 25 MB/s that the guard leaves.
  EXPECT_TRUE(admitted(1149 * kMega).is_admitted[0]);
  EXPECT_FALSE(admitted(1151 * kMega).is_admitted[0]);
  EXPECT_DOUBLE_EQ(admitted(1149 * kMega).rates[0], 90 * kMega);
}

struct Site {
  std::vector<Link> links;  ///< uplinks, then one that they share
  LinkGuard guard;

  explicit Site(Rng& rng) {
    for (int i = 0; i < 6; ++i) links.push_back(a_link(uniform(rng, 10, 120) * kMega));
    links.push_back(a_link(uniform(rng, 50, 200) * kMega));
  }

  std::vector<std::uint32_t> a_path(Rng& rng) const {
    const auto from = static_cast<std::uint32_t>(rng.next() % 6);
    const auto to = static_cast<std::uint32_t>((from + 1 + rng.next() % 5) % 6);
    if (from / 3 == to / 3) return {from, to};
    return {from, 6, to};
  }
};

std::vector<double> loads_of(
    const Site& site, const std::vector<Transfer>& set, const RatePlan& plan
) {
  std::vector<double> loads(site.links.size());
  for (std::size_t i = 0; i < set.size(); ++i) {
    for (const std::uint32_t link : set[i].links) loads[link] += plan.rates[i];
  }
  return loads;
}

TEST(Rates, links_are_never_promised_twice) {
  SeededRng rng(7);
  for (int round = 0; round < 200; ++round) {
    const Site site(rng);
    std::vector<Transfer> set;
    for (int i = 0; i < 20; ++i) {
      const double bytes = uniform(rng, 1, 2000) * kMega;
      const double due = uniform(rng, 0.1, 100);
      const double value = uniform(rng, 0, 10);
      set.push_back(an_evacuation(bytes, due, value, site.a_path(rng)));
      set.back().kind = static_cast<TransferClass>(rng.next() % 4);
      set.back().id = static_cast<std::uint64_t>(i);
    }

    const RatePlan plan = plan_rates(set, site.links, site.guard);

    const auto loads = loads_of(site, set, plan);
    for (std::size_t link = 0; link < loads.size(); ++link) {
      EXPECT_LE(loads[link], guarded_rate(site.links[link], site.guard) * (1 + 1e-9));
    }
  }
}

/// Time passes in ticks, new evacuations come, and each tick is planned anew.
class Evening {
 public:
  explicit Evening(std::uint64_t seed) : rng_(seed), site_(rng_), planner_(site_.guard) {}

  void pass(double seconds) {
    for (int tick = 0; tick * kTick_s < seconds; ++tick) {
      if (rng_.below(8) == 0) arrive();
      step(tick * kTick_s);
    }
  }

  int admitted = 0;
  int missed = 0;

 private:
  void arrive() {
    const double due = uniform(rng_, 10, 90);
    const double bytes = uniform(rng_, 10, 1500) * kMega;
    const double value = uniform(rng_, 1, 50);
    under_way_.push_back(an_evacuation(bytes, due, value, site_.a_path(rng_)));
    under_way_.back().id = next_id_++;
  }

  /// What is not admitted is degraded by the caller.
  void step(double now_s) {
    const RatePlan plan = planner_.plan(now_s, under_way_, site_.links, kTick_s);
    std::vector<Transfer> left;
    for (std::size_t i = 0; i < under_way_.size(); ++i) {
      Transfer one = under_way_[i];
      const bool is_new = promised_.insert(one.id).second;
      if (!plan.is_admitted[i]) {
        missed += is_new ? 0 : 1;
        continue;
      }
      admitted += is_new ? 1 : 0;
      one.bytes -= plan.rates[i] * kTick_s;
      one.deadline_s -= kTick_s;
      if (one.bytes <= 1) continue;
      left.push_back(one);
    }
    under_way_ = std::move(left);
  }

  SeededRng rng_;
  Site site_;
  RatePlanner planner_;
  std::vector<Transfer> under_way_;
  std::set<std::uint64_t> promised_;
  std::uint64_t next_id_ = 0;
};

TEST(Rates, what_is_admitted_arrives_when_the_forecast_holds) {
  int admitted = 0;
  int missed = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Evening evening(seed);
    evening.pass(300);
    admitted += evening.admitted;
    missed += evening.missed;
  }
  EXPECT_GT(admitted, 300);
  EXPECT_EQ(missed, 0) << "of " << admitted;
}

class Guarded : public ::testing::Test {
 protected:
  /// Four looks a second.
  void look(double rtt_s, int times = 1, double least_s = 0) {
    for (int i = 0; i < times; ++i) guard_.observe(now_s_ += 0.25, rtt_s, least_s);
  }

  LatencyGuard guard_{0.025};
  double now_s_ = 1000;
};

TEST_F(Guarded, traffic_without_deadlines_makes_way_when_others_wait_and_comes_back) {
  look(0.002);
  EXPECT_EQ(guard_.share(), 1);

  look(0.060, 3);
  EXPECT_EQ(guard_.share(), 1.0 / 8);
  EXPECT_NEAR(guard_.waits_s(), 0.058, 1e-9);
  look(0.5, 20);
  EXPECT_EQ(guard_.share(), 1.0 / 64) << "it never stops altogether";

  look(-1);
  look(std::nan(""));
  EXPECT_EQ(guard_.share(), 1.0 / 64);
  look(0.003, 31);
  EXPECT_LT(guard_.share(), 0.55);
  look(0.003, 33);
  EXPECT_EQ(guard_.share(), 1);
}

TEST_F(Guarded, a_round_trip_within_the_target_slows_nobody) {
  look(0.002);
  look(0.026, 1000);
  EXPECT_EQ(guard_.share(), 1);
}

TEST_F(Guarded, a_path_that_is_full_when_it_is_first_seen_counts_by_the_least_that_is_known) {
  look(0.060, 2, 0.002);
  EXPECT_EQ(guard_.share(), 0.25);
}

TEST_F(Guarded, a_longer_route_slows_for_ten_minutes_at_most) {
  look(0.002);
  look(0.080, 4 * 60 * 8);
  EXPECT_EQ(guard_.share(), 1.0 / 64);

  look(0.080, 4 * 60 * 3);
  EXPECT_EQ(guard_.share(), 1);
}

TEST_F(Guarded, what_was_slowed_before_nobody_sent_goes_on_faster) {
  look(0.002);
  look(0.080, 10);
  ASSERT_EQ(guard_.share(), 1.0 / 64);

  now_s_ += 8;
  look(0.002);
  EXPECT_NEAR(guard_.share(), 0.53, 0.01);
}

// ---- other rules, of studies

TEST(RateRule, by_fair_share_nobody_is_bounded_and_what_cannot_arrive_is_admitted_too) {
  const std::vector<Link> links = {a_link(10 * kMega)};
  const std::vector<Transfer> set = {
      an_evacuation(1000 * kMega, 10, 1), background(TransferClass::kCheckpoint, kMega, 1)};
  ASSERT_FALSE(plan_rates(set, links, kNoGuard).is_admitted[0]);

  const RatePlan plan = RatePlanner(kNoGuard, RateRule::kFairShare).plan(0, set, links, kTick_s);
  EXPECT_EQ(plan.is_admitted, (std::vector<bool>{true, false}));
  EXPECT_TRUE(std::isinf(plan.rates[0]));
  EXPECT_TRUE(std::isinf(plan.rates[1]));
}

TEST(RateRule, by_strict_priority_nothing_else_sends_where_something_with_a_deadline_does) {
  const std::vector<Link> links = {a_link(10 * kMega), a_link(10 * kMega)};
  std::vector<Transfer> set = {
      an_evacuation(kMega, 10, 1),
      background(TransferClass::kRestore, kMega, 1),
      background(TransferClass::kCheckpoint, kMega, 1)};
  set[2].links = {1};

  const RatePlan plan =
      RatePlanner(kNoGuard, RateRule::kStrictPriority).plan(0, set, links, kTick_s);
  EXPECT_TRUE(std::isinf(plan.rates[0]));
  EXPECT_EQ(plan.rates[1], 0);
  EXPECT_TRUE(std::isinf(plan.rates[2])) << "over another link";
}

TEST(RateRule, by_deadline_without_admission_the_earliest_has_the_line_although_it_cannot_arrive) {
  const std::vector<Link> links = {a_link(10 * kMega)};
  const std::vector<Transfer> set = {
      an_evacuation(50 * kMega, 20, 100),
      an_evacuation(1000 * kMega, 10, 1),
      background(TransferClass::kCheckpoint, kMega, 1)};
  ASSERT_EQ(plan_rates(set, links, kNoGuard).is_admitted, (std::vector<bool>{true, false, false}));

  const RatePlan plan = RatePlanner(kNoGuard, RateRule::kByDeadline).plan(0, set, links, kTick_s);
  EXPECT_EQ(plan.is_admitted, (std::vector<bool>{true, true, false}));
  EXPECT_EQ(plan.rates, (std::vector<double>{0, 10 * kMega, 0}));

  const RatePlan guarded =
      RatePlanner(LinkGuard{}, RateRule::kByDeadline).plan(0, set, links, kTick_s);
  EXPECT_DOUBLE_EQ(guarded.rates[1], guarded_rate(links[0], LinkGuard{}));
}

TEST(RateRule, by_value_whole_links_go_to_what_is_worth_most_and_the_rest_to_the_next) {
  const std::vector<Link> links = {a_link(10 * kMega), a_link(4 * kMega)};
  std::vector<Transfer> set = {
      an_evacuation(1000 * kMega, 10, 1), an_evacuation(1000 * kMega, 30, 100)};
  set[1].links = {0, 1};

  const RatePlan plan = RatePlanner(LinkGuard{}, RateRule::kByValue).plan(0, set, links, kTick_s);
  EXPECT_EQ(plan.is_admitted, (std::vector<bool>{true, true}));
  EXPECT_EQ(plan.rates, (std::vector<double>{6 * kMega, 4 * kMega})) << "nothing is left free";
}

}  // namespace
}  // namespace rn::reclaim
