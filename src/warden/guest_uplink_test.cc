// SPDX-License-Identifier: Apache-2.0
#include "warden/guest_uplink.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/scratch_folder.h"

namespace rn::warden {
namespace {

TEST(Uplink, is_an_interface_and_a_rate) {
  const auto grant = parse_uplink("eth0:90mbit");
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->interface, "eth0");
  EXPECT_EQ(grant->bps, 90'000'000U);
  EXPECT_EQ(parse_uplink("eth0.7:1000kbit")->bps, 1'000'000U);
  EXPECT_EQ(parse_uplink("bond0:1000gbit")->bps, 1'000'000'000'000U);
}

TEST(Uplink, refuses_what_is_no_rate_or_an_absurd_one) {
  for (const char* wrong :
       {"",
        "eth0",
        ":90mbit",
        "eth0:",
        "eth0:90",
        "eth0:mbit",
        "eth0:-1mbit",
        "eth0:0mbit",
        "eth0:999kbit",
        "eth0:1001gbit",
        "eth0:90mb",
        "eth0:90mbit ",
        "eth0: 90mbit",
        "../x:90mbit",
        "a/b:90mbit",
        "a-name-of-16-ch:90mbitx",
        "a-name-of-16-cha:90mbit",
        "eth0:99999999999999999999gbit",
        "eth0:18446744073709551615gbit"}) {
    const auto grant = parse_uplink(wrong);
    ASSERT_FALSE(grant) << wrong;
    EXPECT_EQ(grant.error().code, ErrorCode::kInvalid) << wrong;
  }
}

TEST(Uplink, must_be_there_and_keep_a_twentieth_of_its_speed_free) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch.path() + "/eth0");
  std::filesystem::create_directories(scratch.path() + "/veth");
  std::ofstream(scratch.path() + "/eth0/speed") << "1000\n";
  std::ofstream(scratch.path() + "/veth/speed") << "-1\n";

  EXPECT_EQ(check_uplink({"eth1", 1'000'000}, scratch.path()).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(check_uplink({"eth0", 950'000'000}, scratch.path()));
  EXPECT_EQ(check_uplink({"eth0", 950'000'001}, scratch.path()).error().code, ErrorCode::kInvalid);
  EXPECT_TRUE(check_uplink({"veth", 40'000'000'000}, scratch.path())) << "its speed is not known";
}

TEST(Uplink, is_shared_in_equal_parts_that_never_are_more_than_was_granted) {
  EXPECT_EQ(rate_of_guest(0, 0, 3), 0U) << "no bound";
  EXPECT_EQ(rate_of_guest(7'000'000, 0, 3), 7'000'000U);
  EXPECT_EQ(rate_of_guest(0, 90'000'000, 0), 90'000'000U);
  EXPECT_EQ(rate_of_guest(0, 90'000'000, 3), 30'000'000U);
  EXPECT_EQ(rate_of_guest(7'000'000, 90'000'000, 3), 7'000'000U);
  EXPECT_EQ(rate_of_guest(0, 90'000'000, 256), 351'562U) << "all gates in use";
}

TEST(Uplink, segments_are_a_quarter_millisecond_long_and_hold_two_packets_at_least) {
  EXPECT_EQ(guest_gso_bytes(1'000'000), 3'000U);
  EXPECT_EQ(guest_gso_bytes(900'000'000), 28'125U);
  EXPECT_EQ(guest_gso_bytes(100'000'000'000), 65'536U);
}

}  // namespace
}  // namespace rn::warden
