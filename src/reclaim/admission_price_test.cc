// SPDX-License-Identifier: Apache-2.0
#include "reclaim/admission_price.h"

#include <limits>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "reclaim/deadline_rates.h"

namespace rn::reclaim {
namespace {

constexpr double kPricedLine = 100e6;  ///< bytes/s; 12 GB in the time that is remembered
constexpr double kPricedWhole = kPricedLine * kPriceMemory_s;

Transfer evacuation_of(std::uint64_t id, double bytes, double value, double deadline_s = 100) {
  return {.id = id, .bytes = bytes, .deadline_s = deadline_s, .value = value, .links = {0}};
}

class AdmissionPrice : public ::testing::Test {
 protected:
  /// Whether `asking` is worth its room beside what is promised.
  bool is_worth_it(double now_s, const Transfer& asking, std::vector<Transfer> promised = {}) {
    std::vector<bool> is_promised(promised.size(), true);
    promised.push_back(asking);
    is_promised.push_back(false);
    return prices_.are_worth_it(now_s, promised, is_promised, {&kPricedLine, 1}).back();
  }

  AdmissionPrices prices_;
};

TEST_F(AdmissionPrice, whatever_fits_is_worth_it_while_the_lines_carry_all_that_comes) {
  const std::vector<Transfer> promised = {evacuation_of(1, 0.85 * kPricedWhole, 1e6)};

  EXPECT_TRUE(is_worth_it(0, evacuation_of(2, 1e6, 0), promised));
}

TEST_F(AdmissionPrice, where_more_comes_a_full_line_is_not_promised_to_what_is_worth_little) {
  const std::vector<Transfer> promised = {evacuation_of(1, 0.8 * kPricedWhole, 1e6)};
  EXPECT_TRUE(is_worth_it(0, evacuation_of(2, 0.2 * kPricedWhole, 1e5), promised));

  EXPECT_FALSE(is_worth_it(1, evacuation_of(3, 1e9, 10), promised));

  EXPECT_TRUE(is_worth_it(1, evacuation_of(4, 1e9, 1e6), promised));
}

TEST_F(AdmissionPrice, an_empty_line_takes_anything) {
  EXPECT_TRUE(is_worth_it(0, evacuation_of(1, 5 * kPricedWhole, 1e9)));

  EXPECT_TRUE(is_worth_it(1, evacuation_of(2, 1e9, 1e-3)));
}

TEST_F(AdmissionPrice, of_several_that_ask_at_once_the_densest_come_first) {
  (void)is_worth_it(0, evacuation_of(9, 2 * kPricedWhole, 1000));
  const std::vector<Transfer> asking = {
      evacuation_of(1, kPricedWhole, 10),
      evacuation_of(2, kPricedWhole, 1000),
      evacuation_of(3, kPricedWhole, 100)};

  const auto worth = prices_.are_worth_it(1, asking, {false, false, false}, {&kPricedLine, 1});

  EXPECT_EQ(worth, std::vector<bool>({false, true, false}));
}

TEST_F(AdmissionPrice, what_is_offered_in_one_moment_is_not_dearer_for_the_rest_of_it) {
  std::vector<Transfer> set;
  for (std::uint64_t id = 0; id < 16; ++id)
    set.push_back(evacuation_of(id, kPricedWhole, 1 + 10 * static_cast<double>(id)));

  const auto worth = prices_.are_worth_it(0, set, std::vector<bool>(set.size()), {&kPricedLine, 1});

  EXPECT_EQ(worth, std::vector<bool>(set.size(), true));
}

TEST_F(AdmissionPrice, what_came_long_ago_costs_nothing_now) {
  const std::vector<Transfer> promised = {evacuation_of(1, 0.5 * kPricedWhole, 1e6)};
  (void)is_worth_it(0, evacuation_of(2, kPricedWhole, 1e6), promised);
  EXPECT_FALSE(is_worth_it(kPriceMemory_s, evacuation_of(3, 1e9, 1), promised));

  EXPECT_TRUE(is_worth_it(kPriceMemory_s + 1, evacuation_of(3, 1e9, 1), promised));
}

TEST_F(AdmissionPrice, what_is_offered_again_and_again_is_one_offer) {
  const Transfer asking = evacuation_of(1, 0.5 * kPricedWhole, 1, 1000);
  const std::vector<Transfer> promised = {evacuation_of(2, 0.3 * kPricedWhole, 1e6, 1000)};

  for (double now_s = 0; now_s < 3 * kPriceMemory_s; now_s += 2)
    ASSERT_TRUE(is_worth_it(now_s, asking, promised)) << now_s;
}

TEST_F(AdmissionPrice, other_lines_have_their_own_price) {
  const std::vector<double> lines = {kPricedLine, kPricedLine};
  const Transfer much = evacuation_of(1, 2 * kPricedWhole, 1e9);
  (void)is_worth_it(0, much);
  Transfer elsewhere = evacuation_of(2, 1e9, 1);
  elsewhere.links = {1};
  Transfer both = evacuation_of(3, 1e9, 1);
  both.links = {0, 1};

  const auto worth = prices_.are_worth_it(
      1, std::vector<Transfer>{much, elsewhere, both}, {true, false, false}, lines
  );

  EXPECT_EQ(worth, std::vector<bool>({true, true, false}));
}

TEST_F(AdmissionPrice, what_is_promised_and_what_has_no_deadline_is_never_asked) {
  (void)is_worth_it(0, evacuation_of(9, 5 * kPricedWhole, 1e9));
  const Transfer copy = {
      .id = 2, .bytes = 1e9, .value = 0, .kind = TransferClass::kCheckpoint, .links = {0}};
  const std::vector<Transfer> set = {evacuation_of(1, kPricedWhole, 0), copy};

  EXPECT_EQ(
      prices_.are_worth_it(1, set, {true, false}, {&kPricedLine, 1}),
      std::vector<bool>({true, true})
  );
}

TEST_F(AdmissionPrice, numbers_that_cannot_be_are_worth_nothing_and_break_nothing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> dead = {0};
  const std::vector<Transfer> set = {
      evacuation_of(1, nan, 1),
      evacuation_of(2, 1e9, nan),
      evacuation_of(3, -1, 1),
      evacuation_of(4, 1e9, -5),
      evacuation_of(5, 1e9, 7, nan),
      evacuation_of(6, 1e9, 7, 0)};

  (void)prices_.are_worth_it(0, set, std::vector<bool>(set.size()), dead);
  const auto worth = prices_.are_worth_it(1, set, std::vector<bool>(set.size()), dead);

  EXPECT_EQ(worth, std::vector<bool>({true, false, true, false, true, true}));
}

/// The planner over a line to which twice as much is offered as it carries, for ten minutes.
TEST(AdmissionPriced, a_site_with_too_much_to_send_promises_what_is_worth_more) {
  const Link line{.capacity = kPricedLine};
  RatePlanner planner(LinkGuard{.margin_share = 0, .burst_share = 0});
  SeededRng rng(11);
  std::vector<Transfer> under_way;
  double offered = 0;
  double kept = 0;
  for (std::uint64_t second = 0; second < 600; ++second) {
    if (second % 3 == 0) {
      const double value = 100 * rng.unit();
      under_way.push_back(evacuation_of(second + 1, 600e6, value, 30));
      offered += value;
    }
    const RatePlan plan = planner.plan(static_cast<double>(second), under_way, {&line, 1}, 1);
    std::vector<Transfer> left;
    for (std::size_t i = 0; i < under_way.size(); ++i) {
      Transfer one = under_way[i];
      one.bytes -= plan.rates[i];
      one.deadline_s -= 1;
      if (plan.is_admitted[i] && one.bytes <= 1) kept += one.value;
      if (plan.is_admitted[i] && one.bytes > 1) left.push_back(one);
    }
    under_way = std::move(left);
  }

  EXPECT_GT(
      kept, 0.6 * offered
  );  // the best half is worth three quarters; whoever comes first, a half
}

}  // namespace
}  // namespace rn::reclaim
