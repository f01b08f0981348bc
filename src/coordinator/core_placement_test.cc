// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

using AgentAnswer = FakeAgent::Answer;

class PlacementTest : public CoreSite {
 protected:
  void SetUp() override {
    start();
    // The image is on a: of two equal nodes it is the better one.
    add_node("a", "lab-a").hello.facts.images = {a_image("base").digest};
    add_node("b", "lab-b");
    connect(node("a"));
    settle();
  }
};

TEST_F(PlacementTest, the_best_two_are_probed_one_is_committed_and_the_others_hold_is_cancelled) {
  add_node("c", "lab-c");
  node("b").hello.contract.guest_cpu_milli = 500;
  node("c").hello.contract.guest_cpu_milli = 200;
  connect(node("b"));
  connect(node("c"));
  const JobId id = submit();

  EXPECT_EQ(state(id), JobState::kStarting);
  EXPECT_EQ(where(id), "a");
  EXPECT_EQ(node("b").received<wire::Probe>().size(), 1U);
  EXPECT_EQ(node("b").received<wire::CancelHold>().size(), 1U);
  EXPECT_EQ(node("c").received<wire::Probe>().size(), 0U);
  EXPECT_EQ(job(id).epoch, (LeaseEpoch{1, 1}));
}

TEST_F(PlacementTest, the_epochs_row_is_in_the_tables_when_the_commit_leaves) {
  node("a").to_commit = node("b").to_commit = AgentAnswer::kSilent;
  const JobId id = submit();

  const auto commits = node("a").received<wire::Commit>();
  ASSERT_EQ(commits.size(), 1U);
  const AttemptRow& row = tables.attempts.at({id, {1, 1}});
  EXPECT_EQ(row.attempt.state, AttemptState::kLeased);
  EXPECT_NE(row.attempt.placed_because.find("score"), std::string::npos);
  EXPECT_EQ(tables.jobs.at(id).job.state, JobState::kPlacing);
  const auto key =
      crypto::open_sealed(node("a").box, commits[0].sealed_job_key, as_bytes(id.str()));
  ASSERT_TRUE(key);
  EXPECT_EQ(
      *key,
      crypto::unseal(keys.wrapping_key, tables.jobs.at(id).wrapped_key, as_bytes(id.str())).value()
  );
}

TEST_F(PlacementTest, when_the_best_refuses_the_second_gets_it) {
  node("a").to_probe = AgentAnswer::kRefuse;
  const JobId id = submit();

  EXPECT_EQ(where(id), "b");
}

TEST_F(PlacementTest, when_both_refuse_the_next_candidate_is_asked_at_once) {
  add_node("c", "lab-c");
  node("c").hello.contract.guest_cpu_milli = 200;
  connect(node("c"));
  node("a").to_probe = node("b").to_probe = AgentAnswer::kRefuse;

  const JobId id = submit();

  EXPECT_EQ(where(id), "c") << "no time has passed";
  EXPECT_EQ(node("a").received<wire::Probe>().size(), 1U);
}

TEST_F(PlacementTest, when_both_refuse_why_tells_their_reasons_and_they_are_asked_later) {
  node("a").to_probe = node("b").to_probe = AgentAnswer::kRefuse;
  const JobId id = submit();

  EXPECT_EQ(state(id), JobState::kQueued);
  EXPECT_NE(
      core->why(id, clock.now()).value().find("lab-a/a: its owner is at the keyboard"),
      std::string::npos
  );
  pass(4000);
  EXPECT_EQ(node("a").received<wire::Probe>().size(), 1U) << "not asked again at once";
  node("a").to_probe = AgentAnswer::kOffer;
  pass(3000);
  EXPECT_EQ(where(id), "a");
}

TEST_F(PlacementTest, a_queued_jobs_reason_is_why_it_waits_now_and_not_how_it_got_there) {
  const JobId id = submit();
  ASSERT_EQ(where(id), "a");
  node("a").to_probe = node("b").to_probe = AgentAnswer::kRefuse;
  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kReclaimed);
  pass(2000);

  ASSERT_EQ(state(id), JobState::kQueued);
  EXPECT_EQ(job(id).reason.find("waits: "), 0U) << job(id).reason;
  EXPECT_NE(job(id).reason.find("lab-a/a: its owner is at the keyboard"), std::string::npos)
      << job(id).reason;
  const JobId other = submit();
  pass(100);
  EXPECT_EQ(job(other).reason.find("waits: "), 0U) << job(other).reason;
}

TEST_F(PlacementTest, a_permanent_refusal_is_not_asked_again_until_the_node_changes) {
  node("a").to_probe = node("b").to_probe = AgentAnswer::kSilent;
  const JobId id = submit();
  for (const char* name : {"a", "b"}) {
    const auto probe = node(name).last<wire::Probe>();
    tell(
        node(name),
        wire::ProbeReply{.probe = probe.probe, .job = id, .reason = "no", .is_permanent = true}
    );
  }
  node("a").to_probe = AgentAnswer::kOffer;
  pass(30'000);
  EXPECT_EQ(state(id), JobState::kQueued);
  tell(node("a"), wire::NodeUpdate{node("a").hello.facts, {}, node("a").hello.address});
  pass(2000);

  EXPECT_EQ(where(id), "a");
}

TEST_F(PlacementTest, one_silent_node_delays_the_other_only_until_the_answers_time_is_over) {
  node("a").to_probe = AgentAnswer::kSilent;
  const JobId id = submit();
  EXPECT_EQ(state(id), JobState::kPlacing);
  EXPECT_LE(core->wake_at(clock.now()), clock.now().boot + milliseconds(250));
  pass(500);

  EXPECT_EQ(where(id), "b");
}

TEST_F(PlacementTest, an_answer_that_comes_late_is_cancelled) {
  node("a").to_probe = AgentAnswer::kSilent;
  const JobId id = submit();
  const auto probe = node("a").last<wire::Probe>();
  pass(2000);
  ASSERT_EQ(where(id), "b");
  tell(node("a"), wire::ProbeReply{.probe = probe.probe, .job = id, .hold = HoldId("h-late")});

  EXPECT_EQ(node("a").last<wire::CancelHold>().hold, HoldId("h-late"));
  EXPECT_EQ(job(id).epoch, (LeaseEpoch{1, 1}));
}

TEST_F(PlacementTest, an_answer_that_comes_twice_changes_nothing) {
  node("a").to_commit = AgentAnswer::kSilent;
  node("b").to_probe = AgentAnswer::kRefuse;
  const JobId id = submit();
  const auto probe = node("a").last<wire::Probe>();
  const HoldId hold = node("a").last<wire::Commit>().hold;
  tell(node("a"), wire::ProbeReply{.probe = probe.probe, .job = id, .hold = hold});

  EXPECT_TRUE(node("a").received<wire::CancelHold>().empty()) << "the committed hold must live";
  EXPECT_EQ(node("a").received<wire::Commit>().size(), 1U);
  tell(node("a"), wire::ProbeReply{.probe = probe.probe, .job = id, .hold = HoldId("h-2nd")});
  EXPECT_EQ(node("a").last<wire::CancelHold>().hold, HoldId("h-2nd"));
}

TEST_F(PlacementTest, a_commit_reply_that_comes_twice_counts_once) {
  const JobId id = submit();
  const auto commit = node(where(id)).last<wire::Commit>();
  tell(
      node(where(id)),
      wire::CommitReply{.hold = commit.hold, .job = id, .epoch = commit.epoch, .is_granted = true}
  );

  EXPECT_EQ(core->metrics().leases_granted, 1U);
  EXPECT_EQ(state(id), JobState::kStarting);
}

TEST_F(PlacementTest, a_lost_hold_burns_the_epoch_and_the_next_node_is_tried) {
  node("a").to_commit = AgentAnswer::kRefuse;
  const JobId id = submit();
  pass(1000);

  EXPECT_EQ(where(id), "b");
  EXPECT_EQ(job(id).epoch.attempt, 2U);
  EXPECT_EQ(tables.attempts.at({id, {1, 1}}).attempt.end, AttemptEnd::kRefused);
  EXPECT_EQ(job(id).displacements, 0U);
}

TEST_F(PlacementTest, commits_that_are_lost_again_and_again_make_no_storm) {
  node("a").to_commit = node("b").to_commit = AgentAnswer::kRefuse;
  const JobId id = submit();
  pass(600'000);

  EXPECT_LT(job(id).epoch.attempt, 40U);
  EXPECT_GT(job(id).epoch.attempt, 10U);
}

TEST_F(PlacementTest, a_node_that_vanishes_after_the_commit_is_given_up_when_it_is_lost) {
  node("a").to_commit = AgentAnswer::kSilent;
  node("b").to_probe = AgentAnswer::kRefuse;
  const JobId id = submit();
  disconnect(node("a"));
  node("b").to_probe = AgentAnswer::kOffer;
  pass(10'000);
  EXPECT_EQ(state(id), JobState::kPlacing) << "its node may still come back";
  pass(12'000);

  EXPECT_EQ(where(id), "b");
  EXPECT_EQ(job(id).epoch.attempt, 2U);
  // It had taken the lease after all, and returns: fenced.
  node("a").attempts[{id, {1, 1}}] = {.job = id, .epoch = {1, 1}, .state = AttemptState::kRunning};
  connect(node("a"));
  const auto verdict = node("a").last<wire::Welcome>().verdicts.at(0);
  EXPECT_FALSE(verdict.is_current);
}

TEST_F(PlacementTest, an_unanswered_commit_is_repeated) {
  node("a").to_commit = AgentAnswer::kSilent;
  node("b").to_probe = AgentAnswer::kRefuse;
  const JobId id = submit();
  pass(5000);
  EXPECT_EQ(node("a").received<wire::Commit>().size(), 1U);
  node("a").to_commit = AgentAnswer::kOffer;
  pass(6000);

  EXPECT_EQ(node("a").received<wire::Commit>().size(), 2U);
  EXPECT_EQ(state(id), JobState::kStarting);
}

TEST_F(PlacementTest, a_heartbeat_that_names_the_attempt_is_as_good_as_the_lost_reply) {
  node("a").to_commit = AgentAnswer::kSilent;
  const JobId id = submit();
  node("a").attempts[{id, {1, 1}}] = {.job = id, .epoch = {1, 1}};
  beat(node("a"));

  EXPECT_EQ(state(id), JobState::kStarting);
}

TEST_F(PlacementTest, a_probe_whose_connection_dies_frees_the_job_for_the_other_node) {
  node("a").to_probe = node("b").to_probe = AgentAnswer::kSilent;
  const JobId id = submit();
  const auto probe = node("b").last<wire::Probe>();
  tell(
      node("b"),
      wire::ProbeReply{
          .probe = probe.probe, .job = id, .hold = HoldId("h-b"), .ttl_ms = probe.hold_ms}
  );
  disconnect(node("a"));

  EXPECT_EQ(where(id), "b");
}

TEST_F(PlacementTest, holds_are_asked_for_long_enough_and_never_below_a_second) {
  for (int i = 0; i < 40; ++i) submit();
  for (const wire::Probe& probe : node("a").received<wire::Probe>())
    EXPECT_GE(probe.hold_ms, 1000U);
}

TEST_F(PlacementTest, commits_that_came_too_late_make_the_next_holds_longer) {
  node("a").to_commit = AgentAnswer::kSilent;
  node("b").to_probe = AgentAnswer::kRefuse;
  for (int i = 0; i < 8; ++i) {
    const JobId id = submit();
    const auto commit = node("a").last<wire::Commit>();
    ASSERT_EQ(commit.job, id);
    pass(900);
    tell(
        node("a"),
        wire::CommitReply{
            .hold = commit.hold, .job = id, .epoch = commit.epoch, .reason = "the hold has expired"}
    );
    ASSERT_TRUE(run(admin(), StopJob{.job = id}));
  }

  submit();

  EXPECT_GE(node("a").last<wire::Probe>().hold_ms, 1800U);
}

TEST_F(PlacementTest, the_hold_of_a_late_answer_stays_for_the_job_that_is_asked_for_anew) {
  node("a").to_probe = AgentAnswer::kSilent;
  node("b").to_probe = AgentAnswer::kRefuse;
  const JobId id = submit();
  const auto first = node("a").last<wire::Probe>();
  pass(1500);
  ASSERT_EQ(state(id), JobState::kQueued);
  // A node that has changed is asked again, whatever it did before.
  tell(node("a"), wire::NodeUpdate{node("a").hello.facts, {}, node("a").hello.address});
  const auto second = node("a").last<wire::Probe>();
  ASSERT_NE(second.probe, first.probe);
  const HoldId hold("h-of-the-job");

  tell(
      node("a"),
      wire::ProbeReply{.probe = first.probe, .job = id, .hold = hold, .ttl_ms = first.hold_ms}
  );
  tell(
      node("a"),
      wire::ProbeReply{.probe = second.probe, .job = id, .hold = hold, .ttl_ms = second.hold_ms}
  );

  EXPECT_TRUE(node("a").received<wire::CancelHold>().empty()) << "it is the one that is committed";
  EXPECT_EQ(node("a").last<wire::Commit>().hold, hold);
  EXPECT_EQ(where(id), "a");
}

TEST_F(PlacementTest, more_jobs_than_cores_wait_and_are_placed_when_one_ends) {
  JobSpec spec = a_spec();
  spec.resources.cpu_milli = spec.resources.cpu_milli_min = 4000;
  const JobId first = submit(spec);
  const JobId second = submit(spec);
  const JobId third = submit(spec);
  EXPECT_EQ(state(second), JobState::kStarting);
  EXPECT_EQ(state(third), JobState::kQueued);
  EXPECT_EQ(core->queue_position(third, clock.now()), 1U);
  EXPECT_NE(
      core->why(third, clock.now()).value().find("2 cores busy with other jobs"), std::string::npos
  );
  FakeAgent& n = node(where(first));
  say(n, first, job(first).epoch, AttemptState::kEnded, AttemptEnd::kSucceeded);

  EXPECT_EQ(state(third), JobState::kStarting);
}

TEST_F(PlacementTest, a_placement_on_nodes_that_leave_often_is_degraded_and_said) {
  for (const char* name : {"a", "b"}) {
    for (int i = 0; i < 400; ++i) {
      tell(node(name), wire::ReclaimReport{{.id = ReclaimId("r-" + std::to_string(i))}});
      beat(node(name));  // and is given back
    }
  }
  add_node("store", "storage").hello.contract.lends = false;
  connect(node("store"));
  const JobId id = running();
  pass(6000);

  EXPECT_TRUE(job(id).is_degraded);
  EXPECT_EQ(count_events("job.degraded"), 1U);
  EXPECT_NE(core->why(id, clock.now()).value().find("degraded"), std::string::npos);
  const auto plan = node(where(id)).last<wire::HeartbeatAck>().plans.at(0);
  EXPECT_EQ(plan.wanted, 1U) << "a generation does not wait for its second copy to be durable";
  ASSERT_EQ(plan.precopies.size(), 1U) << "but gets it when it is";
  EXPECT_NE(plan.precopies.at(0).failure_domain, plan.copies.at(0).failure_domain);
}

TEST_F(PlacementTest, a_job_whose_image_left_the_list_waits_and_says_so) {
  node("a").lending = node("b").lending = LendingState::kPaused;
  pass(6000);
  const JobId id = submit();
  ASSERT_TRUE(run(admin(), RemoveImage{"base"}));
  node("a").lending = LendingState::kOpen;
  pass(6000);

  EXPECT_EQ(state(id), JobState::kQueued);
  EXPECT_NE(core->why(id, clock.now()).value().find("taken off the allow list"), std::string::npos);
}

TEST_F(PlacementTest, a_trust_group_is_obeyed) {
  JobSpec spec = a_spec();
  spec.only_labs = {"lab-b"};

  EXPECT_EQ(where(submit(spec)), "b");
}

class DataTest : public PlacementTest {
 protected:
  static JobSpec a_spec_with(std::vector<std::string> data) {
    JobSpec spec = a_spec();
    spec.data = std::move(data);
    return spec;
  }

  void offer(const std::string& name, std::vector<std::string> data_sets) {
    FakeAgent& agent = node(name);
    agent.hello.facts.data_sets = std::move(data_sets);
    tell(agent, wire::NodeUpdate{agent.hello.facts, agent.hello.contract, agent.hello.address});
  }
};

TEST_F(PlacementTest, a_job_that_only_a_refused_engine_keeps_waiting_names_node_and_reason) {
  const auto update = [&](const char* name, const std::string& refusal) {
    FakeAgent& agent = node(name);
    agent.hello.facts.engine_refusal = refusal;
    agent.lending = refusal.empty() ? LendingState::kOpen : LendingState::kNotLending;
    tell(agent, wire::NodeUpdate{agent.hello.facts, agent.hello.contract, agent.hello.address});
  };
  update("a", "engine 19.3 is below 20.10.24");
  update("b", std::string(5000, 'x'));
  pass(6000);
  const JobId id = submit();
  pass(2000);

  const std::string why = core->why(id, clock.now()).value();
  EXPECT_NE(
      why.find("/a: its container engine is refused: engine 19.3 is below 20.10.24"),
      std::string::npos
  ) << why;
  EXPECT_LT(why.size(), 1000U) << "a node fills nobody's screen";
  update("a", "");
  pass(6000);
  EXPECT_EQ(where(id), "a");
}

TEST_F(DataTest, a_job_is_asked_for_only_where_its_data_is) {
  offer("b", {"digits"});
  const JobId id = submit(a_spec_with({"digits"}));

  EXPECT_EQ(where(id), "b");
  EXPECT_EQ(node("a").received<wire::Probe>().size(), 0U);
  EXPECT_EQ(node("b").last<wire::Probe>().data, std::vector<std::string>{"digits"});
}

TEST_F(DataTest, without_its_data_anywhere_it_waits_says_so_and_goes_when_somebody_offers_it) {
  const auto answer = run(user(), SubmitJob{.spec = a_spec_with({"digits"})});
  ASSERT_TRUE(answer);
  const auto& submitted = std::get<JobSubmitted>(*answer);
  const JobId id = submitted.job.id;
  pass(2000);

  EXPECT_EQ(state(id), JobState::kQueued);
  EXPECT_NE(
      core->why(id, clock.now()).value().find("no node offers data set digits"), std::string::npos
  );
  std::string told;
  for (const std::string& warning : submitted.warnings) told += warning + "\n";
  EXPECT_NE(
      told.find("it waits until a node fits: no node offers data set digits\n"), std::string::npos
  );
  offer("a", {"digits"});
  pass(2000);
  EXPECT_EQ(where(id), "a");
}

TEST_F(DataTest, what_one_job_lacks_says_nothing_about_a_job_with_other_data) {
  offer("b", {"digits"});
  const JobId waits = submit(a_spec_with({"imagenet"}));
  pass(1000);  // it is looked at first
  const JobId runs = submit(a_spec_with({"digits"}));
  pass(2000);

  EXPECT_EQ(state(waits), JobState::kQueued);
  EXPECT_EQ(where(runs), "b");
}

TEST_F(DataTest, what_one_job_trusts_says_nothing_about_a_job_that_trusts_others) {
  JobSpec nobody = a_spec();
  nobody.only_labs = {"lab-nowhere"};
  const JobId waits = submit(nobody);
  pass(1000);
  JobSpec one = a_spec();
  one.only_labs = {"lab-b"};
  const JobId runs = submit(one);
  pass(2000);

  EXPECT_EQ(state(waits), JobState::kQueued);
  EXPECT_EQ(where(runs), "b");
}

TEST_F(DataTest, a_name_that_is_none_is_refused_in_a_job_and_dropped_from_a_node) {
  offer("a", {"digits", "../etc", "\033[2J"});

  EXPECT_EQ(tables.nodes.at(node("a").id).facts.data_sets, std::vector<std::string>{"digits"});
  for (const auto& wrong : std::vector<std::vector<std::string>>{
           {"../etc"}, {"a", "a"}, std::vector<std::string>(17, "x")}) {
    const auto refused = run(user(), SubmitJob{.spec = a_spec_with(wrong)});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  }
  JobSpec hidden = a_spec_with({"digits"});
  hidden.work_dir = "/data/work";
  EXPECT_FALSE(run(user(), SubmitJob{.spec = hidden}));
}

TEST_F(DataTest, a_displaced_job_goes_only_where_its_data_is_too) {
  add_node("c", "lab-c");
  offer("b", {"digits"});
  offer("c", {"digits"});
  const JobId id = running(a_spec_with({"digits"}));
  const std::string first = where(id);
  node(first).lending = LendingState::kReclaimed;
  beat(node(first));
  say(node(first), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kReclaimed);
  pass(8000);

  EXPECT_EQ(where(id), first == "b" ? "c" : "b");
  EXPECT_EQ(node("a").received<wire::Probe>().size(), 0U);
}

}  // namespace
}  // namespace rn::coordinator
