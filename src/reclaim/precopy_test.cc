// SPDX-License-Identifier: Apache-2.0
#include "reclaim/precopy.h"

#include <cmath>

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

constexpr double kHour = 3600;

double used(double rewritten, double gap_s, double owner_comes_every_s) {
  return used_share(
      {.state_bytes = kState,
       .new_bytes = rewritten * kState,
       .gap_s = gap_s,
       .departures = 1 / owner_comes_every_s}
  );
}

TEST(CopiesAhead, of_a_state_that_hardly_changes_are_used_many_times_over) {
  EXPECT_GT(used(0.001, 600, 4 * kHour), 10);
  EXPECT_GT(used(0, 600, 4 * kHour), 1e9) << "one copy serves for ever";
}

TEST(CopiesAhead, of_a_state_that_each_save_rewrites_are_of_no_use) {
  EXPECT_LT(used(1, 600, 4 * kHour), kUsedLeast);
  EXPECT_LT(used(1, 600, kHour), kUsedLeast) << "also where owners come often";
}

TEST(CopiesAhead, are_of_use_as_long_as_owners_come_before_all_is_rewritten_again_and_again) {
  const double as_on_the_testbed =
      used(0.6, 6, 200);  // rewritten in some seconds, every few minutes
  EXPECT_LT(as_on_the_testbed, kUsedLeast);
  EXPECT_GT(used(0.05, 6, 200), kUsedLeast);
  EXPECT_GT(used(0.3, 600, 4 * kHour), kUsedLeast);
}

TEST(CopiesAhead, are_used_by_each_owner_alike_however_often_the_guest_saves) {
  // A tenth in ten minutes is a tenth of a tenth in one, but for what the last save rewrites.
  const double seldom = used(0.1, 600, kHour);
  const double often = used(1 - std::pow(0.9, 0.1), 60, kHour);
  EXPECT_NEAR(seldom, often * 0.9 / std::pow(0.9, 0.1), 1e-9);
}

TEST(CopiesAhead, of_what_cannot_be_are_of_no_use) {
  EXPECT_EQ(used_share({.state_bytes = 0, .new_bytes = 1, .gap_s = 1, .departures = 1}), 0);
  EXPECT_EQ(used_share({.state_bytes = 1, .new_bytes = 1, .gap_s = 0, .departures = 1}), 0);
  EXPECT_EQ(used_share({.state_bytes = 1, .new_bytes = 1, .gap_s = -5, .departures = 1}), 0);
  EXPECT_EQ(used(0.1, 600, INFINITY), 0) << "nobody comes";
}

}  // namespace
}  // namespace rn::reclaim
