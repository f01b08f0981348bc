// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using warden_wire::AnnounceGpu;

/// Two GPUs; a guest computes on the first.
class CoreGpus : public CoreTest {
 protected:
  void SetUp() override {
    facts.gpus = {{.index = 0, .memory_mib = 24'000}, {.index = 1, .memory_mib = 24'000}};
    start();
    owner_computes({});
    warden.images = {"sha256:img"};
    push_state();
    const HoldId hold = probe("j-1", 1);
    ASSERT_FALSE(hold.empty()) << sent<wire::ProbeReply>().back().reason;
    wire::Commit commit = a_commit();
    commit.hold = hold;
    tell(commit);
    answer<warden_wire::PrepareDisk>([](warden_wire::Answer& a) { a.disk = "/disk/1"; });
    finish<PrepareWork>(WorkPrepared{resume, ""});
    answer<warden_wire::AdoptDisk>();
    ASSERT_THAT(asked<warden_wire::StartGuest>().back().gpus, testing::ElementsAre(0U));
    answer<warden_wire::StartGuest>();
    set_guest(GuestState::kRunning);
    push_state();
    ASSERT_EQ(state(), AttemptState::kRunning);
    acknowledge();
    log_is_empty();
  }

  HoldId probe(const std::string& job, std::uint32_t gpus) {
    wire::Probe wanted;
    wanted.job = JobId(job);
    wanted.resources.disk_mib = 1000;
    wanted.resources.gpus = gpus;
    tell(wanted);
    return sent<wire::ProbeReply>().back().hold;
  }

  /// On these, from the next sample on.
  void owner_computes(const std::vector<std::uint32_t>& on) {
    TelemetrySampled sampled;
    sampled.telemetry.disk_free_mib = 50'000;
    sampled.idle_s = 100'000;
    sampled.telemetry.gpus = {{.index = 0}, {.index = 1}};
    for (const std::uint32_t gpu : on) {
      sampled.telemetry.gpus.at(gpu).foreign_processes = 1;
      sampled.telemetry.gpus.at(gpu).foreign_vram_mib = 300;
    }
    feed(sampled);
  }

  /// From the next sample on; nobody of the owner's computes.
  void tell_of_health(const GpuSigns& signs) {
    TelemetrySampled sampled;
    sampled.telemetry.disk_free_mib = 50'000;
    sampled.idle_s = 100'000;
    sampled.telemetry.gpus = {{.index = 0}, {.index = 1}};
    sampled.signs = {signs};
    feed(sampled);
    newest_sample->signs.front().xids.clear();  // each is told once
  }

  std::int64_t in(nanoseconds time) const { return to_ns(clock.now().boot + time); }

  AnnounceGpu last_word() const {
    const auto all = asked<AnnounceGpu>();
    EXPECT_THAT(all, testing::Not(IsEmpty())) << "nothing was said of a GPU";
    return all.empty() ? AnnounceGpu{} : all.back();
  }

  /// The warden declares what it was told last, or gives the GPU back.
  void obey() {
    const AnnounceGpu told = last_word();
    while (has_asked<AnnounceGpu>()) answer<AnnounceGpu>();
    if (told.deadline_ns == 0) {
      for (ReclaimRecord& record : warden.reclaims) {
        record.phase = ReclaimPhase::kReturned;
        record.returned_ns = in(seconds(0));
      }
      warden.announced_gpus.clear();
    } else {
      ReclaimRecord record = a_reclaim(ReclaimKind::kAnnounced);
      record.id = ReclaimId("r-gpu");
      record.gpus = {told.gpu};
      record.deadline_ns = told.deadline_ns;
      record.message = told.message;
      warden.reclaims.push_back(record);
      warden.announced_gpus = {{told.gpu, record.id}};
    }
    push_state();
  }

  /// The warden cut, killed and looked; everything of the guest is elsewhere.
  void guest_goes() {
    warden.guests.clear();
    for (ReclaimRecord& record : warden.reclaims) {
      record.phase = ReclaimPhase::kCleared;
      record.cut_ns = in(seconds(0)) + 1;
      record.killed_ns = record.cut_ns + 1;
      record.cleared_ns = record.killed_ns + 1;
    }
    push_state();
    log_is_empty();
    acknowledge();
    answer<warden_wire::RemoveGuest>();
    answer<warden_wire::ReleaseDisk>();
    ASSERT_EQ(phase(), "none");
  }

  void set_contract(const std::function<void(Contract&)>& change) {
    change(contract);
    feed(ContractChanged{contract, 0});
  }
};

/// GPU 0 is lent until 22:18, in 280 s, and from 22:30 on. A short notice: nobody stays in it.
class CoreGpuWindows : public CoreGpus {
 protected:
  void SetUp() override {
    CoreGpus::SetUp();
    set_contract([](Contract& c) {
      c.notice_s = 20;
      c.gpu_windows = {{0, {{{}, "20:00", "22:18"}, {{}, "22:30", "23:59"}}, {}}};
    });
  }

  /// The warden keeps what it was told for its time.
  void hold() {
    const AnnounceGpu told = last_word();
    while (has_asked<AnnounceGpu>()) answer<AnnounceGpu>();
    warden.announced_gpus.clear();
    if (told.deadline_ns != 0)
      warden.announced_gpus = {{told.gpu, {}, told.declare_ns, told.deadline_ns, told.message}};
    push_state();
  }
};

TEST_F(CoreGpuWindows, the_end_of_a_gpus_own_window_is_told_ahead_and_the_machine_stays_lent) {
  const AnnounceGpu told = last_word();
  EXPECT_EQ(told.gpu, 0U);
  EXPECT_EQ(told.deadline_ns, in(seconds(280)));
  EXPECT_EQ(told.declare_ns, in(seconds(260)));
  hold();
  advance(seconds(200));

  EXPECT_FALSE(has_asked<AnnounceGpu>()) << "the warden holds it";
  EXPECT_FALSE(has_asked<warden_wire::Announce>()) << "the rest of the machine is lent";
  EXPECT_EQ(state(), AttemptState::kRunning);
}

TEST_F(CoreGpuWindows, its_guest_is_told_with_the_notice_and_nobody_comes_there_any_more) {
  hold();
  advance(seconds(258));
  ASSERT_TRUE(has_asked<AnnounceGpu>());
  EXPECT_EQ(last_word().deadline_ns, in(seconds(22)));
  obey();

  EXPECT_EQ(state(), AttemptState::kNoticed);
  EXPECT_EQ(asked<warden_wire::WriteNotice>().back().reason, "the lending window of this GPU ends");
  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kOpen);
  EXPECT_TRUE(probe("j-2", 2).empty());
  EXPECT_THAT(
      sent<wire::ProbeReply>().back().reason, HasSubstr("GPU 0 is at the end of its lending window")
  );
  EXPECT_FALSE(probe("j-3", 1).empty()) << sent<wire::ProbeReply>().back().reason;
}

TEST_F(CoreGpuWindows, it_stays_the_owners_until_its_next_window_opens) {
  hold();
  advance(seconds(258));
  obey();
  guest_goes();
  advance(seconds(300));
  EXPECT_FALSE(has_asked<AnnounceGpu>());
  EXPECT_TRUE(probe("j-2", 2).empty());
  EXPECT_THAT(
      sent<wire::ProbeReply>().back().reason,
      HasSubstr("GPU 0 is outside its lending windows, the next one opens tue 22:30 (UTC)")
  );
  advance(seconds(444));  // 22:30:02
  EXPECT_EQ(last_word(), (AnnounceGpu{0, 0, ""}));
  obey();

  EXPECT_FALSE(probe("j-3", 2).empty()) << sent<wire::ProbeReply>().back().reason;
}

TEST_F(CoreGpuWindows, heartbeats_say_of_each_gpu_when_it_closes_and_that_it_is_closed) {
  hold();
  advance(seconds(6));
  const auto first = sent<wire::Heartbeat>().back().telemetry.gpus;
  ASSERT_EQ(first.size(), 2U);
  EXPECT_NEAR(first[0].closes_in_s, 274, 6);
  EXPECT_FALSE(first[0].is_outside_window);
  EXPECT_EQ(first[1].closes_in_s, 0U) << "it goes with the machine";
  advance(seconds(300));
  EXPECT_TRUE(sent<wire::Heartbeat>().back().telemetry.gpus[0].is_outside_window);
  EXPECT_FALSE(sent<wire::Heartbeat>().back().telemetry.gpus[1].is_outside_window);
}

TEST_F(CoreGpuWindows, a_contract_without_them_takes_the_word_back) {
  hold();
  set_contract([](Contract& c) { c.gpu_windows.clear(); });

  EXPECT_EQ(last_word(), (AnnounceGpu{0, 0, ""}));
}

TEST_F(CoreGpuWindows, an_owner_who_computes_on_it_does_not_wait_for_its_end) {
  hold();
  owner_computes({0});
  advance(seconds(5));

  EXPECT_EQ(last_word().declare_ns, 0);
  EXPECT_EQ(last_word().deadline_ns, in(seconds(20)));
  EXPECT_EQ(last_word().message, "the owner computes on GPU 0");
}

TEST_F(CoreGpus, a_process_of_a_moment_takes_nobodys_place) {
  owner_computes({0});
  advance(seconds(4));
  owner_computes({});
  advance(seconds(10));
  owner_computes({0});
  advance(seconds(4));

  EXPECT_FALSE(has_asked<AnnounceGpu>());
  EXPECT_EQ(state(), AttemptState::kRunning);
}

TEST_F(CoreGpus, an_owner_who_computes_on_it_gets_it_with_the_contracts_notice) {
  owner_computes({0});
  advance(seconds(5));

  const AnnounceGpu told = last_word();
  EXPECT_EQ(told.gpu, 0U);
  EXPECT_EQ(told.deadline_ns, in(seconds(contract.notice_s)));
  EXPECT_FALSE(has_asked<warden_wire::Announce>()) << "the rest of the machine is lent";
  obey();

  EXPECT_EQ(state(), AttemptState::kNoticed);
  ASSERT_TRUE(has_asked<warden_wire::WriteNotice>());
  EXPECT_EQ(asked<warden_wire::WriteNotice>().back().reason, "the owner computes on GPU 0");
  ASSERT_THAT(sent<wire::ReclaimReport>(), testing::Not(IsEmpty()));
  EXPECT_THAT(sent<wire::ReclaimReport>().back().record.gpus, testing::ElementsAre(0U));
  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kOpen);
}

TEST_F(CoreGpus, a_warden_that_is_slow_does_not_move_the_deadline) {
  owner_computes({0});
  advance(seconds(5));
  const AnnounceGpu first = last_word();
  advance(seconds(5));

  EXPECT_THAT(asked<AnnounceGpu>(), SizeIs(testing::Gt(1U)));
  EXPECT_EQ(last_word(), first);
}

TEST_F(CoreGpus, one_on_another_gpu_disturbs_nobody) {
  owner_computes({1});
  advance(seconds(60));

  EXPECT_FALSE(has_asked<AnnounceGpu>());
  EXPECT_TRUE(probe("j-2", 1).empty()) << "and nobody comes there";
  EXPECT_THAT(
      sent<wire::ProbeReply>().back().reason, HasSubstr("GPU 1 is used by 1 foreign processes")
  );
}

TEST_F(CoreGpus, the_coordinator_need_not_be_there) {
  feed(CoordinatorDisconnected{});
  is_acking = false;
  owner_computes({0});
  advance(seconds(5));
  obey();

  EXPECT_EQ(state(), AttemptState::kNoticed);
}

TEST_F(CoreGpus, it_is_lent_again_when_the_owners_process_has_been_gone_for_a_while) {
  owner_computes({0});
  advance(seconds(5));
  obey();
  guest_goes();
  advance(seconds(300));
  EXPECT_FALSE(has_asked<AnnounceGpu>()) << "the owner still computes";
  owner_computes({});
  advance(seconds(20));
  owner_computes({0});  // and begins anew
  advance(seconds(20));
  owner_computes({});
  advance(seconds(29));
  EXPECT_FALSE(has_asked<AnnounceGpu>());
  EXPECT_TRUE(probe("j-2", 2).empty()) << "it is the owner's until then";
  advance(seconds(1));

  EXPECT_EQ(last_word(), (AnnounceGpu{0, 0, ""}));
  obey();
  EXPECT_FALSE(probe("j-3", 2).empty()) << sent<wire::ProbeReply>().back().reason;
}

TEST_F(CoreGpus, the_contracts_time_without_guests_counts_for_the_gpu_and_not_for_the_machine) {
  set_contract([](Contract& c) { c.min_free_s = 120; });
  owner_computes({0});
  advance(seconds(5));
  obey();
  guest_goes();
  owner_computes({});
  advance(seconds(119));
  EXPECT_FALSE(has_asked<AnnounceGpu>());
  advance(seconds(1));
  obey();

  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kOpen);
  EXPECT_FALSE(probe("j-2", 2).empty()) << sent<wire::ProbeReply>().back().reason;
}

TEST_F(CoreGpus, an_owner_who_is_gone_before_the_deadline_lets_the_guest_go_on) {
  set_contract([](Contract& c) { c.notice_s = 300; });
  owner_computes({0});
  advance(seconds(5));
  obey();
  ASSERT_EQ(state(), AttemptState::kNoticed);
  owner_computes({});
  advance(seconds(30));
  EXPECT_EQ(last_word().deadline_ns, 0);
  obey();

  EXPECT_EQ(state(), AttemptState::kRunning);
}

TEST_F(CoreGpus, a_contract_may_let_the_guest_stay_or_lend_beside_the_owner) {
  set_contract([](Contract& c) { c.idle.owner_processes = OwnerProcesses::kWait; });
  owner_computes({0, 1});
  advance(seconds(60));
  EXPECT_FALSE(has_asked<AnnounceGpu>());
  EXPECT_EQ(state(), AttemptState::kRunning);
  EXPECT_TRUE(probe("j-2", 1).empty()) << "nobody new comes";

  set_contract([](Contract& c) { c.idle.owner_processes = OwnerProcesses::kIgnore; });
  advance(seconds(60));

  EXPECT_FALSE(has_asked<AnnounceGpu>());
  EXPECT_FALSE(probe("j-3", 1).empty()) << sent<wire::ProbeReply>().back().reason;
}

TEST_F(CoreGpus, a_contract_that_lets_the_guest_stay_gives_back_what_was_taken) {
  owner_computes({0});
  advance(seconds(5));
  obey();
  ASSERT_EQ(state(), AttemptState::kNoticed);
  set_contract([](Contract& c) { c.idle.owner_processes = OwnerProcesses::kWait; });
  obey();

  EXPECT_EQ(state(), AttemptState::kRunning);
}

TEST_F(CoreGpus, memory_below_the_contracts_bound_is_nobodys_presence) {
  set_contract([](Contract& c) { c.idle.foreign_vram_mib = 500; });
  owner_computes({0});
  advance(seconds(60));

  EXPECT_FALSE(has_asked<AnnounceGpu>());
}

TEST_F(CoreGpus, an_agent_that_comes_back_gives_back_what_the_warden_holds_of_the_contract) {
  owner_computes({0});
  advance(seconds(5));
  obey();
  guest_goes();
  crash_and_restart();
  feed(WardenConnected{});
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  connect();
  owner_computes({});
  advance(seconds(31));

  EXPECT_EQ(last_word(), (AnnounceGpu{0, 0, ""}));
}

TEST_F(CoreGpus, a_sick_one_loses_its_guest_with_notice_and_gets_no_other) {
  tell_of_health({.index = 0, .uncorrected = 1});

  const AnnounceGpu told = last_word();
  EXPECT_EQ(told.gpu, 0U);
  EXPECT_EQ(told.deadline_ns, in(seconds(contract.notice_s)));
  EXPECT_THAT(told.message, HasSubstr("GPU 0 is sick: 1 errors of its memory"));
  obey();
  EXPECT_EQ(state(), AttemptState::kNoticed);
  guest_goes();
  advance(seconds(300));
  EXPECT_FALSE(has_asked<AnnounceGpu>()) << "it is sick all the same";
  EXPECT_TRUE(probe("j-2", 2).empty());
  EXPECT_THAT(sent<wire::ProbeReply>().back().reason, HasSubstr("GPU 0 is sick: 1 errors"));
  EXPECT_THAT(
      sent<wire::Heartbeat>().back().telemetry.gpus.at(0).sickness, HasSubstr("1 errors of its")
  );
}

TEST_F(CoreGpus, a_sick_one_is_lent_again_when_its_owner_has_looked_at_it) {
  tell_of_health({.index = 0, .uncorrected = 1, .xids = {48}});
  obey();
  guest_goes();
  advance(seconds(60));
  feed(GpuAccepted{0});
  EXPECT_EQ(last_word(), (AnnounceGpu{0, 0, ""}));
  obey();
  EXPECT_FALSE(probe("j-2", 2).empty()) << sent<wire::ProbeReply>().back().reason;

  crash_and_restart();
  feed(WardenConnected{});
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  connect();
  tell_of_health({.index = 0, .uncorrected = 1});
  EXPECT_FALSE(probe("j-3", 2).empty()) << "what was accepted is";
  tell_of_health({.index = 0, .uncorrected = 2});
  EXPECT_TRUE(probe("j-4", 2).empty());
  EXPECT_THAT(
      sent<wire::ProbeReply>().back().reason, HasSubstr("GPU 0 is sick: 1 errors of its memory")
  ) << "and no more than that";
}

TEST_F(CoreGpus, a_sick_one_is_lent_again_when_the_reason_has_gone) {
  tell_of_health({.index = 0, .needs_reset = true});
  obey();
  guest_goes();
  tell_of_health({.index = 0});
  advance(seconds(31));

  EXPECT_EQ(last_word(), (AnnounceGpu{0, 0, ""}));
}

TEST_F(CoreGpus, an_agent_that_comes_back_still_knows_what_the_driver_said_once) {
  tell_of_health({.index = 1, .xids = {79}});
  EXPECT_FALSE(has_asked<AnnounceGpu>()) << "nobody is there";
  crash_and_restart();
  owner_computes({});
  tell_of_health({.index = 1});

  EXPECT_THAT(core->view(clock.now()).telemetry.gpus.at(1).sickness, HasSubstr("Xid 79"));
  config.boot_id = "boot-2";
  crash_and_restart();
  owner_computes({});
  tell_of_health({.index = 1});
  EXPECT_EQ(core->view(clock.now()).telemetry.gpus.at(1).sickness, "") << "it was switched off";
}

TEST_F(CoreGpus, heat_counts_when_it_stays_and_is_over_when_it_has_been_cool_for_a_while) {
  tell_of_health({.index = 0, .is_slowed_by_heat = true});
  advance(seconds(59));
  tell_of_health({.index = 0});
  tell_of_health({.index = 0, .is_slowed_by_heat = true});
  advance(seconds(59));
  EXPECT_FALSE(has_asked<AnnounceGpu>());
  advance(seconds(1));
  EXPECT_THAT(last_word().message, HasSubstr("slowed by heat"));
  obey();
  guest_goes();
  tell_of_health({.index = 0});
  advance(seconds(119));
  EXPECT_FALSE(has_asked<AnnounceGpu>());
  advance(seconds(1));

  EXPECT_EQ(last_word(), (AnnounceGpu{0, 0, ""}));
}

TEST_F(CoreGpus, what_the_owner_took_by_word_is_not_given_back_with_the_process) {
  owner_computes({0});
  advance(seconds(5));
  obey();
  guest_goes();
  warden.announced_gpus.clear();  // `reclaim --gpu 0`: the warden says whose it is now
  push_state();
  owner_computes({});
  advance(seconds(60));

  EXPECT_FALSE(has_asked<AnnounceGpu>());
  EXPECT_TRUE(probe("j-2", 2).empty());
}

}  // namespace
}  // namespace rn::agent
