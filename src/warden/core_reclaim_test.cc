// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "warden/core_fixture_fake.h"

namespace rn::warden {
namespace {

using Rig = CoreUnderTest;
using warden_wire::DeclareReclaim;
using warden_wire::EvacuationDone;
using warden_wire::Release;

ClearReport cleared(std::int64_t at) {
  return ClearReport{at, at + 1, 2, {}};
}

ClearReport wedged(std::int64_t at) {
  return ClearReport{at, 0, 1, {"pid 77 in state D"}};
}

TEST(Reclaim, with_notice_waits_for_the_deadline_then_cuts_and_clears) {
  Rig w;
  w.ready().run(1);

  const auto reclaim = w.reclaim(ReclaimKind::kNotice, 60);
  EXPECT_EQ(reclaim.phase, ReclaimPhase::kEvacuating);
  EXPECT_EQ(reclaim.deadline_ns, w.now_ns() + 60'000'000'000);
  EXPECT_EQ(w.did<Clear>(), nullptr);
  EXPECT_EQ(w.core.wake_at(), w.clock.now().boot + seconds(60));
  w.after(seconds(59));
  EXPECT_EQ(w.did<Clear>(), nullptr);
  w.after(seconds(1));
  ASSERT_NE(w.did<Clear>(), nullptr);
  EXPECT_TRUE(w.did<Clear>()->is_whole_node);
  w.tell(WasCut{reclaim.id, w.now_ns()});
  EXPECT_EQ(w.phase(), ReclaimPhase::kCut);
  w.tell(WasCleared{reclaim.id, cleared(w.now_ns())});

  EXPECT_EQ(w.phase(), ReclaimPhase::kCleared);
  EXPECT_EQ(w.core.journal().reclaims[0].processes_killed, 2U);
  EXPECT_EQ(w.state_of(1), GuestState::kExited);
  EXPECT_TRUE(w.core.state().guests[0].is_cut);
}

TEST(Reclaim, an_emergency_cuts_in_the_same_output) {
  Rig w;
  w.ready().run(1);

  w.reclaim(ReclaimKind::kEmergency);

  ASSERT_NE(w.did<Clear>(), nullptr);
  ASSERT_TRUE(w.last.journal);
  EXPECT_EQ(w.last.journal->reclaims.at(0).kind, ReclaimKind::kEmergency);
}

TEST(Reclaim, without_guests_there_is_nothing_to_wait_for) {
  Rig w;
  w.ready();

  w.reclaim(ReclaimKind::kNotice, 60);

  EXPECT_NE(w.did<Clear>(), nullptr);
}

TEST(Reclaim, clears_as_soon_as_the_last_guest_is_evacuated) {
  Rig w;
  w.ready();
  w.run(1);
  w.run(2);
  const auto reclaim = w.reclaim(ReclaimKind::kNotice, 60);

  w.ask(EvacuationDone{reclaim.id, {Rig::guest(1)}});
  EXPECT_EQ(w.did<Clear>(), nullptr);
  w.ask(EvacuationDone{reclaim.id, {Rig::guest(1), Rig::guest(9)}});
  EXPECT_EQ(w.did<Clear>(), nullptr) << "repeated and unknown names do not count";
  w.ask(EvacuationDone{reclaim.id, {Rig::guest(2)}});

  EXPECT_NE(w.did<Clear>(), nullptr);
}

TEST(Reclaim, a_guest_that_has_exited_still_has_its_copies_before_it_until_the_deadline) {
  Rig w;
  w.ready().run(1);
  const auto reclaim = w.reclaim(ReclaimKind::kNotice, 60);

  w.tell(Exited{Rig::guest(1), "c1", 0, false});
  EXPECT_EQ(w.did<Clear>(), nullptr);
  w.after(seconds(59));
  EXPECT_EQ(w.did<Clear>(), nullptr);
  w.after(seconds(1));

  EXPECT_NE(w.did<Clear>(), nullptr) << "the agent's silence holds the owner up no longer";
  EXPECT_EQ(w.core.journal().reclaims[0].id, reclaim.id);
}

TEST(Reclaim, an_exited_guest_counts_as_evacuated_when_the_agent_says_so) {
  Rig w;
  w.ready().run(1);
  const auto reclaim = w.reclaim(ReclaimKind::kNotice, 60);
  w.tell(Exited{Rig::guest(1), "c1", 0, false});

  w.ask(EvacuationDone{reclaim.id, {Rig::guest(1)}});

  EXPECT_NE(w.did<Clear>(), nullptr);
}

TEST(Reclaim, is_declared_once_while_it_is_open) {
  Rig w;
  w.ready().run(1);
  const auto first = w.reclaim(ReclaimKind::kNotice, 60);

  w.clock.advance(seconds(10));
  w.reclaim(ReclaimKind::kNotice, 60);

  ASSERT_EQ(w.core.journal().reclaims.size(), 1U);
  EXPECT_EQ(w.core.journal().reclaims[0].deadline_ns, first.deadline_ns) << "never later";
  EXPECT_EQ(w.did<SendAnswer>()->answer.reclaim.id, first.id);
}

TEST(Reclaim, may_be_made_earlier_and_an_emergency) {
  Rig w;
  w.ready().run(1);
  w.reclaim(ReclaimKind::kAnnounced, 600);
  w.reclaim(ReclaimKind::kNotice, 60);
  EXPECT_EQ(w.core.journal().reclaims[0].deadline_ns, w.now_ns() + 60'000'000'000);

  w.reclaim(ReclaimKind::kEmergency);

  EXPECT_NE(w.did<Clear>(), nullptr);
  ASSERT_EQ(w.core.journal().reclaims.size(), 1U);
  EXPECT_EQ(w.core.journal().reclaims[0].kind, ReclaimKind::kEmergency);
}

TEST(Reclaim, takes_no_guest_from_declaration_to_release) {
  Rig w;
  w.ready().run(1);
  w.give_disk(2);
  const auto reclaim = w.reclaim(ReclaimKind::kAnnounced, 600);

  EXPECT_EQ((w.ask(Rig::start_of(2)), w.answer()), "unavailable");
  w.reclaim(ReclaimKind::kEmergency);
  w.tell(WasCut{reclaim.id, w.now_ns()});
  w.tell(WasCleared{reclaim.id, cleared(w.now_ns())});
  EXPECT_EQ((w.ask(Rig::start_of(2)), w.answer()), "unavailable");
  w.ask(Release{});
  EXPECT_EQ(w.phase(), ReclaimPhase::kReturned);
  EXPECT_TRUE(w.did<SetGates>()->is_node_open);
  w.ask(Rig::start_of(2));

  EXPECT_NE(w.did<Start>(), nullptr);
}

TEST(Reclaim, released_while_evacuating_lets_the_guests_go_on) {
  Rig w;
  w.ready().run(1);
  w.reclaim(ReclaimKind::kNotice, 60);

  w.ask(Release{});
  EXPECT_EQ(w.answer(), "");
  w.after(seconds(120));

  EXPECT_EQ(w.did<Clear>(), nullptr);
  EXPECT_EQ(w.state_of(1), GuestState::kRunning);
}

TEST(Reclaim, cannot_be_released_in_the_middle_of_clearing) {
  Rig w;
  w.ready().run(1);
  const auto reclaim = w.reclaim(ReclaimKind::kEmergency);

  w.ask(Release{});
  EXPECT_EQ(w.answer(), "unavailable");
  w.tell(WasCut{reclaim.id, w.now_ns()});
  w.ask(Release{});
  EXPECT_EQ(w.answer(), "unavailable");
  w.tell(WasCleared{reclaim.id, cleared(w.now_ns())});
  w.ask(Release{});

  EXPECT_EQ(w.answer(), "");
}

TEST(Reclaim, of_one_gpu_is_not_released_with_all_while_another_is_being_cleared) {
  Rig w;
  w.ready().run(1, {0});
  w.run(2, {1});
  warden_wire::DeclareReclaim request;
  request.kind = ReclaimKind::kEmergency;
  request.gpus = {0};
  w.ask(request);
  w.tell(WasCleared{w.core.journal().reclaims.at(0).id, cleared(w.now_ns())});
  ASSERT_EQ(w.phase(0), ReclaimPhase::kCleared);
  request.gpus = {1};
  w.ask(request);

  w.ask(Release{});

  EXPECT_EQ(w.answer(), "unavailable");
  EXPECT_EQ(w.phase(0), ReclaimPhase::kCleared) << "a release that is refused changes nothing";
  w.tell(WasCleared{w.core.journal().reclaims.at(1).id, cleared(w.now_ns())});
  w.ask(Release{});
  EXPECT_EQ(w.answer(), "");
  EXPECT_EQ(w.phase(0), ReclaimPhase::kReturned);
  EXPECT_EQ(w.phase(1), ReclaimPhase::kReturned);
}

TEST(Reclaim, that_is_not_verified_is_wedged_and_tried_again_with_longer_waits) {
  Rig w;
  w.ready().run(1);
  const auto reclaim = w.reclaim(ReclaimKind::kEmergency);
  w.tell(WasCut{reclaim.id, w.now_ns()});

  w.tell(WasCleared{reclaim.id, wedged(w.now_ns())});
  EXPECT_EQ(w.phase(), ReclaimPhase::kWedged);
  EXPECT_EQ(w.core.journal().reclaims[0].remains.at(0), "pid 77 in state D");
  EXPECT_EQ(w.core.wake_at(), w.clock.now().boot + seconds(2));
  w.after(seconds(2));
  ASSERT_NE(w.did<Clear>(), nullptr);
  w.tell(WasCleared{reclaim.id, wedged(w.now_ns())});
  EXPECT_EQ(w.core.wake_at(), w.clock.now().boot + seconds(4));
  w.after(seconds(4));
  w.tell(WasCleared{reclaim.id, cleared(w.now_ns())});

  EXPECT_EQ(w.phase(), ReclaimPhase::kCleared);
  EXPECT_TRUE(w.core.journal().reclaims[0].remains.empty());
}

TEST(Reclaim, a_wedged_one_is_looked_at_again_when_a_guest_was_removed) {
  Rig w;
  w.ready().run(1);
  const auto reclaim = w.reclaim(ReclaimKind::kEmergency);
  w.tell(WasCut{reclaim.id, w.now_ns()});
  w.tell(WasCleared{reclaim.id, wedged(w.now_ns())});
  w.tell(Exited{Rig::guest(1), "c1", 137, false, false});

  w.ask(warden_wire::RemoveGuest{Rig::guest(1)});
  const OpId removal = w.did<Forget>()->op;
  EXPECT_EQ(w.did<Clear>(), nullptr);
  w.tell(Finished{removal, {}});

  ASSERT_NE(w.did<Clear>(), nullptr);
  EXPECT_TRUE(w.did<Clear>()->guests.empty());
  w.tell(WasCleared{reclaim.id, cleared(w.now_ns())});
  EXPECT_EQ(w.phase(), ReclaimPhase::kCleared);
}

TEST(Reclaim, a_wedged_one_may_be_released_by_the_owner) {
  Rig w;
  w.ready().run(1);
  const auto reclaim = w.reclaim(ReclaimKind::kEmergency);
  w.tell(WasCut{reclaim.id, w.now_ns()});
  w.tell(WasCleared{reclaim.id, wedged(w.now_ns())});

  w.ask(Release{});

  EXPECT_EQ(w.answer(), "");
  EXPECT_EQ(w.core.wake_at(), std::nullopt);
  w.tell(WasCleared{reclaim.id, cleared(w.now_ns())});
  EXPECT_EQ(w.phase(), ReclaimPhase::kReturned) << "late answers change nothing";
}

TEST(Reclaim, a_clearing_without_answer_is_repeated) {
  Rig w;
  w.ready().run(1);
  w.reclaim(ReclaimKind::kEmergency);

  w.after(seconds(29));
  EXPECT_EQ(w.did<Clear>(), nullptr);
  w.after(seconds(1));

  EXPECT_NE(w.did<Clear>(), nullptr);
}

TEST(Reclaim, of_some_gpus_leaves_the_others_alone) {
  Rig w;
  w.ready();
  w.run(1, {0});
  w.run(2, {1});
  w.run(3);

  DeclareReclaim request;
  request.kind = ReclaimKind::kEmergency;
  request.gpus = {1, 1};
  w.ask(request);
  const auto* clear = w.did<Clear>();
  ASSERT_NE(clear, nullptr);
  EXPECT_FALSE(clear->is_whole_node);
  ASSERT_EQ(clear->guests.size(), 1U);
  EXPECT_EQ(clear->guests[0].guest, Rig::guest(2));
  w.tell(WasCut{clear->reclaim, w.now_ns()});
  w.tell(WasCleared{w.core.journal().reclaims[0].id, cleared(w.now_ns())});
  EXPECT_EQ(w.state_of(1), GuestState::kRunning);
  EXPECT_EQ(w.state_of(2), GuestState::kExited);
  w.give_disk(4);
  EXPECT_EQ((w.ask(Rig::start_of(4, {1})), w.answer()), "unavailable");
  w.give_disk(5);
  w.ask(Rig::start_of(5, {2}));

  EXPECT_NE(w.did<Start>(), nullptr);
}

TEST(Reclaim, of_one_gpu_at_once_leaves_the_notice_of_the_whole_node_as_it_was) {
  Rig w;
  w.ready();
  w.run(1, {0});
  w.run(2, {1});
  const auto whole = w.reclaim(ReclaimKind::kNotice, 900);
  DeclareReclaim request;
  request.kind = ReclaimKind::kEmergency;
  request.gpus = {0};

  w.ask(request);
  const auto* clear = w.did<Clear>();
  ASSERT_NE(clear, nullptr);
  ASSERT_EQ(clear->guests.size(), 1U);
  EXPECT_EQ(clear->guests[0].guest, Rig::guest(1));
  const ReclaimId one = clear->reclaim;
  ASSERT_NE(one, whole.id);
  w.tell(WasCut{one, w.now_ns()});
  w.tell(WasCleared{one, cleared(w.now_ns())});

  EXPECT_EQ(w.state_of(1), GuestState::kExited);
  EXPECT_EQ(w.state_of(2), GuestState::kRunning) << "it has its notice";
  EXPECT_EQ(w.phase(0), ReclaimPhase::kEvacuating);
  EXPECT_EQ(w.core.journal().reclaims[0].deadline_ns, whole.deadline_ns);
  w.after(seconds(900));
  ASSERT_NE(w.did<Clear>(), nullptr);
  EXPECT_EQ(w.did<Clear>()->reclaim, whole.id);
}

TEST(Reclaim, of_one_gpu_later_than_the_whole_node_or_after_it_says_nothing_new) {
  Rig w;
  w.ready();
  w.run(1, {0});
  w.reclaim(ReclaimKind::kNotice, 60);
  DeclareReclaim request;
  request.kind = ReclaimKind::kNotice;
  request.notice_s = 300;
  request.gpus = {0};
  w.ask(request);
  EXPECT_EQ(w.core.journal().reclaims.size(), 1U);

  w.after(seconds(60));
  request.kind = ReclaimKind::kEmergency;
  w.ask(request);

  EXPECT_EQ(w.core.journal().reclaims.size(), 1U);
}

TEST(Reclaim, of_gpus_is_released_by_its_gpus_or_all) {
  Rig w;
  w.ready();
  DeclareReclaim request;
  request.gpus = {1};
  w.ask(request);
  w.tell(WasCleared{w.core.journal().reclaims[0].id, cleared(w.now_ns())});

  w.ask(Release{{0}});
  EXPECT_EQ(w.phase(), ReclaimPhase::kCleared);
  w.ask(Release{{0, 1}});

  EXPECT_EQ(w.phase(), ReclaimPhase::kReturned);
}

TEST(Reclaim, catches_a_guest_that_was_just_starting) {
  Rig w;
  w.ready().give_disk(1);
  w.ask(Rig::start_of(1));
  const OpId start = w.did<Start>()->op;
  const auto reclaim = w.reclaim(ReclaimKind::kEmergency);
  w.tell(WasCut{reclaim.id, w.now_ns()});
  w.tell(WasCleared{reclaim.id, cleared(w.now_ns())});

  w.tell(Started{start, StartedGuest{"c1", 101, 5}});

  EXPECT_EQ(w.did<Go>(), nullptr);
  EXPECT_NE(w.did<Kill>(), nullptr);
}

TEST(Reclaim, what_cannot_be_declared) {
  Rig w;
  w.ready();
  const auto code = [&](ReclaimKind kind, std::uint32_t s, std::vector<std::uint32_t> gpus = {}) {
    DeclareReclaim request;
    request.kind = kind;
    request.notice_s = request.in_s = s;
    request.gpus = std::move(gpus);
    w.ask(request);
    return w.answer();
  };

  EXPECT_EQ(code(ReclaimKind::kLost, 0), "invalid");
  EXPECT_EQ(code(ReclaimKind::kNotice, 901), "invalid");
  EXPECT_EQ(code(ReclaimKind::kAnnounced, 7 * 86400 + 1), "invalid");
  EXPECT_EQ(code(ReclaimKind::kNotice, 1, {64}), "invalid");
  EXPECT_TRUE(w.core.journal().reclaims.empty());
}

TEST(Reclaim, keeps_the_last_returned_ones_only) {
  Rig w;
  w.ready();

  for (int i = 0; i < 40; ++i) {
    const auto reclaim = w.reclaim(ReclaimKind::kEmergency);
    w.tell(WasCut{reclaim.id, w.now_ns()});
    w.tell(WasCleared{reclaim.id, cleared(w.now_ns())});
    w.ask(Release{});
  }

  EXPECT_EQ(w.core.journal().reclaims.size(), kKeptReclaims);
}

// ---- the kill socket

EmergencyDone fired(std::uint64_t sequence, std::int64_t at) {
  EmergencyDone event;
  event.sequence = sequence;
  event.declared_ns = at;
  event.cut_ns = at + 1;
  event.report = ClearReport{at + 2, at + 3, 4, {}};
  return event;
}

TEST(KillSocket, what_it_did_becomes_a_cleared_reclaim) {
  Rig w;
  w.ready().run(1);

  w.tell(fired(1, w.now_ns()));
  ASSERT_EQ(w.core.journal().reclaims.size(), 1U);
  const ReclaimRecord& reclaim = w.core.journal().reclaims[0];
  EXPECT_EQ(reclaim.kind, ReclaimKind::kEmergency);
  EXPECT_EQ(reclaim.phase, ReclaimPhase::kCleared);
  EXPECT_EQ(reclaim.cut_ns - reclaim.declared_ns, 1);
  EXPECT_EQ(w.state_of(1), GuestState::kExited);
  w.tell(fired(1, w.now_ns()));

  EXPECT_EQ(w.core.journal().reclaims[0].processes_killed, 4U) << "taken once";
}

TEST(KillSocket, guests_that_end_while_it_clears_are_the_owners_doing) {
  Rig w;
  w.ready().run(1, {0});
  w.run(2, {1});
  const std::int64_t at = w.now_ns();

  w.tell(EmergencyBegun{1, at});
  EXPECT_FALSE(w.core.state().guests[1].is_cut) << "it has another GPU";
  w.tell(Exited{Rig::guest(1), "c1", 137, false, true});

  ASSERT_EQ(w.core.journal().reclaims.size(), 1U);
  EXPECT_EQ(w.core.journal().reclaims[0].kind, ReclaimKind::kEmergency);
  EXPECT_EQ(w.phase(0), ReclaimPhase::kEvacuating);
  EXPECT_TRUE(w.core.state().guests[0].is_cut);
  EXPECT_EQ(w.did<Clear>(), nullptr) << "the socket's thread clears";
  w.ask(warden_wire::Release{});
  EXPECT_EQ(w.answer(), "unavailable") << "it is still at work";

  EmergencyDone event = fired(1, at);
  event.gpu_mask = 1;
  event.report.remains = {"process 7"};
  w.tell(event);
  EXPECT_EQ(w.core.journal().reclaims.size(), 1U);
  EXPECT_EQ(w.phase(0), ReclaimPhase::kWedged);
  EXPECT_EQ(w.core.journal().reclaims[0].cut_ns, at + 1);
}

TEST(
    KillSocket, what_is_over_with_a_release_is_what_was_ordered_before_a_whole_one_that_took_place
) {
  Rig w;
  w.ready().run(1, {0});
  w.clock.advance(seconds(5));
  w.ask(warden_wire::Release{{0}});
  EXPECT_EQ(w.core.released_at(), Instant{}) << "other GPUs are not released by it";
  w.tell(EmergencyBegun{0, w.now_ns()});
  w.ask(warden_wire::Release{});
  EXPECT_EQ(w.answer(), "unavailable");
  EXPECT_EQ(w.core.released_at(), Instant{});
  w.tell(fired(1, w.now_ns()));

  w.ask(warden_wire::Release{});

  EXPECT_EQ(w.answer(), "");
  EXPECT_EQ(to_ns(w.core.released_at()), w.now_ns());
}

/// A guest runs; an order is given and not told yet, and a second later the owner releases. When
/// the order was given.
std::int64_t released_after_an_order(Rig& w) {
  w.ready().run(1);
  const std::int64_t ordered_ns = w.now_ns();
  w.clock.advance(seconds(1));
  w.ask(warden_wire::Release{});
  w.clock.advance(seconds(1));
  return ordered_ns;
}

TEST(KillSocket, a_cut_that_is_told_after_the_release_that_followed_it_is_over) {
  Rig w;
  const std::int64_t ordered_ns = released_after_an_order(w);
  EmergencyDone cut = fired(1, w.now_ns());
  cut.is_cut_only = true;
  cut.report = {};
  cut.ordered_ns = ordered_ns;

  w.tell(cut);

  ASSERT_NE(w.did<SetGates>(), nullptr) << "the deed shut what the release had opened";
  EXPECT_TRUE(w.did<SetGates>()->is_node_open);
  EXPECT_TRUE(w.core.journal().reclaims.empty());
  EXPECT_EQ(w.core.journal().emergencies_seen, 1U);
  EXPECT_FALSE(w.core.state().guests[0].is_cut);

  cut.sequence = 2;
  cut.ordered_ns = w.now_ns();
  w.tell(cut);
  EXPECT_TRUE(w.core.state().guests[0].is_cut) << "ordered after the release";
}

TEST(KillSocket, a_deed_that_is_told_after_the_release_that_followed_its_order_ends_at_once) {
  Rig w;
  const std::int64_t ordered_ns = released_after_an_order(w);
  EmergencyDone event = fired(1, w.now_ns());
  event.ordered_ns = ordered_ns;

  w.tell(event);

  EXPECT_EQ(w.phase(0), ReclaimPhase::kReturned) << "in the record, for what it did";
  EXPECT_TRUE(w.did<SetGates>()->is_node_open);
}

TEST(KillSocket, a_deed_that_is_over_leaves_a_reclaim_that_came_after_the_release) {
  Rig w;
  const std::int64_t ordered_ns = released_after_an_order(w);
  w.tell(fired(1, w.now_ns()));
  EmergencyDone event = fired(2, w.now_ns() + 1);
  event.ordered_ns = ordered_ns;

  w.tell(event);

  EXPECT_EQ(w.core.journal().reclaims.size(), 1U);
  EXPECT_EQ(w.phase(0), ReclaimPhase::kCleared);
  EXPECT_FALSE(w.did<SetGates>()->is_node_open);
}

TEST(KillSocket, a_release_waits_for_an_order_although_one_by_hand_has_cleared) {
  Rig w;
  w.ready().run(1);
  w.tell(EmergencyBegun{0, w.now_ns()});
  EmergencyDone by_hand = fired(1, w.now_ns());
  by_hand.is_by_hand = true;
  w.tell(by_hand);
  EXPECT_EQ(w.phase(0), ReclaimPhase::kCleared);

  w.ask(warden_wire::Release{});
  EXPECT_EQ(w.answer(), "unavailable");
  w.tell(fired(1, w.now_ns()));
  w.ask(warden_wire::Release{});

  EXPECT_EQ(w.answer(), "");
  EXPECT_EQ(w.core.journal().reclaims.size(), 1U) << "the same order, told twice";
  EXPECT_EQ(w.phase(0), ReclaimPhase::kReturned);
}

TEST(KillSocket, one_that_never_says_what_it_did_is_carried_out_again) {
  Rig w;
  w.ready().run(1);

  w.tell(EmergencyBegun{0, w.now_ns()});
  EXPECT_EQ(w.did<Clear>(), nullptr);
  w.after(seconds(31));

  EXPECT_NE(w.did<Clear>(), nullptr);
}

TEST(KillSocket, during_a_notice_it_ends_that_reclaim) {
  Rig w;
  w.ready().run(1);
  w.reclaim(ReclaimKind::kNotice, 60);

  w.tell(fired(1, w.now_ns()));

  ASSERT_EQ(w.core.journal().reclaims.size(), 1U);
  EXPECT_EQ(w.phase(), ReclaimPhase::kCleared);
  EXPECT_EQ(w.core.journal().reclaims[0].kind, ReclaimKind::kEmergency);
}

TEST(KillSocket, of_one_gpu_during_a_notice_it_says_nothing_of_the_other_guests) {
  Rig w;
  w.ready();
  w.run(1, {0});
  w.run(2, {1});
  const auto whole = w.reclaim(ReclaimKind::kNotice, 900);
  EmergencyDone event = fired(1, w.now_ns());
  event.gpu_mask = 1;

  w.tell(event);

  EXPECT_EQ(w.state_of(1), GuestState::kExited);
  EXPECT_EQ(w.state_of(2), GuestState::kRunning) << "nobody has looked at it";
  EXPECT_EQ(w.phase(0), ReclaimPhase::kEvacuating);
  EXPECT_EQ(w.core.journal().reclaims[0].deadline_ns, whole.deadline_ns);
  ASSERT_EQ(w.core.journal().reclaims.size(), 2U);
  EXPECT_EQ(w.phase(1), ReclaimPhase::kCleared);
}

TEST(KillSocket, a_cut_alone_during_a_notice_keeps_its_deadline) {
  Rig w;
  w.ready().run(1);
  const auto whole = w.reclaim(ReclaimKind::kNotice, 60);
  EmergencyDone event = fired(1, w.now_ns());
  event.is_cut_only = true;
  event.report = {};

  w.tell(event);
  EXPECT_TRUE(w.core.state().guests[0].is_cut);
  EXPECT_EQ(w.core.journal().reclaims.at(0).deadline_ns, whole.deadline_ns);
  EXPECT_EQ(w.core.journal().reclaims.at(0).kind, ReclaimKind::kNotice);
  w.after(seconds(60));

  EXPECT_NE(w.did<Clear>(), nullptr);
}

TEST(KillSocket, an_intent_whose_deed_is_unknown_is_carried_out) {
  Rig w;
  w.ready().run(1);
  EmergencyDone event = fired(1, w.now_ns());
  event.cut_ns = 0;
  event.report = {};

  w.tell(event);

  EXPECT_NE(w.did<Clear>(), nullptr);
}

TEST(KillSocket, a_cut_alone_keeps_the_guests_and_opens_again) {
  Rig w;
  w.ready().run(1);
  EmergencyDone event = fired(1, w.now_ns());
  event.is_cut_only = true;
  event.report = {};

  w.tell(event);
  EXPECT_TRUE(w.core.state().guests[0].is_cut);
  EXPECT_EQ(w.core.wake_at(), std::nullopt);
  w.ask(Release{});

  EXPECT_EQ(w.did<SetGates>()->open_slots, std::vector<std::uint32_t>{0});
  EXPECT_EQ(w.state_of(1), GuestState::kRunning);
}

// ---- restarts

TEST(ReclaimRestart, stays_shut_until_it_is_released) {
  Rig before;
  before.ready().run(1);
  const auto reclaim = before.reclaim(ReclaimKind::kEmergency);
  before.tell(WasCut{reclaim.id, before.now_ns()});
  before.tell(WasCleared{reclaim.id, cleared(before.now_ns())});
  for (const char* boot : {"boot-1", "boot-2"}) {
    Rig w(before.core.journal(), boot);

    w.last = w.core.start(w.clock.now());
    EXPECT_FALSE(w.did<SetGates>()->is_node_open);
    w.tell(EngineChanged{true, "x"});
    w.tell(Reconciled{{}, {}, {}});
    EXPECT_FALSE(w.did<SetGates>()->is_node_open);
    EXPECT_EQ((w.ask(warden_wire::PrepareDisk{Rig::guest(5), 64}), w.answer()), "unavailable");
    w.ask(Release{});

    EXPECT_TRUE(w.did<SetGates>()->is_node_open);
  }
}

TEST(ReclaimRestart, a_clearing_that_was_begun_is_done_again) {
  Rig before;
  before.ready().run(1);
  const auto reclaim = before.reclaim(ReclaimKind::kEmergency);
  before.tell(WasCut{reclaim.id, before.now_ns()});
  Rig w(before.core.journal());

  w.last = w.core.start(w.clock.now());

  ASSERT_NE(w.did<Clear>(), nullptr);
  EXPECT_TRUE(w.did<Clear>()->is_whole_node);
}

TEST(ReclaimRestart, the_deadline_of_this_boot_still_counts) {
  Rig before;
  before.ready().run(1);
  before.reclaim(ReclaimKind::kNotice, 60);
  Rig w(before.core.journal());

  w.last = w.core.start(w.clock.now());
  EXPECT_EQ(w.did<Clear>(), nullptr);
  w.after(seconds(60));

  EXPECT_NE(w.did<Clear>(), nullptr);
}

TEST(ReclaimRestart, a_deadline_of_an_earlier_boot_has_passed) {
  Rig before;
  before.ready().run(1);
  before.reclaim(ReclaimKind::kNotice, 60);
  Rig w(before.core.journal(), "boot-2");

  w.last = w.core.start(w.clock.now());

  EXPECT_NE(w.did<Clear>(), nullptr);
}

TEST(ReclaimRestart, a_covered_guest_that_is_found_alive_is_killed) {
  Rig before;
  before.ready().run(1);
  const auto reclaim = before.reclaim(ReclaimKind::kEmergency);
  before.tell(WasCut{reclaim.id, before.now_ns()});
  Rig w(before.core.journal());
  w.last = w.core.start(w.clock.now());
  w.tell(WasCleared{reclaim.id, cleared(w.now_ns())});

  FoundContainer found{Rig::guest(1), "c1", 0, true, 101};
  found.has_go_ahead = true;
  Rig again(w.core.journal());
  again.last = again.core.start(again.clock.now());
  again.tell(Reconciled{{found}, {{Rig::guest(1), "/disk/1", 64}}, {}});

  EXPECT_EQ(again.did<SetGates>()->is_node_open, false);
}

/// Every phase against every event that can move it, from the table of model/reclaim.h.
TEST(ReclaimTable, each_event_moves_each_phase_as_the_table_says) {
  enum class What { kCut, kCleared, kWedged, kRelease, kDeadline };

  struct Row {
    ReclaimPhase from;
    What event;
    ReclaimPhase to;
  };
  using enum ReclaimPhase;
  const Row table[] = {
      {kEvacuating, What::kCut, kCut},
      {kEvacuating, What::kRelease, kReturned},
      {kEvacuating, What::kDeadline, kEvacuating},  // until WasCut says so
      {kCut, What::kCut, kCut},
      {kCut, What::kCleared, kCleared},
      {kCut, What::kWedged, kWedged},
      {kCut, What::kRelease, kCut},
      {kCleared, What::kCut, kCleared},
      {kCleared, What::kCleared, kCleared},
      {kCleared, What::kWedged, kCleared},
      {kCleared, What::kRelease, kReturned},
      {kCleared, What::kDeadline, kCleared},
      {kWedged, What::kCut, kWedged},
      {kWedged, What::kCleared, kCleared},
      {kWedged, What::kWedged, kWedged},
      {kWedged, What::kRelease, kReturned},
      {kReturned, What::kCut, kReturned},
      {kReturned, What::kCleared, kReturned},
      {kReturned, What::kWedged, kReturned},
      {kReturned, What::kRelease, kReturned},
      {kReturned, What::kDeadline, kReturned},
  };
  for (const Row& row : table) {
    Rig w;
    w.ready().run(1);
    const ReclaimId id = w.reclaim(ReclaimKind::kNotice, 60).id;
    if (row.from != kEvacuating) {
      w.after(seconds(60));
      w.tell(WasCut{id, w.now_ns()});
      if (row.from == kWedged) w.tell(WasCleared{id, wedged(w.now_ns())});
      if (row.from == kCleared || row.from == kReturned)
        w.tell(WasCleared{id, cleared(w.now_ns())});
      if (row.from == kReturned) w.ask(Release{});
    }
    ASSERT_EQ(w.phase(), row.from);

    if (row.event == What::kCut) w.tell(WasCut{id, w.now_ns()});
    if (row.event == What::kCleared) w.tell(WasCleared{id, cleared(w.now_ns())});
    if (row.event == What::kWedged) w.tell(WasCleared{id, wedged(w.now_ns())});
    if (row.event == What::kRelease) w.ask(Release{});
    if (row.event == What::kDeadline) w.after(seconds(3600));

    EXPECT_EQ(w.phase(), row.to) << to_string(row.from) << " on " << static_cast<int>(row.event);
  }
}

}  // namespace
}  // namespace rn::warden
