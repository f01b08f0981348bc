// SPDX-License-Identifier: Apache-2.0
#include "reclaim/shown_rate.h"

#include <cmath>

#include <gtest/gtest.h>

namespace rn::reclaim {
namespace {

constexpr double kNoRate = std::numeric_limits<double>::infinity();

TEST(ShownRate, who_gets_nothing_for_a_second_is_planned_with_next_to_nothing) {
  ShownRate shown;
  for (std::uint32_t i = 0; i + 1 < kSlowLooks; ++i) shown.observe(0, 5e6, true);
  EXPECT_TRUE(std::isinf(shown.most())) << "a moment is no measure";

  shown.observe(0, 5e6, true);

  EXPECT_DOUBLE_EQ(shown.most(), kProbeRate);
}

TEST(ShownRate, who_takes_what_it_is_given_again_has_it_back_step_by_step) {
  ShownRate shown;
  for (std::uint32_t i = 0; i < kSlowLooks; ++i) shown.observe(0, 5e6, true);

  for (int i = 0; i < 10; ++i) shown.observe(shown.most(), shown.most(), true);

  EXPECT_GT(shown.most(), 5e6);
}

TEST(ShownRate, who_has_little_to_send_or_no_rate_to_keep_shows_nothing) {
  ShownRate shown;
  for (int i = 0; i < 20; ++i) shown.observe(0, 5e6, false);
  for (int i = 0; i < 20; ++i) shown.observe(1, kNoRate, true);

  EXPECT_TRUE(std::isinf(shown.most()));
}

TEST(ShownRate, a_look_at_which_it_is_fast_begins_the_count_anew) {
  ShownRate shown;
  for (int i = 0; i < 20; ++i) shown.observe(i % 3 == 0 ? 5e6 : 0, 5e6, true);

  EXPECT_TRUE(std::isinf(shown.most()));
}

}  // namespace
}  // namespace rn::reclaim
