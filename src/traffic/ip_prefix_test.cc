// SPDX-License-Identifier: Apache-2.0
#include "traffic/ip_prefix.h"

#include <gtest/gtest.h>

namespace rn::traffic {
namespace {

TEST(IpPrefix, reads_back_what_it_prints) {
  for (const char* text :
       {"10.0.0.0/8", "192.0.2.7/32", "0.0.0.0/0", "fd00:1::/32", "2001:db8::1/128", "::/0"}) {
    const auto prefix = parse_prefix(text);
    ASSERT_TRUE(prefix) << text;
    EXPECT_EQ(to_string(*prefix), text);
  }
}

TEST(IpPrefix, an_address_alone_is_its_own_prefix) {
  EXPECT_EQ(to_string(*parse_prefix("192.0.2.7")), "192.0.2.7/32");
  EXPECT_EQ(to_string(*parse_prefix("fd00::7")), "fd00::7/128");
}

TEST(IpPrefix, host_bits_and_nonsense_are_refused) {
  for (const char* text :
       {"10.0.0.1/8",
        "fd00::1/64",
        "10.0.0.0/33",
        "fd00::/129",
        "10.0.0.0/",
        "10.0.0.0/8x",
        "",
        "host",
        "10.0.0/8"}) {
    const auto prefix = parse_prefix(text);
    ASSERT_FALSE(prefix) << text;
    EXPECT_EQ(prefix.error().code, ErrorCode::kInvalid);
  }
}

TEST(IpPrefix, contains_what_lies_inside_and_nothing_wider) {
  const auto campus = *parse_prefix("10.0.0.0/8");

  EXPECT_TRUE(campus.contains(*parse_prefix("10.9.0.0/16")));
  EXPECT_TRUE(campus.contains(campus));
  EXPECT_FALSE(campus.contains(*parse_prefix("11.0.0.0/16")));
  EXPECT_FALSE(campus.contains(*parse_prefix("0.0.0.0/0")));
  EXPECT_FALSE(campus.contains(*parse_prefix("fd00::/16")));
}

TEST(IpPrefix, this_host_has_at_least_its_loopback) {
  const auto prefixes = host_prefixes();

  ASSERT_TRUE(prefixes);
  for (const IpPrefix& prefix : *prefixes)
    EXPECT_TRUE(prefix.contains(prefix)) << to_string(prefix);
}

}  // namespace
}  // namespace rn::traffic
