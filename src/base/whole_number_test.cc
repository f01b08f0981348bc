// SPDX-License-Identifier: Apache-2.0
#include "base/whole_number.h"

#include <gtest/gtest.h>

namespace rn {
namespace {

std::string message_of(const Result<std::uint32_t>& number) {
  return number ? "read as " + std::to_string(*number) : number.error().message;
}

TEST(WholeNumber, digits_are_read_up_to_the_types_end) {
  EXPECT_EQ(whole_number<std::uint32_t>("0").value(), 0u);
  EXPECT_EQ(whole_number<std::uint32_t>("4294967295").value(), 4294967295u);
  EXPECT_EQ(whole_number<std::uint16_t>("65535").value(), 65535u);
  EXPECT_EQ(whole_number<std::uint64_t>("18446744073709551615").value(), ~std::uint64_t{0});
}

TEST(WholeNumber, anything_else_is_refused_with_its_bounds) {
  for (const char* text : {"", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x10", "ten", "1;", "١"}) {
    EXPECT_EQ(
        message_of(whole_number<std::uint32_t>(text, 1, 8)),
        "'" + std::string(text) + "' is no whole number from 1 to 8"
    );
  }
  EXPECT_FALSE(whole_number<std::uint32_t>("4294967296"));
  EXPECT_FALSE(whole_number<std::uint64_t>("18446744073709551616"));
  EXPECT_FALSE(whole_number<std::uint16_t>("65536"));
  EXPECT_FALSE(whole_number<std::uint32_t>("0", 1, 8));
  EXPECT_FALSE(whole_number<std::uint32_t>("9", 1, 8));
  EXPECT_FALSE(whole_number<std::uint32_t>(std::string("1\0", 2)));
}

TEST(WholeNumber, is_never_octal) {
  const auto number = whole_number<std::uint32_t>("010");

  EXPECT_EQ(message_of(number), "'010' is no whole number from 0 to 4294967295");
  EXPECT_EQ(number.error().hint, "leave out the zeros in front");
}

TEST(WholeNumber, a_long_text_is_quoted_in_part) {
  EXPECT_LT(whole_number<std::uint32_t>(std::string(10'000, 'x')).error().message.size(), 120u);
}

}  // namespace
}  // namespace rn
