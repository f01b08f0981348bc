// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "warden/core_fixture_fake.h"

// What others take away behind the warden's back: its journal, and the filters of its guests.
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

TEST(WardenFilter, what_is_told_is_bounded) {
  LostRig w;
  w.ready();

  for (int i = 0; i < 20; ++i) w.tell(FilterLost{9, "rn0g" + std::to_string(i), ""});

  EXPECT_EQ(w.core.state().troubles.size(), 8U);
  EXPECT_NE(w.core.state().troubles.back().what.find("rn0g19"), std::string::npos);
}

}  // namespace
}  // namespace rn::warden
