// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

class CoreHoldings : public CoreTest {};

TEST_F(
    CoreHoldings, after_a_welcome_the_coordinator_is_told_of_which_jobs_the_store_has_generations
) {
  start();
  finish<ListHoldings>(HoldingsListed{{JobId("j-7"), JobId("j-9")}});
  ASSERT_EQ(sent<wire::Holdings>().size(), 1u);
  EXPECT_EQ(sent<wire::Holdings>()[0].jobs, (std::vector<JobId>{JobId("j-7"), JobId("j-9")}));

  connect();
  EXPECT_TRUE(has_work<ListHoldings>());
}

TEST_F(CoreHoldings, a_store_full_of_jobs_is_told_in_parts_and_an_empty_one_not_at_all) {
  start();
  finish<ListHoldings>(HoldingsListed{});
  EXPECT_TRUE(sent<wire::Holdings>().empty());
  connect();
  finish<ListHoldings>(HoldingsListed{std::vector<JobId>(wire::kMaxHoldings + 1, JobId("j-7"))});

  ASSERT_EQ(sent<wire::Holdings>().size(), 2u);
  EXPECT_EQ(sent<wire::Holdings>()[0].jobs.size(), wire::kMaxHoldings);
  EXPECT_EQ(sent<wire::Holdings>()[1].jobs.size(), 1u);
}

TEST_F(
    CoreHoldings, a_store_that_was_listed_after_the_connection_broke_is_listed_again_at_the_next
) {
  start();
  feed(CoordinatorDisconnected{});
  finish<ListHoldings>(HoldingsListed{{JobId("j-7")}});
  EXPECT_TRUE(sent<wire::Holdings>().empty());

  connect();
  finish<ListHoldings>(HoldingsListed{{JobId("j-7")}});

  EXPECT_EQ(sent<wire::Holdings>().size(), 1u);
}

}  // namespace
}  // namespace rn::agent
