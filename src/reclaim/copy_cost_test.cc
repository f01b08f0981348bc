// SPDX-License-Identifier: Apache-2.0
#include "reclaim/copy_cost.h"

#include <limits>

#include <gtest/gtest.h>

namespace rn::reclaim {
namespace {

constexpr double kCopiedGb = 1e9;
constexpr double kSlowLine = 12.5e6;  // bytes/s

TEST(CopyCost, until_one_was_measured_a_copy_keeps_one_core_busy_at_any_rate) {
  const CopyCost cost;

  EXPECT_FALSE(cost.is_measured());
  EXPECT_EQ(cost.busy_cores(kSlowLine), 1);
  EXPECT_EQ(cost.busy_cores(100 * kSlowLine), 1);
  EXPECT_EQ(cost.once_s(), CopyCost::kAssumedOnce_s);
}

TEST(CopyCost, what_is_measured_takes_the_place_of_the_assumption) {
  CopyCost cost;
  for (int i = 0; i < 10; ++i) cost.observe(kCopiedGb, 4.1);  // and a tenth of a second once

  EXPECT_TRUE(cost.is_measured());
  EXPECT_NEAR(cost.per_byte_s(), 4e-9, 0.1e-9);
  EXPECT_NEAR(cost.busy_cores(kSlowLine), 0.05, 0.002)
      << "the line is slow, and the core mostly idle";
  EXPECT_NEAR(cost.busy_cores(100 * kSlowLine), 5, 0.2);
}

TEST(CopyCost, newer_copies_count_more) {
  CopyCost cost;
  for (int i = 0; i < 20; ++i) cost.observe(kCopiedGb, 4);
  cost.observe(kCopiedGb, 40);
  EXPECT_GT(cost.per_byte_s(), 8e-9);
  EXPECT_LT(cost.per_byte_s(), 20e-9) << "one of many";
  for (int i = 0; i < 20; ++i) cost.observe(kCopiedGb, 40);
  EXPECT_NEAR(cost.per_byte_s(), 40e-9, 1e-9);
}

TEST(CopyCost, small_copies_say_what_is_spent_once_and_nothing_of_a_byte) {
  CopyCost cost;
  for (int i = 0; i < 30; ++i) cost.observe(2000, 0.04);

  EXPECT_NEAR(cost.once_s(), 0.04, 0.001);
  EXPECT_FALSE(cost.is_measured());
  EXPECT_EQ(cost.busy_cores(kSlowLine), 1);
}

TEST(CopyCost, a_first_copy_that_took_less_than_what_is_assumed_once_does_not_make_bytes_free) {
  CopyCost cost;
  cost.observe(4e6, 0.02);

  EXPECT_EQ(cost.once_s(), CopyCost::kLeastOnce_s);
  EXPECT_NEAR(cost.per_byte_s(), 0.01 / 4e6, 1e-12);
}

TEST(CopyCost, where_no_clock_was_read_the_assumption_stays) {
  CopyCost cost;
  for (const double nonsense : {0.0, -3.0, -1e300, std::numeric_limits<double>::quiet_NaN()}) {
    cost.observe(kCopiedGb, nonsense);
    cost.observe(100, nonsense);
  }
  cost.observe(-kCopiedGb, 4);
  cost.observe(std::numeric_limits<double>::quiet_NaN(), 4);

  EXPECT_FALSE(cost.is_measured());
  EXPECT_EQ(cost.once_s(), CopyCost::kAssumedOnce_s);
}

TEST(CopyCost, hours_for_a_copy_and_next_to_nothing_are_bounded) {
  CopyCost dear;
  for (int i = 0; i < 50; ++i) {
    dear.observe(kCopiedGb, 10 * 3600);
    dear.observe(1, std::numeric_limits<double>::infinity());
  }
  EXPECT_LE(dear.per_byte_s(), CopyCost::kMostByte_s);
  EXPECT_GT(dear.per_byte_s(), 0.9 * CopyCost::kMostByte_s);
  EXPECT_LE(dear.once_s(), CopyCost::kMostOnce_s);

  CopyCost cheap;
  for (int i = 0; i < 50; ++i) {
    cheap.observe(kCopiedGb, 1e-9);
    cheap.observe(1, 1e-12);
  }
  EXPECT_EQ(cheap.per_byte_s(), CopyCost::kLeastByte_s);
  EXPECT_NEAR(cheap.once_s(), CopyCost::kLeastOnce_s, 1e-4);

  for (int i = 0; i < 30; ++i) dear.observe(kCopiedGb, 4);
  EXPECT_NEAR(dear.per_byte_s(), 4e-9, 1e-9) << "one absurd measurement is forgotten";
}

}  // namespace
}  // namespace rn::reclaim
