// SPDX-License-Identifier: Apache-2.0
#include "arbiter/calendar.h"

#include <gtest/gtest.h>

namespace rn::arbiter {
namespace {

// 2026-11-20 is a Friday.
WallTime at(std::int64_t day, int hour, int minute) {
  return wall_from_ms(((day * 24 + hour) * 60 + minute) * 60'000);
}

const std::int64_t kFriday = *parse_date("2026-11-20");

Contract nights() {
  Contract contract;
  contract.windows = {
      {{"mon", "tue", "wed", "thu", "fri"}, "18:00", "08:00"}, {{"sat", "sun"}, "00:00", "24:00"}};
  return contract;
}

TEST(Calendar, local_time_knows_the_weekday_and_applies_the_offset_across_midnight) {
  const LocalTime utc = local_time(at(kFriday, 23, 30), 0);
  const LocalTime berlin = local_time(at(kFriday, 23, 30), 3600);

  EXPECT_EQ(utc.weekday, 4u);
  EXPECT_EQ(utc.minute, 23u * 60 + 30);
  EXPECT_EQ(berlin.weekday, 5u);
  EXPECT_EQ(berlin.minute, 30u);
}

TEST(Calendar, a_gpu_has_windows_and_holidays_of_its_own_or_is_always_lent_with_the_machine) {
  Contract contract = nights();
  contract.holidays = {"2026-11-20"};
  contract.gpu_windows = {{1, {{{"fri"}, "12:00", "13:00"}}, {"2026-11-21"}}};
  const Contract own = calendar_of_gpu(contract, 1);

  EXPECT_TRUE(is_inside_windows(own, local_time(at(kFriday, 12, 59), 0)));
  EXPECT_FALSE(is_inside_windows(own, local_time(at(kFriday, 20, 0), 0)));
  EXPECT_TRUE(is_inside_windows(own, local_time(at(kFriday + 1, 3, 0), 0))) << "its holiday";
  EXPECT_TRUE(is_inside_windows(calendar_of_gpu(contract, 0), local_time(at(kFriday, 9, 0), 0)));
}

TEST(Calendar, times_before_1970_are_still_days_and_minutes) {
  const LocalTime before = local_time(wall_from_ms(-60'000), 0);

  EXPECT_EQ(before.day, -1);
  EXPECT_EQ(before.weekday, 2u);
  EXPECT_EQ(before.minute, 23u * 60 + 59);
}

TEST(Calendar, a_window_that_crosses_midnight_belongs_to_the_day_of_its_start) {
  const Contract contract = nights();

  EXPECT_TRUE(is_inside_windows(contract, local_time(at(kFriday, 18, 0), 0)));
  EXPECT_TRUE(is_inside_windows(contract, local_time(at(kFriday, 7, 59), 0)));  // from Thursday
  EXPECT_FALSE(is_inside_windows(contract, local_time(at(kFriday, 8, 0), 0)));
  EXPECT_FALSE(is_inside_windows(contract, local_time(at(kFriday, 17, 59), 0)));
  EXPECT_TRUE(is_inside_windows(contract, local_time(at(kFriday + 1, 12, 0), 0)));
  // Monday morning: Sunday's window ended at 24:00 and no weekday window started on Sunday.
  EXPECT_FALSE(is_inside_windows(contract, local_time(at(kFriday + 3, 7, 0), 0)));
}

TEST(Calendar, a_holiday_lends_all_day) {
  Contract contract = nights();
  contract.holidays = {"2026-11-20"};

  EXPECT_TRUE(is_inside_windows(contract, local_time(at(kFriday, 12, 0), 0)));
}

TEST(Calendar, no_windows_lend_always) {
  EXPECT_TRUE(is_inside_windows(Contract{}, local_time(at(kFriday, 3, 0), 0)));
  EXPECT_EQ(time_to_change(Contract{}, at(kFriday, 3, 0), 0), std::nullopt);
}

TEST(Calendar, the_next_change_is_known_to_the_minute) {
  EXPECT_EQ(time_to_change(nights(), at(kFriday, 17, 0), 0), seconds(3600));
  EXPECT_EQ(time_to_change(nights(), at(kFriday, 17, 0), 3600), seconds(54 * 3600));
  EXPECT_EQ(time_to_change(nights(), at(kFriday, 17, 59) + seconds(30), 0), seconds(30));
}

TEST(Calendar, nonsense_is_no_time_no_day_and_no_date) {
  EXPECT_EQ(parse_minute("24:01"), std::nullopt);
  EXPECT_EQ(parse_minute("7:00"), std::nullopt);
  EXPECT_EQ(parse_minute("ab:cd"), std::nullopt);
  EXPECT_EQ(parse_minute("24:00"), 1440u);
  EXPECT_EQ(parse_weekday("Mon"), std::nullopt);
  EXPECT_EQ(parse_weekday("sun"), 6u);
  EXPECT_EQ(parse_date("2026-02-30"), std::nullopt);
  EXPECT_EQ(parse_date("1970-01-02"), 1);
}

}  // namespace
}  // namespace rn::arbiter
