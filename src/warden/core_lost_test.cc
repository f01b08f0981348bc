// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include <gtest/gtest.h>

#include "warden/core_fixture_fake.h"

// What is lost behind the warden's back: its journals, and the filters of its guests.
namespace rn::warden {
namespace {

using LostRig = CoreUnderTest;

FoundContainer a_container(int n, std::vector<std::uint32_t> gpus = {}) {
  FoundContainer found{LostRig::guest(n), "c" + std::to_string(n), 3, true, 100 + n};
  found.has_go_ahead = true;
  found.gpus = std::move(gpus);
  return found;
}

FoundDisk a_disk(int n) {
  return {LostRig::guest(n), "/disk/" + std::to_string(n), 64};
}

TEST(WardenLostJournal, a_guest_found_by_label_is_kept_with_its_disk_its_gate_and_its_gpus) {
  LostRig w{Journal{}};
  w.last = w.core.start(w.clock.now());

  w.tell(Reconciled{{a_container(7, {0, 3})}, {a_disk(7)}, {}});

  EXPECT_EQ(w.did<RemoveStray>(), nullptr);
  EXPECT_EQ(w.state_of(7), GuestState::kRunning);
  EXPECT_EQ(w.record(7)->disk, "/disk/7");
  EXPECT_EQ(w.record(7)->gpus, (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(w.did<SetGates>()->open_slots, std::vector<std::uint32_t>{3});
  EXPECT_NE(w.did<Watch>(), nullptr);
  EXPECT_NE(w.core.state().troubles.at(0).what.find("found by their labels"), std::string::npos);

  w.give_disk(8);
  w.tell(EngineChanged{true, "x"});
  w.tell(Reconciled{{a_container(7, {0, 3})}, {a_disk(7), a_disk(8)}, {{kImage, "id-1"}}});
  w.ask(warden_wire::LoadImage{kImage, "/a"});
  w.tell(Imported{w.did<Import>()->op, std::string("id-1")});
  w.ask(LostRig::start_of(8, {3}));
  EXPECT_EQ(w.answer(), "conflict") << "that GPU has a guest";
}

TEST(WardenLostJournal, a_guest_whose_disk_was_removed_too_is_kept) {
  LostRig w{Journal{}};
  w.last = w.core.start(w.clock.now());

  w.tell(Reconciled{{a_container(7)}, {}, {}});
  EXPECT_EQ(w.did<RemoveStray>(), nullptr);
  EXPECT_EQ(w.state_of(7), GuestState::kRunning);
  w.tell(Reconciled{{a_container(7)}, {}, {}});

  EXPECT_EQ(w.state_of(7), GuestState::kRunning);
  w.tell(Exited{LostRig::guest(7), "c7", 5, false});
  EXPECT_EQ(w.record(7)->exit_code, 5);
}

TEST(WardenLostJournal, a_half_made_start_is_not_a_guest) {
  LostRig w{Journal{}};
  w.last = w.core.start(w.clock.now());
  FoundContainer found = a_container(7);
  found.has_go_ahead = false;

  w.tell(Reconciled{{found}, {}, {}});

  ASSERT_NE(w.did<RemoveStray>(), nullptr);
  EXPECT_EQ(w.record(7), nullptr);
}

TEST(WardenLostJournal, a_guest_that_ended_meanwhile_has_the_exit_code_that_was_written_down) {
  for (const bool has_own_end : {true, false}) {
    LostRig w{Journal{}};
    w.last = w.core.start(w.clock.now());
    FoundContainer found = a_container(7);
    found.is_running = false;
    found.exit_code = 9;
    found.has_own_end = has_own_end;

    w.tell(Reconciled{{found}, {a_disk(7)}, {}});

    EXPECT_EQ(w.state_of(7), GuestState::kExited);
    EXPECT_EQ(w.record(7)->exit_code, 9);
    EXPECT_EQ(w.record(7)->is_vanished, !has_own_end) << "a reboot invents one, and none is known";
  }
}

TEST(WardenLostJournal, until_the_engine_has_answered_nothing_is_said_to_be_gone) {
  LostRig w{Journal{}};
  w.last = w.core.start(w.clock.now());

  EXPECT_TRUE(w.core.state().is_recovering);
  EXPECT_EQ((w.ask(warden_wire::KillGuest{LostRig::guest(7)}), w.answer()), "unavailable");
  EXPECT_EQ((w.ask(warden_wire::RemoveGuest{LostRig::guest(7)}), w.answer()), "unavailable");
  EXPECT_EQ((w.ask(warden_wire::ReleaseDisk{LostRig::guest(7)}), w.answer()), "unavailable");
  EXPECT_EQ((w.ask(warden_wire::SignalGuest{LostRig::guest(7)}), w.answer()), "unavailable");
  EXPECT_EQ((w.ask(LostRig::start_of(7)), w.answer()), "unavailable");

  w.tell(Reconciled{{}, {}, {}});

  EXPECT_FALSE(w.core.state().is_recovering);
  EXPECT_EQ((w.ask(warden_wire::KillGuest{LostRig::guest(7)}), w.answer()), "");
  EXPECT_EQ((w.ask(LostRig::start_of(7)), w.answer()), "not_found");
}

/// What a warden knows whose journal was removed, and not the copy of what its owner had said.
struct WithoutJournal {
  explicit WithoutJournal(const Journal& before) {
    copy.boot_id = before.boot_id;
    copy.reclaims = before.reclaims;
    copy.announced = before.announced;
    copy.is_paused = before.is_paused;
    config.is_journal_lost = true;
  }

  WardenCore& start(Instant boot) {
    core.emplace(config, copy, rng);
    Now now = ManualClock().now();
    now.boot = boot;
    started = core->start(now);
    FoundContainer found = a_container(1, {0});
    found.slot = 0;
    last = core->handle(Reconciled{{found}, {a_disk(1)}, {}}, now);
    return *core;
  }

  template <class E>
  bool did() const {
    const auto is_one = [](const Effect& effect) { return std::holds_alternative<E>(effect); };
    return std::any_of(started.effects.begin(), started.effects.end(), is_one) ||
           std::any_of(last.effects.begin(), last.effects.end(), is_one);
  }

  Journal copy;
  CoreConfig config{.boot_id = "boot-1"};
  SeededRng rng{2};
  std::optional<WardenCore> core;
  Output started;
  Output last;
};

TEST(WardenLostJournal, a_notice_that_runs_keeps_its_deadline_and_its_guests) {
  LostRig first;
  first.ready().run(1, {0});
  const ReclaimRecord notice = first.reclaim(ReclaimKind::kNotice, 60);

  WithoutJournal second(first.core.journal());
  WardenCore& core = second.start(first.clock.now().boot + seconds(10));
  EXPECT_EQ(core.journal().reclaims.at(0).deadline_ns, notice.deadline_ns);
  EXPECT_EQ(core.journal().reclaims.at(0).phase, ReclaimPhase::kEvacuating);
  EXPECT_EQ(core.state().guests.at(0).state, GuestState::kRunning);
  EXPECT_FALSE(second.did<Clear>());

  WithoutJournal late(first.core.journal());
  late.start(first.clock.now().boot + seconds(61));
  EXPECT_TRUE(late.did<Clear>());
}

TEST(WardenLostJournal, a_gpu_that_was_taken_back_stays_taken_and_what_lives_there_is_killed) {
  LostRig first;
  first.ready();
  warden_wire::DeclareReclaim take;
  take.kind = ReclaimKind::kEmergency;
  take.gpus = {0};
  first.ask(take);
  first.tell(WasCleared{first.core.journal().reclaims.at(0).id, {1, 1, 0, {}}});

  WithoutJournal second(first.core.journal());
  WardenCore& core = second.start(first.clock.now().boot);

  EXPECT_EQ(core.journal().reclaims.at(0).gpus, std::vector<std::uint32_t>{0});
  EXPECT_TRUE(is_open(core.journal().reclaims.at(0)));
  EXPECT_TRUE(second.did<Kill>()) << "the guest that was found has this GPU";
}

TEST(WardenLostJournal, a_pause_and_an_announcement_are_kept) {
  LostRig first;
  first.ready().run(1, {0});
  first.ask(warden_wire::Pause{});
  const std::int64_t in_an_hour = first.now_ns() + 3'600'000'000'000;
  first.ask(warden_wire::Announce{in_an_hour, in_an_hour, "the window ends"}, false);

  WithoutJournal second(first.core.journal());
  const WardenCore& core = second.start(first.clock.now().boot);

  EXPECT_TRUE(core.state().is_paused);
  EXPECT_EQ(core.journal().announced.deadline_ns, in_an_hour);
  EXPECT_EQ(core.state().guests.at(0).state, GuestState::kRunning);
}

TEST(WardenLostJournal, a_damaged_one_keeps_guests_and_takes_no_new_ones_until_the_owner_says_so) {
  ManualClock clock;
  SeededRng rng{1};
  CoreConfig config{.boot_id = "boot-1"};
  config.is_journal_damaged = true;
  WardenCore core(config, Journal{}, rng);

  const Output started = core.start(clock.now());
  core.handle(Reconciled{{a_container(7)}, {a_disk(7)}, {}}, clock.now());

  EXPECT_TRUE(started.journal->is_paused) << "and stays so when it starts again";
  EXPECT_EQ(core.state().guests.at(0).state, GuestState::kRunning);
  EXPECT_NE(core.state().troubles.at(0).what.find("reclaim-agent resume"), std::string::npos);
}

/// A warden of this boot whose guest 1 runs in slot 0 with GPU 0, and that starts again.
struct SecondStart {
  SecondStart() {
    first.ready().run(1, {0});
    journal = first.core.journal();
    journal.emergencies_seen = 5;
    journal.hand_emergencies_seen = 6;
    config.found = {true, {first.record(1)->slot}};
  }

  WardenCore& start() {
    core.emplace(config, journal, rng);
    started = core->start(first.clock.now());
    return *core;
  }

  std::string told() const { return core->state().troubles.at(0).what; }

  /// With the guest found as it was.
  std::vector<std::uint32_t> slots_opened() {
    FoundContainer found = a_container(1, {0});
    found.slot = 0;
    const Output output =
        core->handle(Reconciled{{found}, {a_disk(1)}, {{kImage, "id-1"}}}, first.clock.now());
    for (const Effect& effect : output.effects) {
      if (const auto* gates = std::get_if<SetGates>(&effect)) return gates->open_slots;
    }
    return {};
  }

  LostRig first;
  SeededRng rng{2};
  CoreConfig config{.boot_id = "boot-1"};
  Journal journal;
  std::optional<WardenCore> core;
  Output started;
};

TEST(WardenKillJournal, a_damaged_one_keeps_guests_and_takes_no_new_ones_until_the_owner_says_so) {
  for (const bool is_by_hand : {false, true}) {
    SecondStart second;
    (is_by_hand ? second.config.is_hand_journal_damaged : second.config.is_kill_journal_damaged) =
        true;
    second.journal.is_paused = is_by_hand;
    second.journal.paused_until_boot_ns = is_by_hand ? 7 : 0;  // it would end by itself

    second.start();

    const Journal& durable = *second.started.journal;
    EXPECT_TRUE(durable.is_paused);
    EXPECT_EQ(durable.paused_until_boot_ns, 0);
    EXPECT_EQ(durable.emergencies_seen, is_by_hand ? 5U : 0U) << "a new file counts anew";
    EXPECT_EQ(durable.hand_emergencies_seen, is_by_hand ? 0U : 6U);
    EXPECT_TRUE(durable.reclaims.empty());
    EXPECT_EQ(second.slots_opened(), std::vector<std::uint32_t>{0});
    EXPECT_EQ(second.core->state().guests.at(0).state, GuestState::kRunning);
    EXPECT_TRUE(second.told().ends_with("new ones wait; next: reclaim-agent resume"));
  }
}

TEST(WardenKillJournal, what_a_lost_order_has_cut_stays_cut_until_the_owner_says_so) {
  for (const SetGates& found : {SetGates{false, {0}}, SetGates{true, {}}}) {
    SecondStart second;
    second.config.is_hand_journal_damaged = true;
    second.config.found = found;

    WardenCore& core = second.start();

    ASSERT_EQ(second.started.journal->reclaims.size(), 1U);
    EXPECT_TRUE(second.started.journal->reclaims[0].gpus.empty());
    EXPECT_TRUE(second.slots_opened().empty());
    EXPECT_EQ(core.state().guests.at(0).state, GuestState::kRunning) << "cut, and not killed";
    EXPECT_TRUE(core.state().guests.at(0).is_cut);
    EXPECT_TRUE(second.told().ends_with("reclaim-agent release, then reclaim-agent resume"));
    core.handle(Asked{Caller{1, 1, true}, warden_wire::Release{}}, second.first.clock.now());
    EXPECT_EQ(second.slots_opened(), std::vector<std::uint32_t>{0});
    EXPECT_TRUE(core.state().is_paused);
  }
}

TEST(WardenKillJournal, gates_that_are_shut_for_a_known_reason_say_nothing_of_a_lost_order) {
  SecondStart second;
  second.first.reclaim(ReclaimKind::kEmergency);
  second.journal = second.first.core.journal();
  second.config.is_kill_journal_damaged = true;
  second.config.found = {false, {}};
  second.start();
  EXPECT_EQ(second.started.journal->reclaims.size(), 1U) << "the same one";
  EXPECT_TRUE(second.started.journal->is_paused);

  SecondStart rebooted;
  rebooted.config.is_kill_journal_damaged = true;
  rebooted.config.boot_id = "boot-2";
  rebooted.config.found = {false, {}};
  rebooted.start();
  EXPECT_TRUE(rebooted.started.journal->reclaims.empty()) << "every boot begins with shut gates";
  EXPECT_TRUE(rebooted.started.journal->is_paused);
}

TEST(WardenKillJournal, one_that_is_damaged_after_a_hang_is_heeded_too) {
  for (const bool is_open : {true, false}) {
    LostRig w;
    w.ready().run(1);
    const std::uint32_t slot = w.record(1)->slot;

    w.tell(HandJournalDamaged{{is_open, {slot}}});

    ASSERT_TRUE(w.last.journal.has_value());
    EXPECT_TRUE(w.last.journal->is_paused);
    EXPECT_EQ(w.core.journal().reclaims.empty(), is_open);
    EXPECT_EQ(w.did<Kill>(), nullptr);
    w.tell(Reconciled{{}, {}, {}});
    EXPECT_EQ(w.did<SetGates>()->is_node_open, is_open);
  }
}

TEST(WardenFilter, one_that_is_back_is_told_once_and_ends_nothing) {
  LostRig w;
  w.ready().run(1);
  const std::uint32_t slot = w.record(1)->slot;

  for (int i = 0; i < 2; ++i) w.tell(FilterLost{slot, "rn0g0", ""});

  EXPECT_EQ(w.state_of(1), GuestState::kRunning);
  EXPECT_EQ(w.did<Kill>(), nullptr);
  ASSERT_EQ(w.core.state().troubles.size(), 1U);
  EXPECT_EQ(
      w.core.state().troubles[0].what,
      "somebody removed the traffic filter of rn0g0, job j-1; it is back"
  );
}

TEST(WardenFilter, a_guest_that_cannot_be_filtered_any_more_is_killed_and_has_no_end_of_its_own) {
  LostRig w;
  w.ready().run(1);
  const FilterLost lost{w.record(1)->slot, "rn0g0", "the interface is broken"};

  w.tell(lost);
  ASSERT_NE(w.did<Kill>(), nullptr);
  const OpId kill = w.did<Kill>()->op;
  EXPECT_TRUE(w.last.is_state_changed);
  w.tell(lost);
  EXPECT_EQ(w.did<Kill>(), nullptr) << "it is under way";
  w.tell(Finished{kill, fail(ErrorCode::kInternal, "pid 7 in D state")});
  w.tell(lost);
  ASSERT_NE(w.did<Kill>(), nullptr) << "and tried again with every look";
  w.tell(Finished{w.did<Kill>()->op, {}});

  EXPECT_EQ(w.state_of(1), GuestState::kExited);
  EXPECT_TRUE(w.record(1)->is_vanished);
  w.tell(Exited{LostRig::guest(1), "c1", 137, false});
  EXPECT_TRUE(w.record(1)->is_vanished);
  EXPECT_EQ(w.core.state().troubles.size(), 1U);
}

TEST(WardenFilter, a_guest_that_still_starts_never_gets_the_go_ahead) {
  LostRig w;
  w.ready().give_disk(1);
  w.ask(LostRig::start_of(1));
  const OpId start = w.did<Start>()->op;

  w.tell(FilterLost{w.record(1)->slot, "rn0g0", "gone"});
  EXPECT_EQ(w.did<Kill>(), nullptr);
  w.tell(Started{start, StartedGuest{"c1", 101, 5}});

  EXPECT_EQ(w.did<Go>(), nullptr);
  EXPECT_NE(w.did<Kill>(), nullptr);
}

TEST(WardenFilter, a_foreign_one_before_ours_is_told_with_its_job_once_and_ends_nothing) {
  LostRig w;
  w.ready().run(1);
  const std::uint32_t slot = w.record(1)->slot;

  w.tell(FilterFound{slot, "rn0g0", "a tcx program on egress", "bpftool net detach"});
  EXPECT_TRUE(w.last.is_state_changed);
  for (int i = 0; i < 9; ++i) {  // two interfaces, every second
    w.tell(FilterFound{9, "rn0g9", "an XDP program", ""});
    w.tell(FilterFound{slot, "rn0g0", "a tcx program on egress", "bpftool net detach"});
  }

  EXPECT_FALSE(w.last.is_state_changed);
  EXPECT_EQ(w.state_of(1), GuestState::kRunning);
  ASSERT_EQ(w.core.state().troubles.size(), 2U);
  EXPECT_EQ(
      w.core.state().troubles[0].what,
      "a tcx program on egress of somebody else stands before the traffic filter of rn0g0, job "
      "j-1: it may let pass what you cut, so closed gates are no cut while the guest lives; next: "
      "bpftool net detach"
  );
}

TEST(WardenFilter, what_is_told_is_bounded) {
  LostRig w;
  w.ready();

  for (int i = 0; i < 20; ++i) w.tell(FilterLost{9, "rn0g" + std::to_string(i), ""});

  EXPECT_EQ(w.core.state().troubles.size(), 8U);
  EXPECT_NE(w.core.state().troubles.back().what.find("rn0g19"), std::string::npos);
}

}  // namespace
}  // namespace rn::warden
