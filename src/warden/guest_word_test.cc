// SPDX-License-Identifier: Apache-2.0
#include "warden/guest_word.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace rn::warden {
namespace {

using nlohmann::json;
using warden_wire::TellGuest;

const WallTime kNow = WallTime(milliseconds(1'700'000'000'250));

std::vector<std::string> parts_of(const std::string& word) {
  std::vector<std::string> parts(1);
  for (const char c : word) {
    if (c == '\0')
      parts.emplace_back();
    else
      parts.back().push_back(c);
  }
  return parts;
}

TEST(GuestWord, of_a_save_that_is_due_says_why_and_no_deadline) {
  TellGuest order;
  order.reason = "a save is due";
  EXPECT_EQ(
      word_as_json(order, kNow), "{\"reason\":\"a save is due\",\"told_unix\":1700000000.25}\n"
  );

  EXPECT_EQ(
      parts_of(word_for_init(order, kNow)),
      (std::vector<std::string>{
          word_as_json(order, kNow),
          "RECLAIM_REASON=a save is due",
          "RECLAIM_TOLD_UNIX=1700000000.25",
          "RECLAIM_DEADLINE_UNIX=",
          "RECLAIM_GRACE_S="})
  );
}

TEST(GuestWord, at_a_notice_says_until_when) {
  TellGuest order;
  order.reason = "an exam";
  order.deadline_wall_ms = 1'700'000'060'500;
  order.grace_s = 60;
  const json said = json::parse(word_as_json(order, kNow));
  EXPECT_EQ(said["deadline_unix"], 1'700'000'060.5);
  EXPECT_EQ(said["grace_s"], 60);

  const auto parts = parts_of(word_for_init(order, kNow));
  EXPECT_EQ(parts.at(3), "RECLAIM_DEADLINE_UNIX=1700000060.5");
  EXPECT_EQ(parts.at(4), "RECLAIM_GRACE_S=60");
}

TEST(GuestWord, a_reason_of_whatever_length_and_bytes_makes_no_more_parts_and_fits) {
  TellGuest order;
  order.reason = std::string("a\0RECLAIM_GRACE_S=9", 19);
  EXPECT_EQ(parts_of(word_for_init(order, kNow)).at(1), "RECLAIM_REASON=a RECLAIM_GRACE_S=9");
  EXPECT_EQ(parts_of(word_for_init(order, kNow)).size(), 5U);

  order.reason = std::string(5000, '\x01');
  EXPECT_LT(word_for_init(order, kNow).size(), 8U << 10) << "each is six bytes in JSON";
  order.reason = std::string(1023, 'x') + "\xc3\xa4";
  EXPECT_TRUE(is_utf8(parts_of(word_for_init(order, kNow)).at(1))) << "cut within a letter";
}

}  // namespace
}  // namespace rn::warden
