// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "warden/core_fixture_fake.h"

namespace rn::warden {
namespace {

using Rig = CoreUnderTest;
using warden_wire::Announce;
using warden_wire::EvacuationDone;
using warden_wire::Release;

/// A window ends in two minutes; guests are told one minute before.
class Announcement : public testing::Test {
 protected:
  void SetUp() override { w.ready().run(1); }

  Announce in(nanoseconds declare, nanoseconds deadline) const {
    const Instant now = w.clock.now().boot;
    return {to_ns(now + declare), to_ns(now + deadline), "the lending window ends"};
  }

  /// As the agent, who is no owner.
  std::string announce(const Announce& request) {
    w.ask(request, false);
    return w.answer();
  }

  std::string withdraw() { return announce({}); }

  const ReclaimRecord& record(std::size_t n = 0) const { return w.core.journal().reclaims.at(n); }

  std::size_t records() const { return w.core.journal().reclaims.size(); }

  void clear_seeing(std::vector<std::string> remains) {
    const ReclaimId id = record().id;
    w.tell(WasCut{id, w.now_ns()});
    w.tell(WasCleared{id, ClearReport{w.now_ns() + 1, w.now_ns() + 2, 1, std::move(remains)}});
  }

  Rig w;
};

TEST_F(Announcement, is_kept_without_a_word_until_its_time_and_then_carried_out_alone) {
  ASSERT_EQ(announce(in(seconds(60), seconds(120))), "");
  EXPECT_TRUE(w.last.journal) << "it outlives the warden";
  EXPECT_EQ(records(), 0u);
  EXPECT_EQ(w.core.wake_at(), w.clock.now().boot + seconds(60));
  w.give_disk(2);  // guests may still come

  w.after(seconds(60));
  ASSERT_EQ(records(), 1u);
  EXPECT_EQ(record().kind, ReclaimKind::kAnnounced);
  EXPECT_EQ(record().phase, ReclaimPhase::kEvacuating);
  EXPECT_EQ(record().message, "the lending window ends");
  EXPECT_EQ(w.core.state().announced.reclaim, record().id);
  EXPECT_EQ((w.ask(Rig::start_of(2), false), w.answer()), "unavailable");
  EXPECT_EQ(w.core.wake_at(), w.clock.now().boot + seconds(60));
  w.after(seconds(59));
  EXPECT_EQ(w.did<Clear>(), nullptr);

  w.after(seconds(1));  // the agent has not said a word since
  ASSERT_NE(w.did<Clear>(), nullptr);
  EXPECT_TRUE(w.did<Clear>()->is_whole_node);
  const std::int64_t cut_ns = w.now_ns();
  clear_seeing({});
  EXPECT_EQ(record().phase, ReclaimPhase::kCleared);
  EXPECT_EQ(record().cut_ns, cut_ns);
  EXPECT_EQ(record().killed_ns, cut_ns + 1) << "the stamps are those of the look";
  EXPECT_EQ(record().cleared_ns, cut_ns + 2);
}

TEST_F(Announcement, clears_early_when_the_agent_has_moved_everything) {
  announce(in(seconds(0), seconds(60)));
  ASSERT_EQ(records(), 1u);

  w.ask(EvacuationDone{record().id, {Rig::guest(1)}}, false);

  EXPECT_NE(w.did<Clear>(), nullptr);
}

TEST_F(Announcement, with_something_left_wedges_the_node_and_only_the_owner_takes_that_away) {
  announce(in(seconds(0), seconds(10)));
  w.after(seconds(10));
  clear_seeing({"pid 77 in state D"});

  EXPECT_EQ(record().phase, ReclaimPhase::kWedged);
  EXPECT_EQ(withdraw(), "unavailable");
  EXPECT_EQ(record().phase, ReclaimPhase::kWedged);
  w.ask(Release{});
  EXPECT_EQ(record().phase, ReclaimPhase::kReturned);
}

TEST_F(Announcement, survives_a_crash_of_the_warden) {
  announce(in(seconds(60), seconds(120)));
  Rig again(*w.last.journal);
  again.clock = w.clock;
  again.ready();
  again.clock.advance(seconds(125));  // nothing was asked in between

  again.tell(Tick{});

  ASSERT_NE(again.did<Clear>(), nullptr);
  EXPECT_EQ(again.core.journal().reclaims.at(0).deadline_ns, w.now_ns() + 120'000'000'000);
}

TEST_F(Announcement, that_ran_out_while_the_warden_was_dead_is_carried_out_at_its_start) {
  announce(in(seconds(60), seconds(120)));
  Rig again(*w.last.journal);
  again.clock = w.clock;
  again.clock.advance(seconds(300));

  again.last = again.core.start(again.clock.now());

  EXPECT_NE(again.did<Clear>(), nullptr);
}

TEST_F(Announcement, of_an_earlier_boot_is_forgotten) {
  announce(in(seconds(60), seconds(120)));
  Rig again(*w.last.journal, "boot-2");
  again.ready();
  again.after(seconds(600));

  EXPECT_TRUE(again.core.journal().reclaims.empty());
  EXPECT_EQ(again.core.state().announced, warden_wire::Announced{});
}

TEST_F(Announcement, may_be_moved_and_taken_back_until_it_is_declared) {
  announce(in(seconds(60), seconds(120)));
  announce(in(seconds(600), seconds(660)));
  w.after(seconds(120));
  EXPECT_EQ(records(), 0u);
  EXPECT_EQ(withdraw(), "");
  w.after(seconds(600));

  EXPECT_EQ(records(), 0u);
  EXPECT_EQ(w.core.wake_at(), std::nullopt);
}

TEST_F(Announcement, repeated_writes_the_journal_once) {
  const Announce same = in(seconds(60), seconds(120));
  announce(same);
  announce(same);

  EXPECT_FALSE(w.last.journal);
}

TEST_F(Announcement, that_is_declared_comes_earlier_but_never_later) {
  announce(in(seconds(0), seconds(60)));
  const std::int64_t deadline_ns = record().deadline_ns;
  announce(in(seconds(0), seconds(90)));
  EXPECT_EQ(record().deadline_ns, deadline_ns);

  announce(in(seconds(0), seconds(30)));

  EXPECT_EQ(record().deadline_ns, w.now_ns() + 30'000'000'000);
  EXPECT_EQ(records(), 1u);
}

TEST_F(Announcement, taken_back_before_its_deadline_lets_the_guests_go_on) {
  announce(in(seconds(0), seconds(60)));
  EXPECT_EQ(withdraw(), "");
  EXPECT_EQ(record().phase, ReclaimPhase::kReturned);
  w.after(seconds(60));

  EXPECT_EQ(w.did<Clear>(), nullptr);
  EXPECT_EQ(w.state_of(1), GuestState::kRunning);
}

TEST_F(Announcement, taken_back_after_the_clearing_opens_the_node_again) {
  announce(in(seconds(0), seconds(10)));
  w.after(seconds(10));
  EXPECT_EQ(withdraw(), "unavailable") << "in the middle of the clearing";
  clear_seeing({});
  EXPECT_EQ(withdraw(), "");

  EXPECT_EQ(record().phase, ReclaimPhase::kReturned);
  EXPECT_TRUE(w.did<SetGates>()->is_node_open);
}

TEST_F(Announcement, never_gives_back_what_the_owner_took) {
  w.reclaim(ReclaimKind::kNotice, 60);

  EXPECT_EQ(withdraw(), "");

  EXPECT_EQ(record().phase, ReclaimPhase::kEvacuating);
}

TEST_F(Announcement, is_the_owners_from_the_moment_the_owner_speaks) {
  announce(in(seconds(0), seconds(600)));
  w.reclaim(ReclaimKind::kNotice, 60);
  ASSERT_EQ(records(), 1u);
  EXPECT_EQ(record().deadline_ns, w.now_ns() + 60'000'000'000);

  EXPECT_EQ(withdraw(), "");

  EXPECT_EQ(record().phase, ReclaimPhase::kEvacuating);
  EXPECT_EQ(w.core.state().announced, warden_wire::Announced{});
}

TEST_F(Announcement, is_the_owners_after_an_emergency_too) {
  announce(in(seconds(0), seconds(600)));
  EmergencyDone done;
  done.sequence = 1;
  done.declared_ns = done.cut_ns = w.now_ns();
  done.report = ClearReport{w.now_ns(), w.now_ns(), 1, {}};
  w.tell(done);
  EXPECT_EQ(withdraw(), "");

  ASSERT_EQ(records(), 1u);
  EXPECT_EQ(record().kind, ReclaimKind::kEmergency);
  EXPECT_EQ(record().phase, ReclaimPhase::kCleared);
}

TEST_F(Announcement, leaves_a_gpu_that_the_owner_took_meanwhile_with_the_owner) {
  announce(in(seconds(0), seconds(600)));
  warden_wire::DeclareReclaim one_gpu;
  one_gpu.gpus = {0};
  w.ask(one_gpu);
  ASSERT_EQ(records(), 2u);
  withdraw();

  EXPECT_EQ(record(0).phase, ReclaimPhase::kReturned);
  EXPECT_NE(record(1).phase, ReclaimPhase::kReturned);
}

TEST_F(Announcement, comes_in_time_although_the_owner_has_announced_a_later_one) {
  w.reclaim(ReclaimKind::kAnnounced, 600);
  announce(in(seconds(10), seconds(20)));
  w.after(seconds(10));
  ASSERT_EQ(records(), 2u);

  w.after(seconds(10));

  EXPECT_NE(w.did<Clear>(), nullptr);
}

TEST_F(
    Announcement, waits_behind_an_earlier_reclaim_of_the_owners_and_holds_when_that_is_released
) {
  w.reclaim(ReclaimKind::kNotice, 60);
  announce(in(seconds(10), seconds(120)));
  w.after(seconds(20));
  EXPECT_EQ(records(), 1u);
  EXPECT_EQ(w.core.wake_at(), instant_from_ns(record().deadline_ns)) << "and does not spin";

  w.ask(Release{});

  ASSERT_EQ(records(), 2u);
  EXPECT_EQ(record(1).phase, ReclaimPhase::kEvacuating);
}

TEST_F(Announcement, is_checked) {
  const auto code = [&](const Announce& request) { return announce(request); };
  Announce loud = in(seconds(0), seconds(60));
  loud.message = std::string(1025, 'x');
  EXPECT_EQ(code(loud), "invalid");
  EXPECT_EQ(code(in(seconds(60), seconds(59))), "invalid");
  EXPECT_EQ(code(in(seconds(0), seconds(7 * 86400 + 1))), "invalid");
  EXPECT_EQ(code({-1, w.now_ns(), ""}), "invalid");

  EXPECT_EQ(records(), 0u);
}

/// The owner computes on GPU 0, where guest 1 is; guest 2 is on GPU 1.
class GpuAnnouncement : public testing::Test {
 protected:
  void SetUp() override {
    w.ready().run(1, {0});
    w.run(2, {1});
  }

  std::string announce(std::uint32_t gpu, nanoseconds in) {
    const std::int64_t at_ns = to_ns(w.clock.now().boot + in);
    w.ask(warden_wire::AnnounceGpu{gpu, at_ns, "the owner computes on it"}, false);
    return w.answer();
  }

  /// A window of its own ends then; guests are told so long after now.
  std::string announce_end(std::uint32_t gpu, nanoseconds declare, nanoseconds deadline) {
    const Instant now = w.clock.now().boot;
    const std::int64_t deadline_ns = to_ns(now + deadline);
    w.ask(
        warden_wire::AnnounceGpu{gpu, deadline_ns, "its window ends", to_ns(now + declare)}, false
    );
    return w.answer();
  }

  std::string withdraw(std::uint32_t gpu) {
    w.ask(warden_wire::AnnounceGpu{gpu, 0, ""}, false);
    return w.answer();
  }

  const ReclaimRecord& record(std::size_t n = 0) const { return w.core.journal().reclaims.at(n); }

  std::size_t records() const { return w.core.journal().reclaims.size(); }

  void clear_seeing(std::vector<std::string> remains) {
    const ReclaimId id = record().id;
    w.tell(WasCut{id, w.now_ns()});
    w.tell(WasCleared{id, ClearReport{w.now_ns() + 1, w.now_ns() + 2, 1, std::move(remains)}});
  }

  Rig w;
};

TEST_F(GpuAnnouncement, takes_one_gpu_at_its_deadline_without_another_word) {
  ASSERT_EQ(announce(0, seconds(60)), "");
  EXPECT_TRUE(w.last.journal) << "it outlives the warden";
  EXPECT_EQ(record().kind, ReclaimKind::kAnnounced);
  EXPECT_EQ(record().gpus, std::vector<std::uint32_t>{0});
  EXPECT_EQ(record().message, "the owner computes on it");
  ASSERT_EQ(w.core.state().announced_gpus.size(), 1U);
  EXPECT_EQ(w.core.state().announced_gpus.front().reclaim, record().id);
  EXPECT_EQ(w.core.wake_at(), w.clock.now().boot + seconds(60));
  w.after(seconds(59));
  EXPECT_EQ(w.did<Clear>(), nullptr);
  w.after(seconds(1));

  ASSERT_NE(w.did<Clear>(), nullptr);
  EXPECT_FALSE(w.did<Clear>()->is_whole_node);
  ASSERT_EQ(w.did<Clear>()->guests.size(), 1U);
  EXPECT_EQ(w.did<Clear>()->guests.front().guest, Rig::guest(1));
  clear_seeing({});
  EXPECT_EQ(record().phase, ReclaimPhase::kCleared);
  EXPECT_EQ(w.state_of(2), GuestState::kRunning);
  w.give_disk(3);
  EXPECT_EQ((w.ask(Rig::start_of(3, {0}), false), w.answer()), "unavailable");
}

TEST_F(GpuAnnouncement, repeated_comes_earlier_but_never_later_and_is_one) {
  announce(0, seconds(60));
  const std::int64_t deadline_ns = record().deadline_ns;
  EXPECT_EQ(announce(0, seconds(90)), "");
  EXPECT_EQ(record().deadline_ns, deadline_ns);
  EXPECT_EQ(announce(0, seconds(30)), "");

  EXPECT_EQ(record().deadline_ns, w.now_ns() + 30'000'000'000);
  EXPECT_EQ(records(), 1U);
}

TEST_F(GpuAnnouncement, taken_back_before_its_deadline_lets_the_guest_go_on) {
  announce(0, seconds(60));
  EXPECT_EQ(withdraw(0), "");
  w.after(seconds(60));

  EXPECT_EQ(w.did<Clear>(), nullptr);
  EXPECT_EQ(record().phase, ReclaimPhase::kReturned);
  EXPECT_TRUE(w.core.state().announced_gpus.empty());
  EXPECT_EQ(w.state_of(1), GuestState::kRunning);
}

TEST_F(GpuAnnouncement, is_not_taken_back_while_guests_are_cleared_or_something_is_left) {
  announce(0, seconds(10));
  w.after(seconds(10));
  EXPECT_EQ(withdraw(0), "unavailable");
  clear_seeing({"pid 77 in state D"});
  EXPECT_EQ(withdraw(0), "unavailable");
  EXPECT_EQ(record().phase, ReclaimPhase::kWedged);
  w.ask(Release{});

  EXPECT_EQ(record().phase, ReclaimPhase::kReturned);
  EXPECT_TRUE(w.core.state().announced_gpus.empty());
}

TEST_F(GpuAnnouncement, of_two_gpus_are_two_and_each_is_given_back_alone) {
  announce(0, seconds(60));
  announce(1, seconds(90));
  ASSERT_EQ(records(), 2U);
  EXPECT_EQ(withdraw(0), "");

  EXPECT_EQ(record(0).phase, ReclaimPhase::kReturned);
  EXPECT_EQ(record(1).phase, ReclaimPhase::kEvacuating);
}

TEST_F(GpuAnnouncement, is_the_owners_from_the_moment_the_owner_speaks_of_that_gpu) {
  announce(0, seconds(600));
  warden_wire::DeclareReclaim mine;
  mine.gpus = {0};
  mine.notice_s = 60;
  w.ask(mine);
  ASSERT_EQ(records(), 1U);
  EXPECT_EQ(record().deadline_ns, w.now_ns() + 60'000'000'000);
  EXPECT_TRUE(w.core.state().announced_gpus.empty());

  EXPECT_EQ(withdraw(0), "");
  EXPECT_EQ(record().phase, ReclaimPhase::kEvacuating);
}

TEST_F(GpuAnnouncement, says_nothing_new_where_the_owner_has_taken_it_by_then) {
  w.reclaim(ReclaimKind::kNotice, 60);

  EXPECT_EQ(announce(0, seconds(60)), "");
  EXPECT_EQ(records(), 1U);
  EXPECT_EQ(withdraw(0), "");
  EXPECT_EQ(record().phase, ReclaimPhase::kEvacuating) << "what the owner took";
}

TEST_F(GpuAnnouncement, comes_before_a_later_one_of_the_whole_machine) {
  w.reclaim(ReclaimKind::kAnnounced, 600);
  announce(0, seconds(60));
  ASSERT_EQ(records(), 2U);
  w.after(seconds(60));

  ASSERT_NE(w.did<Clear>(), nullptr);
  EXPECT_FALSE(w.did<Clear>()->is_whole_node);
}

TEST_F(GpuAnnouncement, survives_a_crash_of_the_warden) {
  announce(0, seconds(60));
  Rig again(*w.last.journal);
  again.clock = w.clock;
  again.clock.advance(seconds(61));
  again.last = again.core.start(again.clock.now());

  EXPECT_NE(again.did<Clear>(), nullptr);
  EXPECT_EQ(again.core.state().announced_gpus.size(), 1U);
}

TEST_F(GpuAnnouncement, of_a_windows_end_is_kept_without_a_word_and_carried_out_alone) {
  ASSERT_EQ(announce_end(0, seconds(60), seconds(120)), "");
  EXPECT_TRUE(w.last.journal) << "it outlives the warden";
  EXPECT_EQ(records(), 0U);
  EXPECT_EQ(w.core.wake_at(), w.clock.now().boot + seconds(60));
  w.after(seconds(60));
  ASSERT_EQ(records(), 1U);
  EXPECT_EQ(record().gpus, std::vector<std::uint32_t>{0});
  EXPECT_EQ(record().message, "its window ends");
  EXPECT_EQ(w.core.state().announced_gpus.front().reclaim, record().id);
  EXPECT_EQ(w.core.wake_at(), w.clock.now().boot + seconds(60));
  w.after(seconds(59));
  EXPECT_EQ(w.did<Clear>(), nullptr);

  w.after(seconds(1));  // the agent has not said a word since
  ASSERT_NE(w.did<Clear>(), nullptr);
  EXPECT_FALSE(w.did<Clear>()->is_whole_node);
  ASSERT_EQ(w.did<Clear>()->guests.size(), 1U);
  EXPECT_EQ(w.did<Clear>()->guests.front().guest, Rig::guest(1));
}

TEST_F(GpuAnnouncement, of_a_windows_end_may_be_moved_and_taken_back_until_it_is_declared) {
  announce_end(0, seconds(60), seconds(120));
  announce_end(0, seconds(60), seconds(120));
  EXPECT_FALSE(w.last.journal) << "repeated it writes nothing";
  announce_end(0, seconds(600), seconds(660));
  w.after(seconds(120));
  EXPECT_EQ(records(), 0U);
  EXPECT_EQ(withdraw(0), "");
  w.after(seconds(600));

  EXPECT_EQ(records(), 0U);
  EXPECT_EQ(w.core.wake_at(), std::nullopt);
  EXPECT_TRUE(w.core.state().announced_gpus.empty());
}

TEST_F(GpuAnnouncement, of_an_owner_who_computes_comes_before_the_end_of_its_window) {
  announce_end(0, seconds(600), seconds(660));
  announce(0, seconds(60));
  ASSERT_EQ(records(), 1U);
  EXPECT_EQ(w.core.state().announced_gpus.size(), 1U);
  w.after(seconds(60));

  EXPECT_NE(w.did<Clear>(), nullptr);
}

TEST_F(GpuAnnouncement, of_a_windows_end_waits_behind_the_owner_and_holds_when_that_is_released) {
  warden_wire::DeclareReclaim mine;
  mine.gpus = {0};
  mine.notice_s = 60;
  w.ask(mine);
  announce_end(0, seconds(10), seconds(120));
  w.after(seconds(20));
  EXPECT_EQ(records(), 1U);
  EXPECT_EQ(w.core.wake_at(), instant_from_ns(record().deadline_ns)) << "and does not spin";
  w.ask(Release{});

  ASSERT_EQ(records(), 2U);
  EXPECT_EQ(record(1).phase, ReclaimPhase::kEvacuating);
  EXPECT_EQ(record(1).message, "its window ends");
}

TEST_F(GpuAnnouncement, of_a_windows_end_survives_a_crash_and_is_of_one_boot) {
  announce_end(0, seconds(60), seconds(120));
  Rig again(*w.last.journal);
  again.clock = w.clock;
  again.clock.advance(seconds(300));  // it ran out while the warden was dead
  again.last = again.core.start(again.clock.now());
  EXPECT_NE(again.did<Clear>(), nullptr);

  Rig later(*w.last.journal, "boot-2");
  later.ready();
  later.after(seconds(600));
  EXPECT_TRUE(later.core.journal().reclaims.empty());
  EXPECT_TRUE(later.core.state().announced_gpus.empty());
}

TEST_F(GpuAnnouncement, is_checked) {
  EXPECT_EQ(announce_end(0, seconds(60), seconds(59)), "invalid");
  EXPECT_EQ(announce(64, seconds(60)), "invalid");
  EXPECT_EQ(announce(0, seconds(7 * 86400 + 1)), "invalid");
  w.ask(warden_wire::AnnounceGpu{0, -1, ""}, false);
  EXPECT_EQ(w.answer(), "invalid");
  w.ask(warden_wire::AnnounceGpu{0, w.now_ns(), std::string(1025, 'x')}, false);
  EXPECT_EQ(w.answer(), "invalid");

  EXPECT_EQ(records(), 0U);
}

}  // namespace
}  // namespace rn::warden
