// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class CoreReclaim : public CoreTest {
 protected:
  void SetUp() override {
    start();
    run();
    log_is_empty();
  }

  void declare(ReclaimKind kind) {
    warden.reclaims = {a_reclaim(kind)};
    push_state();
  }
};

class CoreReclaimOfAStart : public CoreTest {
 protected:
  void SetUp() override {
    start();
    prepare();
    ASSERT_EQ(phase(), "starting");
  }
};

TEST_F(CoreReclaim, a_noticed_guest_is_told_signalled_and_runs_on_until_it_has_saved) {
  declare(ReclaimKind::kNotice);
  EXPECT_EQ(state(), AttemptState::kNoticed);
  ASSERT_TRUE(has_asked<warden_wire::WriteNotice>());
  EXPECT_EQ(asked<warden_wire::WriteNotice>().front().grace_s, 60u);
  answer<warden_wire::SignalGuest>([](warden_wire::Answer& a) { a.signalled = 1; });
  advance(seconds(5));
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());

  save(1);

  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

/// It has no log that could be waited for.
TEST_F(CoreReclaimOfAStart, one_that_never_ran_ends_with_nothing_to_save) {
  warden.reclaims = {a_reclaim(ReclaimKind::kNotice)};
  push_state();  // its disk is ready, no guest runs

  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed) << phase();
  EXPECT_FALSE(has_work<TakeSnapshot>());
}

TEST_F(CoreReclaim, a_guest_without_a_handler_is_stopped_at_its_next_complete_generation) {
  declare(ReclaimKind::kNotice);
  answer<warden_wire::SignalGuest>();
  advance(seconds(20));
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
  save(1);
  answer<warden_wire::KillGuest>();
  finish<TakeSnapshot>(NothingNew{});

  EXPECT_TRUE(has_work<CopyGeneration>());
  log_is_empty();
  copied("n-2", 1);
  EXPECT_NE(last_end(), AttemptEnd::kReclaimed);  // not before the generation is durable
  committed(1);
  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
}

TEST_F(CoreReclaim, a_snapshot_begun_before_the_notice_is_not_the_one_waited_for) {
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  declare(ReclaimKind::kNotice);
  finish<TakeSnapshot>(SnapshotTaken{a_generation(1)});
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());

  save(2);

  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreReclaim, a_guest_without_a_handler_does_not_compute_on_while_its_save_is_taken) {
  declare(ReclaimKind::kNotice);
  answer<warden_wire::SignalGuest>();
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  ASSERT_TRUE(has_work<TakeSnapshot>());
  advance(milliseconds(300));
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
  advance(milliseconds(200));

  answer<warden_wire::KillGuest>();
  EXPECT_FALSE(work_body<TakeSnapshot>().is_final) << "it goes on without the guest";
  finish<TakeSnapshot>(SnapshotTaken{a_generation(1, 10)});
  EXPECT_TRUE(work_body<TakeSnapshot>().is_final);
  finish<TakeSnapshot>(NothingNew{});
  log_is_empty();
  copied("n-2", 1);
  committed(1);
  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
}

TEST_F(CoreReclaim, a_guest_with_a_handler_has_until_its_save_is_taken) {
  declare(ReclaimKind::kNotice);
  answer<warden_wire::SignalGuest>([](warden_wire::Answer& a) { a.signalled = 1; });
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  advance(seconds(5));

  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreReclaim, a_save_that_was_begun_before_the_notice_is_not_the_one_waited_for) {
  const Instant before = clock.now().boot;
  advance(seconds(1));
  declare(ReclaimKind::kNotice);
  answer<warden_wire::SignalGuest>();
  advance(seconds(3));
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}, before});
  advance(seconds(1));
  finish<TakeSnapshot>(SnapshotTaken{a_generation(1)});
  advance(seconds(1));
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());

  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}, clock.now().boot});
  finish<TakeSnapshot>(SnapshotTaken{a_generation(2)});

  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreReclaim, a_last_snapshot_that_failed_is_tried_again_while_the_deadline_allows) {
  declare(ReclaimKind::kNotice);
  answer<warden_wire::SignalGuest>();
  advance(milliseconds(58'100));
  answer<warden_wire::KillGuest>();
  for (int tries = 0; tries < 3; ++tries) {
    finish<TakeSnapshot>(Error{ErrorCode::kInternal, "a sync failed", ""});
    EXPECT_FALSE(has_work<TakeSnapshot>());
    advance(milliseconds(300));
    ASSERT_TRUE(has_work<TakeSnapshot>()) << tries;
    EXPECT_TRUE(work_body<TakeSnapshot>().is_final);
  }
  finish<TakeSnapshot>(SnapshotTaken{a_generation(1)});
  log_is_empty();
  EXPECT_EQ(phase(), "draining");
  EXPECT_TRUE(has_work<CopyGeneration>());
}

TEST_F(CoreReclaim, a_last_snapshot_is_given_up_at_the_deadline_and_the_reason_told) {
  declare(ReclaimKind::kNotice);
  answer<warden_wire::SignalGuest>();
  advance(milliseconds(58'100));
  answer<warden_wire::KillGuest>();
  for (int tries = 0; has_work<TakeSnapshot>(); ++tries) {
    ASSERT_LT(tries, 20);
    finish<TakeSnapshot>(Error{ErrorCode::kInternal, "a sync failed", ""});
    advance(milliseconds(300));
  }
  log_is_empty();

  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
  EXPECT_THAT(sent<wire::AttemptEvent>().back().report.detail, HasSubstr("a sync failed"));
}

TEST_F(CoreReclaim, a_last_snapshot_that_may_not_be_read_is_not_tried_again) {
  declare(ReclaimKind::kNotice);
  answer<warden_wire::SignalGuest>();
  advance(milliseconds(58'100));
  answer<warden_wire::KillGuest>();
  finish<TakeSnapshot>(Error{ErrorCode::kDenied, "its owner alone may read it", ""});
  advance(milliseconds(500));

  EXPECT_FALSE(has_work<TakeSnapshot>());
}

TEST_F(CoreReclaim, a_guest_that_never_saves_is_stopped_shortly_before_the_deadline) {
  declare(ReclaimKind::kNotice);
  answer<warden_wire::SignalGuest>();
  advance(seconds(57));
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
  advance(milliseconds(1100));

  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreReclaim, a_guest_that_saves_and_exits_on_the_signal_goes_on_elsewhere) {
  declare(ReclaimKind::kNotice);
  answer<warden_wire::SignalGuest>([](warden_wire::Answer& a) { a.signalled = 1; });
  leaves_with_a_last_save();

  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
}

TEST_F(CoreReclaim, a_guest_that_was_not_signalled_and_exits_0_has_finished) {
  declare(ReclaimKind::kNotice);
  answer<warden_wire::SignalGuest>();
  set_guest(GuestState::kExited, 0);
  push_state();

  EXPECT_EQ(phase(), "publishing");
}

TEST_F(CoreReclaim, evacuation_is_done_when_the_copies_are_made_not_when_they_begin) {
  declare(ReclaimKind::kNotice);
  save(1);
  answer<warden_wire::KillGuest>();
  EXPECT_FALSE(has_asked<warden_wire::EvacuationDone>());
  finish<TakeSnapshot>(NothingNew{});
  log_is_empty();

  ASSERT_TRUE(has_work<CopyGeneration>());
  EXPECT_FALSE(has_asked<warden_wire::EvacuationDone>());
  copied("n-2", 1);

  ASSERT_TRUE(has_asked<warden_wire::EvacuationDone>());
  EXPECT_THAT(asked<warden_wire::EvacuationDone>().front().guests, SizeIs(1));
}

TEST_F(CoreReclaim, a_reclaim_without_guests_is_evacuated_at_once) {
  set_guest(GuestState::kExited, 0);
  push_state();
  finish<UploadOutputs>(OutputsUploaded{});
  log_is_empty();
  declare(ReclaimKind::kNotice);

  EXPECT_TRUE(has_asked<warden_wire::EvacuationDone>());
}

TEST_F(CoreReclaim, a_withdrawn_reclaim_lets_the_guest_run_on) {
  declare(ReclaimKind::kNotice);
  answer<warden_wire::WriteNotice>();
  answer<warden_wire::SignalGuest>();
  warden.reclaims.front().phase = ReclaimPhase::kReturned;
  push_state();

  EXPECT_EQ(state(), AttemptState::kRunning);
  EXPECT_EQ(asked<warden_wire::WriteNotice>().back().deadline_wall_ms, 0);
  advance(seconds(70));
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreReclaim, a_reclaim_of_another_gpu_does_not_touch_the_guest) {
  ReclaimRecord record = a_reclaim(ReclaimKind::kNotice);
  record.gpus = {3};
  warden.reclaims = {record};
  push_state();

  EXPECT_EQ(state(), AttemptState::kRunning);
}

TEST_F(CoreReclaim, an_emergency_ends_the_attempt_as_reclaimed_and_safe_generations_still_go_out) {
  save(1);
  ASSERT_TRUE(has_work<CopyGeneration>());
  ReclaimRecord record = a_reclaim(ReclaimKind::kEmergency);
  record.phase = ReclaimPhase::kCleared;
  record.cut_ns = record.killed_ns = record.cleared_ns = record.declared_ns;
  warden.reclaims = {record};
  warden.guests.clear();
  push_state();

  EXPECT_EQ(phase(), "draining");
  EXPECT_FALSE(has_work<TakeSnapshot>());  // the disk is the owner's again
  copied("n-2", 1);
  committed(1);
  log_is_empty();
  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
  EXPECT_THAT(sent<wire::AttemptEvent>().back().report.detail, HasSubstr("emergency"));
}

TEST_F(CoreReclaim, the_tail_of_the_log_is_read_after_an_emergency) {
  advance(milliseconds(600));
  ASSERT_TRUE(has_work<ReadLog>());  // under way when the owner strikes: it may miss the tail
  ReclaimRecord record = a_reclaim(ReclaimKind::kEmergency);
  record.phase = ReclaimPhase::kCleared;
  record.cut_ns = record.killed_ns = record.cleared_ns = record.declared_ns;
  warden.reclaims = {record};
  warden.guests.clear();
  push_state();
  finish<ReadLog>(LogRead{0, Blob(10, 'a'), 10});
  tell(wire::LogAck{JobId("j-1"), kEpoch, 10, true});

  EXPECT_EQ(work_body<ReadLog>().disk, "/disk/1");
  finish<ReadLog>(LogRead{10, Blob(4, 'b'), 14});
  ASSERT_EQ(sent<wire::LogAppend>().back().bytes, Blob(4, 'b'));
  EXPECT_NE(last_end(), AttemptEnd::kReclaimed);  // the disk is not released before
  tell(wire::LogAck{JobId("j-1"), kEpoch, 14, true});

  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
}

TEST_F(CoreReclaim, an_emergency_cancels_everything_that_works_on_the_disk) {
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  ASSERT_TRUE(has_work<TakeSnapshot>());
  ReclaimRecord record = a_reclaim(ReclaimKind::kEmergency);
  record.phase = ReclaimPhase::kCut;
  record.cut_ns = record.declared_ns;
  warden.reclaims = {record};
  push_state();

  EXPECT_FALSE(has_work<TakeSnapshot>());
  EXPECT_THAT(unwatches, SizeIs(1));
}

TEST_F(CoreReclaim, an_emergency_seen_only_after_the_owner_returned_the_node_is_still_a_reclaim) {
  ReclaimRecord record = a_reclaim(ReclaimKind::kEmergency);
  clock.advance(seconds(1));
  record.phase = ReclaimPhase::kReturned;
  record.cut_ns = record.killed_ns = record.cleared_ns = to_ns(clock.now().boot);
  record.returned_ns = to_ns(clock.now().boot);
  warden.reclaims = {record};
  warden.guests.clear();
  push_state();
  log_is_empty();

  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
}

TEST_F(CoreReclaim, a_container_that_vanishes_without_a_reclaim_is_lost) {
  warden.guests.clear();
  push_state();
  finish<TakeSnapshot>(NothingNew{});
  log_is_empty();

  EXPECT_EQ(last_end(), AttemptEnd::kLost);
}

TEST_F(CoreReclaim, with_the_coordinator_away_the_own_plan_is_followed_and_committed_later) {
  feed(CoordinatorDisconnected{"down"});
  declare(ReclaimKind::kNotice);
  save(1);
  answer<warden_wire::KillGuest>();
  finish<TakeSnapshot>(NothingNew{});
  log_is_empty();
  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-2"));
  copied("n-2", 1);
  EXPECT_TRUE(has_asked<warden_wire::EvacuationDone>());
  advance(seconds(1200));
  EXPECT_EQ(phase(), "draining");  // ending first would lose the generation

  connect();

  // The generation's row must be asked for before the end can be known.
  ASSERT_THAT(sent<wire::CommitGeneration>(), SizeIs(1));
  committed(1);
  log_is_empty();
  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
}

TEST_F(CoreReclaim, copies_that_cannot_be_made_end_with_the_contracts_drain_time) {
  declare(ReclaimKind::kNotice);
  save(1);
  answer<warden_wire::KillGuest>();
  finish<TakeSnapshot>(NothingNew{});
  log_is_empty();
  finish<CopyGeneration>(Error{ErrorCode::kUnavailable, "no route", ""});
  finish<CopyGeneration>(Error{ErrorCode::kUnavailable, "no route", ""});
  clock.advance(seconds(contract.max_drain_s));
  connect();
  advance(seconds(1));

  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
  EXPECT_THAT(sent<wire::AttemptEvent>().back().report.detail, HasSubstr("could not be copied"));
}

TEST_F(CoreReclaim, reports_are_repeated_until_each_phase_is_acknowledged) {
  declare(ReclaimKind::kNotice);
  ASSERT_THAT(sent<wire::ReclaimReport>(), SizeIs(1));
  advance(seconds(3));
  EXPECT_THAT(sent<wire::ReclaimReport>(), SizeIs(2));
  tell(wire::ReclaimAck{ReclaimId("r-1"), ReclaimPhase::kEvacuating});
  advance(seconds(3));
  EXPECT_THAT(sent<wire::ReclaimReport>(), SizeIs(2));

  warden.reclaims.front().phase = ReclaimPhase::kCut;
  push_state();

  EXPECT_THAT(sent<wire::ReclaimReport>(), SizeIs(3));
}

TEST_F(CoreReclaim, what_the_warden_says_twice_is_reported_once) {
  declare(ReclaimKind::kNotice);
  ASSERT_THAT(sent<wire::ReclaimReport>(), SizeIs(1));

  push_state();
  push_state();

  EXPECT_THAT(sent<wire::ReclaimReport>(), SizeIs(1));
}

TEST_F(CoreReclaim, a_reclaim_that_was_not_acknowledged_survives_a_crash) {
  feed(CoordinatorDisconnected{"down"});
  declare(ReclaimKind::kNotice);
  crash_and_restart();
  feed(WardenConnected{});
  warden.reclaims.clear();  // even if the warden has forgotten it
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  connect();

  EXPECT_THAT(sent<wire::ReclaimReport>(), SizeIs(1));
}

TEST_F(CoreReclaim, a_reclaimed_node_refuses_probes_until_it_is_returned_and_free_for_long_enough) {
  contract.min_free_s = 30;
  feed(ContractChanged{contract, 0});
  declare(ReclaimKind::kNotice);
  wire::Probe probe;
  probe.job = JobId("j-2");
  tell(probe);
  EXPECT_THAT(sent<wire::ProbeReply>().back().reason, HasSubstr("takes the node back"));

  warden.reclaims.front().phase = ReclaimPhase::kReturned;
  warden.reclaims.front().returned_ns = to_ns(clock.now().boot);
  push_state();
  tell(probe);
  EXPECT_THAT(sent<wire::ProbeReply>().back().reason, HasSubstr("30 s after a reclaim"));
  advance(seconds(31));
  tell(probe);
  EXPECT_FALSE(sent<wire::ProbeReply>().back().hold.empty());
}

TEST_F(CoreReclaim, a_migration_saves_first_and_ends_as_migrated) {
  order_stop(StopMode::kSaveFirst, AttemptEnd::kMigrated, 30'000);
  EXPECT_EQ(state(), AttemptState::kNoticed);
  evacuate();

  EXPECT_EQ(last_end(), AttemptEnd::kMigrated);
}

TEST_F(CoreReclaim, an_attempt_that_is_still_starting_is_given_up_for_a_reclaim) {
  set_guest(GuestState::kExited, 0);
  push_state();
  finish<UploadOutputs>(OutputsUploaded{});
  log_is_empty();
  acknowledge();
  answer<warden_wire::RemoveGuest>();
  answer<warden_wire::ReleaseDisk>();
  ASSERT_EQ(phase(), "none");
  wire::Probe probe;
  probe.job = JobId("j-2");
  tell(probe);
  wire::Commit commit = a_commit();
  commit.job = JobId("j-2");
  commit.hold = sent<wire::ProbeReply>().back().hold;
  tell(commit);
  ASSERT_EQ(phase(), "mounting");
  declare(ReclaimKind::kNotice);

  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
}

TEST_F(CoreReclaim, after_an_emergency_past_the_agent_the_warden_is_asked_at_once) {
  feed(WardenActed{});

  ASSERT_TRUE(has_asked<warden_wire::Query>());
  warden.reclaims = {a_reclaim(ReclaimKind::kEmergency)};
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kReclaimed);
}

}  // namespace
}  // namespace rn::agent
