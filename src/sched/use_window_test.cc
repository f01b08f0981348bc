// SPDX-License-Identifier: Apache-2.0
#include "sched/use_window.h"

#include <gtest/gtest.h>

namespace rn::sched {
namespace {

constexpr std::int64_t kStepS = 10;
constexpr std::int64_t kWindowS = 3600;

/// Samples of ten seconds each.
struct Watched {
  UseWindow window{seconds(kWindowS)};
  Instant now{seconds(5000)};

  void pass(std::int64_t for_s, double percent) {
    for (std::int64_t done = 0; done < for_s; done += kStepS) {
      now += seconds(kStepS);
      window.add(now, seconds(kStepS), percent);
    }
  }
};

TEST(UseWindow, nothing_is_said_before_it_was_looked_at_for_so_long) {
  Watched one;
  EXPECT_FALSE(one.window.mean(one.now).has_value());
  one.pass(kWindowS - kStepS, 0);
  EXPECT_FALSE(one.window.mean(one.now).has_value());
  one.pass(kStepS, 0);
  ASSERT_TRUE(one.window.mean(one.now).has_value());
  EXPECT_DOUBLE_EQ(*one.window.mean(one.now), 0);
}

TEST(UseWindow, a_short_burst_weighs_what_it_lasts) {
  Watched one;
  one.pass(kWindowS, 0);
  one.pass(120, 100);

  EXPECT_GT(*one.window.mean(one.now), 2);
  EXPECT_LT(*one.window.mean(one.now), 5);
}

TEST(UseWindow, what_is_older_than_the_window_counts_no_more) {
  Watched one;
  one.pass(kWindowS, 100);
  EXPECT_DOUBLE_EQ(*one.window.mean(one.now), 100);
  one.pass(kWindowS / 2, 0);
  EXPECT_GT(*one.window.mean(one.now), 40);
  one.pass(kWindowS / 2 + kWindowS / 6, 0);
  EXPECT_DOUBLE_EQ(*one.window.mean(one.now), 0);
}

TEST(UseWindow, who_was_away_for_most_of_it_is_not_judged) {
  Watched one;
  one.pass(kWindowS / 4, 0);
  one.now += seconds(kWindowS);
  one.pass(kWindowS / 4, 0);

  EXPECT_FALSE(one.window.mean(one.now).has_value());
}

}  // namespace
}  // namespace rn::sched
