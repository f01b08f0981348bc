// SPDX-License-Identifier: Apache-2.0
#include "reclaim/precopy.h"

#include <gtest/gtest.h>

namespace rn::reclaim {
namespace {

constexpr double kState = 10e9, kWay = 125e6;  // 10 GB over 1 Gbit/s: 80 s

struct Sent {
  int rounds = 0;
  double pause_s = 0;  ///< of a job that stops then, for what is not there yet
};

/// Round by round, in bytes, as long as the rule says so: what changes in one is what the next
/// sends.
Sent sent(double bytes_per_s, double budget_s) {
  double left = kState;
  Sent s;
  for (; goes_another_round({left / kWay, bytes_per_s / kWay}, budget_s); ++s.rounds)
    left = bytes_per_s * (left / kWay);
  s.pause_s = left / kWay;
  return s;
}

TEST(Precopy, ten_gigabytes_that_miss_a_notice_of_a_minute_pause_for_eight_seconds_after_a_round) {
  EXPECT_EQ(sent(12.5e6, 60).rounds, 1);
  EXPECT_DOUBLE_EQ(sent(12.5e6, 60).pause_s, 8);
}

TEST(Precopy, rounds_end_with_the_first_whose_rest_fits_the_pause) {
  constexpr double kHalf = 62.5e6;  // as much again each time: 80, 40, 20, 10, 5 s
  EXPECT_EQ(sent(kHalf, 80).rounds, 0);
  EXPECT_EQ(sent(kHalf, 79).rounds, 1);
  EXPECT_EQ(sent(kHalf, 10).rounds, 3);
  EXPECT_EQ(sent(kHalf, 9.9).rounds, 4);
  EXPECT_EQ(sent(0, 0).rounds, 1) << "what does not change is there after one";
}

TEST(Precopy, there_are_rounds_while_the_job_changes_less_than_the_way_carries_away) {
  EXPECT_GT(sent(0.79 * kWay, 1).rounds, 10);
  EXPECT_EQ(sent(0.80 * kWay, 1).rounds, 0) << "all at once, when it stops";
  EXPECT_EQ(sent(2 * kWay, 1).rounds, 0);
}

}  // namespace
}  // namespace rn::reclaim
