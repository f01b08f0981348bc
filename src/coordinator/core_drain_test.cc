// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

/// A guest on node a has computed for so long since its one durable generation; then its owner is
/// there, and what it saved last drains. Nobody else takes it.
class Drains : public CoreSite {
 protected:
  void SetUp() override { start_with_a_store(); }

  void drain_after(
      std::int64_t computed_ms,
      std::int64_t saved_before_ms,
      AttemptState phase = AttemptState::kDraining
  ) {
    id = running();
    ASSERT_EQ(where(id), "a");
    GenerationRef first = generation(id, 1);
    first.created_wall_ms = to_ms(clock.now().wall);
    EXPECT_TRUE(commit_generation(node("a"), first, {receipt(node("store"), first)}).is_accepted);
    node("b").to_probe = FakeAgent::Answer::kRefuse;
    pass(computed_ms);
    node("a").lending = LendingState::kReclaimed;
    since_save_ms = saved_before_ms;
    report().since_save_ms = since_save_ms;
    say(node("a"), id, job(id).epoch, AttemptState::kNoticed);
    say(node("a"), id, job(id).epoch, phase);
  }

  wire::AttemptReport& report() { return node("a").attempts.at({id, job(id).epoch}); }

  /// Its agent says how old the save is by now.
  void drains_for(std::int64_t ms) {
    for (std::int64_t done = 0; done < ms; done += 1000) {
      pass(1000);
      since_save_ms += 1000;
      report().since_save_ms = since_save_ms;
    }
  }

  JobId id;
  std::int64_t since_save_ms = 0;
};

TEST_F(Drains, a_job_waits_for_its_last_generation_as_long_as_it_would_compute_again) {
  drain_after(400'000, 0);
  drains_for(395'000);
  EXPECT_EQ(state(id), JobState::kDraining);
  drains_for(10'000);
  EXPECT_EQ(state(id), JobState::kQueued);
}

TEST_F(Drains, what_was_done_after_its_last_save_is_gone_and_nothing_to_wait_for) {
  drain_after(400'000, 250'000);
  drains_for(145'000);
  EXPECT_EQ(state(id), JobState::kDraining);
  drains_for(10'000);
  EXPECT_EQ(state(id), JobState::kQueued);
}

TEST_F(Drains, where_little_is_at_stake_a_copy_gets_its_two_minutes) {
  drain_after(400'000, 390'000);
  drains_for(115'000);
  EXPECT_EQ(state(id), JobState::kDraining);
  drains_for(10'000);
  EXPECT_EQ(state(id), JobState::kQueued);
}

TEST_F(Drains, while_it_is_saved_all_that_was_done_may_still_be_in_it) {
  drain_after(400'000, 390'000, AttemptState::kSaving);
  drains_for(395'000);
  EXPECT_EQ(state(id), JobState::kSaving);
  drains_for(10'000);
  EXPECT_EQ(state(id), JobState::kQueued);
}

TEST_F(Drains, nobody_waits_for_longer_than_the_contract_lets_its_node_send) {
  FakeAgent& a = node("a");
  a.hello.contract.max_drain_s = 200;
  tell(a, wire::NodeUpdate{a.hello.facts, a.hello.contract, a.hello.address});
  drain_after(1'000'000, 0);
  drains_for(200'000);
  EXPECT_EQ(state(id), JobState::kDraining);
  drains_for(10'000);
  EXPECT_EQ(state(id), JobState::kQueued);
}

TEST_F(Drains, times_that_cannot_be_are_no_reason_to_wait) {
  drain_after(400'000, std::numeric_limits<std::int64_t>::max() - 10'000'000);
  drains_for(115'000);
  EXPECT_EQ(state(id), JobState::kDraining);
  drains_for(10'000);
  EXPECT_EQ(state(id), JobState::kQueued);
}

}  // namespace
}  // namespace rn::coordinator
