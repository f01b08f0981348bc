// SPDX-License-Identifier: Apache-2.0
#include "io/own_address.h"

#include <gtest/gtest.h>

namespace rn::io {
namespace {

TEST(OwnAddress, it_is_the_one_that_the_other_end_would_see) {
  EXPECT_EQ(own_address_towards("127.0.0.1", 7443).value_or(""), "127.0.0.1");
  EXPECT_EQ(own_address_towards("127.9.9.9", 7443).value_or("").substr(0, 4), "127.");
}

TEST(OwnAddress, where_no_route_leads_there_is_none) {
  const auto address = own_address_towards("255.255.255.255", 1);  // not without SO_BROADCAST

  ASSERT_FALSE(address);
  EXPECT_EQ(address.error().code, ErrorCode::kUnavailable);
}

TEST(OwnAddress, the_interface_of_a_sockets_own_end_is_found_however_the_end_is_written) {
  EXPECT_EQ(interface_of("127.0.0.1:7445"), "lo");
  EXPECT_EQ(interface_of("127.0.0.1"), "lo");
  EXPECT_EQ(interface_of("[::ffff:127.0.0.1]:7445"), "lo") << "a socket that listens for both";
  EXPECT_EQ(interface_of("192.0.2.1:7445"), "");
}

}  // namespace
}  // namespace rn::io
