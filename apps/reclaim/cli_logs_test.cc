// SPDX-License-Identifier: Apache-2.0
#include "cli_logs.h"

#include <gtest/gtest.h>

namespace rn::cli {
namespace {

constexpr std::int64_t kThenMs = 1'795'700'000'000;  // 2026-11-26T13:33:20Z

TEST(LogTimeWords, a_duration_is_before_now) {
  EXPECT_EQ(parse_log_time("90s", kThenMs).value(), kThenMs - 90'000);
  EXPECT_EQ(parse_log_time("2h", kThenMs).value(), kThenMs - 7'200'000);
  EXPECT_EQ(parse_log_time("7d", kThenMs).value(), kThenMs - 7 * std::int64_t{86'400'000});
  EXPECT_EQ(parse_log_time("9d", 1000).value(), 0) << "nothing is before 1970";
}

TEST(LogTimeWords, a_time_is_that_of_rfc_3339) {
  EXPECT_EQ(parse_log_time("2026-11-26T13:33:20Z", 0).value(), kThenMs);
  EXPECT_EQ(parse_log_time("2026-11-26t13:33:20z", 0).value(), kThenMs);
  EXPECT_EQ(parse_log_time("2026-11-26 14:33:20+01:00", 0).value(), kThenMs);
  EXPECT_EQ(parse_log_time("2026-11-26T08:03:20-05:30", 0).value(), kThenMs);
  EXPECT_EQ(parse_log_time("2026-11-26T13:33:20.1239Z", 0).value(), kThenMs + 123);
  EXPECT_EQ(parse_log_time("2026-11-26T13:33Z", 0).value(), kThenMs - 20'000);
  EXPECT_EQ(parse_log_time("2026-11-26", 0).value(), kThenMs - 48'800'000);
  EXPECT_EQ(parse_log_time(log_stamp(kThenMs + 7), 0).value(), kThenMs + 7);
}

TEST(LogTimeWords, nonsense_is_refused_with_an_example) {
  for (const char* text :
       {"",
        "soon",
        "0s",
        "-5m",
        "2026-13-01",
        "2026-02-30",
        "2026-11-26T",
        "2026-11-26T13:33:20",
        "2026-11-26T24:00Z",
        "2026-11-26T13:60Z",
        "2026-11-26T13:33:20.Z",
        "2026-11-26T13:33:20Zx",
        "2026-11-26T13:33:20+1",
        "1969-12-31"}) {
    const auto refused = parse_log_time(text, kThenMs);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid) << text;
    EXPECT_NE(refused.error().hint.find("for example 90s"), std::string::npos) << text;
  }
}

TEST(LineStamps, each_line_begins_with_when_its_first_byte_came) {
  LineStamps stamps(0);
  stamps.set_times({{0, kThenMs}, {4, kThenMs + 2'000}, {6, kThenMs + 5'500}});

  EXPECT_EQ(
      stamps.take(as_bytes("one\ntwo\n\nlast")),
      "2026-11-26T13:33:20.000Z one\n2026-11-26T13:33:22.000Z two\n"
      "2026-11-26T13:33:25.500Z \n2026-11-26T13:33:25.500Z last"
  );
}

TEST(LineStamps, pieces_of_a_line_and_of_the_times_make_no_difference) {
  LineStamps stamps(10);
  stamps.set_times({{8, kThenMs}});
  EXPECT_EQ(stamps.take(as_bytes("a")), "2026-11-26T13:33:20.000Z a");
  EXPECT_EQ(stamps.take(as_bytes("b\n")), "b\n");
  EXPECT_EQ(stamps.take(as_bytes("c")), "2026-11-26T13:33:20.000Z c");
  stamps.set_times({{8, kThenMs}, {14, kThenMs + 1'000}});
  EXPECT_EQ(stamps.take(as_bytes("d\ne\n")), "d\n2026-11-26T13:33:21.000Z e\n");
  EXPECT_EQ(stamps.take({}), "");
}

}  // namespace
}  // namespace rn::cli
