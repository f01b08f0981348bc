// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"
#include "agent/told_reports.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A guest runs; then the disk is full.
class CoreWaiting : public CoreTest {
 protected:
  void SetUp() override {
    start();
    run();
    log_is_empty();
    advance(seconds(6));
    log_is_empty();
  }

  void wait_for_room() {
    ToldReports told;
    for (const wire::Message& message : messages) told.on_sent(message);
    forget_messages();
    feed(JournalWaits{"database or disk is full", told.reports()});
    before = journal;
  }

  void forget_messages() { messages.clear(); }

  void give_notice(seconds notice) {
    ReclaimRecord record;
    record.id = ReclaimId("r-1");
    record.kind = ReclaimKind::kNotice;
    record.phase = ReclaimPhase::kEvacuating;
    record.boot_id = "boot-1";
    record.declared_ns = to_ns(clock.now().boot);
    record.deadline_ns = to_ns(clock.now().boot + notice);
    warden.reclaims = {record};
    push_state();
  }

  wire::AttemptVerdict good() const {
    wire::AttemptVerdict verdict;
    verdict.job = JobId("j-1");
    verdict.epoch = kEpoch;
    verdict.is_current = true;
    return verdict;
  }

  std::map<std::string, std::string> before;
};

TEST_F(CoreWaiting, heartbeats_go_on_with_what_was_told_before) {
  wait_for_room();
  set_guest(GuestState::kExited, 0);
  push_state();
  advance(seconds(20));

  const auto beats = sent<wire::Heartbeat>();
  ASSERT_GE(beats.size(), 4u);
  for (const wire::Heartbeat& beat : beats) {
    EXPECT_EQ(beat.lending, LendingState::kNotLending);
    ASSERT_THAT(beat.attempts, SizeIs(1));
    EXPECT_EQ(beat.attempts.front().state, AttemptState::kRunning);
  }
  EXPECT_THAT(closes, IsEmpty());
  EXPECT_EQ(journal, before);
}

TEST_F(CoreWaiting, every_output_may_leave_before_those_that_wait) {
  wait_for_room();
  const Output probed =
      core->handle(CoordinatorMessage{wire::Probe{.job = JobId("j-2")}}, clock.now());

  EXPECT_TRUE(probed.overtakes);
  EXPECT_THAT(probed.effects, SizeIs(1));
  feed(JournalGoesOn{});
  EXPECT_FALSE(core->handle(Tick{}, clock.now()).overtakes);
}

TEST_F(CoreWaiting, what_came_meanwhile_happens_in_order_when_there_is_room) {
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  ASSERT_TRUE(has_work<TakeSnapshot>());
  wait_for_room();
  finish<TakeSnapshot>(SnapshotTaken{a_generation(1, 10)});
  set_guest(GuestState::kExited, 0);
  push_state();
  advance(seconds(30));
  EXPECT_THAT(sent<wire::AttemptEvent>(), IsEmpty());
  EXPECT_EQ(journal, before);

  feed(JournalGoesOn{});

  EXPECT_EQ(core->reports(clock.now()).front().safe_generation, 1u);
  EXPECT_EQ(phase(), "publishing");
  EXPECT_NE(journal, before);
  ASSERT_THAT(sent<wire::AttemptEvent>(), SizeIs(1));
  EXPECT_EQ(sent<wire::AttemptEvent>().front().report.state, AttemptState::kDraining);
}

TEST_F(CoreWaiting, no_guest_is_taken_and_the_answer_says_what_to_do) {
  wire::Probe probe;
  probe.job = JobId("j-2");
  tell(probe);
  const HoldId held = sent<wire::ProbeReply>().back().hold;
  ASSERT_FALSE(held.empty());
  wait_for_room();

  tell(probe);
  EXPECT_TRUE(sent<wire::ProbeReply>().back().hold.empty());
  EXPECT_THAT(sent<wire::ProbeReply>().back().reason, HasSubstr("next: free space on the disk"));
  wire::Commit commit = a_commit();
  commit.job = JobId("j-2");
  commit.hold = held;
  tell(commit);
  ASSERT_THAT(sent<wire::CommitReply>(), SizeIs(1));
  EXPECT_FALSE(sent<wire::CommitReply>().back().is_granted);
  EXPECT_THAT(sent<wire::CommitReply>().back().reason, HasSubstr("disk is full"));
  EXPECT_THAT(core->reports(clock.now()), SizeIs(1));
}

TEST_F(CoreWaiting, a_lease_whose_row_waits_is_refused_and_comes_to_nothing) {
  wire::Probe probe;
  probe.job = JobId("j-2");
  tell(probe);
  wire::Commit commit = a_commit();
  commit.job = JobId("j-2");
  commit.hold = sent<wire::ProbeReply>().back().hold;
  const Output lost = core->handle(CoordinatorMessage{commit}, clock.now());  // its row waits
  ASSERT_FALSE(lost.writes.empty());
  wait_for_room();

  tell(commit);
  tell(a_commit());

  ASSERT_THAT(sent<wire::CommitReply>(), SizeIs(2));
  EXPECT_FALSE(sent<wire::CommitReply>().front().is_granted);
  EXPECT_TRUE(sent<wire::CommitReply>().back().is_granted) << "its lease was told before";
  feed(JournalGoesOn{});
  const auto views = core->view(clock.now()).attempts;
  ASSERT_THAT(views, SizeIs(2));
  EXPECT_EQ(views.back().phase, "ended");
  EXPECT_EQ(views.back().report.end, AttemptEnd::kFenced);
  EXPECT_EQ(views.front().phase, "running");
}

TEST_F(CoreWaiting, the_owner_reads_why_and_what_to_do) {
  wait_for_room();
  advance(seconds(30));
  const NodeView view = core->view(clock.now());

  EXPECT_EQ(view.journal_waits_s, 30);
  EXPECT_EQ(view.lending, LendingState::kNotLending);
  EXPECT_THAT(view.why, HasSubstr("database or disk is full"));
  EXPECT_THAT(view.why, HasSubstr("next: free space"));
  feed(JournalGoesOn{});
  EXPECT_EQ(core->view(clock.now()).journal_waits_s, -1);
  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kOpen);
}

/// In its folder, by the warden, for whom the agent's disk is nothing.
TEST_F(CoreWaiting, guests_are_told_of_a_notice_and_of_its_withdrawal) {
  wait_for_room();
  push_state();
  EXPECT_FALSE(has_asked<warden_wire::WriteNotice>());
  give_notice(seconds(60));
  push_state();

  ASSERT_THAT(asked<warden_wire::WriteNotice>(), SizeIs(1)) << "once";
  const warden_wire::WriteNotice told = asked<warden_wire::WriteNotice>().front();
  EXPECT_EQ(told.guest.job, JobId("j-1"));
  EXPECT_EQ(told.grace_s, 60u);
  EXPECT_EQ(told.deadline_wall_ms, to_ms(clock.now().wall) + 60'000);
  EXPECT_EQ(told.reason, "the owner takes the node back");
  EXPECT_FALSE(has_asked<warden_wire::SignalGuest>()) << "who leaves must be known by a row";
  EXPECT_EQ(phase(), "running");
  EXPECT_EQ(journal, before);

  warden.reclaims.front().phase = ReclaimPhase::kReturned;
  push_state();
  EXPECT_EQ(asked<warden_wire::WriteNotice>().back().deadline_wall_ms, 0);
  feed(JournalGoesOn{});
  EXPECT_EQ(phase(), "running");
}

TEST_F(CoreWaiting, a_notice_whose_row_waits_is_told_and_taken_up_when_there_is_room) {
  give_notice(seconds(60));
  forget_outputs();  // they wait behind the row
  feed(JournalWaits{"database or disk is full", {}});
  ASSERT_THAT(asked<warden_wire::WriteNotice>(), SizeIs(1));
  EXPECT_EQ(asked<warden_wire::WriteNotice>().front().grace_s, 60u);

  answer<warden_wire::WriteNotice>();
  feed(JournalGoesOn{});

  EXPECT_EQ(phase(), "noticed");
}

/// No row says so, but we know: it went because of us, whatever code it ended with.
TEST_F(CoreWaiting, a_guest_that_was_told_and_left_has_not_finished) {
  wait_for_room();
  give_notice(seconds(60));
  set_guest(GuestState::kExited, 0);
  push_state();

  feed(JournalGoesOn{});

  EXPECT_EQ(phase(), "saving");
}

TEST_F(CoreWaiting, nor_has_one_that_left_before_the_notice_was_withdrawn) {
  wait_for_room();
  give_notice(seconds(60));
  set_guest(GuestState::kExited, 0);
  warden.reclaims.front().phase = ReclaimPhase::kReturned;
  push_state();

  feed(JournalGoesOn{});

  EXPECT_EQ(phase(), "saving");
}

TEST_F(CoreWaiting, one_that_stayed_at_a_withdrawn_notice_and_ends_later_has_finished) {
  wait_for_room();
  give_notice(seconds(60));
  warden.reclaims.front().phase = ReclaimPhase::kReturned;
  push_state();
  feed(JournalGoesOn{});
  ASSERT_EQ(phase(), "running");

  set_guest(GuestState::kExited, 0);
  push_state();

  EXPECT_EQ(phase(), "publishing");
}

TEST_F(CoreWaiting, a_guest_is_no_orphan_after_a_long_wait) {
  wait_for_room();
  for (int minute = 0; minute < 60; ++minute) {
    advance(std::chrono::minutes(1));
    tell(wire::HeartbeatAck{1, {good()}, {}, 0});
  }
  feed(JournalGoesOn{});
  feed(Tick{});

  EXPECT_EQ(state(), AttemptState::kRunning);
}

TEST_F(CoreWaiting, what_is_kept_is_bounded) {
  wait_for_room();
  for (int i = 0; i < 1500; ++i) {
    push_state();
    feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
    feed(SaveTrouble{GuestName{JobId("j-1"), kEpoch}, "a.pt", "never holds still"});
    tell(wire::HeartbeatAck{1, {good()}, {a_plan()}, 0});
    wire::CollectGarbage garbage;
    garbage.job = JobId("j-9");
    tell(garbage);
  }
  messages.clear();
  works.clear();

  feed(JournalGoesOn{});

  EXPECT_LE(works.size(), 300u);
  EXPECT_TRUE(has_work<TakeSnapshot>());
}

/// The coordinator would give up what is not named in the hello.
TEST_F(CoreWaiting, a_new_connection_is_greeted_with_what_was_told_before) {
  wait_for_room();
  set_guest(GuestState::kExited, 0);
  push_state();
  feed(CoordinatorDisconnected{"cable"});
  connect();

  ASSERT_THAT(sent<wire::Hello>(), SizeIs(1));
  ASSERT_THAT(sent<wire::Hello>().front().attempts, SizeIs(1));
  EXPECT_EQ(sent<wire::Hello>().front().attempts.front().state, AttemptState::kRunning);
  advance(seconds(6));
  EXPECT_FALSE(sent<wire::Heartbeat>().empty());
}

TEST_F(CoreWaiting, a_verdict_of_a_stale_epoch_is_obeyed_when_there_is_room) {
  wait_for_room();
  wire::AttemptVerdict stale = good();
  stale.is_current = false;
  tell(wire::HeartbeatAck{1, {stale}, {}, 0});
  EXPECT_EQ(phase(), "running");

  feed(JournalGoesOn{});

  EXPECT_EQ(phase(), "stopping");
}

TEST_F(CoreWaiting, what_the_owner_and_the_coordinator_order_meanwhile_is_done_when_there_is_room) {
  wait_for_room();
  feed(OwnerLeaves{"the lab moves"});
  order_stop(StopMode::kAtOnce, AttemptEnd::kCancelled);
  EXPECT_EQ(phase(), "running");

  feed(JournalGoesOn{});

  EXPECT_EQ(phase(), "stopping");
  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kDraining);
  EXPECT_THAT(journal.at("node"), HasSubstr("the lab moves"));
}

TEST(ToldReports, an_attempt_is_told_from_its_lease_to_the_heartbeat_that_leaves_it_out) {
  ToldReports told;
  wire::CommitReply granted;
  granted.job = JobId("j-1");
  granted.epoch = LeaseEpoch{1, 1};
  granted.is_granted = true;
  told.on_sent(granted);
  ASSERT_THAT(told.reports(), SizeIs(1));
  wire::AttemptEvent event;
  event.report.job = granted.job;
  event.report.epoch = granted.epoch;
  event.report.state = AttemptState::kRunning;
  told.on_sent(event);
  told.on_sent(granted);
  ASSERT_THAT(told.reports(), SizeIs(1));
  EXPECT_EQ(told.reports().front().state, AttemptState::kRunning);
  event.report.job = JobId("j-unknown");
  told.on_sent(event);
  ASSERT_THAT(told.reports(), SizeIs(1));

  told.on_sent(wire::Heartbeat{});

  EXPECT_THAT(told.reports(), IsEmpty());
}

}  // namespace
}  // namespace rn::agent
