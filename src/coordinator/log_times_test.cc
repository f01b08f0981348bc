// SPDX-License-Identifier: Apache-2.0
#include "coordinator/log_times.h"

#include <gtest/gtest.h>

namespace rn::coordinator {
namespace {

/// Three lines of 7 bytes, that came at 1, 2 and 5 s; the third came in two pieces.
class LogRanges : public testing::Test {
 protected:
  api::LogRange find(const LogWanted& wanted) const {
    const auto found = find_log_range(wanted, text.size(), times, reader());
    EXPECT_TRUE(found) << found.error().describe();
    return found.value_or(api::LogRange{});
  }

  std::string shown(const LogWanted& wanted) const {
    const api::LogRange range = find(wanted);
    return text.substr(range.begin, range.end - range.begin);
  }

  LogReadAt reader() const {
    return [this](std::uint64_t offset, std::uint64_t max) -> Result<Blob> {
      const std::string piece = offset < text.size() ? text.substr(offset, max) : "";
      return Blob(piece.begin(), piece.end());
    };
  }

  std::string text = "line 1\nline 2\nline 3\n";
  std::vector<api::LogTime> times = {{0, 1000}, {7, 2000}, {14, 5000}, {18, 6000}};
};

TEST_F(LogRanges, all_of_it_where_nothing_is_asked_for) {
  EXPECT_EQ(shown({}), text);
  EXPECT_EQ(find({}).times, times);
  EXPECT_EQ(find({}).times_until, text.size());
}

TEST_F(LogRanges, since_shows_whole_lines_that_came_then_or_later) {
  EXPECT_EQ(shown({.since_ms = 0}), text);
  EXPECT_EQ(shown({.since_ms = 2000}), "line 2\nline 3\n");
  EXPECT_EQ(shown({.since_ms = 2001}), "line 3\n");
  EXPECT_EQ(shown({.since_ms = 5500}), "line 3\n") << "its end came then";
  EXPECT_EQ(shown({.since_ms = 6001}), "");
  text += "no end";
  EXPECT_EQ(shown({.since_ms = 6001}), "") << "nor a line that is not over";
}

TEST_F(LogRanges, until_shows_whole_lines_that_began_to_come_by_then) {
  EXPECT_EQ(shown({.until_ms = 999}), "");
  EXPECT_EQ(shown({.until_ms = 1000}), "line 1\n");
  EXPECT_EQ(shown({.until_ms = 5000}), text) << "the third began to come";
  EXPECT_EQ(shown({.since_ms = 2000, .until_ms = 4000}), "line 2\n");
  EXPECT_EQ(shown({.since_ms = 4000, .until_ms = 1000}), "");
}

TEST_F(LogRanges, the_last_lines_of_what_is_asked_for) {
  EXPECT_EQ(shown({.tail = 1}), "line 3\n");
  EXPECT_EQ(shown({.tail = 2}), "line 2\nline 3\n");
  EXPECT_EQ(shown({.tail = 9}), text);
  EXPECT_EQ(shown({.until_ms = 2000, .tail = 1}), "line 2\n");
  text += "no end";
  EXPECT_EQ(shown({.tail = 1}), "no end");
  EXPECT_EQ(shown({.tail = 2}), "line 3\nno end");
}

TEST_F(LogRanges, the_last_lines_of_a_long_log_are_found_piece_by_piece) {
  text.clear();
  for (int i = 0; i < 40'000; ++i) text += "a line\n";
  text += "the last but one\nthe last\n";

  EXPECT_EQ(shown({.tail = 2}), "the last but one\nthe last\n");
  EXPECT_EQ(find({.tail = 30'000}).begin, (40'002U - 30'000U) * 7U);
}

TEST_F(LogRanges, nothing_is_shown_before_an_offset) {
  EXPECT_EQ(shown({.offset = 14}), "line 3\n");
  EXPECT_EQ(shown({.offset = 1000}), "");
}

TEST_F(LogRanges, times_begin_with_that_of_the_first_byte_and_are_bounded) {
  EXPECT_EQ(
      find({.offset = 8}).times, (std::vector<api::LogTime>{{7, 2000}, {14, 5000}, {18, 6000}})
  );
  text.assign(20'000, 'x');
  times.clear();
  for (std::uint64_t i = 0; i < 10'000; ++i) times.push_back({2 * i, 1000});

  const api::LogRange first = find({});
  EXPECT_EQ(first.times.size(), 4096U);
  EXPECT_EQ(first.times_until, 8192U);
  const api::LogRange next = find({.offset = first.times_until});
  EXPECT_EQ(next.times.front(), (api::LogTime{8192, 1000}));
}

TEST_F(LogRanges, a_log_without_times_says_so_only_where_they_are_asked_for) {
  times.clear();
  EXPECT_EQ(shown({.tail = 1}), "line 3\n");
  const auto refused = find_log_range({.since_ms = 1}, text.size(), times, reader());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  text.clear();
  EXPECT_EQ(shown({.since_ms = 1}), "") << "nothing came yet";
}

TEST(LogTimes, records_are_read_back_and_torn_ones_are_left_out) {
  const std::string good = log_time_record({0, 1000}) + log_time_record({700, 2000});
  EXPECT_EQ(parse_log_times(good), (std::vector<api::LogTime>{{0, 1000}, {700, 2000}}));
  EXPECT_EQ(parse_log_times(good + "\n90"), parse_log_times(good));
  const std::string torn = good.substr(0, good.size() - 3) + log_time_record({900, 3000});
  EXPECT_EQ(parse_log_times(torn), (std::vector<api::LogTime>{{0, 1000}, {900, 3000}}));
  EXPECT_EQ(parse_log_times(good + log_time_record({700, 9})), parse_log_times(good));
  EXPECT_EQ(parse_log_times(std::string("\0\0\n7 8;", 7)), (std::vector<api::LogTime>{{7, 8}}));
  EXPECT_TRUE(parse_log_times("\n1;\n;\n1 ;\n 1;\n1 2 3;\nx y;").empty());
}

}  // namespace
}  // namespace rn::coordinator
