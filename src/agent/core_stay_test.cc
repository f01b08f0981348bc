// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A guest runs, and its owner says that they come in ten minutes.
class CoreStay : public CoreTest {
 protected:
  void SetUp() override {
    spec.orphan_limit_s = contract.orphan_limit_s = 100'000;
    start();
    run();
    log_is_empty();
  }

  void announce(seconds deadline = seconds(600), ReclaimKind kind = ReclaimKind::kAnnounced) {
    warden.reclaims = {a_reclaim(kind, deadline)};
    push_state();
  }

  void hear(Departure departure) {
    wire::AttemptVerdict verdict;
    verdict.job = JobId("j-1");
    verdict.epoch = kEpoch;
    verdict.is_current = true;
    verdict.departure = departure;
    tell(wire::HeartbeatAck{.seq = 1, .verdicts = {verdict}});
  }

  /// With a coordinator that says the same all the time.
  void pass(seconds by, Departure departure = Departure::kStays) {
    for (seconds i{0}; i < by; ++i) {
      advance(seconds(1));
      hear(departure);
    }
  }

  /// In so many seconds it is told to leave, if it is not told before.
  std::int64_t stays_s() { return core->view(clock.now()).attempts.front().stays_ms / 1000; }

  std::int64_t left_s() { return core->view(clock.now()).attempts.front().deadline_left_ms / 1000; }

  void save_and_copy(std::uint32_t number) {
    save(number);
    copied("n-2", number);
    committed(number);
  }
};

TEST_F(CoreStay, one_that_nobody_can_take_computes_on_untold) {
  announce();
  hear(Departure::kStays);
  pass(seconds(300));

  EXPECT_EQ(state(), AttemptState::kRunning);
  EXPECT_FALSE(has_asked<warden_wire::WriteNotice>());
  EXPECT_FALSE(has_asked<warden_wire::SignalGuest>());
  EXPECT_FALSE(has_asked<warden_wire::EvacuationDone>());
  EXPECT_EQ(left_s(), 300);
}

TEST_F(CoreStay, it_is_told_to_leave_while_its_last_save_still_becomes_durable) {
  save_and_copy(1);
  announce();
  hear(Departure::kStays);
  pass(seconds(500));
  ASSERT_EQ(state(), AttemptState::kRunning);
  pass(seconds(70));

  EXPECT_EQ(state(), AttemptState::kNoticed);
  const auto notices = asked<warden_wire::WriteNotice>();
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_GE(notices.front().grace_s, 40U);
  EXPECT_LE(notices.front().grace_s, 100U);
  EXPECT_TRUE(has_asked<warden_wire::SignalGuest>());
}

TEST_F(CoreStay, it_leaves_at_once_when_somebody_can_take_it) {
  announce();
  hear(Departure::kStays);
  pass(seconds(200));
  ASSERT_EQ(state(), AttemptState::kRunning);
  hear(Departure::kGoes);

  EXPECT_EQ(state(), AttemptState::kNoticed);
  EXPECT_EQ(asked<warden_wire::WriteNotice>().front().grace_s, 400U);
}

TEST_F(CoreStay, it_leaves_at_once_where_somebody_can_take_it_from_the_beginning) {
  announce();
  hear(Departure::kGoes);

  EXPECT_EQ(state(), AttemptState::kNoticed);
}

TEST_F(CoreStay, a_word_that_does_not_come_is_not_waited_for) {
  announce();
  EXPECT_EQ(state(), AttemptState::kRunning) << "the coordinator is asked";
  advance(seconds(3));

  EXPECT_EQ(state(), AttemptState::kNoticed);
}

TEST_F(CoreStay, without_a_coordinator_it_leaves_as_ever) {
  feed(CoordinatorDisconnected{"cable"});
  advance(seconds(60));
  announce();

  EXPECT_EQ(state(), AttemptState::kNoticed);
}

TEST_F(CoreStay, a_word_is_good_for_some_missed_heartbeats_and_no_longer) {
  announce();
  hear(Departure::kStays);
  feed(CoordinatorDisconnected{"cable"});
  is_acking = false;
  advance(seconds(25));
  EXPECT_EQ(state(), AttemptState::kRunning) << "a coordinator may start again";
  advance(seconds(10));

  EXPECT_EQ(state(), AttemptState::kNoticed);
}

TEST_F(CoreStay, a_coordinator_that_starts_again_in_time_moves_nobody) {
  announce();
  hear(Departure::kStays);
  feed(CoordinatorDisconnected{"it died"});
  advance(seconds(5));
  connect();
  advance(seconds(1));
  hear(Departure::kUntold);
  EXPECT_EQ(state(), AttemptState::kRunning);
  hear(Departure::kStays);
  pass(seconds(60));

  EXPECT_EQ(state(), AttemptState::kRunning);
}

TEST_F(CoreStay, an_agent_that_starts_again_in_the_middle_sends_nobody_away) {
  announce();
  hear(Departure::kStays);
  advance(seconds(10));
  crash_and_restart();
  feed(WardenConnected{});
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  advance(seconds(3));
  connect();
  hear(Departure::kStays);
  pass(seconds(60));

  EXPECT_EQ(state(), AttemptState::kRunning);
  hear(Departure::kGoes);
  EXPECT_EQ(state(), AttemptState::kNoticed);
}

TEST_F(CoreStay, an_owner_who_waits_is_not_made_to_wait) {
  announce(seconds(600), ReclaimKind::kNotice);

  EXPECT_EQ(state(), AttemptState::kNoticed);
}

TEST_F(CoreStay, a_minute_that_it_could_stay_is_not_worth_it) {
  announce(seconds(90));

  EXPECT_EQ(state(), AttemptState::kNoticed);
}

TEST_F(CoreStay, what_is_called_off_leaves_it_as_it_was) {
  announce();
  hear(Departure::kStays);
  pass(seconds(10));
  warden.reclaims.front().phase = ReclaimPhase::kReturned;
  push_state();
  pass(seconds(600), Departure::kUntold);

  EXPECT_EQ(state(), AttemptState::kRunning);
  EXPECT_EQ(core->view(clock.now()).attempts.front().deadline_left_ms, -1);
  EXPECT_FALSE(has_asked<warden_wire::SignalGuest>());
}

TEST_F(CoreStay, an_owner_who_comes_earlier_than_announced_is_served) {
  announce();
  hear(Departure::kStays);
  ReclaimRecord sooner = a_reclaim(ReclaimKind::kNotice, seconds(120));
  sooner.id = ReclaimId("r-2");
  warden.reclaims.push_back(sooner);
  push_state();

  EXPECT_EQ(state(), AttemptState::kNoticed);
  EXPECT_EQ(left_s(), 120);
}

TEST_F(CoreStay, a_notice_that_is_longer_than_what_was_announced_does_not_move_the_deadline) {
  announce(seconds(200));
  hear(Departure::kStays);
  ReclaimRecord later = a_reclaim(ReclaimKind::kNotice, seconds(300));
  later.id = ReclaimId("r-2");
  warden.reclaims.push_back(later);
  push_state();

  EXPECT_EQ(state(), AttemptState::kNoticed);
  EXPECT_EQ(left_s(), 200);
}

TEST_F(CoreStay, an_emergency_takes_who_stays) {
  announce();
  hear(Departure::kStays);
  ReclaimRecord cut = a_reclaim(ReclaimKind::kEmergency);
  cut.id = ReclaimId("r-2");
  cut.phase = ReclaimPhase::kCut;
  cut.cut_ns = cut.declared_ns;
  warden.reclaims.push_back(cut);
  warden.guests.clear();
  push_state();
  advance(seconds(1));
  log_is_empty();

  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
}

TEST_F(CoreStay, one_that_ends_by_itself_meanwhile_has_succeeded) {
  announce();
  hear(Departure::kStays);
  pass(seconds(100));
  set_guest(GuestState::kExited, 0);
  push_state();

  EXPECT_EQ(phase(), "publishing");
}

TEST_F(CoreStay, what_it_saves_meanwhile_becomes_durable_as_ever) {
  announce();
  hear(Departure::kStays);
  pass(seconds(100));
  save_and_copy(1);
  advance(seconds(1));

  EXPECT_EQ(state(), AttemptState::kRunning);
  EXPECT_EQ(core->view(clock.now()).attempts.front().durable_generation, 1U);
}

TEST_F(CoreStay, who_saves_seldom_leaves_with_the_last_save_that_is_sure_to_come_in_time) {
  advance(seconds(200));
  save_and_copy(1);  // the first after 200 s
  advance(seconds(190));
  announce();
  hear(Departure::kStays);
  pass(seconds(10));
  save_and_copy(2);
  hear(Departure::kStays);
  EXPECT_EQ(state(), AttemptState::kRunning) << "another one is to come";
  pass(seconds(400));
  save(3);
  advance(seconds(1));

  EXPECT_EQ(state(), AttemptState::kNoticed) << "of work after it nothing would be saved";
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>()) << "it may catch the signal and save once more";
  answer<warden_wire::SignalGuest>();
  EXPECT_TRUE(has_asked<warden_wire::KillGuest>()) << "it does not";
}

TEST_F(CoreStay, of_who_catches_the_signal_a_save_after_it_is_waited_for) {
  advance(seconds(200));
  save_and_copy(1);
  advance(seconds(199));
  announce(seconds(200));
  hear(Departure::kStays);
  save_and_copy(2);
  advance(seconds(1));
  ASSERT_EQ(state(), AttemptState::kNoticed);
  answer<warden_wire::SignalGuest>([](warden_wire::Answer& a) { a.signalled = 1; });
  advance(seconds(5));

  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreStay, a_large_state_leaves_earlier) {
  announce();
  hear(Departure::kStays);
  const std::int64_t small = stays_s();
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  GenerationRef ref = a_generation(1);
  ref.bytes = ref.new_bytes = 1'000'000'000;
  finish<TakeSnapshot>(SnapshotTaken{ref});

  EXPECT_LT(stays_s(), small - 100) << "twice 80 s for each copy of it over the uplink";
}

TEST_F(CoreStay, the_owner_reads_when_it_is_theirs_and_who_stays_until_when) {
  announce();
  hear(Departure::kStays);
  const NodeView view = core->view(clock.now());

  EXPECT_EQ(view.lending, LendingState::kReclaimed);
  EXPECT_THAT(view.taking, HasSubstr("the owner takes the node back at "));
  EXPECT_THAT(view.taking, HasSubstr("(in 10 min); 1 guest stays until "));
  EXPECT_THAT(view.why, HasSubstr(view.taking));
  EXPECT_THAT(view.attempts.front().report.saving, HasSubstr("nobody can take it"));
}

TEST_F(CoreStay, the_owner_reads_that_who_is_told_leaves) {
  announce();
  hear(Departure::kGoes);
  advance(seconds(20));

  EXPECT_THAT(core->view(clock.now()).taking, HasSubstr("(in 9 min 40 s); 1 guest is leaving"));
}

TEST_F(CoreStay, what_has_been_taken_is_not_announced_any_more) {
  announce();
  hear(Departure::kStays);
  warden.reclaims.front().phase = ReclaimPhase::kCleared;
  warden.reclaims.front().cut_ns = warden.reclaims.front().cleared_ns = 1;
  warden.guests.clear();
  push_state();

  EXPECT_THAT(core->view(clock.now()).taking, IsEmpty());
  EXPECT_THAT(core->view(clock.now()).why, HasSubstr("the owner has taken the node back"));
}

class StatelessStay : public CoreStay {
 protected:
  StatelessStay() { spec.checkpoint.is_stateless = true; }
};

TEST_F(StatelessStay, one_that_never_saves_computes_nearly_to_the_deadline) {
  announce();
  hear(Departure::kStays);
  pass(seconds(580));
  EXPECT_EQ(phase(), "running");
  pass(seconds(12));

  EXPECT_EQ(phase(), "stopping");
  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

TEST_F(StatelessStay, one_that_somebody_takes_leaves_at_once) {
  announce();
  hear(Departure::kGoes);

  EXPECT_EQ(phase(), "stopping");
}

/// What the contract takes back by itself.
class ContractStay : public CoreTest {
 protected:
  void declare(const std::string& message) {
    ReclaimRecord record = a_reclaim(ReclaimKind::kAnnounced, seconds(600));
    record.message = message;
    warden.announced = {record.declared_ns, record.deadline_ns, message, record.id};
    warden.reclaims = {record};
    push_state();
  }
};

TEST_F(ContractStay, an_owner_who_is_back_at_the_machine_waits_for_nobody) {
  start();
  run();
  declare("the owner is back at the machine");

  EXPECT_EQ(state(), AttemptState::kNoticed);
}

TEST_F(ContractStay, nobody_waits_for_the_machine_before_a_window_ends) {
  start();
  run();
  declare("the lending window ends");

  EXPECT_EQ(state(), AttemptState::kRunning);
}

}  // namespace
}  // namespace rn::agent
