// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include <gtest/gtest.h>

#include "warden/core_fixture_fake.h"

// The table of docs/kill-switch.md: each kind of reclaim, of the machine and of one GPU, while
// something is dead or hangs. Guest 1 has GPU 0, guest 2 has GPU 1; what is taken back is all or
// GPU 0.
namespace rn::warden {
namespace {

struct Taken {
  ReclaimKind kind;
  std::vector<std::uint32_t> gpus;  ///< empty: the machine

  bool is_node() const { return gpus.empty(); }
};

const std::vector<Taken> kEach = {
    {ReclaimKind::kNotice, {}},
    {ReclaimKind::kNotice, {0}},
    {ReclaimKind::kAnnounced, {}},
    {ReclaimKind::kAnnounced, {0}},
    {ReclaimKind::kEmergency, {}},
    {ReclaimKind::kEmergency, {0}}};

std::string words_of(const Taken& taken) {
  return std::string(to_string(taken.kind)) + (taken.is_node() ? " of the node" : " of GPU 0");
}

/// A warden with both guests that was told of the reclaim, with a minute where there is notice.
struct Told : CoreUnderTest {
  explicit Told(const Taken& taken) {
    ready();
    run(1, {0});
    run(2, {1});
    warden_wire::DeclareReclaim request;
    request.kind = taken.kind;
    request.gpus = taken.gpus;
    request.notice_s = request.in_s = 60;
    ask(request);
    cleared = did<Clear>() != nullptr ? std::optional<Clear>(*did<Clear>()) : std::nullopt;
  }

  std::optional<Clear> cleared;
};

/// The next life of the warden on the journal of the one before.
struct Restarted : CoreUnderTest {
  Restarted(const CoreUnderTest& before, const std::string& boot)
      : CoreUnderTest(before.core.journal(), boot) {
    last = core.start(clock.now());
    note();
  }

  void note() {
    if (did<Clear>() != nullptr) cleared = *did<Clear>();
  }

  void find_guests(bool is_running) {
    tell(EngineChanged{true, "x"});
    Reconciled found{{}, {}, {{kImage, "id-1"}}};
    for (const int n : {1, 2}) {
      FoundContainer one{guest(n), "c" + std::to_string(n), record(n)->slot, is_running, 100 + n};
      one.has_go_ahead = true;
      one.exit_code = 137;
      found.containers.push_back(one);
      found.disks.push_back({guest(n), "/disk/" + std::to_string(n), 64});
    }
    tell(std::move(found));
    note();
  }

  /// What was ordered is done and clean.
  void answer_clear() {
    tell(WasCut{cleared->reclaim, now_ns()});
    tell(WasCleared{cleared->reclaim, ClearReport{now_ns(), now_ns(), 1, {}}});
  }

  std::optional<Clear> cleared;
};

void expect_meant_alone(const Clear& order, const Taken& taken) {
  EXPECT_EQ(order.is_whole_node, taken.is_node());
  EXPECT_EQ(order.gpus, taken.gpus);
  EXPECT_EQ(order.guests.size(), taken.is_node() ? 2U : 1U);
}

TEST(ReclaimFailures, with_the_agent_dead_each_is_cleared_at_its_deadline) {
  for (const Taken& taken : kEach) {
    SCOPED_TRACE(words_of(taken));
    Told w(taken);
    if (taken.kind != ReclaimKind::kEmergency) {
      EXPECT_FALSE(w.cleared);
      w.after(seconds(60));  // and nobody has said a word
      ASSERT_NE(w.did<Clear>(), nullptr);
      w.cleared = *w.did<Clear>();
    }

    expect_meant_alone(*w.cleared, taken);
    w.tell(WasCut{w.cleared->reclaim, w.now_ns()});
    w.tell(WasCleared{w.cleared->reclaim, ClearReport{w.now_ns(), w.now_ns(), 1, {}}});
    EXPECT_EQ(w.phase(), ReclaimPhase::kCleared);
    EXPECT_EQ(w.state_of(1), GuestState::kExited);
    EXPECT_EQ(w.state_of(2) == GuestState::kRunning, !taken.is_node());
  }
}

TEST(ReclaimFailures, a_restarted_warden_keeps_deadlines_and_only_the_owner_lifts_the_cut) {
  for (const Taken& taken : kEach) {
    SCOPED_TRACE(words_of(taken));
    Restarted w(Told(taken), "boot-1");
    EXPECT_FALSE(w.did<SetGates>()->is_node_open) << "until the machine was searched";
    w.find_guests(true);
    if (taken.kind != ReclaimKind::kEmergency) {
      EXPECT_FALSE(w.cleared) << "its deadline has not come";
      w.after(seconds(60));
      w.note();
    }
    ASSERT_TRUE(w.cleared);
    expect_meant_alone(*w.cleared, taken);
    w.answer_clear();
    EXPECT_EQ(w.phase(), ReclaimPhase::kCleared);
    EXPECT_EQ(w.state_of(2) == GuestState::kRunning, !taken.is_node());

    w.after(std::chrono::hours(1));
    EXPECT_EQ(w.phase(), ReclaimPhase::kCleared) << "time alone gives nothing back";
    w.ask(warden_wire::Release{});
    EXPECT_EQ(w.answer(), "");
    EXPECT_EQ(w.phase(), ReclaimPhase::kReturned);
    ASSERT_NE(w.did<SetGates>(), nullptr);
    EXPECT_TRUE(w.did<SetGates>()->is_node_open);
    EXPECT_EQ(w.did<SetGates>()->open_slots.size(), taken.is_node() ? 0U : 1U);
  }
}

TEST(ReclaimFailures, after_a_reboot_what_was_not_over_is_cleared_at_once) {
  for (const Taken& taken : kEach) {
    SCOPED_TRACE(words_of(taken));
    Restarted w(Told(taken), "boot-2");
    ASSERT_TRUE(w.cleared) << "a deadline of another boot has passed";
    expect_meant_alone(*w.cleared, taken);
    w.find_guests(false);
    w.answer_clear();

    EXPECT_EQ(w.phase(), ReclaimPhase::kCleared);
    EXPECT_EQ(w.core.journal().reclaims[0].boot_id, "boot-2");
    w.ask(warden_wire::PrepareDisk{CoreUnderTest::guest(3), 64});
    EXPECT_EQ(w.answer() == "unavailable", taken.is_node());
    w.ask(warden_wire::Release{});
    EXPECT_EQ(w.phase(), ReclaimPhase::kReturned);
  }
}

TEST(ReclaimFailures, with_the_engine_hung_after_a_restart_each_is_cleared_and_nothing_opens) {
  for (const Taken& taken : kEach) {
    SCOPED_TRACE(words_of(taken));
    Restarted w(Told(taken), "boot-1");  // and no search is ever answered
    if (!w.cleared) {
      w.after(seconds(60));
      w.note();
    }
    ASSERT_TRUE(w.cleared);
    expect_meant_alone(*w.cleared, taken);
    w.answer_clear();

    EXPECT_EQ(w.phase(), ReclaimPhase::kCleared);
    w.ask(warden_wire::Release{});
    EXPECT_EQ(w.answer(), "");
    EXPECT_FALSE(w.did<SetGates>()->is_node_open) << "nobody knows yet who lives there";
  }
}

}  // namespace
}  // namespace rn::warden
