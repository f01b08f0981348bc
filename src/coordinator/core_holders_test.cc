// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

/// A job ran on a, is durable on the store alone, and its node is gone; b could go on with it.
class Holders : public CoreSite {
 protected:
  void SetUp() override {
    start();
    add_node("a", "lab-a").hello.facts.images = {a_image("base").digest};
    add_node("store", "storage").hello.contract.lends = false;
    connect(node("a"));
    connect(node("store"));
    settle();
    id = running();
    ASSERT_EQ(where(id), "a");
    for (const std::uint32_t number : {1U, 2U}) {
      const GenerationRef ref = generation(id, number);
      ASSERT_TRUE(commit_generation(node("a"), ref, {receipt(node("store"), ref)}).is_accepted);
    }
    add_node("b", "lab-b");
  }

  void lose(const char* name) {
    disconnect(node(name));
    pass(20'000);
  }

  void come_back(const char* name) {
    connect(node(name));
    pass(2'000);
  }

  std::string why() { return core->why(id, clock.now()).value(); }

  /// What b's agent says of its attempt.
  void say_it_waits_for(const NodeId& holder) {
    say(node("b"), id, job(id).epoch, AttemptState::kPreparing);
    node("b").attempts.at({id, job(id).epoch}).waits_for = {holder};
    beat(node("b"));
  }

  void give_the_place_back() {
    say(node("b"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kRefused);
  }

  std::uint32_t resumed() { return node("b").last<wire::Commit>().resume.generation; }

  JobId id;
};

TEST_F(Holders, while_none_is_there_the_job_waits_in_the_queue_and_says_for_whom) {
  disconnect(node("store"));
  lose("a");

  EXPECT_EQ(state(id), JobState::kQueued);
  EXPECT_NE(why().find("waits for storage/store (not heard for"), std::string::npos) << why();
  EXPECT_NE(why().find("or lab-a/a (not heard for"), std::string::npos) << why();
  EXPECT_NE(why().find("who alone have generation 2"), std::string::npos) << why();
  EXPECT_TRUE(node("b").received<wire::Commit>().empty()) << "no place is taken from others";
  const std::string reason = "waits for storage/store or lab-a/a, who alone have generation 2";
  EXPECT_EQ(job(id).reason, reason);
  pass(600'000);
  EXPECT_EQ(count_events("job.waits_for_holder"), 1U) << "once, not each second";
  EXPECT_EQ(job(id).reason, reason) << "who follows the job reads it once, too";
  EXPECT_EQ(core->metrics().jobs_without_holder, 1U);
}

TEST_F(Holders, when_one_is_back_the_job_is_placed_and_goes_on_at_exactly_that_generation) {
  disconnect(node("store"));
  lose("a");
  pass(3'600'000);
  ASSERT_EQ(state(id), JobState::kQueued);
  come_back("store");

  ASSERT_EQ(where(id), "b");
  EXPECT_EQ(resumed(), 2U);
  EXPECT_EQ(job(id).restarts, 0U);
}

TEST_F(Holders, no_place_is_kept_for_a_job_that_nobody_can_put_back) {
  disconnect(node("store"));
  lose("a");
  ASSERT_EQ(state(id), JobState::kQueued);

  EXPECT_FALSE(core->evacuation(id));
}

TEST_F(Holders, where_others_should_have_it_and_have_it_not_it_pauses_until_the_one_is_back) {
  lose("a");
  ASSERT_EQ(where(id), "b");
  say_it_waits_for(node("a").id);
  give_the_place_back();
  pass(290'000);
  EXPECT_EQ(state(id), JobState::kQueued);
  EXPECT_NE(why().find("before it is tried again: waits for lab-a/a"), std::string::npos) << why();
  pass(20'000);
  ASSERT_EQ(where(id), "b") << "the node may have been wrong";
  say_it_waits_for(node("a").id);
  give_the_place_back();
  pass(60'000);
  ASSERT_EQ(state(id), JobState::kQueued);
  come_back("a");

  EXPECT_NE(where(id), "");
}

TEST_F(Holders, a_second_absence_is_told_again) {
  disconnect(node("store"));
  lose("a");
  node("b").to_probe = FakeAgent::Answer::kRefuse;
  come_back("store");
  lose("store");

  EXPECT_EQ(count_events("job.waits_for_holder"), 2U);
}

TEST_F(Holders, those_that_have_left_for_good_are_not_waited_for) {
  disconnect(node("store"));
  lose("a");
  for (const char* name : {"store", "a"}) ASSERT_TRUE(run(admin(), RevokeNode{node(name).id}));
  pass(2'000);

  EXPECT_EQ(where(id), "b") << "its node finds out that nobody has it any more";
}

TEST_F(Holders, a_restore_that_waits_is_said_once_and_explained_with_whom_it_waits_for) {
  lose("a");
  ASSERT_EQ(where(id), "b");
  disconnect(node("store"));
  say_it_waits_for(node("store").id);
  pass(60'000);

  EXPECT_EQ(count_events("restore.waits"), 1U);
  EXPECT_NE(
      last_event("restore.waits")
          .message.find("restoring on lab-b/b waits for storage/store, which alone has generation 2"
          ),
      std::string::npos
  );
  EXPECT_NE(why().find("waits for storage/store (not heard for"), std::string::npos) << why();
  EXPECT_NE(job(id).reason.find("waits for storage/store"), std::string::npos) << job(id).reason;

  node("b").attempts.at({id, job(id).epoch}).waits_for.clear();
  beat(node("b"));
  EXPECT_EQ(why().find("restoring on"), std::string::npos) << why();
}

TEST_F(Holders, a_place_given_back_for_them_uses_up_nothing_and_waits_for_them) {
  lose("a");
  ASSERT_EQ(where(id), "b");
  lose("store");
  say_it_waits_for(node("store").id);
  give_the_place_back();

  EXPECT_EQ(state(id), JobState::kQueued);
  EXPECT_EQ(count_events("job.waits_for_holder"), 1U);
  EXPECT_EQ(job(id).restarts, 0U);
  EXPECT_EQ(tables.jobs.at(id).not_before_wall_ms, 0);
  EXPECT_EQ(core->attempts(id).back().end, AttemptEnd::kHolderAway);
  pass(3'600'000);
  EXPECT_EQ(state(id), JobState::kQueued);
  EXPECT_EQ(job(id).durable.generation, 2U);
  EXPECT_EQ(count_events("job.waits_for_holder"), 1U);
  come_back("store");

  ASSERT_EQ(where(id), "b");
  EXPECT_EQ(resumed(), 2U);
}

TEST_F(Holders, one_that_is_connected_and_gives_no_answer_is_tried_again_after_a_pause_for_ever) {
  lose("a");
  std::uint32_t commits = 0;
  for (int times = 0; times < 30; ++times) {
    for (int s = 0; s < 400 && state(id) != JobState::kStarting; ++s) pass(1000);
    ASSERT_EQ(where(id), "b") << why();
    commits = static_cast<std::uint32_t>(node("b").received<wire::Commit>().size());
    ASSERT_EQ(resumed(), 2U);
    say_it_waits_for(node("store").id);
    EXPECT_NE(why().find("storage/store (connected, but without an answer)"), std::string::npos);
    give_the_place_back();
    ASSERT_EQ(state(id), JobState::kQueued) << "it never fails for that";
  }
  pass(2'000);
  EXPECT_EQ(node("b").received<wire::Commit>().size(), commits) << "not at once";
  EXPECT_NE(why().find("before it is tried again: waits for storage/store"), std::string::npos)
      << why();

  disconnect(node("store"));
  connect(node("store"));
  pass(2'000);
  EXPECT_EQ(node("b").received<wire::Commit>().size(), commits + 1) << "it is back: no pause";
}

TEST_F(Holders, a_node_that_names_somebody_who_holds_nothing_has_refused_the_job) {
  lose("a");
  ASSERT_EQ(where(id), "b");
  say_it_waits_for(node("b").id);
  EXPECT_EQ(count_events("restore.waits"), 0U);
  give_the_place_back();

  EXPECT_EQ(core->attempts(id).back().end, AttemptEnd::kRefused);
  EXPECT_EQ(count_events("job.waits_for_holder"), 0U);
}

TEST_F(Holders, a_coordinator_that_starts_again_goes_on_waiting_for_them) {
  disconnect(node("store"));
  lose("a");
  restart();
  come_back("b");
  settle();
  pass(60'000);

  EXPECT_EQ(state(id), JobState::kQueued);
  EXPECT_NE(why().find("waits for storage/store"), std::string::npos) << why();
  come_back("store");
  ASSERT_EQ(where(id), "b");
  EXPECT_EQ(resumed(), 2U);
}

TEST_F(Holders, a_restore_that_waits_is_not_stopped_as_a_slow_start) {
  lose("a");
  ASSERT_EQ(where(id), "b");
  say(node("b"), id, job(id).epoch, AttemptState::kFetching);
  pass(config.start_timeout_ms - 30'000);
  disconnect(node("store"));
  say_it_waits_for(node("store").id);
  pass(120'000);
  EXPECT_EQ(count_events("attempt.slow_start"), 0U);
  pass(300'000);

  EXPECT_EQ(count_events("attempt.slow_start"), 1U) << "it does not wait for ever either";
}

}  // namespace
}  // namespace rn::coordinator
