// SPDX-License-Identifier: Apache-2.0
#include "arbiter/clocks.h"

#include <gtest/gtest.h>

namespace rn::arbiter {
namespace {

Contract by_night() {
  Contract contract;
  contract.windows = {{{"mon"}, "20:00", "24:00"}};
  return contract;
}

TEST(Clocks, that_differ_by_less_than_two_minutes_are_no_news) {
  for (const std::int64_t ms : {0, 119'999, -119'999}) {
    EXPECT_FALSE(are_clocks_apart(ms)) << ms;
    EXPECT_EQ(clocks_words(by_night(), ms), "") << ms;
  }
  EXPECT_TRUE(are_clocks_apart(120'000));
  EXPECT_TRUE(are_clocks_apart(-120'000));
}

TEST(Clocks, of_a_machine_that_lends_by_the_hour_mean_guests_too_early_or_too_late) {
  EXPECT_EQ(
      clocks_words(by_night(), -5 * 3'600'000),
      "its clock is 5 h ahead of the coordinator's: the hours of its contract are counted by its "
      "own clock, and by the coordinator's guests leave and come 5 h too early"
  );
  EXPECT_EQ(
      clocks_words(by_night(), 3 * 60'000),
      "its clock is 3 min behind the coordinator's: the hours of its contract are counted by its "
      "own clock, and by the coordinator's guests leave and come 3 min too late"
  );
  Contract of_gpu;
  of_gpu.gpu_windows = {{0, by_night().windows, {}}};
  EXPECT_NE(clocks_words(of_gpu, 3'660'000).find("1 h 1 min too late"), std::string::npos);
}

TEST(Clocks, of_a_machine_without_hours_mean_nothing_for_its_guests) {
  EXPECT_EQ(
      clocks_words(Contract{}, 3 * 86'400'000),
      "its clock is 3 days behind the coordinator's; no hours of its contract hang on that"
  );
  Contract none = by_night();
  none.lends = false;
  EXPECT_NE(clocks_words(none, 3'600'000).find("no hours"), std::string::npos);
}

TEST(Clocks, that_no_clock_shows_are_far_apart_and_no_more) {
  EXPECT_TRUE(are_clocks_apart(INT64_MIN));
  EXPECT_TRUE(are_clocks_apart(INT64_MAX));
  EXPECT_NE(clocks_words(by_night(), INT64_MIN).find(" days ahead of"), std::string::npos);
}

}  // namespace
}  // namespace rn::arbiter
