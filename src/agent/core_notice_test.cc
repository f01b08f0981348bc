// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

/// A guest runs; what becomes of it between the owner's word and the deadline.
class CoreNotice : public CoreTest {
 protected:
  void SetUp() override {
    start();
    run();
    log_is_empty();
  }

  void declare(ReclaimKind kind = ReclaimKind::kNotice) {
    warden.reclaims = {a_reclaim(kind)};
    push_state();
  }

  ReclaimRecord another(seconds deadline) {
    ReclaimRecord record = a_reclaim(ReclaimKind::kNotice, deadline);
    record.id = ReclaimId("r-2");
    return record;
  }

  void detect() { feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}}); }

  void follow(wire::CopyPlan plan) { tell(wire::HeartbeatAck{1, {}, {std::move(plan)}, 0}); }

  void lose_the_warden() {
    feed(WardenDisconnected{});
    asks.clear();
    feed(WardenConnected{});
    answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  }

  std::int64_t deadline_left_ms() {
    return core->view(clock.now()).attempts.front().deadline_left_ms;
  }
};

TEST_F(CoreNotice, it_says_by_when_and_why) {
  ReclaimRecord record = a_reclaim(ReclaimKind::kNotice);
  record.message = "an exam at noon";
  warden.reclaims = {record};
  push_state();

  ASSERT_THAT(asked<warden_wire::WriteNotice>(), SizeIs(1));
  const auto notice = asked<warden_wire::WriteNotice>().front();
  EXPECT_EQ(notice.deadline_wall_ms, to_ms(clock.now().wall) + 60'000);
  EXPECT_EQ(notice.reason, "an exam at noon");
  answer<warden_wire::WriteNotice>();
  advance(seconds(5));
  EXPECT_FALSE(has_asked<warden_wire::WriteNotice>()) << "once is enough";
}

TEST_F(CoreNotice, reclaims_are_listed_by_time_and_the_newest_last) {
  for (const auto& [id, wall_ms] : {std::pair("r-a", 3), {"r-b", 1}, {"r-c", 2}}) {
    ReclaimRecord record = a_reclaim(ReclaimKind::kNotice);
    record.id = ReclaimId(id);
    record.declared_wall_ms = wall_ms;
    warden.reclaims.push_back(record);
  }
  push_state();

  std::vector<std::string> ids;
  for (const ReclaimRecord& record : core->view(clock.now()).reclaims)
    ids.push_back(record.id.str());
  EXPECT_THAT(ids, testing::ElementsAre("r-b", "r-c", "r-a"));
}

TEST_F(CoreNotice, one_that_the_warden_could_not_write_is_told_again) {
  declare();
  answer<warden_wire::WriteNotice>([](warden_wire::Answer& a) {
    a.code = to_string(ErrorCode::kUnavailable);
    a.message = "the warden is still recovering";
  });
  advance(seconds(3));

  EXPECT_THAT(asked<warden_wire::WriteNotice>(), SizeIs(1));
}

TEST_F(CoreNotice, one_that_a_restarted_warden_did_not_answer_is_told_again) {
  declare();
  lose_the_warden();

  EXPECT_THAT(asked<warden_wire::WriteNotice>(), SizeIs(1));
}

TEST_F(CoreNotice, one_that_is_not_answered_is_told_again) {
  warden.reclaims = {a_reclaim(ReclaimKind::kNotice, seconds(180))};
  push_state();
  advance(config.reply_timeout + seconds(1));

  EXPECT_THAT(asked<warden_wire::WriteNotice>(), SizeIs(2));
}

TEST_F(CoreNotice, one_that_is_withdrawn_before_it_was_answered_does_not_stay_in_the_guest) {
  declare();
  ASSERT_THAT(asked<warden_wire::WriteNotice>(), SizeIs(1));
  warden.reclaims.front().phase = ReclaimPhase::kReturned;
  push_state();
  EXPECT_EQ(state(), AttemptState::kRunning);
  answer<warden_wire::WriteNotice>();  // of the first

  ASSERT_THAT(asked<warden_wire::WriteNotice>(), SizeIs(1));
  EXPECT_EQ(asked<warden_wire::WriteNotice>().front().deadline_wall_ms, 0);
  answer<warden_wire::WriteNotice>();
  advance(seconds(5));
  EXPECT_FALSE(has_asked<warden_wire::WriteNotice>());
}

TEST_F(CoreNotice, one_that_was_withdrawn_just_before_a_crash_does_not_stay_in_the_guest) {
  declare();
  answer<warden_wire::WriteNotice>();
  warden.reclaims.front().phase = ReclaimPhase::kReturned;
  push_state();
  crash_and_restart();
  feed(WardenConnected{});
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });

  ASSERT_THAT(asked<warden_wire::WriteNotice>(), SizeIs(1));
  EXPECT_EQ(asked<warden_wire::WriteNotice>().front().deadline_wall_ms, 0);
}

TEST_F(CoreNotice, a_guest_reads_the_earlier_deadline_too) {
  declare();
  answer<warden_wire::WriteNotice>();
  warden.reclaims.push_back(another(seconds(30)));
  push_state();

  ASSERT_THAT(asked<warden_wire::WriteNotice>(), SizeIs(1));
  EXPECT_EQ(asked<warden_wire::WriteNotice>().front().grace_s, 30u);
}

TEST_F(CoreNotice, a_save_after_it_does_not_wait_for_the_usual_interval) {
  wire::CopyPlan plan = a_plan();
  plan.min_interval_s = 600;
  follow(plan);
  save(1);
  copied("n-2", 1);
  committed(1);
  advance(seconds(10));
  detect();
  EXPECT_FALSE(has_work<TakeSnapshot>()) << "ten seconds after the last one";

  declare();

  EXPECT_TRUE(has_work<TakeSnapshot>());
}

TEST_F(CoreNotice, a_later_deadline_changes_nothing_and_an_earlier_one_counts) {
  declare();
  warden.reclaims.push_back(another(seconds(120)));
  push_state();
  EXPECT_EQ(deadline_left_ms(), 60'000);

  warden.reclaims.back() = another(seconds(30));
  push_state();
  EXPECT_EQ(deadline_left_ms(), 30'000);
}

TEST_F(CoreNotice, what_one_reclaim_gives_back_another_of_the_same_moment_takes) {
  declare();
  warden.reclaims.insert(warden.reclaims.begin(), another(seconds(90)));
  warden.reclaims.back().phase = ReclaimPhase::kReturned;
  push_state();

  EXPECT_EQ(state(), AttemptState::kNoticed);
  EXPECT_EQ(deadline_left_ms(), 90'000);
}

TEST_F(CoreNotice, a_signal_that_could_not_be_sent_is_not_sent_for_ever) {
  declare();
  answer<warden_wire::SignalGuest>([](warden_wire::Answer& a) {
    a.code = to_string(ErrorCode::kConflict);
    a.message = "the guest is exited, so it gets no signal";
  });
  advance(seconds(5));

  EXPECT_FALSE(has_asked<warden_wire::SignalGuest>());
}

TEST_F(CoreNotice, uploads_have_the_contracts_evacuation_rate_only_when_the_owner_waits) {
  contract.uplink_bps_normal = 1000;
  contract.uplink_bps_evacuation = 2000;
  feed(ContractChanged{contract, 0});
  save(1);
  EXPECT_EQ(work_body<CopyGeneration>().rate_bps, 1000u);
  copied("n-2", 1);
  committed(1);
  declare();
  save(2);

  EXPECT_EQ(work_body<CopyGeneration>().rate_bps, 2000u);
}

TEST_F(CoreNotice, a_snapshot_that_began_before_the_kill_is_not_the_last_word) {
  declare();
  answer<warden_wire::SignalGuest>();
  detect();
  advance(seconds(1));  // nobody catches a signal: killed while its save is taken
  answer<warden_wire::KillGuest>();
  finish<TakeSnapshot>(NothingNew{});

  ASSERT_TRUE(has_work<TakeSnapshot>()) << "what it wrote until it was killed";
  EXPECT_TRUE(work_body<TakeSnapshot>().is_final);
}

TEST_F(CoreNotice, a_snapshot_that_failed_beside_the_kill_is_followed_by_the_last_one) {
  declare();
  answer<warden_wire::SignalGuest>();
  detect();
  advance(seconds(1));
  answer<warden_wire::KillGuest>();
  finish<TakeSnapshot>(Error{ErrorCode::kDenied, "its owner alone may read it", ""});

  ASSERT_TRUE(has_work<TakeSnapshot>());
  EXPECT_TRUE(work_body<TakeSnapshot>().is_final);
}

TEST_F(CoreNotice, fewer_copies_than_wanted_are_the_coordinators_to_judge_when_the_time_is_over) {
  wire::CopyPlan plan = a_plan();
  plan.wanted = 2;
  follow(plan);
  declare();
  save(1);
  answer<warden_wire::KillGuest>();
  finish<TakeSnapshot>(NothingNew{});
  log_is_empty();
  copied("n-2", 1);
  EXPECT_FALSE(has_asked<warden_wire::EvacuationDone>()) << "the second copy is on its way";
  finish<CopyGeneration>(Error{ErrorCode::kUnavailable, "no route", ""});
  clock.advance(seconds(contract.max_drain_s));
  connect();
  advance(seconds(1));

  ASSERT_FALSE(sent<wire::CommitGeneration>().empty());
  EXPECT_THAT(sent<wire::CommitGeneration>().back().receipts, SizeIs(1));
  EXPECT_EQ(phase(), "draining") << "ending first would lose it";
  committed(1);
  log_is_empty();
  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
}

TEST_F(CoreNotice, outputs_and_log_go_before_the_evacuation_is_done) {
  set_guest(GuestState::kExited, 0);
  push_state();
  ASSERT_TRUE(has_work<UploadOutputs>());
  declare();
  EXPECT_FALSE(has_asked<warden_wire::EvacuationDone>());
  log_is_empty();
  EXPECT_FALSE(has_asked<warden_wire::EvacuationDone>()) << "its outputs are on the disk only";
  Digest listing{};
  listing[0] = 1;
  finish<UploadOutputs>(OutputsUploaded{listing, ""});

  EXPECT_TRUE(has_asked<warden_wire::EvacuationDone>());
}

TEST_F(CoreNotice, the_tail_of_the_log_goes_before_the_evacuation_is_done) {
  set_guest(GuestState::kExited, 0);
  push_state();
  declare();
  Digest listing{};
  listing[0] = 1;
  finish<UploadOutputs>(OutputsUploaded{listing, ""});
  EXPECT_FALSE(has_asked<warden_wire::EvacuationDone>());
  log_is_empty();

  EXPECT_TRUE(has_asked<warden_wire::EvacuationDone>());
}

TEST_F(CoreNotice, an_emergency_while_outputs_are_read_from_the_disk_ends_the_reading) {
  set_guest(GuestState::kExited, 0);
  push_state();
  ASSERT_TRUE(has_work<UploadOutputs>());
  ReclaimRecord record = a_reclaim(ReclaimKind::kEmergency);
  record.phase = ReclaimPhase::kCut;
  record.cut_ns = record.declared_ns;
  warden.reclaims = {record};
  push_state();

  EXPECT_FALSE(has_work<UploadOutputs>());
  log_is_empty();
  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed) << "what is not published is computed again";
}

TEST_F(CoreNotice, a_fenced_guest_that_still_lives_is_not_evacuated) {
  tell(wire::HeartbeatAck{1, {{JobId("j-1"), kEpoch, false, false}}, {}, 0});
  declare();
  EXPECT_FALSE(has_asked<warden_wire::EvacuationDone>());
  answer<warden_wire::KillGuest>();

  EXPECT_TRUE(has_asked<warden_wire::EvacuationDone>());
}

TEST_F(CoreNotice, the_evacuation_is_done_when_the_last_guest_has_gone_and_not_a_later_one) {
  wire::Probe probe;
  probe.job = JobId("j-2");
  tell(probe);
  wire::Commit commit = a_commit();
  commit.job = JobId("j-2");
  commit.hold = sent<wire::ProbeReply>().back().hold;
  tell(commit);
  ASSERT_THAT(core->view(clock.now()).attempts, SizeIs(2));
  declare();

  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed) << "j-2 had not started";
  EXPECT_FALSE(has_asked<warden_wire::EvacuationDone>()) << "j-1 runs";
}

TEST_F(CoreNotice, a_reclaim_of_a_gpu_without_a_guest_waits_for_nobody) {
  ReclaimRecord record = a_reclaim(ReclaimKind::kNotice);
  record.gpus = {3};
  warden.reclaims = {record};
  push_state();

  EXPECT_EQ(state(), AttemptState::kRunning);
  ASSERT_TRUE(has_asked<warden_wire::EvacuationDone>());
  EXPECT_THAT(asked<warden_wire::EvacuationDone>().front().guests, SizeIs(0));
}

TEST_F(CoreNotice, a_reclaim_of_before_the_lease_is_no_reason_for_an_end) {
  ReclaimRecord record = a_reclaim(ReclaimKind::kEmergency);
  record.phase = ReclaimPhase::kReturned;
  record.declared_ns = record.deadline_ns = 1;
  record.cut_ns = record.killed_ns = record.cleared_ns = record.returned_ns = 2;
  warden.reclaims = {record};
  push_state();
  fails_with(1);

  EXPECT_EQ(last_end(), AttemptEnd::kCrashed);
}

TEST_F(CoreNotice, a_guest_whose_end_nobody_saw_has_not_succeeded) {
  set_guest(GuestState::kExited, 0);
  warden.guests.front().is_vanished = true;
  push_state();
  finish<TakeSnapshot>(NothingNew{});
  log_is_empty();

  EXPECT_EQ(last_end(), AttemptEnd::kLost);
}

TEST_F(CoreNotice, a_record_that_the_coordinator_knows_to_its_end_leaves_the_journal) {
  declare();
  ASSERT_TRUE(journal.contains("reclaim/r-1"));
  warden.reclaims.front().phase = ReclaimPhase::kReturned;
  push_state();
  tell(wire::ReclaimAck{ReclaimId("r-1"), ReclaimPhase::kReturned});

  EXPECT_FALSE(journal.contains("reclaim/r-1"));
}

TEST_F(CoreNotice, a_hello_names_the_reclaims_there_are) {
  declare();
  feed(CoordinatorDisconnected{"cable"});
  messages.clear();
  connect();

  ASSERT_THAT(sent<wire::Hello>(), SizeIs(1));
  ASSERT_THAT(sent<wire::Hello>().front().reclaims, SizeIs(1));
  EXPECT_EQ(sent<wire::Hello>().front().reclaims.front().id, ReclaimId("r-1"));
}

TEST_F(CoreNotice, after_one_that_was_withdrawn_the_next_counts_whenever_it_comes) {
  declare();
  warden.reclaims.front().phase = ReclaimPhase::kReturned;
  warden.reclaims.push_back(another(seconds(300)));
  push_state();

  EXPECT_EQ(state(), AttemptState::kNoticed);
  EXPECT_EQ(deadline_left_ms(), 300'000);
}

TEST_F(CoreNotice, an_emergency_waits_for_nothing_that_reads_the_disk) {
  detect();
  ASSERT_TRUE(has_work<TakeSnapshot>());
  declare(ReclaimKind::kEmergency);  // declared, and not yet cut

  EXPECT_FALSE(has_work<TakeSnapshot>());
  EXPECT_THAT(unwatches, SizeIs(1));
}

TEST_F(CoreNotice, the_watch_ends_with_the_guest) {
  fails_with(1);

  EXPECT_THAT(unwatches, SizeIs(1));
}

TEST_F(CoreNotice, what_was_ordered_first_is_the_end_whatever_comes_while_it_is_killed) {
  declare();
  advance(seconds(59));
  ASSERT_EQ(phase(), "stopping");
  order_stop(StopMode::kAtOnce, AttemptEnd::kCancelled);
  answer<warden_wire::KillGuest>();

  EXPECT_TRUE(has_work<TakeSnapshot>()) << "a cancelled one would not be saved";
}

TEST_F(CoreNotice, a_cancelled_guest_that_is_cut_meanwhile_was_cancelled) {
  order_stop(StopMode::kAtOnce, AttemptEnd::kCancelled);
  ReclaimRecord record = a_reclaim(ReclaimKind::kEmergency);
  record.phase = ReclaimPhase::kCleared;
  record.cut_ns = record.killed_ns = record.cleared_ns = record.declared_ns;
  warden.reclaims = {record};
  warden.guests.clear();
  push_state();
  log_is_empty();

  EXPECT_EQ(last_end(), AttemptEnd::kCancelled) << "it must not run again";
}

class StatelessNotice : public CoreNotice {
 protected:
  StatelessNotice() { spec.checkpoint.is_stateless = true; }
};

TEST_F(StatelessNotice, a_guest_with_nothing_to_save_does_not_keep_the_owner_waiting) {
  declare();

  EXPECT_EQ(phase(), "stopping");
  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

/// Its guest has saved and is gone; what it saved is on its way to n-2.
class CoreMoves : public CoreNotice {
 protected:
  void leave() {
    declare();
    answer<warden_wire::WriteNotice>();
    save(1);
    answer<warden_wire::KillGuest>();
    finish<TakeSnapshot>(NothingNew{});
    log_is_empty();
    ASSERT_EQ(state(), AttemptState::kDraining);
    ASSERT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-2"));
  }

  static wire::CopyPlan elsewhere(const char* first = "n-4") {
    wire::CopyPlan plan = a_plan();
    plan.copies = {a_peer(first), a_peer("n-2")};
    plan.leaves_others = true;
    return plan;
  }
};

TEST_F(CoreMoves, a_copy_that_would_be_late_is_broken_off_and_begins_where_it_arrives) {
  leave();
  follow(elsewhere());

  EXPECT_THAT(cancelled, SizeIs(1));
  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-4"));
  copied("n-4", 1);
  EXPECT_EQ(sent<wire::CommitGeneration>().back().receipts.front().holder, NodeId("n-4"));
}

TEST_F(CoreMoves, a_plan_that_does_not_say_so_breaks_nothing_off) {
  leave();
  wire::CopyPlan plan = elsewhere();
  plan.leaves_others = false;
  follow(plan);

  EXPECT_THAT(cancelled, SizeIs(0));
  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-2"));
}

TEST_F(CoreMoves, what_goes_to_the_first_already_goes_on) {
  leave();
  follow(elsewhere("n-2"));

  EXPECT_THAT(cancelled, SizeIs(0));
}

TEST_F(CoreMoves, a_fallback_after_the_move_is_not_broken_off_by_the_plan_that_follows) {
  leave();
  follow(elsewhere());
  finish<CopyGeneration>(Error{ErrorCode::kUnavailable, "it is gone", ""});
  ASSERT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-2"));
  cancelled.clear();

  wire::CopyPlan same = elsewhere();
  same.leaves_others = false;
  follow(same);
  follow(elsewhere());

  EXPECT_THAT(cancelled, SizeIs(0)) << "n-4 has just failed";
}

TEST_F(CoreMoves, a_guest_that_stays_is_not_disturbed) {
  save(1);
  ASSERT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-2"));

  follow(elsewhere());

  EXPECT_THAT(cancelled, SizeIs(0));
}

}  // namespace
}  // namespace rn::agent
