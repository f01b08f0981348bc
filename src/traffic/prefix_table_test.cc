// SPDX-License-Identifier: Apache-2.0
#include "traffic/prefix_table.h"

#include <gtest/gtest.h>

namespace rn::traffic {
namespace {

IpPrefix prefix(const char* text) {
  return parse_prefix(text).value();
}

AllowRule https_to(const char* remote) {
  return {prefix(remote), Protocol::kTcp, 443, 0, Opener::kGuest};
}

TEST(PrefixTable, an_empty_policy_denies_all_private_space_by_name) {
  const auto table = make_prefix_table({}, {});

  ASSERT_TRUE(table);
  EXPECT_EQ(table->size(), 5u);
  EXPECT_EQ(table->at(prefix("10.0.0.0/8")).count, 0u);
  EXPECT_EQ(table->at(prefix("fc00::/7")).count, 0u);
}

TEST(PrefixTable, a_rule_for_everything_leaves_host_and_campus_denied) {
  GuestPolicy policy;
  policy.allow = {https_to("0.0.0.0/0")};

  const auto table =
      make_prefix_table(policy, {prefix("198.51.100.4/32"), prefix("198.51.100.0/24")});

  ASSERT_TRUE(table);
  EXPECT_EQ(table->at(prefix("0.0.0.0/0")).count, 1u);
  EXPECT_EQ(table->at(prefix("198.51.100.4/32")).count, 0u);
  EXPECT_EQ(table->at(prefix("198.51.100.0/24")).count, 0u);
  EXPECT_EQ(table->at(prefix("192.168.0.0/16")).count, 0u);
}

TEST(PrefixTable, a_rule_that_names_the_host_itself_opens_it) {
  GuestPolicy policy;
  policy.allow = {https_to("198.51.100.4/32")};

  const auto table = make_prefix_table(policy, {prefix("198.51.100.4/32")});

  EXPECT_EQ(table->at(prefix("198.51.100.4/32")).count, 1u);
}

TEST(PrefixTable, a_written_denial_outweighs_a_rule_for_the_same_prefix) {
  GuestPolicy policy;
  policy.allow = {https_to("203.0.113.0/24")};
  policy.deny = {prefix("203.0.113.0/24")};

  EXPECT_EQ(make_prefix_table(policy, {})->at(prefix("203.0.113.0/24")).count, 0u);
}

TEST(PrefixTable, a_ninth_rule_for_one_prefix_is_refused) {
  GuestPolicy policy;
  for (std::uint16_t port = 1; port <= 9; ++port) {
    policy.allow.push_back({prefix("203.0.113.0/24"), Protocol::kTcp, port, 0, Opener::kGuest});
  }

  const auto table = make_prefix_table(policy, {});

  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().code, ErrorCode::kExhausted);
}

}  // namespace
}  // namespace rn::traffic
