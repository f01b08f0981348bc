// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

class CoreRest : public CoreTest {
 protected:
  void SetUp() override { begin(); }

  /// A node that lends, knows its coordinator and its warden, and has no guests.
  void begin() {
    clock = ManualClock();
    rng = SeededRng(1);
    journal.clear();
    forget_outputs();
    make_core();
    start();
    finish<ListHoldings>(HoldingsListed{});
    tell(wire::HeartbeatAck{});
  }

  bool rests() const { return core->rests(clock.now()); }

  /// Ticks, measurements and acknowledgements that say nothing. Returns what the core said.
  NothingHappened look_into(seconds span) {
    NothingHappened happened;
    for (seconds passed{0}; passed < span; passed += seconds(1)) {
      clock.advance(seconds(1));
      if (passed.count() % 30 == 0) {
        feed(TelemetrySampled(*newest_sample));
        happened.measured_at = clock.now().boot;
      }
      const std::size_t before = messages.size();
      feed(Tick{});
      if (messages.size() > before) {
        ++happened.beats;
        happened.beat_at = happened.heard_at = clock.now().boot;
        tell(wire::HeartbeatAck{});
      }
      EXPECT_TRUE(rests());
    }
    return happened;
  }

  /// What it says when a job comes.
  std::vector<wire::Message> then_a_job() {
    forget_outputs();
    lease();
    advance(seconds(30));
    return messages;
  }
};

TEST_F(CoreRest, one_event_stands_for_an_hour_in_which_nothing_happened) {
  const auto rows = journal;
  wire::Heartbeat first = sent<wire::Heartbeat>().back();
  forget_outputs();
  const NothingHappened happened = look_into(std::chrono::hours(1));
  EXPECT_EQ(happened.beats, 720u);
  EXPECT_EQ(sent<wire::Heartbeat>().size(), messages.size());
  for (const wire::Heartbeat& beat : sent<wire::Heartbeat>()) {
    first.seq = beat.seq;
    first.wall_ms = beat.wall_ms;
    ASSERT_EQ(beat, first) << "nothing new";
  }
  EXPECT_TRUE(asks.empty());
  EXPECT_TRUE(works.empty());
  EXPECT_EQ(journal, rows);
  const NodeView looked_into = core->view(clock.now());
  const auto said = then_a_job();

  begin();
  forget_outputs();
  clock.advance(std::chrono::hours(1));
  feed(happened);
  EXPECT_TRUE(messages.empty());
  EXPECT_TRUE(rests());
  EXPECT_EQ(core->view(clock.now()), looked_into);
  EXPECT_EQ(then_a_job(), said);
}

TEST_F(CoreRest, without_that_event_the_coordinator_would_be_silent_and_the_machine_unmeasured) {
  ASSERT_TRUE(rests());
  clock.advance(std::chrono::hours(1));
  feed(Tick{});
  EXPECT_FALSE(closes.empty());
  EXPECT_FALSE(rests());
}

TEST_F(CoreRest, a_hold_a_guest_and_works_are_no_rest) {
  ASSERT_TRUE(rests());
  wire::Probe probe;
  probe.job = JobId("j-1");
  probe.resources.disk_mib = 1000;
  tell(probe);
  EXPECT_FALSE(rests());
  const HoldId hold = sent<wire::ProbeReply>().back().hold;
  tell(wire::CancelHold{hold});
  EXPECT_TRUE(rests());
  tell(wire::CollectGarbage{.job = JobId("j-9"), .keep_from = 3});
  EXPECT_FALSE(rests());
  finish<CollectGarbage>(Done{});
  EXPECT_TRUE(rests());
  lease();
  EXPECT_FALSE(rests());
}

TEST_F(CoreRest, a_node_that_is_its_owners_rests_once_the_coordinator_knows) {
  ReclaimRecord record = a_reclaim(ReclaimKind::kEmergency);
  warden.reclaims = {record};
  push_state();
  EXPECT_FALSE(rests());
  record.phase = warden.reclaims[0].phase = ReclaimPhase::kCleared;
  push_state();
  EXPECT_FALSE(rests()) << "not acknowledged";
  tell(wire::ReclaimAck{.id = record.id, .phase = record.phase});
  EXPECT_TRUE(rests());

  contract.min_free_s = 60;
  feed(ContractChanged{contract, 0});
  warden.reclaims[0].phase = ReclaimPhase::kReturned;
  warden.reclaims[0].returned_ns = to_ns(clock.now().boot);
  push_state();
  tell(wire::ReclaimAck{.id = record.id, .phase = ReclaimPhase::kReturned});
  EXPECT_FALSE(rests()) << "it lends again in a minute";
  advance(seconds(61));
  EXPECT_TRUE(rests());
}

TEST_F(CoreRest, windows_and_the_idle_rule_change_with_time) {
  contract.idle.idle_minutes = 10;
  feed(ContractChanged{contract, 0});
  EXPECT_FALSE(rests());
  contract.idle.idle_minutes = 0;
  contract.windows = {{.days = {"mon"}, .from = "08:00", .to = "18:00"}};
  feed(ContractChanged{contract, 0});
  EXPECT_FALSE(rests());
}

TEST_F(CoreRest, without_coordinator_or_warden_there_is_no_rest) {
  feed(WardenDisconnected{});
  EXPECT_FALSE(rests());
  begin();
  ASSERT_TRUE(rests());
  feed(CoordinatorDisconnected{"reset"});
  EXPECT_FALSE(rests());
}

}  // namespace
}  // namespace rn::agent
