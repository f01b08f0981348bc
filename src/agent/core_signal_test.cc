// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

/// A guest that saves and leaves with 0 when it is signalled: who asked it to leave must be known,
/// whatever dies between the signal and the warden's answer.
class CoreSignal : public CoreTest {
 protected:
  void SetUp() override {
    start();
    run();
    log_is_empty();
  }

  void give_notice() {
    warden.reclaims = {a_reclaim(ReclaimKind::kNotice)};
    push_state();
    ASSERT_TRUE(has_asked<warden_wire::SignalGuest>());
  }

  void withdraw() {
    warden.reclaims.front().phase = ReclaimPhase::kReturned;
    push_state();
  }

  void signalled(std::uint32_t processes) {
    answer<warden_wire::SignalGuest>([processes](warden_wire::Answer& a) {
      a.signalled = processes;
    });
  }

  void leave() {
    set_guest(GuestState::kExited, 0);
    push_state();
  }

  void connect_warden() {
    feed(WardenConnected{});
    answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  }
};

TEST_F(CoreSignal, who_leaves_after_the_agent_died_before_the_answer_has_not_finished) {
  give_notice();
  crash_and_restart();
  set_guest(GuestState::kExited, 0);
  connect_warden();

  EXPECT_EQ(phase(), "saving");
}

TEST_F(CoreSignal, who_leaves_after_the_warden_died_before_its_answer_has_not_finished) {
  give_notice();
  feed(WardenDisconnected{});
  asks.clear();
  set_guest(GuestState::kExited, 0);
  connect_warden();

  EXPECT_EQ(phase(), "saving");
}

TEST_F(CoreSignal, nor_has_one_that_is_found_gone_when_the_signal_is_asked_for_again) {
  give_notice();
  feed(WardenDisconnected{});
  asks.clear();
  connect_warden();
  answer<warden_wire::SignalGuest>([](warden_wire::Answer& a) {
    a.code = to_string(ErrorCode::kConflict);
    a.message = "the guest is exited, so it gets no signal";
  });
  leave();

  EXPECT_EQ(phase(), "saving");
}

TEST_F(CoreSignal, one_in_whom_nobody_caught_it_has_finished) {
  give_notice();
  signalled(0);
  leave();

  EXPECT_EQ(phase(), "publishing");
}

TEST_F(CoreSignal, so_has_one_that_had_ended_before_it_could_be_signalled) {
  give_notice();
  answer<warden_wire::SignalGuest>([](warden_wire::Answer& a) {
    a.code = to_string(ErrorCode::kConflict);
    a.message = "the guest is exited, so it gets no signal";
  });
  leave();

  EXPECT_EQ(phase(), "publishing");
}

TEST_F(CoreSignal, who_leaves_for_a_notice_that_was_withdrawn_meanwhile_has_not_finished) {
  give_notice();
  signalled(1);
  withdraw();
  ASSERT_EQ(phase(), "running");
  leave();

  EXPECT_EQ(phase(), "saving");
}

TEST_F(CoreSignal, not_even_when_the_agent_died_after_the_withdrawal) {
  give_notice();
  signalled(1);
  withdraw();
  crash_and_restart();
  set_guest(GuestState::kExited, 0);
  connect_warden();

  EXPECT_EQ(phase(), "saving");
}

TEST_F(CoreSignal, who_stayed_beyond_the_withdrawn_notice_and_ends_later_has_finished) {
  give_notice();
  signalled(1);
  withdraw();
  advance(seconds(61));
  leave();

  EXPECT_EQ(phase(), "publishing");
}

TEST_F(CoreSignal, nor_has_one_that_leaves_then_with_the_code_of_the_signal) {
  give_notice();
  signalled(1);
  withdraw();
  set_guest(GuestState::kExited, 143);
  push_state();

  EXPECT_EQ(phase(), "saving");
}

}  // namespace
}  // namespace rn::agent
