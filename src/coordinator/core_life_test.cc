// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

using AgentAnswer = FakeAgent::Answer;

class Life : public CoreSite {
 protected:
  void SetUp() override { start_with_a_store(); }

  /// Runs on a, with generations up to `durable` on the storage node.
  JobId saved(std::uint32_t durable) {
    const JobId id = running();
    for (std::uint32_t g = 1; g <= durable; ++g) {
      const GenerationRef ref = generation(id, g);
      EXPECT_TRUE(commit_generation(node("a"), ref, {receipt(node("store"), ref)}).is_accepted);
    }
    return id;
  }

  /// The newest attempt ends; the job is placed and runs again.
  void end(const JobId& id, AttemptEnd how, std::int32_t exit_code = 0) {
    say(node(where(id)), id, job(id).epoch, AttemptState::kEnded, how, exit_code);
  }

  void run_again(const JobId& id, std::int64_t wait_ms = 2000) {
    pass(wait_ms);
    ASSERT_EQ(state(id), JobState::kStarting) << core->why(id, clock.now()).value();
    say(node(where(id)), id, job(id).epoch, AttemptState::kRunning);
  }
};

TEST_F(Life, a_job_follows_its_attempt_from_lease_to_success) {
  const JobId id = submit();
  FakeAgent& a = node("a");
  for (const auto phase :
       {AttemptState::kFetching, AttemptState::kPreparing, AttemptState::kStarting})
    EXPECT_TRUE(say(a, id, job(id).epoch, phase).is_accepted);
  EXPECT_EQ(state(id), JobState::kStarting);
  say(a, id, job(id).epoch, AttemptState::kRunning);
  EXPECT_EQ(state(id), JobState::kRunning);
  say(a, id, job(id).epoch, AttemptState::kDraining);
  EXPECT_EQ(state(id), JobState::kDraining);
  const auto ack = say(a, id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kSucceeded);

  EXPECT_EQ(ack.seq, 6U);
  EXPECT_TRUE(ack.is_accepted);
  EXPECT_EQ(state(id), JobState::kSucceeded);
  EXPECT_EQ(tables.attempts.at({id, {1, 1}}).attempt.end, AttemptEnd::kSucceeded);
}

TEST_F(Life, what_a_node_says_about_a_success_is_told_to_the_user) {
  const JobId id = running();
  node("a").attempts.at({id, job(id).epoch}).detail = "not brought home: pipe";
  end(id, AttemptEnd::kSucceeded);

  EXPECT_EQ(state(id), JobState::kSucceeded);
  EXPECT_EQ(job(id).reason, "exit code 0; not brought home: pipe");
}

TEST_F(Life, an_event_that_is_repeated_is_acknowledged_and_changes_nothing) {
  const JobId id = running();
  wire::AttemptEvent event;
  event.report = node("a").attempts.begin()->second;
  event.seq = 1;
  const std::uint64_t before = writes;
  tell(node("a"), event);

  EXPECT_TRUE(node("a").last<wire::AttemptAck>().is_accepted);
  EXPECT_EQ(writes, before);
  // Also after the end.
  end(id, AttemptEnd::kSucceeded);
  event.seq = 2;
  event.report.state = AttemptState::kEnded;
  tell(node("a"), event);
  EXPECT_TRUE(node("a").last<wire::AttemptAck>().is_accepted);
}

TEST_F(Life, events_of_a_node_that_does_not_hold_the_attempt_are_refused) {
  const JobId id = running();
  const auto ack = say(node("b"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kSucceeded);

  EXPECT_FALSE(ack.is_accepted);
  EXPECT_EQ(state(id), JobState::kRunning);
}

TEST_F(Life, outputs_are_published_by_one_row_after_their_blobs_were_checked) {
  const JobId id = running();
  Digest listing{};
  listing.fill(5);
  tell(node("a"), wire::PublishOutputs{id, job(id).epoch, listing});
  ASSERT_EQ(checks.size(), 1U);
  EXPECT_TRUE(tables.outputs.empty());
  // An end that comes meanwhile waits.
  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kSucceeded);
  EXPECT_EQ(state(id), JobState::kRunning);
  handle(OutputsChecked{id, job(id).epoch, listing, {}});

  EXPECT_EQ(state(id), JobState::kSucceeded);
  EXPECT_EQ(job(id).outputs, listing);
  EXPECT_EQ(tables.outputs.size(), 1U);
  const auto acks = node("a").received<wire::AttemptAck>();
  EXPECT_EQ(acks[acks.size() - 2].seq, 0U);
  // A lost answer is asked for again.
  tell(node("a"), wire::PublishOutputs{id, job(id).epoch, listing});
  EXPECT_TRUE(node("a").last<wire::AttemptAck>().is_accepted);
  EXPECT_EQ(tables.outputs.size(), 1U);
}

TEST_F(Life, outputs_whose_blobs_are_missing_are_not_published) {
  const JobId id = running();
  Digest listing{};
  listing.fill(5);
  const auto acks = node("a").received<wire::AttemptAck>().size();
  tell(node("a"), wire::PublishOutputs{id, job(id).epoch, listing});
  handle(OutputsChecked{id, job(id).epoch, listing, fail(ErrorCode::kNotFound, "blob")});

  EXPECT_TRUE(tables.outputs.empty());
  EXPECT_EQ(node("a").received<wire::AttemptAck>().size(), acks);
}

TEST_F(Life, outputs_of_a_lost_attempt_are_void_and_its_successor_publishes_its_own) {
  const JobId id = running();
  Digest listing{};
  listing.fill(5);
  tell(node("a"), wire::PublishOutputs{id, job(id).epoch, listing});
  handle(OutputsChecked{id, job(id).epoch, listing, {}});
  ASSERT_EQ(job(id).outputs, listing);
  disconnect(node("a"));
  pass(20'000);
  ASSERT_EQ(where(id), "b");
  EXPECT_EQ(job(id).outputs, Digest{});
  EXPECT_EQ(tables.jobs.at(id).job.outputs, Digest{});
  // The same files: looked at again, and recorded under the successor's own epoch.
  say(node("b"), id, job(id).epoch, AttemptState::kRunning);
  const auto acks = node("b").received<wire::AttemptAck>().size();
  tell(node("b"), wire::PublishOutputs{id, job(id).epoch, listing});
  EXPECT_EQ(node("b").received<wire::AttemptAck>().size(), acks);
  ASSERT_EQ(checks.size(), 2U);
  EXPECT_EQ(checks.back().epoch, job(id).epoch);
  handle(OutputsChecked{id, job(id).epoch, listing, {}});

  EXPECT_EQ(node("b").received<wire::AttemptAck>().size(), acks + 1);
  EXPECT_TRUE(tables.outputs.contains({id, job(id).epoch}));
  EXPECT_EQ(job(id).outputs, listing);
}

TEST_F(Life, outputs_of_an_attempt_that_is_still_looked_for_stay_with_its_epoch) {
  const JobId id = running();
  const LeaseEpoch epoch = job(id).epoch;
  Digest listing{};
  listing.fill(5);
  tell(node("a"), wire::PublishOutputs{id, epoch, listing});
  handle(OutputsChecked{id, epoch, listing, {}});
  node("b").to_probe = AgentAnswer::kRefuse;
  disconnect(node("a"));
  pass(20'000);
  ASSERT_EQ(state(id), JobState::kQueued);
  connect(node("a"));
  say(node("a"), id, epoch, AttemptState::kEnded, AttemptEnd::kSucceeded);

  EXPECT_EQ(state(id), JobState::kSucceeded);
  EXPECT_EQ(job(id).outputs, listing);
}

TEST_F(Life, a_job_that_is_stopped_after_a_lost_attempt_had_published_shows_no_outputs) {
  const JobId id = running();
  Digest listing{};
  listing.fill(5);
  tell(node("a"), wire::PublishOutputs{id, job(id).epoch, listing});
  handle(OutputsChecked{id, job(id).epoch, listing, {}});
  node("b").to_probe = AgentAnswer::kRefuse;
  disconnect(node("a"));
  pass(20'000);
  ASSERT_EQ(state(id), JobState::kQueued);
  ASSERT_TRUE(run(user(), StopJob{id}));

  EXPECT_EQ(state(id), JobState::kCancelled);
  EXPECT_EQ(job(id).outputs, Digest{});
  EXPECT_EQ(tables.jobs.at(id).job.outputs, Digest{});
}

TEST_F(Life, an_attempt_that_ends_without_success_takes_its_outputs_back) {
  for (const AttemptEnd how :
       {AttemptEnd::kReclaimed,
        AttemptEnd::kFenced,
        AttemptEnd::kCrashed,
        AttemptEnd::kCancelled}) {
    const JobId id = running();
    const LeaseEpoch epoch = job(id).epoch;
    FakeAgent& holder = node(where(id));
    Digest listing{};
    listing.fill(5);
    tell(holder, wire::PublishOutputs{id, epoch, listing});
    handle(OutputsChecked{id, epoch, listing, {}});
    ASSERT_EQ(job(id).outputs, listing);
    end(id, how, how == AttemptEnd::kCrashed ? 1 : 0);

    EXPECT_EQ(job(id).outputs, Digest{}) << to_string(how);
    EXPECT_EQ(tables.jobs.at(id).job.outputs, Digest{}) << to_string(how);
    tell(holder, wire::PublishOutputs{id, epoch, listing});
    EXPECT_FALSE(holder.last<wire::AttemptAck>().is_accepted) << to_string(how);
    if (is_terminal(state(id))) continue;
    ASSERT_TRUE(run(user(), StopJob{id}));
  }
}

TEST_F(Life, outputs_that_an_older_database_left_on_a_job_go_with_the_next_epoch) {
  const JobId id = running();
  node("b").to_probe = AgentAnswer::kRefuse;
  disconnect(node("a"));
  pass(20'000);
  ASSERT_EQ(state(id), JobState::kQueued);
  tables.attempts.at({id, job(id).epoch}).attempt.state = AttemptState::kEnded;
  tables.attempts.at({id, job(id).epoch}).attempt.end = AttemptEnd::kLost;
  tables.jobs.at(id).job.outputs.fill(5);
  restart();
  connect(node("b"));
  node("b").to_probe = AgentAnswer::kOffer;
  pass(30'000);
  ASSERT_EQ(where(id), "b");

  EXPECT_EQ(job(id).outputs, Digest{});
}

TEST_F(Life, a_crash_long_after_the_start_fails_the_job) {
  const JobId id = running();
  pass(200'000);
  end(id, AttemptEnd::kCrashed, 1);

  EXPECT_EQ(state(id), JobState::kFailed);
  EXPECT_EQ(job(id).exit_code, 1);
  EXPECT_EQ(job(id).reason, "exit code 1");
}

TEST_F(Life, whatever_a_job_answers_to_a_notice_it_is_displaced_and_not_failed) {
  const JobId id = saved(3);
  say(node("a"), id, job(id).epoch, AttemptState::kNoticed);
  EXPECT_EQ(state(id), JobState::kNoticed);
  node("a").lending = LendingState::kReclaimed;
  beat(node("a"));
  end(id, AttemptEnd::kCrashed, 143);

  EXPECT_EQ(where(id), "b");
  EXPECT_EQ(job(id).displacements, 1U);
  EXPECT_EQ(node("b").last<wire::Commit>().resume.generation, 3U);
  EXPECT_EQ(node("b").last<wire::Commit>().resume_previous.generation, 2U);
  EXPECT_EQ(node("b").last<wire::Commit>().resume_from.at(0).node, node("store").id);
}

TEST_F(Life, a_reclaim_that_is_withdrawn_lets_the_job_run_on) {
  const JobId id = running();
  say(node("a"), id, job(id).epoch, AttemptState::kNoticed);
  say(node("a"), id, job(id).epoch, AttemptState::kRunning);

  EXPECT_EQ(state(id), JobState::kRunning);
}

TEST_F(Life, a_displaced_job_goes_to_the_head_of_the_queue) {
  const JobId id = saved(1);
  node("a").lending = node("b").lending = LendingState::kReclaimed;
  pass(6000);
  const JobId waiting = submit();
  end(id, AttemptEnd::kReclaimed);

  EXPECT_EQ(core->queue_position(id, clock.now()), 1U);
  EXPECT_EQ(core->queue_position(waiting, clock.now()), 2U);
  const std::string put_back =
      "; the files of generation 1 (step 100) are put back for it, in /work (RECLAIM_RESUME_FROM)";
  const std::string why = core->why(id, clock.now()).value();
  EXPECT_TRUE(why.ends_with(
      put_back + "; evacuation: it waits with what is durable; nobody can take it now"
  )) << why;
  const std::string told = last_event("job.displaced").message;
  EXPECT_TRUE(told.ends_with(put_back)) << told;
}

TEST_F(Life, a_crash_soon_after_a_resume_falls_back_one_generation_once) {
  const JobId id = saved(3);
  end(id, AttemptEnd::kReclaimed);
  run_again(id);
  pass(10'000);
  end(id, AttemptEnd::kCrashed, 1);
  EXPECT_EQ(state(id), JobState::kQueued);
  EXPECT_EQ(count_events("generation.condemned"), 1U);
  EXPECT_EQ(job(id).durable.generation, 2U);
  run_again(id, 3000);
  EXPECT_EQ(tables.attempts.at({id, job(id).epoch}).attempt.resumed_generation, 2U);
  end(id, AttemptEnd::kCrashed, 1);

  EXPECT_EQ(state(id), JobState::kFailed) << "it is the job, not the checkpoint";
}

TEST_F(Life, one_that_has_saved_since_the_resume_is_put_back_no_further) {
  const JobId id = saved(3);
  end(id, AttemptEnd::kReclaimed);
  run_again(id);
  const GenerationRef next = generation(id, 4);
  ASSERT_TRUE(commit_generation(node(where(id)), next, {receipt(node("store"), next)}).is_accepted);
  end(id, AttemptEnd::kCrashed, 1);

  EXPECT_EQ(count_events("generation.condemned"), 0U);
  EXPECT_EQ(job(id).durable.generation, 4U);
  EXPECT_EQ(state(id), JobState::kFailed);
}

TEST_F(Life, a_crash_just_within_two_minutes_of_a_resume_falls_back) {
  const JobId id = saved(3);
  end(id, AttemptEnd::kReclaimed);
  run_again(id);
  pass(110'000);
  end(id, AttemptEnd::kCrashed, 1);

  EXPECT_EQ(count_events("generation.condemned"), 1U);
}

TEST_F(Life, a_clock_that_was_set_back_makes_no_late_crash_an_early_one) {
  const JobId id = saved(3);
  end(id, AttemptEnd::kReclaimed);
  run_again(id);
  pass(3'600'000);
  node(where(id)).clock_ahead_ms = -7'200'000;
  end(id, AttemptEnd::kCrashed, 1);

  EXPECT_EQ(count_events("generation.condemned"), 0U);
  EXPECT_EQ(job(id).durable.generation, 3U);
}

TEST_F(Life, after_a_fallback_the_condemned_number_is_taken_anew) {
  const JobId id = saved(3);
  end(id, AttemptEnd::kReclaimed);
  run_again(id);
  end(id, AttemptEnd::kCrashed, 1);
  run_again(id, 3000);
  GenerationRef again = generation(id, 3);
  again.manifest.fill(0x33);
  FakeAgent& here = node(where(id));

  EXPECT_TRUE(commit_generation(here, again, {receipt(node("store"), again)}).is_accepted);
  EXPECT_EQ(job(id).durable.manifest, again.manifest);
  EXPECT_EQ(job(id).previous.generation, 2U);
}

TEST_F(Life, exit_85_restarts_here_and_counts_only_without_progress) {
  const JobId id = saved(1);
  end(id, AttemptEnd::kMigrated, 85);
  EXPECT_EQ(job(id).restarts, 0U);
  EXPECT_EQ(where(id), "a") << "at once, and here";
  run_again(id, 0);
  end(id, AttemptEnd::kMigrated, 85);

  EXPECT_EQ(job(id).restarts, 1U);
  EXPECT_EQ(state(id), JobState::kQueued) << "it backs off";
}

TEST_F(Life, exit_75_restarts_elsewhere_and_the_budget_ends) {
  JobSpec spec = a_spec();
  spec.max_restarts = 2;
  const JobId id = running(spec);
  EXPECT_EQ(where(id), "a");
  end(id, AttemptEnd::kMigrated, 75);
  EXPECT_NE(core->why(id, clock.now()).value().find("before restart 1 of 2"), std::string::npos);
  run_again(id);
  EXPECT_EQ(where(id), "b");
  end(id, AttemptEnd::kMigrated, 75);
  run_again(id, 3000);
  end(id, AttemptEnd::kMigrated, 75);

  EXPECT_EQ(state(id), JobState::kFailed);
  EXPECT_NE(job(id).reason.find("2 restarts are used up"), std::string::npos);
}

TEST_F(Life, restarts_back_off_in_doubling_steps) {
  const JobId id = running();
  std::vector<std::int64_t> waits;
  for (int i = 0; i < 4; ++i) {
    end(id, AttemptEnd::kMigrated, 99);
    waits.push_back(tables.jobs.at(id).not_before_wall_ms - to_ms(clock.now().wall));
    run_again(id, 10'000);
  }

  EXPECT_EQ(waits, (std::vector<std::int64_t>{1000, 2000, 4000, 8000}));
}

TEST_F(Life, a_node_that_cannot_start_it_is_avoided) {
  const JobId id = submit();
  EXPECT_EQ(where(id), "a");
  end(id, AttemptEnd::kRefused);
  pass(2000);

  EXPECT_EQ(where(id), "b");
}

TEST_F(Life, refusals_use_up_no_restarts_and_back_off_until_it_ran) {
  JobSpec spec = a_spec();
  spec.max_restarts = 0;
  const JobId id = submit(spec);
  std::vector<std::int64_t> waits;
  for (int i = 0; i < 3; ++i) {
    end(id, AttemptEnd::kRefused);
    EXPECT_NE(
        core->why(id, clock.now()).value().find("before it is tried again"), std::string::npos
    );
    waits.push_back(tables.jobs.at(id).not_before_wall_ms - to_ms(clock.now().wall));
    pass(10'000);
  }
  run_again(id, 0);
  end(id, AttemptEnd::kReclaimed);
  pass(2000);
  end(id, AttemptEnd::kRefused);
  waits.push_back(tables.jobs.at(id).not_before_wall_ms - to_ms(clock.now().wall));

  EXPECT_EQ(waits, (std::vector<std::int64_t>{1000, 2000, 4000, 1000}));
  EXPECT_EQ(job(id).restarts, 0U);
  EXPECT_EQ(state(id), JobState::kQueued);
}

TEST_F(Life, a_job_that_every_node_refuses_is_given_up_at_last) {
  const JobId id = submit();
  for (int i = 0; i < 21 && state(id) != JobState::kFailed; ++i) {
    EXPECT_NE(where(id), "") << "after " << i << " refusals";
    end(id, AttemptEnd::kRefused);
    pass(301'000);
  }

  EXPECT_EQ(state(id), JobState::kFailed);
  EXPECT_NE(job(id).reason.find("refused 21 times in a row"), std::string::npos);
}

TEST_F(Life, a_timeout_fails_the_job) {
  const JobId id = running();
  end(id, AttemptEnd::kTimedOut, 0);

  EXPECT_EQ(state(id), JobState::kFailed);
}

TEST_F(Life, two_missed_heartbeats_move_nothing) {
  const JobId id = running();
  disconnect(node("a"));
  pass(10'000);
  connect(node("a"));
  pass(20'000);

  EXPECT_EQ(where(id), "a");
  EXPECT_EQ(state(id), JobState::kRunning);
  EXPECT_EQ(job(id).epoch.attempt, 1U);
  EXPECT_EQ(job(id).displacements, 0U);
}

TEST_F(Life, a_lost_nodes_job_resumes_elsewhere_and_its_zombie_is_fenced_in_everything) {
  const JobId id = saved(2);
  const LeaseEpoch old = job(id).epoch;
  FakeAgent& a = node("a");
  disconnect(a);
  pass(20'000);
  ASSERT_EQ(where(id), "b");
  EXPECT_EQ(tables.attempts.at({id, old}).attempt.end, AttemptEnd::kLost);
  connect(a);

  EXPECT_FALSE(a.last<wire::Welcome>().verdicts.at(0).is_current);
  EXPECT_TRUE(a.last<wire::Welcome>().verdicts.at(0).is_end_known);
  // It speaks on nevertheless.
  GenerationRef late = generation(id, 9);
  late.epoch = old;
  Receipt r = receipt(node("store"), late);
  EXPECT_FALSE(commit_generation(a, late, {r}).is_accepted);
  EXPECT_FALSE(say(a, id, old, AttemptState::kEnded, AttemptEnd::kSucceeded).is_accepted);
  tell(a, wire::LogAppend{.job = id, .epoch = old, .bytes = {1}});
  EXPECT_FALSE(a.last<wire::LogAck>().is_accepted);
  Digest listing{};
  listing.fill(1);
  tell(a, wire::PublishOutputs{id, old, listing});
  EXPECT_FALSE(a.last<wire::AttemptAck>().is_accepted);
  EXPECT_TRUE(checks.empty());
  EXPECT_TRUE(logs.empty());
  EXPECT_EQ(where(id), "b");
  EXPECT_EQ(job(id).durable.generation, 2U);
  EXPECT_EQ(count_events("attempt.fenced"), 1U);
  EXPECT_GE(core->metrics().effects_fenced, 4U);
}

TEST_F(Life, a_lost_node_that_returns_before_a_successor_keeps_its_job) {
  const JobId id = saved(2);
  const LeaseEpoch epoch = job(id).epoch;
  node("b").to_probe = AgentAnswer::kRefuse;
  disconnect(node("a"));
  pass(20'000);
  ASSERT_EQ(state(id), JobState::kQueued);
  connect(node("a"));

  EXPECT_EQ(state(id), JobState::kRunning);
  EXPECT_EQ(job(id).epoch, epoch);
  EXPECT_TRUE(node("a").last<wire::Welcome>().verdicts.at(0).is_current);
  EXPECT_EQ(job(id).displacements, 0U);
  EXPECT_EQ(count_events("job.reattached"), 1U);
  GenerationRef next = generation(id, 3);
  EXPECT_TRUE(commit_generation(node("a"), next, {receipt(node("store"), next)}).is_accepted);
}

TEST_F(Life, a_node_that_returns_while_a_successor_is_only_probed_keeps_its_job) {
  const JobId id = running();
  node("b").to_probe = AgentAnswer::kSilent;
  disconnect(node("a"));
  pass(18'000);
  ASSERT_EQ(state(id), JobState::kPlacing);
  const auto probe = node("b").last<wire::Probe>();
  connect(node("a"));
  EXPECT_EQ(state(id), JobState::kRunning);
  tell(node("b"), wire::ProbeReply{.probe = probe.probe, .job = id, .hold = HoldId("h-x")});

  EXPECT_EQ(node("b").last<wire::CancelHold>().hold, HoldId("h-x"));
  EXPECT_EQ(where(id), "a");
}

TEST_F(Life, an_attempt_that_the_returned_node_no_longer_holds_is_lost) {
  const JobId id = saved(1);
  disconnect(node("a"));
  node("a").attempts.clear();
  node("a").lending = LendingState::kPaused;
  connect(node("a"));

  EXPECT_EQ(where(id), "b");
  EXPECT_EQ(job(id).displacements, 1U);
}

TEST_F(Life, an_attempt_that_heartbeats_stop_naming_is_lost_after_three) {
  const JobId id = running();
  node("a").attempts.clear();
  pass(10'000);
  EXPECT_EQ(job(id).epoch.attempt, 1U);
  pass(6000);

  EXPECT_EQ(job(id).epoch.attempt, 2U);
}

TEST_F(Life, a_drain_that_takes_too_long_does_not_hold_the_job_back_but_its_copy_still_counts) {
  const JobId id = saved(1);
  node("b").to_probe = AgentAnswer::kRefuse;
  node("a").lending = LendingState::kReclaimed;
  say(node("a"), id, job(id).epoch, AttemptState::kNoticed);
  say(node("a"), id, job(id).epoch, AttemptState::kDraining);
  pass(119'000);
  EXPECT_EQ(state(id), JobState::kDraining);
  pass(3000);
  EXPECT_EQ(state(id), JobState::kQueued);
  const GenerationRef late = generation(id, 2);
  EXPECT_TRUE(commit_generation(node("a"), late, {receipt(node("store"), late)}).is_accepted);
  node("b").to_probe = AgentAnswer::kOffer;
  pass(8000);

  EXPECT_EQ(node("b").last<wire::Commit>().resume.generation, 2U);
  const GenerationRef too_late = [&] {
    GenerationRef ref = generation(id, 3);
    ref.epoch = {1, 1};
    return ref;
  }();
  EXPECT_FALSE(
      commit_generation(node("a"), too_late, {receipt(node("store"), too_late)}).is_accepted
  );
}

TEST_F(Life, uploading_outputs_is_no_drain_that_could_be_too_long) {
  const JobId id = running();
  auto& report = node("a").attempts.begin()->second;
  report.end = AttemptEnd::kSucceeded;
  say(node("a"), id, job(id).epoch, AttemptState::kDraining, AttemptEnd::kSucceeded);
  pass(400'000);

  EXPECT_EQ(state(id), JobState::kDraining);
}

TEST_F(Life, stopping_reaches_the_node_is_repeated_and_ends_the_job) {
  const JobId id = running();
  ASSERT_TRUE(run(user(), StopJob{.job = id, .saves_first = true, .deadline_ms = 5000}));
  const auto stop = node("a").last<wire::StopAttempt>();
  EXPECT_EQ(stop.mode, StopMode::kSaveFirst);
  EXPECT_EQ(stop.deadline_ms, 5000U);
  EXPECT_EQ(stop.end, AttemptEnd::kCancelled);
  pass(12'000);
  EXPECT_GE(node("a").received<wire::StopAttempt>().size(), 2U);
  end(id, AttemptEnd::kCancelled, 143);

  EXPECT_EQ(state(id), JobState::kCancelled);
  EXPECT_EQ(job(id).reason, "stopped by ann");
}

TEST_F(Life, a_stop_while_the_commit_is_out_does_not_lose_its_way) {
  node("a").to_commit = AgentAnswer::kSilent;
  const JobId id = submit();
  ASSERT_TRUE(run(user(), StopJob{id}));
  EXPECT_EQ(node("a").received<wire::StopAttempt>().size(), 1U);
  // The node never got the commit.
  wire::AttemptEvent unknown;
  unknown.report = {
      .job = id, .epoch = {1, 1}, .state = AttemptState::kEnded, .end = AttemptEnd::kLost};
  unknown.seq = 1ULL << 40;
  tell(node("a"), unknown);
  pass(15'000);

  EXPECT_EQ(state(id), JobState::kCancelled);
  EXPECT_EQ(node("a").received<wire::Commit>().size(), 1U);
}

TEST_F(Life, a_stop_of_a_job_whose_node_is_lost_is_done_at_once) {
  const JobId id = running();
  node("b").to_probe = AgentAnswer::kRefuse;
  disconnect(node("a"));
  ASSERT_TRUE(run(user(), StopJob{id}));
  EXPECT_FALSE(is_terminal(state(id)));
  pass(20'000);
  EXPECT_EQ(state(id), JobState::kCancelled);
  connect(node("a"));

  EXPECT_FALSE(node("a").last<wire::Welcome>().verdicts.at(0).is_current);
}

TEST_F(Life, a_job_that_does_not_start_in_time_is_tried_elsewhere) {
  const JobId id = submit();
  say(node("a"), id, job(id).epoch, AttemptState::kFetching);
  pass(902'000);
  EXPECT_EQ(node("a").last<wire::StopAttempt>().end, AttemptEnd::kMigrated);
  end(id, AttemptEnd::kMigrated);
  pass(3000);

  EXPECT_EQ(where(id), "b");
  EXPECT_EQ(job(id).restarts, 1U);
}

TEST_F(Life, an_attempt_that_neither_starts_nor_can_be_stopped_leaves_its_job_to_others) {
  const JobId id = submit();
  const LeaseEpoch stuck = job(id).epoch;
  say(node("a"), id, stuck, AttemptState::kStarting);
  pass(902'000);
  ASSERT_EQ(node("a").last<wire::StopAttempt>().end, AttemptEnd::kMigrated);
  say(node("a"), id, stuck, AttemptState::kSaving);  // it stops, and the kill does not end
  pass(static_cast<std::int64_t>(config.drain_wait_ms) + 5000);

  EXPECT_EQ(where(id), "b");
  EXPECT_FALSE(say(node("a"), id, stuck, AttemptState::kRunning).is_accepted) << "fenced";
}

TEST_F(Life, what_keeps_a_guest_from_being_saved_is_in_its_history_once_and_in_why_until_it_is) {
  const JobId id = running();
  FakeAgent& a = node("a");
  wire::AttemptReport& report = a.attempts.at({id, job(id).epoch});
  report.save_trouble = "model.bin is not saved: it never holds still; next: rename it into place";
  pass(15'000);

  EXPECT_EQ(count_events("checkpoint.trouble"), 1U);
  EXPECT_EQ(last_event("checkpoint.trouble").message, report.save_trouble);
  const auto why = [&] { return core->why(id, clock.now()).value(); };
  EXPECT_NE(why().find("rename it into place"), std::string::npos) << why();

  report.save_trouble.clear();
  pass(5000);
  EXPECT_EQ(why().find("rename it into place"), std::string::npos) << why();
}

TEST_F(Life, how_often_what_a_guest_saves_is_copied_is_in_why_and_in_no_history) {
  const JobId id = running();
  wire::AttemptReport& report = node("a").attempts.at({id, job(id).epoch});
  report.saving = "what it saves goes elsewhere every 12 min; generation 7 waits: not due";
  pass(15'000);

  const std::string why = core->why(id, clock.now()).value();
  EXPECT_NE(why.find("; what it saves goes elsewhere every 12 min; "), std::string::npos) << why;
  EXPECT_EQ(count_events("checkpoint.trouble"), 0U);
}

TEST_F(Life, what_a_node_does_not_give_a_guest_is_in_why) {
  const JobId id = submit();
  pass(2000);
  FakeAgent& a = node(where(id));
  a.attempts[{id, job(id).epoch}].detail = "this node's owner opens no way to 10.9.9.9/32";
  say(a, id, job(id).epoch, AttemptState::kRunning);

  EXPECT_NE(core->why(id, clock.now())->find("opens no way to 10.9.9.9/32"), std::string::npos);
}

TEST_F(Life, a_guest_cannot_fill_the_history_with_troubles) {
  const JobId id = running();
  FakeAgent& a = node("a");
  for (int i = 0; i < 50; ++i) {
    a.attempts.at({id, job(id).epoch}).save_trouble = std::string(5000, 'x') + std::to_string(i);
    beat(a);
    a.attempts.at({id, job(id).epoch}).save_trouble = std::to_string(i);
    beat(a);
  }

  EXPECT_EQ(count_events("checkpoint.trouble"), 8U);
  EXPECT_LE(last_event("checkpoint.trouble").message.size(), 1024U);
}

TEST_F(Life, logs_are_written_first_and_acknowledged_when_stored) {
  const JobId id = running();
  const LeaseEpoch epoch = job(id).epoch;
  tell(node("a"), wire::LogAppend{.job = id, .epoch = epoch, .offset = 0, .bytes = {1, 2, 3}});
  ASSERT_EQ(logs.size(), 1U);
  EXPECT_TRUE(node("a").received<wire::LogAck>().empty());
  handle(LogStored{id, epoch, 3});
  EXPECT_EQ(node("a").last<wire::LogAck>().next_offset, 3U);

  // The tail of an attempt that ended in order is still taken, after its successor was placed too.
  end(id, AttemptEnd::kReclaimed);
  pass(2000);
  tell(node("a"), wire::LogAppend{.job = id, .epoch = epoch, .offset = 3, .bytes = {4}});
  EXPECT_EQ(logs.size(), 2U);
}

}  // namespace
}  // namespace rn::coordinator
