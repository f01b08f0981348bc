// SPDX-License-Identifier: Apache-2.0
#include "warden/guest_gang.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "model/gang_link.h"

namespace rn::warden {
namespace {

bool network_has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(MemberNetwork, every_member_finds_all_others_under_their_names) {
  const std::string hosts = member_hosts();

  EXPECT_TRUE(network_has(hosts, "127.0.0.1\tlocalhost\n"));
  EXPECT_TRUE(network_has(hosts, "100.68.0.1\tmember-0\n"));
  EXPECT_TRUE(network_has(hosts, "100.68.0.32\tmember-31\n"));
  EXPECT_FALSE(network_has(hosts, "member-32"));
}

TEST(MemberNetwork, the_whole_range_is_the_guests_own_and_nothing_of_it_leaves) {
  const std::string addresses = member_addresses(2);

  EXPECT_TRUE(network_has(addresses, "link add gang0 type veth peer name gang1\n"));
  EXPECT_TRUE(network_has(addresses, "addr add 100.68.0.3/32 dev gang0\n"));
  EXPECT_TRUE(network_has(addresses, "route replace local 100.68.0.0/24 dev lo src 100.68.0.3\n"));
}

TEST(MemberNetwork, what_goes_to_others_is_taken_and_what_goes_to_itself_is_not) {
  const std::string rules = member_rules(2);

  EXPECT_TRUE(network_has(
      rules,
      "ip daddr 100.68.0.0/24 ip daddr != 100.68.0.3 meta l4proto tcp redirect to :" +
          std::to_string(gang_link::kListenPort)
  ));
  EXPECT_TRUE(network_has(rules, "ip daddr != 100.68.0.3 meta l4proto != tcp reject"));
}

/// Doing it is the only test that says whether nft and the kernel understand these words.
TEST(MemberNetwork, a_namespace_becomes_a_members_where_the_kernel_can) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";

  const KernelFinding finding = look_at_member_network();

  EXPECT_FALSE(finding.is_needed);
  if (!finding.is_there) GTEST_SKIP() << finding.what;
  EXPECT_EQ(finding.next, "");
}

TEST(MemberNetwork, of_a_process_that_is_not_there_it_cannot_be_made) {
  const Status given = give_member_network(-1, {1, 4});

  ASSERT_FALSE(given);
  EXPECT_NE(given.error().hint, "");
}

}  // namespace
}  // namespace rn::warden
