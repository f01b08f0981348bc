// SPDX-License-Identifier: Apache-2.0
// Restores between evacuations and checkpoints: who comes first, and what no restore may do.
#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "reclaim/deadline_rates.h"
#include "reclaim/spare_rates.h"

namespace rn::reclaim {
namespace {

constexpr double kMegabyte = 1e6;
constexpr double kRestoreTick_s = 0.25;
constexpr LinkGuard kPlain{.margin_share = 0, .burst_share = 0};

Transfer one_of(TransferClass kind, std::uint64_t id, double bytes, double value = 1) {
  Transfer transfer;
  transfer.id = id;
  transfer.kind = kind;
  transfer.bytes = bytes;
  transfer.value = value;
  transfer.links = {0};
  return transfer;
}

Transfer evacuation_due(std::uint64_t id, double bytes, double due_in_s) {
  Transfer transfer = one_of(TransferClass::kEvacuation, id, bytes);
  transfer.deadline_s = due_in_s / 0.95;
  return transfer;
}

Transfer a_restore(std::uint64_t id, double bytes, double value = 1) {
  return one_of(TransferClass::kRestore, id, bytes, value);
}

/// As the coordinator and the agent use it.
std::vector<double> rates_of(const std::vector<Transfer>& set, const Link& link) {
  RatePlanner planner(kPlain);
  RatePlan plan = planner.plan(0, set, {&link, 1}, kRestoreTick_s);
  give_spare(set, {&link, 1}, kPlain, plan);
  return plan.rates;
}

TEST(Restores, a_restore_goes_before_checkpoints_and_these_before_what_nothing_waits_for) {
  const Link line{.capacity = 100 * kMegabyte};

  const auto rates = rates_of(
      {one_of(TransferClass::kPrefetch, 1, 1000 * kMegabyte),
       one_of(TransferClass::kCheckpoint, 2, 10 * kMegabyte, 1000),
       a_restore(3, 10 * kMegabyte)},
      line
  );

  EXPECT_DOUBLE_EQ(rates[2], 40 * kMegabyte) << "all of it in this tick";
  EXPECT_DOUBLE_EQ(rates[1], 40 * kMegabyte);
  EXPECT_DOUBLE_EQ(rates[0], 20 * kMegabyte);
}

TEST(Restores, of_two_the_one_goes_first_whose_guest_waits_more_for_fewer_bytes) {
  const Link line{.capacity = 100 * kMegabyte};

  const auto rates =
      rates_of({a_restore(1, 500 * kMegabyte, 10), a_restore(2, 500 * kMegabyte, 80)}, line);

  EXPECT_DOUBLE_EQ(rates[0], 0);
  EXPECT_DOUBLE_EQ(rates[1], 100 * kMegabyte);
}

TEST(Restores, beside_a_promised_evacuation_with_time_a_restore_has_its_share_and_no_more) {
  const Link line{.capacity = 100 * kMegabyte};

  const auto rates = rates_of(
      {evacuation_due(1, 1000 * kMegabyte, 60),
       a_restore(2, 5000 * kMegabyte),
       one_of(TransferClass::kCheckpoint, 3, 5000 * kMegabyte)},
      line
  );

  EXPECT_DOUBLE_EQ(rates[1], 25 * kMegabyte);
  EXPECT_DOUBLE_EQ(rates[0], 75 * kMegabyte) << "to finish early is insurance";
  EXPECT_DOUBLE_EQ(rates[2], 0);
}

TEST(Restores, several_restores_have_that_share_together) {
  const Link line{.capacity = 100 * kMegabyte};

  const auto rates = rates_of(
      {evacuation_due(1, 1000 * kMegabyte, 60),
       a_restore(2, 2 * kMegabyte),
       a_restore(3, 5000 * kMegabyte)},
      line
  );

  EXPECT_DOUBLE_EQ(rates[1], 8 * kMegabyte) << "worth more per byte";
  EXPECT_DOUBLE_EQ(rates[1] + rates[2], 25 * kMegabyte);
}

TEST(Restores, beside_an_evacuation_that_needs_its_line_a_restore_has_nothing) {
  const Link line{.capacity = 100 * kMegabyte};

  const auto rates =
      rates_of({evacuation_due(1, 950 * kMegabyte, 10), a_restore(2, 5000 * kMegabyte)}, line);

  EXPECT_DOUBLE_EQ(rates[0], 100 * kMegabyte);
  EXPECT_DOUBLE_EQ(rates[1], 0);
}

TEST(Restores, what_a_small_restore_does_not_use_is_the_evacuations) {
  const Link line{.capacity = 100 * kMegabyte};

  const auto rates =
      rates_of({evacuation_due(1, 1000 * kMegabyte, 60), a_restore(2, 1 * kMegabyte)}, line);

  EXPECT_DOUBLE_EQ(rates[1], 4 * kMegabyte);
  EXPECT_DOUBLE_EQ(rates[0], 96 * kMegabyte);
}

TEST(Restores, the_owners_traffic_and_the_margin_are_no_part_of_the_share) {
  const std::vector<Transfer> set = {
      evacuation_due(1, 1000 * kMegabyte, 60), a_restore(2, 5000 * kMegabyte)};
  const Link line{.capacity = 100 * kMegabyte, .background = 55 * kMegabyte, .burst_left_s = 120};

  const auto plan = RatePlanner(LinkGuard{}).plan(0, set, {&line, 1}, kRestoreTick_s);

  EXPECT_DOUBLE_EQ(plan.rates[1], 10 * kMegabyte);
  EXPECT_DOUBLE_EQ(plan.rates[0] + plan.rates[1], 90 * kMegabyte) << "the burst";
}

TEST(Restores, an_evacuation_that_is_not_promised_keeps_nothing_from_a_restore) {
  const Link line{.capacity = 100 * kMegabyte};

  const auto rates =
      rates_of({evacuation_due(1, 5000 * kMegabyte, 10), a_restore(2, 5000 * kMegabyte)}, line);

  EXPECT_DOUBLE_EQ(rates[1], 100 * kMegabyte);
}

/// A line over which evacuations leave while restores without end stand beside them.
class EveningWithRestores {
 public:
  EveningWithRestores(std::uint64_t seed, double reached) : rng_(seed), reached_(reached) {
    for (int i = 0; i < 4; ++i) links_.push_back({.capacity = uniform(20, 120) * kMegabyte});
    for (std::uint32_t i = 0; i < 4; ++i) {
      Transfer one = a_restore(1000 + i, 1e12);
      one.links = {i, (i + 1) % 4};
      restores_.push_back(one);
    }
  }

  void pass(double seconds) {
    for (int tick = 0; tick * kRestoreTick_s < seconds; ++tick) {
      if (rng_.below(10) == 0) arrive();
      step(tick * kRestoreTick_s);
    }
  }

  int admitted = 0;
  int missed = 0;
  double restored = 0;

 private:
  double uniform(double from, double to) {
    return from + (to - from) * static_cast<double>(rng_.next() >> 11) * 0x1p-53;
  }

  /// As much as its line carries with a fifth to spare, at most.
  void arrive() {
    const auto from = static_cast<std::uint32_t>(rng_.below(4));
    const double due = uniform(5, 60);
    Transfer one = evacuation_due(next_id_++, uniform(1, 0.8 * 20 * due) * kMegabyte, due);
    one.links = {from, (from + 1) % 4};
    under_way_.push_back(one);
  }

  void step(double now_s) {
    std::vector<Transfer> all = under_way_;
    all.insert(all.end(), restores_.begin(), restores_.end());
    RatePlan plan = planner_.plan(now_s, all, links_, kRestoreTick_s);
    give_spare(all, links_, LinkGuard{}, plan);
    for (std::size_t link = 0; link < links_.size(); ++link) {
      double sum = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto& over = all[i].links;
        if (std::find(over.begin(), over.end(), link) != over.end()) sum += plan.rates[i];
      }
      EXPECT_LE(sum, guarded_rate(links_[link], LinkGuard{}) * (1 + 1e-9)) << now_s;
    }
    std::vector<Transfer> left;
    for (std::size_t i = 0; i < under_way_.size(); ++i) {
      Transfer one = under_way_[i];
      const bool is_new = seen_.insert(one.id).second;
      admitted += is_new && plan.is_admitted[i] ? 1 : 0;
      missed += !is_new && !plan.is_admitted[i] ? 1 : 0;
      one.bytes -= plan.rates[i] * kRestoreTick_s * reached_;
      one.deadline_s -= kRestoreTick_s;
      if (plan.is_admitted[i] && one.bytes > 1) left.push_back(one);
    }
    for (std::size_t i = under_way_.size(); i < all.size(); ++i)
      restored += plan.rates[i] * kRestoreTick_s;
    under_way_ = std::move(left);
  }

  SeededRng rng_;
  double reached_;
  std::vector<Link> links_;
  RatePlanner planner_{LinkGuard{}};
  std::vector<Transfer> restores_;
  std::vector<Transfer> under_way_;
  std::set<std::uint64_t> seen_;
  std::uint64_t next_id_ = 1;
};

TEST(Restores, no_promised_evacuation_is_late_for_them_and_they_go_on_all_evening) {
  int admitted = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    EveningWithRestores evening(seed, 1);
    evening.pass(150);
    EXPECT_EQ(evening.missed, 0) << seed;
    EXPECT_GT(evening.restored, 150 * 2 * kMegabyte) << seed << ": its lines are full of promises";
    admitted += evening.admitted;
  }
  EXPECT_GT(admitted, 50);
}

TEST(Restores, an_evacuation_that_gets_a_little_less_than_planned_loses_no_promise_to_a_restore) {
  const Link line{.capacity = 100 * kMegabyte};
  RatePlanner planner(kPlain);
  Transfer evacuation = evacuation_due(1, 3000 * kMegabyte, 40);
  double now_s = 0;
  double restored = 0;
  for (; evacuation.bytes > 1000 && now_s < 60; now_s += kRestoreTick_s) {
    const std::vector<Transfer> set = {evacuation, a_restore(2, 1e12)};
    RatePlan plan = planner.plan(now_s, set, {&line, 1}, kRestoreTick_s);
    give_spare(set, {&line, 1}, kPlain, plan);
    ASSERT_TRUE(plan.is_admitted[0]) << now_s << ": " << evacuation.bytes << " bytes left";
    evacuation.bytes -= plan.rates[0] * kRestoreTick_s * 0.96;
    evacuation.deadline_s -= kRestoreTick_s;
    restored += plan.rates[1] * kRestoreTick_s;
  }

  EXPECT_LE(now_s, 39.5);
  EXPECT_GT(restored, 300 * kMegabyte) << "of the 1000 MB that the evacuation leaves";
}

}  // namespace
}  // namespace rn::reclaim
