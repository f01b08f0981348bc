// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

using AgentAnswer = FakeAgent::Answer;

class Restart : public CoreSite {
 protected:
  void SetUp() override {
    config.min_residence_s = 10;
    config.home_settle_s = 10;
    start();
    add_node("a", "lab-a").hello.facts.images = {a_image("base").digest};
    add_node("b", "lab-b").hello.contract.guest_cpu_milli = 500;
    add_node("store", "storage").hello.contract.lends = false;
    for (const char* name : {"a", "b", "store"}) connect(node(name));
    settle();
  }

  void come_back() {
    for (auto& [id, agent] : agents) connect(agent);
  }
};

TEST_F(Restart, the_generation_grows_at_every_start) {
  restart();
  EXPECT_EQ(tables.meta.at("generation"), "2");
  restart();

  EXPECT_EQ(tables.meta.at("generation"), "3");
  come_back();
  settle();
  EXPECT_EQ(job(submit()).epoch, (LeaseEpoch{3, 1}));
}

TEST_F(Restart, nothing_is_dispatched_before_three_heartbeats_are_over_while_a_node_is_away) {
  restart();
  connect(node("a"));
  connect(node("b"));
  const JobId id = submit();
  EXPECT_NE(core->why(id, clock.now()).value().find("has just started"), std::string::npos);
  pass(14'000);
  EXPECT_EQ(state(id), JobState::kQueued);
  EXPECT_TRUE(core->is_in_grace(clock.now()));
  pass(2000);

  EXPECT_EQ(state(id), JobState::kStarting);
}

TEST_F(Restart, jobs_are_dispatched_at_once_when_every_node_is_back) {
  restart();
  const JobId id = submit();
  connect(node("a"));
  connect(node("b"));
  EXPECT_EQ(state(id), JobState::kQueued);
  connect(node("store"));

  EXPECT_FALSE(core->is_in_grace(clock.now()));
  EXPECT_EQ(state(id), JobState::kStarting);
}

TEST_F(Restart, a_node_that_was_lost_or_left_before_is_not_waited_for) {
  tell(node("store"), wire::Leave{.reason = "moves"});
  disconnect(node("b"));
  pass(20'000);
  restart();
  connect(node("a"));

  EXPECT_FALSE(core->is_in_grace(clock.now()));
}

TEST_F(Restart, running_attempts_are_adopted_with_their_epoch) {
  const JobId id = running();
  restart();
  EXPECT_EQ(state(id), JobState::kRunning);
  come_back();
  pass(30'000);

  EXPECT_EQ(state(id), JobState::kRunning);
  EXPECT_EQ(job(id).epoch, (LeaseEpoch{1, 1}));
  EXPECT_TRUE(node("a").last<wire::HeartbeatAck>().verdicts.at(0).is_current);
  const GenerationRef ref = generation(id, 1);
  EXPECT_TRUE(commit_generation(node("a"), ref, {receipt(node("store"), ref)}).is_accepted);
}

TEST_F(Restart, an_attempt_whose_node_does_not_come_back_is_placed_elsewhere) {
  const JobId id = running();
  const GenerationRef ref = generation(id, 1);
  commit_generation(node("a"), ref, {receipt(node("store"), ref)});
  restart();
  connect(node("b"));
  connect(node("store"));
  pass(20'000);

  EXPECT_EQ(where(id), "b");
  EXPECT_EQ(job(id).epoch, (LeaseEpoch{2, 2}));
  EXPECT_EQ(node("b").last<wire::Commit>().resume.generation, 1U);
}

TEST_F(Restart, a_crash_between_commit_and_lease_is_settled_by_what_the_node_says) {
  node("a").to_commit = node("b").to_commit = AgentAnswer::kSilent;
  const JobId granted = submit();
  const JobId unknown = submit();
  node("a").attempts[{granted, job(granted).epoch}] = {
      .job = granted, .epoch = job(granted).epoch, .state = AttemptState::kFetching};
  restart();
  EXPECT_EQ(state(granted), JobState::kPlacing);
  connect(node("a"));
  connect(node("b"));

  EXPECT_EQ(state(granted), JobState::kStarting);
  EXPECT_EQ(state(unknown), JobState::kQueued);
  EXPECT_EQ(job(unknown).displacements, 0U);
}

TEST_F(Restart, a_reclaim_and_an_evacuation_while_the_coordinator_is_away_are_right_afterwards) {
  const JobId id = running();
  const GenerationRef first = generation(id, 1);
  commit_generation(node("a"), first, {receipt(node("store"), first)});
  const GenerationRef second = generation(id, 2);
  const Receipt word = receipt(node("store"), second);
  restart();
  // Meanwhile the owner took the node back, the guest saved, and the copy went out by the plan.
  FakeAgent& a = node("a");
  a.lending = LendingState::kReclaimed;
  a.attempts[{id, {1, 1}}].state = AttemptState::kDraining;
  a.attempts[{id, {1, 1}}].end = AttemptEnd::kReclaimed;
  a.hello.reclaims = {
      {.id = ReclaimId("r-9"), .kind = ReclaimKind::kEmergency, .phase = ReclaimPhase::kCleared}};
  come_back();
  EXPECT_TRUE(commit_generation(a, second, {word}).is_accepted);
  say(a, id, {1, 1}, AttemptState::kEnded, AttemptEnd::kReclaimed);
  pass(20'000);

  EXPECT_EQ(tables.reclaims.at({a.id, ReclaimId("r-9")}).record.phase, ReclaimPhase::kCleared);
  EXPECT_EQ(where(id), "b");
  EXPECT_EQ(node("b").last<wire::Commit>().resume.generation, 2U);
  EXPECT_EQ(core->metrics().displacements_emergency, 1U);
}

TEST_F(Restart, an_asked_stop_survives) {
  const JobId id = running();
  run(user(), StopJob{id});
  restart();
  node("a").inbox.clear();
  come_back();
  pass(6000);

  EXPECT_FALSE(node("a").received<wire::StopAttempt>().empty());
  say(node("a"), id, {1, 1}, AttemptState::kEnded, AttemptEnd::kCancelled);
  EXPECT_EQ(state(id), JobState::kCancelled);
}

/// The generation grows by one at each start, and a restored database starts as often as the lost
/// one did: without a look at who told the node, the same epochs would be issued twice.
TEST_F(Restart, a_restored_older_database_issues_no_epoch_twice_and_says_what_it_is) {
  const Tables backup = tables;
  restart();
  for (const char* name : {"a", "b", "store"}) {
    connect(node(name));
    node(name).hello.highest_generation = 2;  // from the welcome
  }
  settle();
  const JobId lost = running();
  const LeaseEpoch lost_epoch = job(lost).epoch;
  FakeAgent& holder = node(where(lost));
  ASSERT_EQ(lost_epoch.generation, 2U);

  tables = backup;
  restart();
  EXPECT_EQ(tables.meta.at("generation"), "2") << "the same number as the lost one";
  for (const char* name : {"a", "b", "store"}) connect(node(name));

  EXPECT_EQ(tables.meta.at("generation"), "3");
  EXPECT_EQ(count_events("site.database_is_older"), 1U) << "the others know nothing newer";
  EXPECT_NE(last_event("site.database_is_older").message.find("backup"), std::string::npos);
  EXPECT_EQ(count_events("attempt.of_unknown_job"), 1U);
  const auto verdicts = holder.last<wire::Welcome>().verdicts;
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_FALSE(verdicts[0].is_current) << "nobody knows what it computes for";
  holder.attempts.clear();
  settle();
  const JobId next = submit();
  pass(2000);
  EXPECT_GT(job(next).epoch, lost_epoch);
}

TEST_F(Restart, numbers_of_jobs_go_on) {
  submit();
  submit();
  restart();

  EXPECT_EQ(job(submit()).number, 3U);
}

// ---- going home

TEST_F(Restart, a_displaced_job_goes_home_when_that_pays_and_shows_its_numbers) {
  const JobId id = running();
  const GenerationRef first = generation(id, 1);
  commit_generation(node("a"), first, {receipt(node("store"), first)});
  node("a").lending = LendingState::kReclaimed;
  beat(node("a"));
  node("b").granted_cpu = 500;
  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kReclaimed);
  pass(2000);
  ASSERT_EQ(where(id), "b");
  say(node("b"), id, job(id).epoch, AttemptState::kRunning);
  const GenerationRef next = generation(id, 2);
  node("b").attempts.begin()->second.safe_generation = 2;
  commit_generation(node("b"), next, {receipt(node("store"), next)});
  pass(20'000);
  EXPECT_TRUE(node("b").received<wire::StopAttempt>().empty()) << "home is still taken back";
  node("a").lending = LendingState::kOpen;
  pass(25'000);

  const auto stop = node("b").last<wire::StopAttempt>();
  EXPECT_EQ(stop.mode, StopMode::kSaveFirst);
  EXPECT_EQ(stop.end, AttemptEnd::kMigrated);
  const EventRow& event = last_event("job.goes_home");
  EXPECT_GT(std::stod(event.data.at("gain_s")), 2 * std::stod(event.data.at("cost_s")));
  EXPECT_NE(event.message.find("speed 1.00 against 0.50"), std::string::npos);
  say(node("b"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kMigrated);
  pass(2000);
  EXPECT_EQ(where(id), "a");
  EXPECT_EQ(node("a").last<wire::Commit>().resume.generation, 2U);
  EXPECT_EQ(core->metrics().migrations_back, 1U);
  EXPECT_EQ(job(id).displacements, 1U) << "going home is no displacement";
  say(node("a"), id, job(id).epoch, AttemptState::kRunning);
  pass(120'000);
  EXPECT_EQ(where(id), "a") << "and stays there";
}

TEST_F(Restart, a_home_that_once_could_not_start_it_does_not_turn_it_back) {
  node("b").hello.contract.guest_cpu_milli = 700;
  connect(node("b"));
  const JobId id = running();
  const GenerationRef first = generation(id, 1);
  commit_generation(node("a"), first, {receipt(node("store"), first)});
  node("b").granted_cpu = 700;
  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kReclaimed);
  pass(2000);
  ASSERT_EQ(where(id), "a");
  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kRefused);
  pass(2000);
  ASSERT_EQ(where(id), "b");
  say(node("b"), id, job(id).epoch, AttemptState::kRunning);
  const GenerationRef next = generation(id, 2);
  node("b").attempts.begin()->second.safe_generation = 2;
  commit_generation(node("b"), next, {receipt(node("store"), next)});
  pass(45'000);
  ASSERT_FALSE(node("b").received<wire::StopAttempt>().empty());
  say(node("b"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kMigrated);
  pass(2000);

  EXPECT_EQ(where(id), "a");
}

TEST_F(Restart, a_job_stays_where_home_is_no_better) {
  node("b").hello.contract.guest_cpu_milli = 0;
  connect(node("b"));
  const JobId id = running();
  node("a").lending = LendingState::kReclaimed;
  beat(node("a"));
  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kReclaimed);
  pass(2000);
  say(node("b"), id, job(id).epoch, AttemptState::kRunning);
  node("a").lending = LendingState::kOpen;
  pass(100'000);

  EXPECT_EQ(where(id), "b");
  EXPECT_NE(core->why(id, clock.now()).value().find("stays"), std::string::npos);
}

// ---- cost and determinism

TEST_F(Restart, equal_inputs_give_equal_outputs) {
  std::vector<std::string> seen;
  for (int round = 0; round < 2; ++round) {
    SeededRng own(7);
    Core other(config, keys, own);
    ManualClock time;
    std::string log;
    const auto keep = [&](const Output& output) {
      log +=
          std::to_string(output.writes.size()) + "/" + std::to_string(output.effects.size()) + ";";
      for (const Effect& effect : output.effects)
        if (const auto* reply = std::get_if<Reply>(&effect); reply != nullptr && reply->answer)
          if (const auto* job = std::get_if<JobSubmitted>(&*reply->answer))
            log += job->job.id.str();
    };
    keep(other.restore({}, time.now()));
    keep(other.handle(ApiCommand{1, admin(), AddImage{a_image("base")}}, time.now()));
    for (RequestId i = 2; i < 30; ++i) {
      keep(other.handle(ApiCommand{i, user(), SubmitJob{.spec = a_spec()}}, time.now()));
      time.advance(milliseconds(250));
      keep(other.handle(Tick{}, time.now()));
    }
    seen.push_back(log);
  }

  EXPECT_EQ(seen[0], seen[1]);
}

}  // namespace
}  // namespace rn::coordinator
