// SPDX-License-Identifier: Apache-2.0
#include "warden/core.h"

#include <gtest/gtest.h>

#include "warden/core_fixture_fake.h"

namespace rn::warden {
namespace {

using Rig = CoreUnderTest;
using warden_wire::KillGuest;
using warden_wire::LoadImage;
using warden_wire::Pause;
using warden_wire::PrepareDisk;
using warden_wire::ReleaseDisk;
using warden_wire::RemoveGuest;
using warden_wire::SignalGuest;
using warden_wire::WriteNotice;

Journal journal_of(const Rig& rig) {
  return rig.core.journal();
}

// ---- a guest's life

TEST(WardenGuest, goes_from_disk_to_go_ahead_and_journals_before_each_effect) {
  Rig w;
  w.ready();

  w.ask(PrepareDisk{Rig::guest(1), 64});
  ASSERT_NE(w.did<MakeDisk>(), nullptr);
  ASSERT_TRUE(w.last.journal);
  EXPECT_EQ(w.last.journal->guests.at(0).phase, GuestPhase::kPreparing);
  w.tell(DiskMade{w.did<MakeDisk>()->op, "/disk/1"});
  EXPECT_EQ(w.did<SendAnswer>()->answer.disk, "/disk/1");
  w.ask(warden_wire::AdoptDisk{Rig::guest(1)});
  w.tell(Finished{w.did<warden::AdoptDisk>()->op, {}});
  EXPECT_EQ(w.state_of(1), GuestState::kDiskReady);

  w.ask(Rig::start_of(1));
  ASSERT_NE(w.did<Start>(), nullptr);
  EXPECT_EQ(w.did<Start>()->image_id, "id-1");
  EXPECT_EQ(w.last.journal->guests.at(0).phase, GuestPhase::kStarting);
  w.tell(Started{w.did<Start>()->op, StartedGuest{"c1", 101, 5}});
  EXPECT_EQ(w.answer(), "none") << "the command does not run yet";
  ASSERT_NE(w.did<Go>(), nullptr);
  EXPECT_EQ(w.last.journal->guests.at(0).container, "c1");
  w.tell(Finished{w.did<Go>()->op, {}});

  EXPECT_EQ(w.answer(), "");
  EXPECT_EQ(w.state_of(1), GuestState::kRunning);
}

TEST(WardenGuest, exit_remove_and_release_leave_nothing) {
  Rig w;
  w.ready().run(1);

  w.tell(Exited{Rig::guest(1), "c1", 3, false});
  EXPECT_EQ(w.state_of(1), GuestState::kExited);
  EXPECT_EQ(w.record(1)->exit_code, 3);
  w.ask(RemoveGuest{Rig::guest(1)});
  w.tell(Finished{w.did<Forget>()->op, {}});
  EXPECT_EQ(w.state_of(1), GuestState::kRemoved);
  EXPECT_EQ(w.record(1)->slot, kNoSlot);
  w.ask(ReleaseDisk{Rig::guest(1)});
  w.tell(Finished{w.did<DropDisk>()->op, {}});

  EXPECT_EQ(w.answer(), "");
  EXPECT_TRUE(w.core.journal().guests.empty());
}

TEST(WardenGuest, every_request_may_come_twice) {
  Rig w;
  w.ready();

  w.ask(PrepareDisk{Rig::guest(1), 64});
  const OpId op = w.did<MakeDisk>()->op;
  w.ask(PrepareDisk{Rig::guest(1), 64});
  EXPECT_TRUE(w.last.effects.empty()) << "joined, not begun again";
  w.tell(DiskMade{op, "/disk/1"});
  EXPECT_EQ(w.answers(), 2U);
  w.ask(PrepareDisk{Rig::guest(1), 64});
  EXPECT_EQ(w.did<SendAnswer>()->answer.disk, "/disk/1");
  w.ask(warden_wire::AdoptDisk{Rig::guest(1)});
  w.tell(Finished{w.did<warden::AdoptDisk>()->op, {}});
  w.ask(warden_wire::AdoptDisk{Rig::guest(1)});
  EXPECT_EQ(w.answer(), "");

  w.ask(Rig::start_of(1));
  const OpId start = w.did<Start>()->op;
  w.ask(Rig::start_of(1));
  EXPECT_EQ(w.did<Start>(), nullptr);
  w.tell(Started{start, StartedGuest{"c1", 101, 5}});
  w.ask(Rig::start_of(1));
  EXPECT_EQ(w.did<Start>(), nullptr);
  w.tell(Finished{4, {}});
  w.tell(Started{start, StartedGuest{"c2", 102, 5}});
  EXPECT_TRUE(w.last.effects.empty()) << "a late repetition of an answer changes nothing";
  EXPECT_EQ(w.record(1)->container, "c1");

  w.ask(KillGuest{Rig::guest(9)});
  EXPECT_EQ(w.answer(), "");
  w.ask(ReleaseDisk{Rig::guest(9)});
  EXPECT_EQ(w.answer(), "");
  w.ask(RemoveGuest{Rig::guest(9)});
  EXPECT_EQ(w.answer(), "");
}

TEST(WardenGuest, start_answers_all_who_asked_for_it_and_is_done_once) {
  Rig w;
  w.ready().give_disk(1);

  w.ask(Rig::start_of(1));
  const OpId start = w.did<Start>()->op;
  w.ask(Rig::start_of(1));
  w.tell(Started{start, StartedGuest{"c1", 101, 5}});
  const OpId go = w.did<Go>()->op;
  w.ask(Rig::start_of(1));
  w.tell(Finished{go, {}});
  EXPECT_EQ(w.answers(), 3U);
  w.ask(Rig::start_of(1));
  EXPECT_EQ(w.answer(), "");
  EXPECT_EQ(w.did<Start>(), nullptr);
  w.tell(Exited{Rig::guest(1), "c1", 0, false});
  w.ask(Rig::start_of(1));

  EXPECT_EQ(w.answer(), "") << "it was started; its state says how it went";
  EXPECT_EQ(w.did<Start>(), nullptr);
}

TEST(WardenGuest, never_runs_twice_under_one_epoch) {
  Rig w;
  w.ready().run(1);
  w.tell(Exited{Rig::guest(1), "c1", 0, false});
  w.ask(RemoveGuest{Rig::guest(1)});
  w.tell(Finished{w.did<Forget>()->op, {}});

  w.ask(Rig::start_of(1));

  EXPECT_EQ(w.answer(), "conflict");
  EXPECT_EQ(w.did<Start>(), nullptr);
}

TEST(WardenGuest, a_failed_start_leaves_the_disk_and_may_be_tried_again) {
  Rig w;
  w.ready().give_disk(1);

  w.ask(Rig::start_of(1));
  w.tell(Started{w.did<Start>()->op, fail(ErrorCode::kTimeout, "engine")});
  EXPECT_EQ(w.answer(), "timeout");
  EXPECT_EQ(w.state_of(1), GuestState::kDiskReady);
  EXPECT_EQ(w.record(1)->slot, kNoSlot);
  w.ask(Rig::start_of(1));

  EXPECT_NE(w.did<Start>(), nullptr);
}

TEST(WardenGuest, a_failed_go_ahead_kills_what_stands_there) {
  Rig w;
  w.ready().give_disk(1);
  w.ask(Rig::start_of(1));
  w.tell(Started{w.did<Start>()->op, StartedGuest{"c1", 101, 5}});

  w.tell(Finished{w.did<Go>()->op, fail(ErrorCode::kInternal, "disk")});

  EXPECT_EQ(w.answer(), "internal");
  EXPECT_NE(w.did<Kill>(), nullptr);
}

TEST(WardenGuest, killing_answers_when_it_is_dead) {
  Rig w;
  w.ready().run(1);

  w.ask(KillGuest{Rig::guest(1)});
  EXPECT_EQ(w.answer(), "none");
  ASSERT_NE(w.did<Kill>(), nullptr);
  const OpId op = w.did<Kill>()->op;
  w.ask(KillGuest{Rig::guest(1)});
  EXPECT_EQ(w.did<Kill>(), nullptr) << "joined";
  w.tell(Finished{op, {}});
  EXPECT_EQ(w.answers(), 2U);
  EXPECT_EQ(w.state_of(1), GuestState::kExited);
  EXPECT_EQ(w.record(1)->exit_code, 137);
  w.tell(Exited{Rig::guest(1), "c1", 137, true});

  EXPECT_TRUE(w.record(1)->is_oom_killed) << "the engine's word comes late and is taken";
}

TEST(WardenGuest, one_that_was_killed_with_its_shim_has_no_end_of_its_own) {
  Rig w;
  w.ready().run(1);

  w.tell(Exited{.guest = Rig::guest(1), .container = "c1", .exit_code = 137, .is_vanished = true});

  EXPECT_EQ(w.state_of(1), GuestState::kExited);
  EXPECT_TRUE(w.record(1)->is_vanished);
}

TEST(WardenGuest, a_kill_that_fails_says_so_and_may_be_repeated) {
  Rig w;
  w.ready().run(1);

  w.ask(KillGuest{Rig::guest(1)});
  w.tell(Finished{w.did<Kill>()->op, fail(ErrorCode::kInternal, "pid 7 in D state")});
  EXPECT_EQ(w.answer(), "internal");
  EXPECT_EQ(w.state_of(1), GuestState::kRunning);
  w.ask(KillGuest{Rig::guest(1)});

  EXPECT_NE(w.did<Kill>(), nullptr);
}

TEST(WardenGuest, killed_while_it_starts_never_gets_the_go_ahead) {
  Rig w;
  w.ready().give_disk(1);
  w.ask(Rig::start_of(1));
  const OpId start = w.did<Start>()->op;

  w.ask(KillGuest{Rig::guest(1)});
  EXPECT_EQ(w.answer(), "none");
  w.tell(Started{start, StartedGuest{"c1", 101, 5}});
  EXPECT_EQ(w.did<Go>(), nullptr);
  ASSERT_NE(w.did<Kill>(), nullptr);
  w.tell(Finished{w.did<Kill>()->op, {}});

  EXPECT_EQ(w.answer(), "") << "the killer is answered";
  EXPECT_EQ(w.state_of(1), GuestState::kExited);
}

TEST(WardenGuest, killed_while_it_starts_and_the_start_fails) {
  Rig w;
  w.ready().give_disk(1);
  w.ask(Rig::start_of(1));
  const OpId start = w.did<Start>()->op;
  w.ask(KillGuest{Rig::guest(1)});

  w.tell(Started{start, fail(ErrorCode::kTimeout, "engine")});

  EXPECT_EQ(w.answers(), 2U);
  w.ask(Rig::start_of(1));
  EXPECT_EQ(w.answer(), "conflict") << "condemned";
}

TEST(WardenGuest, the_end_of_an_old_container_is_not_the_new_ones) {
  Rig w;
  w.ready().run(1);

  w.tell(Exited{Rig::guest(1), "another", 0, false});

  EXPECT_EQ(w.state_of(1), GuestState::kRunning);
}

TEST(WardenGuest, requests_in_the_wrong_phase_are_conflicts) {
  Rig w;
  w.ready().run(1);

  EXPECT_EQ((w.ask(ReleaseDisk{Rig::guest(1)}), w.answer()), "conflict");
  EXPECT_EQ((w.ask(RemoveGuest{Rig::guest(1)}), w.answer()), "conflict");
  w.give_disk(2);
  EXPECT_EQ((w.ask(SignalGuest{Rig::guest(2)}), w.answer()), "conflict");
  EXPECT_EQ((w.ask(SignalGuest{Rig::guest(3)}), w.answer()), "not_found");
  EXPECT_EQ((w.ask(WriteNotice{Rig::guest(3), 1, 1, ""}), w.answer()), "not_found");
  EXPECT_EQ((w.ask(warden_wire::AdoptDisk{Rig::guest(3)}), w.answer()), "not_found");
  EXPECT_EQ((w.ask(Rig::start_of(3)), w.answer()), "not_found");
  w.ask(PrepareDisk{Rig::guest(4), 64});
  w.tell(DiskMade{w.did<MakeDisk>()->op, "/disk/4"});
  EXPECT_EQ((w.ask(Rig::start_of(4)), w.answer()), "conflict") << "not adopted";
}

TEST(WardenGuest, signals_answer_how_many_were_signalled) {
  Rig w;
  w.ready().run(1);

  w.ask(SignalGuest{Rig::guest(1), SaveSignal::kAuto});
  w.tell(Signalled{w.did<Signal>()->op, 3U});

  EXPECT_EQ(w.did<SendAnswer>()->answer.signalled, 3U);
}

TEST(WardenGuest, one_is_told_to_save_by_a_file_of_its_own_while_it_runs) {
  Rig w;
  w.ready().give_disk(1);
  const warden_wire::TellGuest told{Rig::guest(1), "ctl/SAVE", "a save is due", 0, 0};
  EXPECT_EQ((w.ask(told), w.answer()), "conflict") << "it does not run yet";
  EXPECT_EQ((w.ask(warden_wire::TellGuest{Rig::guest(7), "S", "", 0, 0}), w.answer()), "not_found");

  w.run(2);
  warden_wire::TellGuest second = told;
  second.guest = Rig::guest(2);
  w.ask(second);
  ASSERT_NE(w.did<Signal>(), nullptr);
  EXPECT_EQ(w.did<Signal>()->file, second);
  w.tell(Signalled{w.did<Signal>()->op, 1U});
  EXPECT_EQ(w.did<SendAnswer>()->answer.signalled, 1U);

  for (const char* outside : {"", "/etc/passwd", "../reclaim/exit", "a/../../b", "a/"}) {
    second.file = outside;
    EXPECT_EQ((w.ask(second), w.answer()), "invalid") << outside;
    EXPECT_EQ(w.did<Signal>(), nullptr) << outside;
  }
}

TEST(WardenGuest, a_word_to_its_first_process_names_no_file) {
  Rig w;
  w.ready().run(1);
  warden_wire::TellGuest word{Rig::guest(1), "", "a save is due", 0, 0, true};
  w.ask(word);
  ASSERT_NE(w.did<Signal>(), nullptr);
  EXPECT_EQ(w.did<Signal>()->file, word);
  w.tell(Signalled{w.did<Signal>()->op, 0U});
  EXPECT_EQ(w.did<SendAnswer>()->answer.signalled, 0U);

  word.file = "exit";
  EXPECT_EQ((w.ask(word), w.answer()), "invalid");
}

TEST(WardenGuest, bad_names_sizes_and_unknown_images_are_refused) {
  Rig w;
  w.ready();

  w.ask(PrepareDisk{{JobId("../x"), LeaseEpoch{1, 1}}, 64});
  EXPECT_EQ(w.answer(), "invalid");
  w.ask(PrepareDisk{Rig::guest(1), 1});
  EXPECT_EQ(w.answer(), "invalid");
  w.give_disk(1);
  auto start = Rig::start_of(1);
  start.image_digest = "sha256:other";
  w.ask(start);

  EXPECT_EQ(w.answer(), "not_found");
}

TEST(WardenGuest, a_gpu_has_one_tenant_until_it_is_removed) {
  Rig w;
  w.ready().run(1, {0});
  w.give_disk(2);

  EXPECT_EQ((w.ask(Rig::start_of(2, {0, 1})), w.answer()), "conflict");
  w.tell(Exited{Rig::guest(1), "c1", 0, false});
  EXPECT_EQ((w.ask(Rig::start_of(2, {0, 1})), w.answer()), "conflict");
  w.ask(RemoveGuest{Rig::guest(1)});
  w.tell(Finished{w.did<Forget>()->op, {}});
  w.ask(Rig::start_of(2, {0, 1}));

  EXPECT_NE(w.did<Start>(), nullptr);
}

TEST(WardenGuest, slots_are_not_shared) {
  Rig w;
  w.ready();
  w.run(1);
  w.run(2);

  EXPECT_EQ(w.record(1)->slot, 0U);
  EXPECT_EQ(w.record(2)->slot, 1U);
}

TEST(WardenImage, is_imported_once_and_known_afterwards) {
  Rig w;
  w.ready();

  w.ask(LoadImage{"sha256:b", "/state/b"});
  const OpId op = w.did<Import>()->op;
  w.ask(LoadImage{"sha256:b", "/state/b"});
  EXPECT_EQ(w.did<Import>(), nullptr);
  w.tell(Imported{op, "id-b"});
  EXPECT_EQ(w.answers(), 2U);
  ASSERT_TRUE(w.last.journal);
  w.ask(LoadImage{"sha256:b", "/state/b"});
  EXPECT_EQ(w.answer(), "");
  w.ask(LoadImage{"sha256:c", "/state/c"});
  w.tell(Imported{w.did<Import>()->op, fail(ErrorCode::kCorrupt, "digest")});

  EXPECT_EQ(w.answer(), "corrupt");
  EXPECT_EQ(w.core.state().images, (std::vector<std::string>{kImage, "sha256:b"}));
}

// ---- who may what

TEST(WardenCallers, the_agent_may_not_use_the_owners_verbs) {
  Rig w;
  w.ready();

  EXPECT_EQ((w.ask(warden_wire::Release{}, false), w.answer()), "denied");
  EXPECT_EQ((w.ask(Pause{}, false), w.answer()), "denied");
  EXPECT_EQ((w.ask(warden_wire::Resume{}, false), w.answer()), "denied");
  EXPECT_EQ((w.ask(warden_wire::Query{}, false), w.answer()), "");
  EXPECT_TRUE(w.core.journal().reclaims.empty());
}

/// As it may kill. By the owner's order from afar (ADR 0017), and the owner's it is from then on.
TEST(WardenCallers, the_agent_may_take_back_and_not_give_back) {
  Rig w;
  w.ready();

  EXPECT_EQ((w.ask(warden_wire::DeclareReclaim{}, false), w.answer()), "");
  ASSERT_EQ(w.core.journal().reclaims.size(), 1u);
  EXPECT_EQ((w.ask(warden_wire::Release{}, false), w.answer()), "denied");
  EXPECT_EQ((w.ask(warden_wire::Announce{}, false), w.answer()), "");
  EXPECT_NE(w.core.journal().reclaims.front().phase, ReclaimPhase::kReturned)
      << "what the agent takes back is what it announced";
}

TEST(WardenPause, takes_no_new_guests_and_leaves_the_running_ones) {
  Rig w;
  w.ready().run(1);
  w.give_disk(2);

  w.ask(Pause{0});
  EXPECT_EQ((w.ask(PrepareDisk{Rig::guest(3), 64}), w.answer()), "unavailable");
  EXPECT_EQ((w.ask(Rig::start_of(2)), w.answer()), "unavailable");
  EXPECT_EQ(w.state_of(1), GuestState::kRunning);
  w.ask(warden_wire::Resume{});
  w.ask(Rig::start_of(2));

  EXPECT_NE(w.did<Start>(), nullptr);
}

TEST(WardenPause, of_a_gpu_keeps_its_guest_and_lets_others_come) {
  Rig w;
  w.ready().run(1, {0});
  w.give_disk(2);
  w.give_disk(3);
  w.ask(Pause{0, {0, 1}});
  ASSERT_EQ(w.core.state().paused_gpus.size(), 2u);
  EXPECT_FALSE(w.core.state().is_paused);
  EXPECT_EQ(w.state_of(1), GuestState::kRunning);
  EXPECT_EQ((w.ask(Rig::start_of(2, {1})), w.answer()), "unavailable");
  w.ask(Rig::start_of(3, {2}));
  EXPECT_NE(w.did<Start>(), nullptr) << "another GPU";

  w.ask(warden_wire::Resume{{1}});
  ASSERT_EQ(w.core.state().paused_gpus.size(), 1u);
  EXPECT_EQ(w.core.state().paused_gpus[0].gpu, 0u);
  w.ask(Rig::start_of(2, {1}));
  EXPECT_NE(w.did<Start>(), nullptr);
  w.ask(warden_wire::Resume{});
  EXPECT_TRUE(w.core.state().paused_gpus.empty());
  EXPECT_EQ((w.ask(Pause{0, {64}}), w.answer()), "invalid") << "no machine has it";
}

TEST(WardenPause, of_a_gpu_ends_by_itself_also_after_a_reboot) {
  Rig w;
  w.ready();
  w.ask(Pause{30, {1}});
  w.ask(Pause{600, {1}});
  ASSERT_EQ(w.core.state().paused_gpus.size(), 1u) << "the later word counts";
  EXPECT_EQ(w.core.wake_at(), w.clock.now().boot + seconds(600));
  Rig later(w.core.journal(), "boot-2");
  later.clock.set_wall(later.clock.now().wall + seconds(400));
  later.last = later.core.start(later.clock.now());
  EXPECT_EQ(later.core.wake_at(), later.clock.now().boot + seconds(200));
  later.after(seconds(199));
  EXPECT_EQ(later.core.state().paused_gpus.size(), 1u);
  later.after(seconds(1));

  EXPECT_TRUE(later.core.state().paused_gpus.empty());
}

TEST(WardenPause, a_snooze_ends_by_itself) {
  Rig w;
  w.ready();

  w.ask(Pause{30});
  EXPECT_EQ(w.core.wake_at(), w.clock.now().boot + seconds(30));
  w.after(seconds(29));
  EXPECT_TRUE(w.core.state().is_paused);
  w.after(seconds(1));

  EXPECT_FALSE(w.core.state().is_paused);
  EXPECT_EQ(w.core.wake_at(), std::nullopt);
}

// ---- recovery

TEST(WardenRecovery, nothing_is_started_before_the_search_and_the_gate_stays_shut) {
  Rig w;

  w.last = w.core.start(w.clock.now());
  ASSERT_NE(w.did<SetGates>(), nullptr);
  EXPECT_FALSE(w.did<SetGates>()->is_node_open);
  EXPECT_EQ((w.ask(PrepareDisk{Rig::guest(1), 64}), w.answer()), "unavailable");
  w.tell(Reconciled{{}, {}, {{kImage, "id-1"}}});

  EXPECT_TRUE(w.did<SetGates>()->is_node_open);
}

TEST(WardenRecovery, a_guest_that_ran_on_is_found_again_and_watched) {
  Rig before;
  before.ready().run(1);
  Rig w(journal_of(before));
  w.last = w.core.start(w.clock.now());

  FoundContainer found{Rig::guest(1), "c1", 0, true, 101};
  found.has_go_ahead = true;
  w.tell(Reconciled{{found}, {{Rig::guest(1), "/disk/1", 64}}, {{kImage, "id-1"}}});

  EXPECT_EQ(w.state_of(1), GuestState::kRunning);
  EXPECT_NE(w.did<Watch>(), nullptr);
  EXPECT_EQ(w.did<Kill>(), nullptr);
  EXPECT_EQ(w.did<SetGates>()->open_slots, std::vector<std::uint32_t>{0});
}

TEST(WardenRecovery, a_guest_that_ended_meanwhile_has_exited) {
  Rig before;
  before.ready().run(1);
  Rig w(journal_of(before));
  w.last = w.core.start(w.clock.now());

  FoundContainer found{Rig::guest(1), "c1", 0, false, 0, 5};
  found.has_go_ahead = true;
  w.tell(Reconciled{{found}, {{Rig::guest(1), "/disk/1", 64}}, {}});

  EXPECT_EQ(w.state_of(1), GuestState::kExited);
  EXPECT_EQ(w.record(1)->exit_code, 5);
}

TEST(WardenRecovery, a_guest_that_was_killed_from_outside_meanwhile_has_vanished) {
  for (const bool is_vanished : {false, true}) {
    Rig before;
    before.ready().run(1);
    Rig w(journal_of(before));
    w.last = w.core.start(w.clock.now());
    FoundContainer found{Rig::guest(1), "c1", 0, false, 0, 137};
    found.has_go_ahead = true;
    found.is_vanished = is_vanished;

    w.tell(Reconciled{{found}, {{Rig::guest(1), "/disk/1", 64}}, {}});

    EXPECT_EQ(w.state_of(1), GuestState::kExited);
    EXPECT_EQ(w.record(1)->is_vanished, is_vanished);
  }
}

TEST(WardenRecovery, a_guest_whose_container_vanished_has_exited) {
  Rig before;
  before.ready().run(1);
  Rig w(journal_of(before));
  w.last = w.core.start(w.clock.now());

  w.tell(Reconciled{{}, {{Rig::guest(1), "/disk/1", 64}}, {}});

  EXPECT_EQ(w.state_of(1), GuestState::kExited);
}

TEST(WardenRecovery, a_disk_of_the_journal_is_answered_only_when_the_machine_was_searched) {
  for (const bool was_made : {false, true}) {
    Rig before;
    before.ready().ask(warden_wire::PrepareDisk{Rig::guest(1), 64});
    if (was_made) before.tell(DiskMade{before.did<MakeDisk>()->op, "/disk/1"});
    Rig w(journal_of(before));
    w.last = w.core.start(w.clock.now());

    w.ask(warden_wire::PrepareDisk{Rig::guest(1), 64});

    EXPECT_EQ(w.answer(), "unavailable");
    w.tell(Reconciled{{}, {{Rig::guest(1), "/disk/1", 64}}, {{kImage, "id-1"}}});
    w.ask(warden_wire::PrepareDisk{Rig::guest(1), 64});
    EXPECT_EQ(w.answer(), "");
  }
}

TEST(WardenRecovery, a_half_made_start_is_removed_and_may_be_repeated) {
  Rig before;
  before.ready().give_disk(1);
  before.ask(Rig::start_of(1));
  for (const bool has_container : {true, false}) {
    Rig w(journal_of(before));
    w.last = w.core.start(w.clock.now());
    w.ask(Rig::start_of(1));
    EXPECT_EQ(w.answer(), "unavailable") << "not for ever: the search is under way";

    Reconciled search{{}, {{Rig::guest(1), "/disk/1", 64}}, {{kImage, "id-1"}}};
    if (has_container) search.containers = {{Rig::guest(1), "c1", 0, true, 101}};
    w.tell(search);
    EXPECT_EQ(w.did<RemoveStray>() != nullptr, has_container);
    EXPECT_EQ(w.state_of(1), GuestState::kDiskReady);
    w.tell(EngineChanged{true, "x"});
    w.ask(Rig::start_of(1));

    EXPECT_NE(w.did<Start>(), nullptr);
  }
}

TEST(WardenState, an_engine_that_is_refused_is_told_with_why_until_it_is_used_or_away) {
  Rig w;
  w.last = w.core.start(w.clock.now());

  EXPECT_TRUE(w.tell(EngineChanged{false, "docker 19.3", "engine 19.3 is old"}).is_state_changed);
  EXPECT_EQ(w.core.state().engine_refusal, "engine 19.3 is old");
  EXPECT_EQ(w.core.state().engine, "docker 19.3");
  EXPECT_FALSE(w.core.state().is_engine_up);
  EXPECT_FALSE(w.tell(EngineChanged{false, "docker 19.3", "engine 19.3 is old"}).is_state_changed);

  EXPECT_TRUE(w.tell(EngineChanged{false, ""}).is_state_changed) << "away now";
  EXPECT_EQ(w.core.state().engine_refusal, "");

  w.tell(EngineChanged{false, "docker 19.3", "engine 19.3 is old"});
  EXPECT_TRUE(w.tell(EngineChanged{true, "docker 19.3"}).is_state_changed) << "not so strict now";
  EXPECT_EQ(w.core.state().engine_refusal, "");
  EXPECT_TRUE(w.core.state().is_engine_up);
}

TEST(WardenRecovery, a_container_that_nobody_knows_is_removed) {
  Rig w;
  w.last = w.core.start(w.clock.now());

  FoundContainer found{Rig::guest(7), "c7", 3, true, 107};
  found.has_go_ahead = true;
  w.tell(Reconciled{{found}, {}, {}});

  ASSERT_NE(w.did<RemoveStray>(), nullptr);
  EXPECT_EQ(w.did<RemoveStray>()->container.container, "c7");
}

TEST(WardenRecovery, a_disk_that_nobody_knows_is_reported_and_never_run_again) {
  Rig w;
  w.last = w.core.start(w.clock.now());
  w.tell(EngineChanged{true, "x"});

  w.tell(Reconciled{{}, {{Rig::guest(7), "/disk/7", 64}}, {{kImage, "id-1"}}});

  EXPECT_EQ(w.state_of(7), GuestState::kRemoved);
  EXPECT_EQ((w.ask(Rig::start_of(7)), w.answer()), "conflict");
  w.ask(ReleaseDisk{Rig::guest(7)});
  EXPECT_NE(w.did<DropDisk>(), nullptr);
}

TEST(WardenRecovery, a_running_guest_known_by_label_survives_a_lost_journal) {
  Rig w;
  w.last = w.core.start(w.clock.now());

  FoundContainer found{Rig::guest(7), "c7", 3, true, 107};
  found.has_go_ahead = true;
  w.tell(Reconciled{{found}, {{Rig::guest(7), "/disk/7", 64}}, {}});

  EXPECT_EQ(w.state_of(7), GuestState::kRunning);
  EXPECT_EQ(w.record(7)->slot, 3U);
}

TEST(WardenRecovery, half_made_and_half_deleted_disks_are_finished) {
  Rig before;
  before.ready().give_disk(1);
  before.ask(ReleaseDisk{Rig::guest(1)});
  before.ask(PrepareDisk{Rig::guest(2), 64});
  Rig w(journal_of(before));
  w.last = w.core.start(w.clock.now());

  w.tell(Reconciled{{}, {{Rig::guest(1), "/disk/1", 64}}, {}});

  ASSERT_NE(w.did<DropDisk>(), nullptr);
  EXPECT_EQ(w.did<DropDisk>()->guest, Rig::guest(1));
  EXPECT_EQ(w.record(2), nullptr) << "whoever wanted it asks again";
}

TEST(WardenRecovery, a_condemned_guest_that_lives_is_killed) {
  Rig before;
  before.ready().run(1);
  before.ask(KillGuest{Rig::guest(1)});
  Rig w(journal_of(before));
  w.last = w.core.start(w.clock.now());

  FoundContainer found{Rig::guest(1), "c1", 0, true, 101};
  found.has_go_ahead = true;
  w.tell(Reconciled{{found}, {{Rig::guest(1), "/disk/1", 64}}, {}});

  EXPECT_NE(w.did<Kill>(), nullptr);
  EXPECT_TRUE(w.did<SetGates>()->open_slots.empty());
}

TEST(WardenRecovery, images_that_the_engine_lost_are_forgotten) {
  Rig w;
  w.ready();

  w.tell(Reconciled{{}, {}, {}});

  EXPECT_TRUE(w.core.state().images.empty());
}

TEST(WardenRecovery, an_image_that_bears_a_listed_name_and_was_not_verified_here_is_not_believed) {
  Rig w;
  w.ready();

  w.tell(Reconciled{{}, {}, {{kImage, "id-of-another"}, {"sha256:b", "id-b"}}});

  EXPECT_TRUE(w.core.state().images.empty());
}

TEST(WardenRecovery, a_search_while_running_disturbs_nothing_that_is_on_its_way) {
  Rig w;
  w.ready().give_disk(1);
  w.ask(Rig::start_of(1));
  const OpId start = w.did<Start>()->op;
  w.ask(PrepareDisk{Rig::guest(2), 64});
  const OpId disk = w.did<MakeDisk>()->op;

  w.tell(Reconciled{
      {{Rig::guest(1), "c1", 0, true, 101}}, {{Rig::guest(1), "/disk/1", 64}}, {{kImage, "id-1"}}});
  EXPECT_EQ(w.did<RemoveStray>(), nullptr);
  w.tell(Started{start, StartedGuest{"c1", 101, 5}});
  EXPECT_NE(w.did<Go>(), nullptr);
  w.tell(DiskMade{disk, "/disk/2"});

  EXPECT_EQ(w.state_of(2), GuestState::kDiskReady);
}

}  // namespace
}  // namespace rn::warden
