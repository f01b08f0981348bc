// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;
using testing::SizeIs;
using warden_wire::Announce;

/// The clock stands at Tue 2023-11-14 22:13:20 UTC; a guest runs.
class CoreLending : public CoreTest {
 protected:
  void SetUp() override {
    start();
    run();
    log_is_empty();
  }

  /// Minutes of this Tuesday; the end of the first comes in 40 s.
  void lend(std::vector<LendingWindow> windows, std::uint32_t notice_s) {
    contract.windows = std::move(windows);
    contract.notice_s = notice_s;
    feed(ContractChanged{contract, 0});
  }

  void measure(std::uint64_t idle_s) {
    TelemetrySampled sampled;
    sampled.telemetry.disk_free_mib = 50'000;
    sampled.idle_s = idle_s;
    feed(sampled);
  }

  std::int64_t in(nanoseconds time) const { return to_ns(clock.now().boot + time); }

  /// Everything moved and over, the warden has cleared.
  void go_away() {
    clear_announced();
    log_is_empty();
    acknowledge();
    answer<warden_wire::RemoveGuest>();
    answer<warden_wire::ReleaseDisk>();
    ASSERT_EQ(phase(), "none");
  }
};

TEST_F(CoreLending, the_end_of_a_window_is_told_ahead_of_time) {
  lend({{{"tue"}, "20:00", "22:14"}}, 30);

  const Announce told = last_announcement();

  EXPECT_EQ(told.declare_ns, in(seconds(10)));
  EXPECT_EQ(told.deadline_ns, in(seconds(40)));
  EXPECT_EQ(state(), AttemptState::kRunning);
}

TEST_F(CoreLending, heartbeats_say_when_the_window_ends) {
  const auto closes_in_s = [this] {
    advance(seconds(6));
    return sent<wire::Heartbeat>().back().closes_in_s;
  };
  EXPECT_EQ(closes_in_s(), 0U) << "it lends at all times";
  lend({{{"tue"}, "20:00", "23:13"}}, 30);
  EXPECT_NEAR(closes_in_s(), 3580 - 12, 6);
  lend({{{"tue"}, "20:00", "21:00"}}, 30);
  EXPECT_EQ(closes_in_s(), 0U) << "closed already";
}

TEST_F(CoreLending, it_is_told_again_until_the_warden_holds_it) {
  lend({{{"tue"}, "20:00", "23:14"}}, 30);
  EXPECT_THAT(asked<Announce>(), SizeIs(1));
  push_state();
  EXPECT_THAT(asked<Announce>(), SizeIs(1));
  advance(seconds(3));
  EXPECT_THAT(asked<Announce>(), SizeIs(2));

  obey_announcement();
  advance(seconds(600));

  EXPECT_FALSE(has_asked<Announce>()) << "the same end, seen ten minutes later";
}

TEST_F(CoreLending, a_warden_that_came_back_without_it_is_told_at_once) {
  lend({{{"tue"}, "20:00", "23:14"}}, 30);
  while (has_asked<Announce>()) answer<Announce>();
  feed(WardenDisconnected{});
  feed(WardenConnected{});
  EXPECT_FALSE(has_asked<Announce>()) << "what it holds is not known yet";

  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });

  EXPECT_TRUE(has_asked<Announce>());
}

TEST_F(CoreLending, a_clock_that_was_set_moves_it) {
  lend({{{"tue"}, "20:00", "23:14"}}, 30);
  obey_announcement();
  clock.set_wall(clock.now().wall - seconds(600));
  feed(Tick{});

  EXPECT_EQ(last_announcement().deadline_ns, in(seconds(40 + 3600 + 600)));
}

TEST_F(CoreLending, a_clock_that_is_not_the_sites_is_told_and_moves_no_end) {
  lend({{{"tue"}, "20:00", "23:14"}}, 30);
  obey_announcement();
  tell(wire::HeartbeatAck{.seq = 1, .clock_offset_ms = 5 * 3'600'000});
  feed(Tick{});

  EXPECT_THAT(core->view(clock.now()).why, HasSubstr("guests leave and come 5 h too late"));
  EXPECT_FALSE(has_asked<Announce>()) << "what the coordinator's clock says lends no longer";

  tell(wire::HeartbeatAck{.seq = 2, .clock_offset_ms = 1000});
  EXPECT_EQ(core->view(clock.now()).why.find("its clock"), std::string::npos);
}

TEST_F(CoreLending, nothing_is_announced_for_nobody) {
  lend({{{"tue"}, "20:00", "23:14"}}, 30);
  obey_announcement();
  set_guest(GuestState::kExited, 0);
  push_state();

  EXPECT_EQ(last_announcement(), Announce{}) << "it is taken back when the last guest has gone";
}

TEST_F(CoreLending, guests_are_noticed_before_a_window_ends_and_the_record_is_announced) {
  lend({{{"tue"}, "20:00", "22:14"}}, 30);
  obey_announcement();
  advance(seconds(15));
  EXPECT_EQ(state(), AttemptState::kRunning) << "the warden has not declared it yet";
  obey_announcement();

  EXPECT_EQ(state(), AttemptState::kNoticed);
  ASSERT_FALSE(sent<wire::ReclaimReport>().empty());
  const ReclaimRecord record = sent<wire::ReclaimReport>().back().record;
  EXPECT_EQ(record.kind, ReclaimKind::kAnnounced);
  EXPECT_EQ(record.deadline_ns - in(seconds(0)), nanoseconds(seconds(25)).count());
  EXPECT_EQ(core->view(clock.now()).attempts.front().deadline_left_ms, 25'000);
}

TEST_F(CoreLending, no_guest_comes_in_a_windows_last_minute) {
  lend({{{"tue"}, "20:00", "22:14"}}, 60);
  wire::Probe probe;
  probe.job = JobId("j-2");
  tell(probe);

  EXPECT_THAT(sent<wire::ProbeReply>().back().reason, HasSubstr("the lending window ends"));
}

TEST_F(CoreLending, an_agent_that_slept_through_the_end_reports_what_the_warden_did) {
  lend({{{"tue"}, "20:00", "22:14"}}, 30);
  obey_announcement();
  clock.advance(seconds(300));  // stopped
  declare_announced();
  feed(Tick{});  // it wakes, and has not heard of the warden yet
  EXPECT_FALSE(has_asked<Announce>()) << "the old end stands";
  connect();
  clear_announced();
  log_is_empty();

  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
  EXPECT_FALSE(has_work<TakeSnapshot>());
  const ReclaimRecord record = sent<wire::ReclaimReport>().back().record;
  EXPECT_EQ(record.phase, ReclaimPhase::kCleared);
  EXPECT_EQ(record.cleared_ns, warden.reclaims.front().cleared_ns);
}

TEST_F(CoreLending, the_agent_says_when_all_is_moved_and_the_stamps_are_the_wardens) {
  lend({{{"tue"}, "20:00", "22:14"}}, 60);
  obey_announcement();
  evacuate();
  log_is_empty();

  ASSERT_TRUE(has_asked<warden_wire::EvacuationDone>());
  EXPECT_EQ(sent<wire::ReclaimReport>().back().record.cleared_ns, 0) << "nobody has looked yet";
}

TEST_F(CoreLending, a_window_that_opens_again_gives_the_node_back_without_a_wait) {
  contract.min_free_s = 600;
  lend({{{"tue"}, "20:00", "22:14"}, {{"tue"}, "22:20", "23:00"}}, 60);
  obey_announcement();
  go_away();
  advance(seconds(60));
  EXPECT_FALSE(has_asked<Announce>());
  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kOutsideWindow);

  advance(seconds(6 * 60));

  EXPECT_EQ(last_announcement(), Announce{});
  obey_announcement();
  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kOpen);
}

TEST_F(CoreLending, a_break_between_windows_that_is_shorter_than_the_notice_ends_the_first) {
  lend({{{"tue"}, "20:00", "22:14"}, {{"tue"}, "22:15", "23:00"}}, 120);
  EXPECT_EQ(last_announcement().deadline_ns, in(seconds(40)));
  obey_announcement();

  advance(seconds(90));

  EXPECT_FALSE(has_asked<Announce>()) << "and is not taken back in between";
}

TEST_F(CoreLending, the_owners_return_evacuates_with_the_contracts_notice) {
  contract.idle.idle_minutes = 10;
  contract.notice_s = 45;
  feed(ContractChanged{contract, 0});
  measure(3);
  obey_announcement();

  EXPECT_EQ(state(), AttemptState::kNoticed);
  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kOwnerPresent);
  EXPECT_EQ(core->view(clock.now()).attempts.front().deadline_left_ms, 45'000);
}

TEST_F(CoreLending, a_deadline_does_not_move_while_the_warden_is_away) {
  contract.idle.idle_minutes = 10;
  feed(ContractChanged{contract, 0});
  measure(3);
  const Announce first = last_announcement();
  feed(WardenDisconnected{});
  advance(seconds(20));
  feed(WardenConnected{});
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });

  EXPECT_EQ(last_announcement(), first);
}

TEST_F(CoreLending, an_owner_who_goes_again_before_the_deadline_lets_the_guest_run_on) {
  contract.idle.idle_minutes = 10;
  feed(ContractChanged{contract, 0});
  measure(3);
  obey_announcement();
  measure(601);
  EXPECT_EQ(last_announcement(), Announce{});
  obey_announcement();

  EXPECT_EQ(state(), AttemptState::kRunning);
  EXPECT_EQ(sent<wire::ReclaimReport>().back().record.phase, ReclaimPhase::kReturned);
}

TEST_F(CoreLending, what_the_owner_has_taken_over_stays_taken_when_the_owner_goes) {
  contract.idle.idle_minutes = 10;
  feed(ContractChanged{contract, 0});
  measure(3);
  obey_announcement();
  warden.announced = {};  // `reclaim`: the warden says whose it is now
  push_state();
  measure(601);

  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kReclaimed);
  EXPECT_EQ(state(), AttemptState::kNoticed);
}

TEST_F(CoreLending, a_machine_that_cannot_be_measured_takes_no_new_guest_and_keeps_those_it_has) {
  is_measuring = false;
  advance(seconds(59));
  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kOpen);
  advance(seconds(2));

  EXPECT_EQ(state(), AttemptState::kRunning);
  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kNotLending);
  EXPECT_NE(core->view(clock.now()).why.find("could not be measured for 6"), std::string::npos)
      << core->view(clock.now()).why;

  sample();
  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kOpen);
}

TEST_F(CoreLending, pause_takes_no_new_guests_and_leaves_running_ones) {
  warden.is_paused = true;
  push_state();

  EXPECT_EQ(state(), AttemptState::kRunning);
  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kPaused);
}

class CorePause : public CoreTest {
 protected:
  void pause() {
    warden.is_paused = true;
    push_state();
  }
};

TEST_F(CorePause, a_guest_that_has_not_started_is_handed_back_at_once) {
  start();
  warden.images = {"sha256:img"};
  push_state();
  lease();
  ASSERT_EQ(phase(), "mounting");

  pause();

  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
  EXPECT_THAT(sent<wire::AttemptEvent>().back().report.detail, HasSubstr("paused lending"));
  EXPECT_TRUE(has_asked<warden_wire::RemoveGuest>());
}

TEST_F(CorePause, one_whose_start_was_asked_for_goes_back_when_the_warden_refuses_it) {
  start();
  prepare();
  pause();
  EXPECT_EQ(phase(), "starting") << "it may run already";

  answer<warden_wire::StartGuest>([](warden_wire::Answer& a) {
    a.code = to_string(ErrorCode::kUnavailable);
    a.message = "the owner has paused lending";
  });
  answer<warden_wire::KillGuest>();

  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
}

TEST_F(CorePause, of_a_gpu_hands_back_who_was_granted_it_and_nobody_else) {
  for (const std::uint32_t index : {0u, 1u}) {
    Gpu gpu;
    gpu.index = index;
    facts.gpus.push_back(gpu);
  }
  start();
  warden.images = {"sha256:img"};
  push_state();
  lease();
  ASSERT_EQ(phase(), "mounting") << "without a GPU";
  warden.paused_gpus.push_back({0, 0, 0});
  push_state();

  EXPECT_EQ(phase(), "mounting");
  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kOpen);
  EXPECT_EQ(core->view(clock.now()).paused_gpus, (std::vector<std::uint32_t>{0}));
  wire::Probe probe;
  probe.job = JobId("j-2");
  probe.resources.gpus = 2;
  probe.resources.disk_mib = 1000;
  tell(probe);
  EXPECT_THAT(sent<wire::ProbeReply>().back().reason, HasSubstr("GPU 0 is paused by the owner"));
}

TEST_F(CorePause, one_that_started_just_before_stays) {
  start();
  prepare();
  pause();
  answer<warden_wire::StartGuest>();

  EXPECT_EQ(phase(), "running");
}

TEST_F(CoreLending, the_coordinator_hears_at_once_when_the_node_closes_or_opens) {
  for (const bool is_paused : {true, false}) {
    const std::size_t before = sent<wire::Heartbeat>().size();
    warden.is_paused = is_paused;
    push_state();
    push_state();

    ASSERT_EQ(sent<wire::Heartbeat>().size(), before + 1);
    EXPECT_EQ(
        sent<wire::Heartbeat>().back().lending,
        is_paused ? LendingState::kPaused : LendingState::kOpen
    );
  }
}

TEST_F(CoreLending, a_leaving_node_drains_in_order_and_then_tells_the_coordinator) {
  feed(OwnerLeaves{"the lab moves"});
  obey_announcement();
  EXPECT_EQ(state(), AttemptState::kNoticed);
  evacuate();
  ASSERT_TRUE(has_asked<warden_wire::EvacuationDone>());
  acknowledge();
  answer<warden_wire::RemoveGuest>();
  answer<warden_wire::ReleaseDisk>();
  for (const auto& report : sent<wire::ReclaimReport>())
    tell(wire::ReclaimAck{report.record.id, report.record.phase});
  advance(seconds(5));
  EXPECT_FALSE(has_left) << "before the warden has looked";
  clear_announced();
  for (const auto& report : sent<wire::ReclaimReport>())
    tell(wire::ReclaimAck{report.record.id, report.record.phase});

  ASSERT_THAT(sent<wire::Leave>(), SizeIs(1));
  EXPECT_EQ(sent<wire::Leave>().front().reason, "the lab moves");
  EXPECT_TRUE(has_left);
}

TEST_F(CoreLending, a_leaving_node_does_not_wait_for_ever_for_what_its_engine_does_not_remove) {
  feed(OwnerLeaves{"the lab moves"});
  obey_announcement();
  evacuate();
  acknowledge();
  clear_announced();
  for (const auto& report : sent<wire::ReclaimReport>())
    tell(wire::ReclaimAck{report.record.id, report.record.phase});
  ASSERT_TRUE(has_asked<warden_wire::RemoveGuest>());  // and it is never answered
  advance(seconds(29));
  EXPECT_FALSE(has_left);
  advance(seconds(2));

  EXPECT_THAT(sent<wire::Leave>(), SizeIs(1));
  EXPECT_TRUE(has_left);
}

TEST_F(CoreLending, minutes_without_an_owner_are_minutes) {
  contract.idle.idle_minutes = 10;
  feed(ContractChanged{contract, 0});
  measure(599);

  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kOwnerPresent);
}

TEST_F(CoreLending, a_contract_that_no_longer_lends_evacuates) {
  contract.lends = false;
  feed(ContractChanged{contract, 0});

  EXPECT_EQ(last_announcement().deadline_ns, in(seconds(contract.notice_s)));
  EXPECT_EQ(last_announcement().message, "the contract no longer lends");
}

TEST_F(CoreLending, a_zone_that_has_changed_its_time_moves_the_end) {
  lend({{{"tue"}, "20:00", "23:14"}}, 30);
  TelemetrySampled sampled;
  sampled.telemetry.disk_free_mib = 50'000;
  sampled.idle_s = 100'000;
  sampled.utc_offset_s = 3600;
  feed(sampled);

  EXPECT_EQ(last_announcement().deadline_ns, in(seconds(40)));
}

}  // namespace
}  // namespace rn::agent
