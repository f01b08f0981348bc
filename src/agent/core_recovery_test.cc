// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class CoreRecovery : public CoreTest {
 protected:
  void SetUp() override { start(); }

  void come_back() {
    feed(WardenConnected{});
    answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
    connect();
  }
};

TEST_F(CoreRecovery, a_running_guest_is_adopted_after_a_crash) {
  run();
  save(1);
  crash_and_restart();
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
  come_back();

  EXPECT_EQ(state(), AttemptState::kRunning);
  ASSERT_THAT(watches, SizeIs(1));
  EXPECT_EQ(watches.front().since.generation, 1u);
  EXPECT_EQ(sent<wire::Hello>().front().attempts.front().state, AttemptState::kRunning);
  EXPECT_EQ(sent<wire::Hello>().front().attempts.front().safe_generation, 1u);
  EXPECT_FALSE(has_asked<warden_wire::StartGuest>());
}

TEST_F(CoreRecovery, a_guest_that_ended_during_the_crash_is_reported_with_its_exit_code) {
  run();
  crash_and_restart();
  set_guest(GuestState::kExited, 4);
  come_back();
  finish<TakeSnapshot>(NothingNew{});
  log_is_empty();

  EXPECT_EQ(last_end(), AttemptEnd::kCrashed);
  EXPECT_EQ(sent<wire::AttemptEvent>().back().report.exit_code, 4);
}

TEST_F(CoreRecovery, a_guest_that_a_recovering_warden_does_not_list_yet_has_not_ended) {
  run();
  const auto guests = warden.guests;
  crash_and_restart();
  warden.guests.clear();
  warden.is_recovering = true;
  come_back();
  advance(seconds(60));
  push_state();
  EXPECT_EQ(state(), AttemptState::kRunning);

  warden.is_recovering = false;
  warden.guests = guests;
  push_state();
  EXPECT_EQ(state(), AttemptState::kRunning);

  warden.guests.clear();
  push_state();
  EXPECT_NE(state(), AttemptState::kRunning) << "it has searched, and there is none";
}

TEST_F(CoreRecovery, a_guest_that_no_row_wants_is_killed_and_removed) {
  warden_wire::GuestReport stranger;
  stranger.guest = GuestName{JobId("j-old"), {1, 9}};
  stranger.state = GuestState::kRunning;
  warden.guests = {stranger};
  push_state();

  EXPECT_EQ(asked<warden_wire::KillGuest>().front().guest, stranger.guest);
  EXPECT_TRUE(has_asked<warden_wire::RemoveGuest>());
  EXPECT_TRUE(has_asked<warden_wire::ReleaseDisk>());
}

/// Every phase up to running: crash, restart, and the same request or work is under way again.
TEST_F(CoreRecovery, each_starting_phase_is_resumed_where_it_was) {
  lease();
  crash_and_restart();
  come_back();
  ASSERT_TRUE(has_work<FetchImage>());

  finish<FetchImage>(ImageFetched{"/x"});
  crash_and_restart();
  come_back();
  ASSERT_TRUE(has_work<FetchImage>()) << "the path was lost with the memory";
  finish<FetchImage>(ImageFetched{"/x"});
  answer<warden_wire::LoadImage>();
  crash_and_restart();
  come_back();
  ASSERT_TRUE(has_asked<warden_wire::PrepareDisk>());

  answer<warden_wire::PrepareDisk>([](warden_wire::Answer& a) { a.disk = "/disk/1"; });
  crash_and_restart();
  set_guest(GuestState::kDiskReady);
  come_back();
  ASSERT_TRUE(has_work<PrepareWork>());

  finish<PrepareWork>(WorkPrepared{});
  crash_and_restart();
  come_back();
  EXPECT_FALSE(has_work<PrepareWork>()) << "work/ may be the guest's already";
  ASSERT_TRUE(has_asked<warden_wire::AdoptDisk>());

  answer<warden_wire::AdoptDisk>();
  crash_and_restart();
  come_back();
  ASSERT_TRUE(has_asked<warden_wire::StartGuest>());

  crash_and_restart();
  set_guest(GuestState::kRunning);  // the start was carried out, its answer was lost
  come_back();
  EXPECT_FALSE(has_asked<warden_wire::StartGuest>());
  EXPECT_EQ(state(), AttemptState::kRunning);
}

TEST_F(CoreRecovery, each_ending_phase_is_resumed_where_it_was) {
  run();
  warden.reclaims = {a_reclaim(ReclaimKind::kNotice)};
  push_state();
  crash_and_restart();
  come_back();
  EXPECT_EQ(state(), AttemptState::kNoticed);
  ASSERT_TRUE(has_asked<warden_wire::SignalGuest>());

  answer<warden_wire::SignalGuest>();
  save(1);
  crash_and_restart();
  come_back();
  ASSERT_TRUE(has_asked<warden_wire::KillGuest>());

  answer<warden_wire::KillGuest>();
  set_guest(GuestState::kExited, 137);
  crash_and_restart();
  come_back();
  ASSERT_TRUE(work_body<TakeSnapshot>().is_final);

  finish<TakeSnapshot>(NothingNew{});
  log_is_empty();
  crash_and_restart();
  come_back();
  EXPECT_EQ(phase(), "draining");
  ASSERT_TRUE(has_work<CopyGeneration>());

  copied("n-2", 1);
  committed(1);
  log_is_empty();
  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
  crash_and_restart();
  come_back();
  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed) << "the end was not acknowledged";
  acknowledge();
  answer<warden_wire::RemoveGuest>();
  answer<warden_wire::ReleaseDisk>();
  EXPECT_EQ(phase(), "none");
}

TEST_F(CoreRecovery, after_a_reboot_every_guest_is_lost_but_its_generations_still_go_out) {
  run();
  save(1);
  config.boot_id = "boot-2";
  crash_and_restart();
  warden.guests.clear();
  come_back();

  EXPECT_NE(state(), AttemptState::kRunning);
  while (has_work<TakeSnapshot>()) finish<TakeSnapshot>(Error{ErrorCode::kNotFound, "no disk", ""});
  log_is_empty();
  copied("n-2", 1);
  committed(1);
  EXPECT_EQ(last_end(), AttemptEnd::kLost);
}

/// What is restored is not synced before the guest has it: that would cost a start minutes.
TEST_F(CoreRecovery, what_was_restored_before_a_reboot_is_not_started_from) {
  prepare();
  ASSERT_EQ(state(), AttemptState::kStarting);
  config.boot_id = "boot-2";
  crash_and_restart();
  warden.guests.clear();
  come_back();

  EXPECT_NE(state(), AttemptState::kStarting);
  EXPECT_FALSE(has_asked<warden_wire::StartGuest>());
}

TEST_F(CoreRecovery, how_old_a_save_of_an_earlier_boot_is_nobody_knows) {
  run();
  save(1);
  ASSERT_GE(core->view(clock.now()).attempts.front().report.since_save_ms, 0);
  config.boot_id = "boot-2";
  crash_and_restart();

  EXPECT_EQ(core->view(clock.now()).attempts.front().report.since_save_ms, -1);
}

TEST_F(CoreRecovery, what_an_owner_cut_in_an_earlier_boot_takes_no_guest_of_this_one) {
  run();
  ReclaimRecord record = a_reclaim(ReclaimKind::kEmergency);
  record.boot_id = "boot-0";
  record.phase = ReclaimPhase::kReturned;
  record.cut_ns = to_ns(clock.now().boot + std::chrono::hours(5));
  warden.reclaims = {record};
  push_state();
  set_guest(GuestState::kExited, 4);
  push_state();
  finish<TakeSnapshot>(NothingNew{});
  log_is_empty();

  EXPECT_EQ(last_end(), AttemptEnd::kCrashed);
}

TEST_F(CoreRecovery, a_journal_row_that_cannot_be_read_is_named) {
  Core other(config, rng);

  const Status status = other.restore({{"attempt/j-1/1.1", "{"}});

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(status.error().message, HasSubstr("attempt/j-1/1.1"));
}

TEST_F(CoreRecovery, an_epoch_is_never_taken_twice_even_after_a_crash) {
  run();
  set_guest(GuestState::kExited, 0);
  push_state();
  finish<UploadOutputs>(OutputsUploaded{});
  log_is_empty();
  acknowledge();
  answer<warden_wire::RemoveGuest>();
  answer<warden_wire::ReleaseDisk>();
  crash_and_restart();
  warden.guests.clear();
  come_back();
  wire::Probe probe;
  probe.job = JobId("j-1");
  tell(probe);
  wire::Commit commit = a_commit();
  commit.hold = sent<wire::ProbeReply>().back().hold;
  tell(commit);

  EXPECT_FALSE(sent<wire::CommitReply>().back().is_granted);
  EXPECT_THAT(sent<wire::CommitReply>().back().reason, HasSubstr("stale"));
}

class CoreFencing : public CoreTest {
 protected:
  void SetUp() override {
    start();
    run();
    log_is_empty();
  }

  wire::AttemptVerdict stale() { return {JobId("j-1"), kEpoch, false, false}; }
};

TEST_F(CoreFencing, a_stale_verdict_kills_the_guest_at_once_and_drops_its_effects) {
  save(1);
  ASSERT_TRUE(has_work<CopyGeneration>());
  messages.clear();
  tell(wire::HeartbeatAck{1, {stale()}, {}, 0});

  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
  EXPECT_FALSE(has_work<CopyGeneration>());
  answer<warden_wire::KillGuest>();
  answer<warden_wire::RemoveGuest>();
  answer<warden_wire::ReleaseDisk>();
  advance(seconds(10));
  EXPECT_THAT(sent<wire::AttemptEvent>(), IsEmpty());
  EXPECT_THAT(sent<wire::CommitGeneration>(), IsEmpty());
  EXPECT_THAT(sent<wire::LogAppend>(), IsEmpty());
  EXPECT_EQ(phase(), "none");
}

TEST_F(CoreFencing, fencing_survives_a_crash) {
  tell(wire::HeartbeatAck{1, {stale()}, {}, 0});
  crash_and_restart();
  feed(WardenConnected{});
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  connect();

  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
  EXPECT_THAT(sent<wire::Hello>().front().attempts, IsEmpty());
}

TEST_F(CoreFencing, a_zombie_learns_it_in_the_welcome) {
  feed(CoordinatorDisconnected{"partition"});
  feed(CoordinatorConnected{});
  wire::Welcome welcome;
  welcome.verdicts = {stale()};
  tell(welcome);

  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreFencing, a_blip_moves_nothing) {
  feed(CoordinatorDisconnected{"blip"});
  advance(seconds(10));
  feed(CoordinatorConnected{});
  wire::Welcome welcome;
  welcome.verdicts = {{JobId("j-1"), kEpoch, true, false}};
  tell(welcome);

  EXPECT_EQ(state(), AttemptState::kRunning);
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreFencing, an_orphan_runs_on_to_the_smaller_limit_and_no_longer) {
  spec.orphan_limit_s = 1800;
  contract.orphan_limit_s = 100;
  feed(ContractChanged{contract, 0});
  feed(CoordinatorDisconnected{"down"});
  advance(seconds(99));
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
  advance(seconds(2));

  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreFencing, a_current_verdict_renews_the_lease) {
  contract.orphan_limit_s = 100;
  feed(ContractChanged{contract, 0});
  clock.advance(seconds(90));
  tell(wire::HeartbeatAck{1, {{JobId("j-1"), kEpoch, true, false}}, {}, 0});
  advance(seconds(20));

  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreFencing, a_refused_event_fences) {
  tell(wire::AttemptAck{JobId("j-1"), kEpoch, 1, false});

  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreFencing, an_end_that_is_known_lets_the_attempt_be_forgotten_without_an_ack) {
  set_guest(GuestState::kExited, 0);
  push_state();
  finish<UploadOutputs>(OutputsUploaded{});
  log_is_empty();
  answer<warden_wire::RemoveGuest>();
  answer<warden_wire::ReleaseDisk>();
  ASSERT_EQ(phase(), "ended");
  feed(CoordinatorDisconnected{"blip"});
  feed(CoordinatorConnected{});
  wire::Welcome welcome;
  welcome.verdicts = {{JobId("j-1"), kEpoch, true, true}};
  tell(welcome);

  EXPECT_EQ(phase(), "none");
}

/// A job that resumes from generation 4, whose holders are asked for it.
class CoreRestoreWaits : public CoreTest {
 protected:
  void SetUp() override {
    resume = a_generation(4);
    start();
    warden.images = {"sha256:img"};
    push_state();
    lease();
    answer<warden_wire::PrepareDisk>([](warden_wire::Answer& a) { a.disk = "/disk/1"; });
    ASSERT_EQ(phase(), "restoring");
  }

  void nobody_answers() {
    finish<PrepareWork>(HoldersAway{4, {NodeId("n-2")}, "generation 4: connecting: refused"});
  }

  /// They are asked again and again, to no avail.
  void nobody_answers_for(seconds time) {
    const Instant end = clock.now().boot + time;
    while (clock.now().boot < end) {
      if (has_work<PrepareWork>()) nobody_answers();
      advance(seconds(1));
    }
  }

  std::vector<NodeId> reported() const { return core->reports(clock.now()).front().waits_for; }
};

TEST_F(CoreRestoreWaits, for_whom_is_told_with_the_heartbeat_until_one_of_them_answers) {
  nobody_answers();
  EXPECT_THAT(reported(), testing::ElementsAre(NodeId("n-2")));
  advance(seconds(6));
  EXPECT_THAT(
      sent<wire::Heartbeat>().back().attempts.front().waits_for, testing::ElementsAre(NodeId("n-2"))
  );

  finish<PrepareWork>(WorkPrepared{resume, ""});

  EXPECT_EQ(phase(), "adopting");
  EXPECT_THAT(reported(), IsEmpty());
}

TEST_F(CoreRestoreWaits, after_its_patience_it_gives_the_place_back_and_says_whom_it_lacked) {
  nobody_answers_for(seconds(115));
  EXPECT_EQ(phase(), "restoring");
  nobody_answers_for(seconds(10));

  EXPECT_EQ(last_end(), AttemptEnd::kRefused);
  const wire::AttemptReport end = sent<wire::AttemptEvent>().back().report;
  EXPECT_THAT(end.waits_for, testing::ElementsAre(NodeId("n-2")));
  EXPECT_THAT(end.detail, HasSubstr("generation 4 was not to be had for 120 s"));
  EXPECT_FALSE(has_work<PrepareWork>());
}

TEST_F(CoreRestoreWaits, a_failure_in_between_that_has_another_cause_does_not_begin_the_wait_anew) {
  nobody_answers_for(seconds(60));
  while (!has_work<PrepareWork>()) advance(seconds(1));
  finish<PrepareWork>(Error{ErrorCode::kUnavailable, "the coordinator is away", ""});
  EXPECT_THAT(reported(), SizeIs(1));
  nobody_answers_for(seconds(65));

  EXPECT_EQ(last_end(), AttemptEnd::kRefused);
}

TEST_F(CoreRestoreWaits, an_agent_that_died_while_it_waited_says_whom_it_lacked_all_the_same) {
  nobody_answers();
  crash_and_restart();
  set_guest(GuestState::kDiskReady);
  feed(WardenConnected{});
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  connect();
  EXPECT_THAT(reported(), testing::ElementsAre(NodeId("n-2")));
  nobody_answers_for(seconds(125));

  EXPECT_EQ(last_end(), AttemptEnd::kRefused);
  EXPECT_THAT(sent<wire::AttemptEvent>().back().report.waits_for, SizeIs(1));
}

TEST_F(CoreRestoreWaits, a_disk_that_fails_in_the_end_is_no_holders_fault) {
  nobody_answers();
  while (!has_work<PrepareWork>()) advance(seconds(1));
  finish<PrepareWork>(Error{ErrorCode::kExhausted, "the disk is full", ""});

  EXPECT_EQ(last_end(), AttemptEnd::kRefused);
  EXPECT_THAT(sent<wire::AttemptEvent>().back().report.waits_for, IsEmpty());
}

}  // namespace
}  // namespace rn::agent
