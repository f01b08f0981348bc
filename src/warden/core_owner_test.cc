// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "warden/core_fixture_fake.h"

namespace rn::warden {
namespace {

using Rig = CoreUnderTest;
using warden_wire::Announce;
using warden_wire::DeclareReclaim;
using warden_wire::EvacuationDone;
using warden_wire::KillGuest;
using warden_wire::LoadImage;
using warden_wire::Pause;
using warden_wire::PrepareDisk;
using warden_wire::Release;
using warden_wire::RemoveGuest;
using warden_wire::SignalGuest;
using warden_wire::WriteNotice;

/// What the owner has said holds, in whatever order and through whatever crash.
class WardenOwner : public testing::Test {
 protected:
  void SetUp() override { w.ready(); }

  ReclaimId declare(ReclaimKind kind, std::uint32_t s, std::vector<std::uint32_t> gpus = {}) {
    DeclareReclaim request;
    request.kind = kind;
    request.notice_s = request.in_s = s;
    request.gpus = std::move(gpus);
    w.ask(request);
    return w.did<SendAnswer>()->answer.reclaim.id;
  }

  void clear(const ReclaimId& id, std::vector<std::string> remains = {}) {
    w.tell(WasCut{id, w.now_ns()});
    w.tell(WasCleared{id, ClearReport{w.now_ns() + 1, w.now_ns() + 2, 1, std::move(remains)}});
  }

  EmergencyDone cut_only(std::uint64_t gpu_mask = 0) {
    EmergencyDone event;
    event.sequence = ++emergencies_;
    event.is_cut_only = true;
    event.gpu_mask = gpu_mask;
    event.declared_ns = w.now_ns();
    event.cut_ns = event.declared_ns + 1;
    return event;
  }

  EmergencyDone fired(std::uint64_t gpu_mask = 0) {
    EmergencyDone event = cut_only(gpu_mask);
    event.is_cut_only = false;
    event.report = ClearReport{event.cut_ns + 1, event.cut_ns + 2, 1, {}};
    return event;
  }

  std::size_t records() const { return w.core.journal().reclaims.size(); }

  const ReclaimRecord& record(std::size_t n = 0) const { return w.core.journal().reclaims.at(n); }

  Rig w;

 private:
  std::uint64_t emergencies_ = 0;
};

TEST_F(WardenOwner, is_woken_for_what_comes_first) {
  w.run(1);
  w.ask(Pause{600});
  declare(ReclaimKind::kNotice, 60);
  EXPECT_EQ(w.core.wake_at(), w.clock.now().boot + seconds(60));
  w.ask(Pause{30});

  EXPECT_EQ(w.core.wake_at(), w.clock.now().boot + seconds(30));
}

TEST_F(WardenOwner, has_paused_until_a_time_of_day_that_a_reboot_does_not_move) {
  w.ask(Pause{600});
  Rig later(w.core.journal(), "boot-2");
  later.clock.set_wall(later.clock.now().wall + seconds(400));
  later.last = later.core.start(later.clock.now());

  EXPECT_EQ(later.core.wake_at(), later.clock.now().boot + seconds(200));
  later.after(seconds(200));
  EXPECT_FALSE(later.core.state().is_paused);
}

TEST_F(WardenOwner, reads_when_it_was_cut_in_this_boot) {
  w.run(1);
  const ReclaimId id = declare(ReclaimKind::kEmergency, 0);
  w.tell(WasCut{id, 5});
  w.tell(WasCut{id, 6});
  EXPECT_EQ(record().cut_ns, 5) << "the first one counts";
  Rig later(w.core.journal(), "boot-2");
  later.last = later.core.start(later.clock.now());
  ASSERT_NE(later.did<Clear>(), nullptr);
  later.tell(WasCut{id, 99});

  EXPECT_EQ(later.core.journal().reclaims.at(0).cut_ns, 99);
}

TEST_F(WardenOwner, is_answered_with_the_words_that_guests_will_read) {
  w.run(1);
  DeclareReclaim request;
  request.kind = ReclaimKind::kNotice;
  request.notice_s = 60;
  request.message = "an exam at noon";
  w.ask(request);

  EXPECT_EQ(record().message, "an exam at noon");
}

TEST_F(WardenOwner, names_a_gpu_once_or_twice_and_means_the_same) {
  w.run(1, {1});
  declare(ReclaimKind::kNotice, 600, {1, 1});
  declare(ReclaimKind::kNotice, 600, {1});

  EXPECT_EQ(records(), 1U);
}

TEST_F(WardenOwner, takes_a_gpu_and_waits_for_its_guest_alone) {
  w.run(1, {0});
  w.run(2, {1});
  const ReclaimId id = declare(ReclaimKind::kNotice, 600, {0});
  w.ask(EvacuationDone{id, {Rig::guest(1)}}, false);

  EXPECT_NE(w.did<Clear>(), nullptr);
}

TEST_F(WardenOwner, need_not_wait_for_a_guest_that_was_removed) {
  w.run(1);
  declare(ReclaimKind::kNotice, 600);
  w.tell(Exited{Rig::guest(1), "c1", 0, false});
  w.ask(RemoveGuest{Rig::guest(1)}, false);
  EXPECT_EQ(w.did<Clear>(), nullptr);
  w.tell(Finished{w.did<Forget>()->op, {}});

  EXPECT_NE(w.did<Clear>(), nullptr);
}

TEST_F(WardenOwner, has_the_gate_shut_from_the_order_on_whatever_else_is_given_back) {
  declare(ReclaimKind::kEmergency, 0, {1});
  clear(record().id);
  w.run(1);
  declare(ReclaimKind::kEmergency, 0);  // its clearing is under way, nothing is said to be cut
  w.ask(Release{{1}});

  ASSERT_NE(w.did<SetGates>(), nullptr);
  EXPECT_FALSE(w.did<SetGates>()->is_node_open);
}

TEST_F(WardenOwner, has_the_gate_shut_after_the_kill_socket_was_used) {
  w.run(1);
  w.tell(fired());

  ASSERT_NE(w.did<SetGates>(), nullptr);
  EXPECT_FALSE(w.did<SetGates>()->is_node_open);
}

TEST_F(WardenOwner, cuts_the_guests_of_one_gpu_and_no_others) {
  w.run(1, {0});
  w.run(2, {1});
  w.tell(cut_only(0b01));

  ASSERT_NE(w.did<SetGates>(), nullptr);
  EXPECT_TRUE(w.did<SetGates>()->is_node_open);
  EXPECT_EQ(w.did<SetGates>()->open_slots, std::vector<std::uint32_t>{w.record(2)->slot});
}

TEST_F(WardenOwner, may_set_a_deadline_for_guests_that_were_only_cut) {
  w.run(1);
  w.tell(cut_only());
  declare(ReclaimKind::kNotice, 60);
  EXPECT_EQ(w.did<Clear>(), nullptr);
  w.after(seconds(60));

  EXPECT_NE(w.did<Clear>(), nullptr);
}

TEST_F(WardenOwner, cuts_alone_and_a_restart_of_the_warden_ends_nothing_either) {
  w.run(1);
  w.tell(cut_only());
  Rig later(w.core.journal());
  later.last = later.core.start(later.clock.now());
  FoundContainer found{Rig::guest(1), "c1", 0, true, 101};
  found.has_go_ahead = true;
  later.tell(Reconciled{{found}, {{Rig::guest(1), "/disk/1", 64}}, {}});
  EXPECT_EQ(later.did<Kill>(), nullptr);
  EXPECT_TRUE(later.did<SetGates>()->open_slots.empty());
  later.ask(Release{});

  EXPECT_EQ(later.state_of(1), GuestState::kRunning);
  EXPECT_EQ(later.did<SetGates>()->open_slots, std::vector<std::uint32_t>{0});
}

TEST_F(WardenOwner, has_cleared_the_machine_and_what_is_found_alive_afterwards_is_ended) {
  w.run(1);
  Journal journal = w.core.journal();  // of before; it came to life behind the clearing's back
  clear(declare(ReclaimKind::kEmergency, 0));
  journal.reclaims = w.core.journal().reclaims;
  Rig later(journal);
  later.last = later.core.start(later.clock.now());
  FoundContainer found{Rig::guest(1), "c1", 0, true, 101};
  found.has_go_ahead = true;
  later.tell(Reconciled{{found}, {{Rig::guest(1), "/disk/1", 64}}, {}});

  EXPECT_NE(later.did<Kill>(), nullptr);
}

TEST_F(WardenOwner, cuts_and_no_guest_begins_behind_the_gate) {
  w.give_disk(1);
  w.ask(Rig::start_of(1));
  const OpId start = w.did<Start>()->op;
  w.tell(cut_only());
  w.tell(Started{start, StartedGuest{"c1", 101, 5}});

  EXPECT_EQ(w.did<Go>(), nullptr);
  EXPECT_NE(w.did<Kill>(), nullptr);
}

TEST_F(WardenOwner, ends_a_guest_that_gets_its_go_ahead_at_the_same_moment) {
  w.give_disk(1);
  w.ask(Rig::start_of(1));
  w.tell(Started{w.did<Start>()->op, StartedGuest{"c1", 101, 5}});
  const OpId go = w.did<Go>()->op;
  declare(ReclaimKind::kEmergency, 0);
  w.tell(Finished{go, {}});

  EXPECT_NE(w.did<Kill>(), nullptr);
}

TEST_F(WardenOwner, reads_of_the_last_gpu_of_64_too) {
  w.tell(fired(1ULL << 63));

  EXPECT_EQ(record().gpus, std::vector<std::uint32_t>{63});
}

TEST_F(WardenOwner, orders_by_hand_and_by_the_socket_are_counted_apart) {
  w.tell(fired());
  w.ask(Release{});
  EmergencyDone by_hand = fired();
  by_hand.sequence = 1;
  by_hand.is_by_hand = true;
  w.tell(by_hand);
  EXPECT_EQ(records(), 2U);
  w.tell(by_hand);

  EXPECT_EQ(records(), 2U);
}

TEST_F(WardenOwner, reads_when_the_order_was_given_and_not_when_it_was_heard_of) {
  const std::int64_t ordered_ns = w.now_ns();
  const std::int64_t ordered_wall_ms = to_ms(w.clock.now().wall);
  const EmergencyDone event = fired();
  w.clock.advance(seconds(5));
  w.tell(event);

  EXPECT_EQ(record().declared_ns, ordered_ns);
  EXPECT_EQ(record().declared_wall_ms, ordered_wall_ms);
}

TEST_F(WardenOwner, does_not_wait_ever_longer_for_the_next_try) {
  w.run(1);
  const ReclaimId id = declare(ReclaimKind::kEmergency, 0);
  w.tell(WasCut{id, w.now_ns()});
  for (int tries = 0; tries < 10; ++tries) {
    w.tell(WasCleared{id, ClearReport{w.now_ns(), 0, 1, {"pid 77 in state D"}}});
    ASSERT_TRUE(w.core.wake_at());
    EXPECT_LE(*w.core.wake_at() - w.clock.now().boot, CoreConfig().retry_clear_max);
    w.after(CoreConfig().retry_clear_max);
  }
}

TEST_F(WardenOwner, finds_an_open_reclaim_behind_many_that_are_over) {
  w.run(1, {1});
  const ReclaimId open = declare(ReclaimKind::kAnnounced, 6 * 86400, {1});
  for (int i = 0; i < 40; ++i) {
    clear(declare(ReclaimKind::kEmergency, 0, {2}));
    w.ask(Release{{2}});
  }

  ASSERT_EQ(records(), kKeptReclaims + 1);
  EXPECT_EQ(record().id, open);
}

TEST_F(WardenOwner, has_windows_end_again_after_one_was_given_back) {
  w.run(1);
  const auto in = [&](nanoseconds declare, nanoseconds deadline) {
    const Instant now = w.clock.now().boot;
    return Announce{to_ns(now + declare), to_ns(now + deadline), "the lending window ends"};
  };
  w.ask(in(seconds(0), seconds(60)), false);
  w.ask(Announce{}, false);
  ASSERT_EQ(record().phase, ReclaimPhase::kReturned);
  w.ask(in(seconds(60), seconds(120)), false);
  EXPECT_EQ(records(), 1U);
  w.after(seconds(60));

  ASSERT_EQ(records(), 2U);
  EXPECT_EQ(record(1).phase, ReclaimPhase::kEvacuating);
}

TEST_F(WardenOwner, has_the_window_end_beside_a_gpu_that_was_taken_before) {
  w.run(1);
  declare(ReclaimKind::kEmergency, 0, {3});
  clear(record().id);
  const Instant now = w.clock.now().boot;
  w.ask(Announce{to_ns(now), to_ns(now + seconds(60)), "the lending window ends"}, false);

  ASSERT_EQ(records(), 2U);
  EXPECT_EQ(record(1).kind, ReclaimKind::kAnnounced);
}

TEST_F(WardenOwner, takes_a_gpu_and_it_does_not_come_back_with_the_window) {
  w.run(1, {0});
  const Instant now = w.clock.now().boot;
  w.ask(Announce{to_ns(now), to_ns(now + seconds(60)), "the lending window ends"}, false);
  declare(ReclaimKind::kNotice, 300, {0});
  ASSERT_EQ(records(), 2U);
  w.ask(Announce{}, false);

  EXPECT_EQ(record(0).phase, ReclaimPhase::kReturned);
  EXPECT_EQ(record(1).phase, ReclaimPhase::kEvacuating);
}

// ---- what is said of guests

TEST_F(WardenOwner, reads_how_guests_ended) {
  w.run(1);
  w.run(2);
  w.tell(Exited{Rig::guest(1), "c1", 137, true});
  w.tell(Exited{Rig::guest(2), "c2", 137, false, true});

  const auto guests = w.core.state().guests;
  EXPECT_TRUE(guests.at(0).is_oom_killed);
  EXPECT_FALSE(guests.at(0).is_vanished);
  EXPECT_TRUE(guests.at(1).is_vanished);
  EXPECT_EQ(w.record(1)->pid, 0) << "the number is somebody else's soon";
}

TEST_F(WardenOwner, reads_how_a_guest_ended_while_no_warden_looked) {
  w.run(1);
  Rig later(w.core.journal());
  later.last = later.core.start(later.clock.now());
  FoundContainer found{Rig::guest(1), "c1", 0, false, 0, 137, true};
  found.has_go_ahead = true;
  later.tell(Reconciled{{found}, {{Rig::guest(1), "/disk/1", 64}}, {}});

  EXPECT_TRUE(later.core.state().guests.at(0).is_oom_killed);
}

TEST_F(WardenOwner, one_network_slot_has_one_guest_also_after_a_search) {
  w.run(1);
  Rig later(w.core.journal());
  later.last = later.core.start(later.clock.now());
  FoundContainer own{Rig::guest(1), "c1", 0, true, 101};
  own.has_go_ahead = true;
  FoundContainer other = own;
  other.guest = Rig::guest(7);
  other.container = "c7";
  later.tell(Reconciled{
      {own, other}, {{Rig::guest(1), "/disk/1", 64}, {Rig::guest(7), "/disk/7", 64}}, {}});

  EXPECT_EQ(later.state_of(1), GuestState::kRunning);
  EXPECT_NE(later.state_of(7), GuestState::kRunning);
  ASSERT_NE(later.did<RemoveStray>(), nullptr);
  EXPECT_EQ(later.did<RemoveStray>()->container.container, "c7");
}

TEST_F(WardenOwner, a_removal_that_a_crash_interrupted_is_finished) {
  w.run(1);
  w.tell(Exited{Rig::guest(1), "c1", 0, false});
  w.ask(RemoveGuest{Rig::guest(1)});
  Rig later(w.core.journal());
  later.last = later.core.start(later.clock.now());
  later.tell(Reconciled{{}, {{Rig::guest(1), "/disk/1", 64}}, {}});

  EXPECT_NE(later.did<Forget>(), nullptr);
}

// ---- requests

TEST_F(WardenOwner, nothing_is_loaded_before_the_machine_was_searched) {
  Rig early;
  early.last = early.core.start(early.clock.now());
  early.ask(LoadImage{"sha256:b", "/state/b"});

  EXPECT_EQ(early.answer(), "unavailable");
}

TEST_F(WardenOwner, a_disk_that_could_not_be_made_may_be_asked_for_again) {
  w.ask(PrepareDisk{Rig::guest(1), 64});
  w.tell(DiskMade{w.did<MakeDisk>()->op, fail(ErrorCode::kExhausted, "the disk is full")});
  EXPECT_EQ(w.answer(), "exhausted");
  EXPECT_EQ(w.record(1), nullptr);
  w.ask(PrepareDisk{Rig::guest(1), 64});

  EXPECT_NE(w.did<MakeDisk>(), nullptr);
}

TEST_F(WardenOwner, no_guest_starts_on_a_disk_that_could_not_be_given_to_it) {
  w.ask(PrepareDisk{Rig::guest(1), 64});
  w.tell(DiskMade{w.did<MakeDisk>()->op, "/disk/1"});
  w.ask(warden_wire::AdoptDisk{Rig::guest(1)});
  w.tell(Finished{w.did<warden::AdoptDisk>()->op, fail(ErrorCode::kInternal, "an I/O error")});
  EXPECT_EQ(w.answer(), "internal");
  w.ask(Rig::start_of(1));

  EXPECT_EQ(w.answer(), "conflict");
}

TEST_F(WardenOwner, no_guest_starts_without_an_engine) {
  w.give_disk(1);
  w.tell(EngineChanged{false, ""});
  w.ask(Rig::start_of(1));

  EXPECT_EQ(w.answer(), "unavailable");
  EXPECT_EQ(w.did<Start>(), nullptr);
}

TEST_F(WardenOwner, no_signal_is_no_work) {
  w.run(1);
  w.ask(SignalGuest{Rig::guest(1), SaveSignal::kNone});

  EXPECT_EQ(w.answer(), "");
  EXPECT_EQ(w.did<Signal>(), nullptr);
}

TEST_F(WardenOwner, a_notice_needs_a_folder) {
  w.ask(PrepareDisk{Rig::guest(1), 64});
  const OpId made = w.did<MakeDisk>()->op;
  EXPECT_EQ((w.ask(WriteNotice{Rig::guest(1), 1, 1, ""}), w.answer()), "conflict");
  w.tell(DiskMade{made, "/disk/1"});
  w.ask(warden_wire::ReleaseDisk{Rig::guest(1)});

  EXPECT_EQ((w.ask(WriteNotice{Rig::guest(1), 1, 1, ""}), w.answer()), "conflict");
}

}  // namespace
}  // namespace rn::warden
