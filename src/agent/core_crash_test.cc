// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"
#include "model/suspicion.h"

namespace rn::agent {
namespace {

/// A guest that goes on from generation 4 and crashes (ADR 0005).
class CoreCrash : public CoreTest {
 protected:
  void SetUp() override {
    resume = a_generation(4);
    start();
    run();
  }

  void crash() {
    set_guest(GuestState::kExited, 9);
    push_state();
  }

  /// What it left behind is made a generation.
  bool is_saved() const { return has_work<TakeSnapshot>(); }
};

TEST_F(CoreCrash, what_a_guest_leaves_that_crashes_at_once_after_a_resume_is_no_generation) {
  advance(seconds(5));
  crash();

  EXPECT_FALSE(is_saved());
  log_is_empty();
  EXPECT_EQ(last_end(), AttemptEnd::kCrashed);
  EXPECT_EQ(sent<wire::AttemptEvent>().back().report.safe_generation, 0u);
}

TEST_F(CoreCrash, nor_is_it_after_the_agents_own_crash) {
  crash();
  crash_and_restart();
  feed(WardenConnected{});
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });

  EXPECT_FALSE(is_saved());
}

TEST_F(CoreCrash, a_save_that_the_watch_took_is_progress_and_so_is_what_follows) {
  save(5);
  crash();

  EXPECT_TRUE(is_saved());
  EXPECT_TRUE(work_body<TakeSnapshot>().is_final);
}

TEST_F(CoreCrash, a_save_that_is_being_taken_at_the_crash_stays) {
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  ASSERT_FALSE(work_body<TakeSnapshot>().is_final);
  crash();
  finish<TakeSnapshot>(SnapshotTaken{a_generation(5, 50)});

  EXPECT_EQ(core->reports(clock.now()).front().safe_generation, 5u);
}

TEST_F(CoreCrash, a_late_crash_is_saved) {
  const seconds window(kCrashAfterResumeS);
  const auto started = clock.now().boot;
  while (clock.now().boot - started < window) advance(seconds(1));
  crash();

  EXPECT_TRUE(is_saved());
}

TEST_F(CoreCrash, one_that_asks_to_be_restarted_is_saved) {
  set_guest(GuestState::kExited, 85);
  push_state();

  EXPECT_TRUE(is_saved());
}

TEST_F(CoreCrash, one_that_is_told_to_leave_is_saved) {
  order_stop(StopMode::kSaveFirst, AttemptEnd::kMigrated, 60'000);
  crash();

  EXPECT_TRUE(is_saved());
}

class CoreFirstCrash : public CoreTest {};

TEST_F(CoreFirstCrash, one_that_had_resumed_from_nothing_is_saved) {
  start();
  run();
  set_guest(GuestState::kExited, 9);
  push_state();

  EXPECT_TRUE(has_work<TakeSnapshot>());
}

}  // namespace
}  // namespace rn::agent
