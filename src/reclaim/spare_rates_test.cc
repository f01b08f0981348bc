// SPDX-License-Identifier: Apache-2.0
#include "reclaim/spare_rates.h"

#include <cmath>

#include <gtest/gtest.h>

namespace rn::reclaim {
namespace {

constexpr LinkGuard kGuard{.margin_share = 0.05, .burst_share = 0.9};

Transfer a_transfer(std::uint64_t id, TransferClass kind, double bytes) {
  Transfer transfer;
  transfer.id = id;
  transfer.kind = kind;
  transfer.bytes = bytes;
  transfer.links = {0};
  return transfer;
}

RatePlan planned(const std::vector<Transfer>& transfers, const std::vector<Link>& links) {
  RatePlanner planner(kGuard);
  RatePlan plan = planner.plan(0, transfers, links, 0.25);
  give_spare(transfers, links, kGuard, plan);
  return plan;
}

TEST(SpareRates, a_small_checkpoint_is_not_stretched_over_the_tick) {
  const RatePlan plan = planned({a_transfer(1, TransferClass::kCheckpoint, 1000)}, {{1e6, 0, 0}});

  EXPECT_DOUBLE_EQ(plan.rates[0], 950'000);
}

TEST(SpareRates, the_links_are_never_given_out_twice) {
  Transfer evacuation = a_transfer(1, TransferClass::kEvacuation, 4e6);
  evacuation.deadline_s = 10;
  const std::vector<Transfer> transfers = {
      evacuation,
      a_transfer(2, TransferClass::kCheckpoint, 1000),
      a_transfer(3, TransferClass::kPrefetch, 1e9)};

  const RatePlan plan = planned(transfers, {{1e6, 300'000, 0}});

  EXPECT_TRUE(plan.is_admitted[0]);
  EXPECT_NEAR(plan.rates[0] + plan.rates[1] + plan.rates[2], 650'000, 1);
  EXPECT_NEAR(plan.rates[0], 650'000, 1) << "to finish early is insurance";
}

TEST(SpareRates, the_owners_traffic_is_left_alone_unless_a_promise_needs_the_burst) {
  const std::vector<Link> busy = {{1e6, 800'000, 5}};

  const RatePlan plan = planned({a_transfer(1, TransferClass::kCheckpoint, 1e9)}, busy);

  EXPECT_DOUBLE_EQ(plan.rates[0], 150'000);
}

TEST(SpareRates, who_crosses_no_known_line_is_not_bounded) {
  Transfer free = a_transfer(1, TransferClass::kCheckpoint, 1000);
  free.links.clear();

  EXPECT_TRUE(std::isinf(planned({free}, {}).rates[0]));
}

}  // namespace
}  // namespace rn::reclaim
