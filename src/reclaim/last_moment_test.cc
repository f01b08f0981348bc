// SPDX-License-Identifier: Apache-2.0
#include "reclaim/last_moment.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace rn::reclaim {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(LastMoments, a_small_guest_is_told_a_minute_before_the_deadline) {
  const LastMoments at = last_moments({});
  EXPECT_GT(at.tell_s, 30) << "what a save may take";
  EXPECT_LT(at.tell_s, 60);
  EXPECT_EQ(at.save_s, at.tell_s) << "nothing is known of its own saves";
}

TEST(LastMoments, what_is_to_be_copied_comes_at_half_the_rate) {
  const LastMoments small = last_moments({});
  const LastMoments large = last_moments({.bytes = 1.25e9, .bytes_per_s = 12.5e6});
  EXPECT_GE(large.tell_s - small.tell_s, 200);
  EXPECT_LT(large.tell_s - small.tell_s, 250);
}

TEST(LastMoments, where_nothing_can_be_sent_it_leaves_while_others_still_may_help) {
  EXPECT_TRUE(std::isinf(last_moments({.bytes = 1, .bytes_per_s = 0}).tell_s));
  EXPECT_TRUE(std::isfinite(last_moments({.bytes = 0, .bytes_per_s = 0}).tell_s));
}

TEST(LastMoments, a_job_that_asks_for_more_notice_gets_it) {
  EXPECT_GE(last_moments({.asked_s = 300}).tell_s, 300);
  EXPECT_EQ(last_moments({.asked_s = 10}).tell_s, last_moments({}).tell_s);
}

TEST(LastMoments, a_save_of_its_own_is_the_last_one_if_no_other_is_sure_to_follow_in_time) {
  const LastMoments at = last_moments({.gap_s = 100});
  EXPECT_GE(at.save_s, at.tell_s + 100);
  EXPECT_LT(at.save_s, at.tell_s + 150);
}

TEST(LastMoments, who_saves_when_told_is_not_sent_away_with_a_save_of_its_own) {
  const LastMoments at = last_moments({.gap_s = 100, .saves_when_told = true});
  EXPECT_EQ(at.save_s, at.tell_s);
}

TEST(LastMoments, who_has_nothing_to_save_stays_nearly_to_the_end) {
  const LastMoments at = last_moments({.bytes = 1e12, .gap_s = 100, .has_nothing_to_save = true});
  EXPECT_GT(at.tell_s, 5) << "the kill takes its time";
  EXPECT_LT(at.tell_s, 20);
}

TEST(LastMoments, numbers_that_cannot_be_count_as_nothing) {
  const LastMoments odd = last_moments(
      {.save_s = 30, .asked_s = -5, .take_s = kNan, .bytes = -1, .bytes_per_s = kNan, .gap_s = kNan}
  );
  EXPECT_EQ(odd.tell_s, last_moments({}).tell_s);
  EXPECT_EQ(odd.save_s, odd.tell_s);
}

}  // namespace
}  // namespace rn::reclaim
