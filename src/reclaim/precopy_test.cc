// SPDX-License-Identifier: Apache-2.0
#include "reclaim/precopy.h"

#include <gtest/gtest.h>

namespace rn::reclaim {
namespace {

constexpr double kState = 10e9, kWay = 125e6;  // 10 GB over 1 Gbit/s: 80 s

Precopy changing(double bytes_per_s) {
  return {kState / kWay, bytes_per_s / kWay};
}

/// Round by round, in bytes: what is changed in one is what the next sends.
struct Sent {
  double left = kState, seconds = 0;
};

Sent sent(double bytes_per_s, std::uint32_t rounds) {
  Sent s;
  for (std::uint32_t i = 0; i < rounds; ++i) {
    const double took = s.left / kWay;
    s.seconds += took;
    s.left = bytes_per_s * took;
  }
  return s;
}

TEST(Precopy, pause_and_time_are_what_sending_round_by_round_leaves_and_takes) {
  for (const double change : {0.0, 1e6, 12.5e6, 60e6, 99e6, 125e6, 200e6}) {
    for (std::uint32_t rounds = 0; rounds < 7; ++rounds) {
      const Sent s = sent(change, rounds);
      EXPECT_NEAR(changing(change).pause_s(rounds), s.left / kWay, 1e-9 * s.left);
      EXPECT_NEAR(changing(change).total_s(rounds), s.seconds + s.left / kWay, 1e-6);
    }
  }
}

TEST(Precopy, ten_gigabytes_that_miss_a_notice_of_a_minute_pause_for_eight_seconds_after_a_round) {
  const Precopy p = changing(12.5e6);
  EXPECT_DOUBLE_EQ(p.pause_s(0), 80);
  EXPECT_DOUBLE_EQ(p.pause_s(1), 8);
  EXPECT_DOUBLE_EQ(p.total_s(1), 88);
  EXPECT_EQ(precopy_rounds(p, 60), 1U);
}

TEST(Precopy, rounds_end_with_the_first_whose_rest_fits_the_pause) {
  const Precopy p = changing(62.5e6);  // half as much each time: 80, 40, 20, 10, 5
  EXPECT_EQ(precopy_rounds(p, 80), 0U);
  EXPECT_EQ(precopy_rounds(p, 79), 1U);
  EXPECT_EQ(precopy_rounds(p, 10), 3U);
  EXPECT_EQ(precopy_rounds(p, 9.9), 4U);
}

TEST(Precopy, there_are_rounds_while_the_job_changes_less_than_the_way_carries_away) {
  EXPECT_TRUE(goes_another_round(changing(0.79 * kWay), 0));
  EXPECT_FALSE(goes_another_round(changing(0.80 * kWay), 0));
  EXPECT_FALSE(goes_another_round(changing(2 * kWay), 0));
  EXPECT_EQ(precopy_rounds(changing(0.8 * kWay), 1), 0U);  // all at once, when it stops
}

TEST(Precopy, what_does_not_change_takes_one_round_and_an_endless_one_is_bounded) {
  EXPECT_EQ(precopy_rounds(changing(0), 0), 1U);
  EXPECT_EQ(precopy_rounds({0, 0}, 0), 0U);
  EXPECT_EQ(precopy_rounds(changing(60e6), 0), kRoundsMost);
}

}  // namespace
}  // namespace rn::reclaim
