// SPDX-License-Identifier: Apache-2.0
#include "arbiter/arbiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "arbiter/calendar.h"

namespace rn::arbiter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ArbiterTest : public testing::Test {
 protected:
  ArbiterTest() {
    facts.cpu_milli = 2000;
    facts.memory_mib = 8000;
    facts.gpus = {Gpu{0, "a", "RTX", 24'000, "8.6"}, Gpu{1, "b", "GTX", 8'000, "6.1"}};
    contract.guest_memory_mib = 4000;
    conditions.disk_free_mib = 50'000;
    apply();
  }

  void apply() {
    arbiter.set_facts(facts);
    arbiter.set_contract(contract);
    arbiter.set_conditions(conditions);
  }

  static wire::Probe a_probe(const std::string& job) {
    wire::Probe probe;
    probe.job = JobId(job);
    probe.user = UserId("ann");
    probe.lab = LabId("lab-x");
    probe.hold_ms = 1000;
    return probe;
  }

  wire::Commit a_commit(const std::string& job, const HoldId& hold, LeaseEpoch epoch = {1, 1}) {
    wire::Commit commit;
    commit.job = JobId(job);
    commit.hold = hold;
    commit.epoch = epoch;
    return commit;
  }

  Now now() const { return clock.now(); }

  ManualClock clock;
  SeededRng rng{7};
  NodeFacts facts;
  Contract contract;
  Conditions conditions;
  Arbiter arbiter{LabId("lab-a"), rng};
};

TEST_F(ArbiterTest, a_probe_that_fits_gets_a_hold_and_the_commit_a_lease) {
  const ProbeAnswer held = arbiter.probe(a_probe("j1"), now());

  ASSERT_FALSE(held.hold.empty());
  EXPECT_EQ(held.ttl, milliseconds(1000));
  EXPECT_EQ(held.grant.cpu_milli, 1000u);
  const CommitAnswer granted = arbiter.commit(a_commit("j1", held.hold), now());
  EXPECT_TRUE(granted.is_granted);
  EXPECT_EQ(arbiter.holds(now()), 0u);
  EXPECT_EQ(arbiter.highest_epoch(JobId("j1")), (LeaseEpoch{1, 1}));
}

TEST_F(ArbiterTest, a_repeated_probe_of_the_same_job_gets_the_same_hold) {
  const ProbeAnswer first = arbiter.probe(a_probe("j1"), now());
  clock.advance(milliseconds(600));
  const ProbeAnswer second = arbiter.probe(a_probe("j1"), now());
  clock.advance(milliseconds(600));

  EXPECT_EQ(first.hold, second.hold);
  EXPECT_TRUE(arbiter.commit(a_commit("j1", first.hold), now()).is_granted);
}

TEST_F(ArbiterTest, an_expired_hold_cannot_be_committed) {
  const ProbeAnswer held = arbiter.probe(a_probe("j1"), now());
  clock.advance(milliseconds(1001));

  const CommitAnswer answer = arbiter.commit(a_commit("j1", held.hold), now());

  EXPECT_FALSE(answer.is_granted);
  EXPECT_THAT(answer.reason, HasSubstr("expired"));
}

TEST_F(ArbiterTest, a_cancelled_hold_frees_what_it_held) {
  wire::Probe all = a_probe("j1");
  all.resources.cpu_milli = all.resources.cpu_milli_min = 2000;
  const ProbeAnswer held = arbiter.probe(all, now());
  EXPECT_TRUE(arbiter.probe(a_probe("j2"), now()).hold.empty());

  arbiter.cancel(held.hold);

  EXPECT_FALSE(arbiter.probe(a_probe("j2"), now()).hold.empty());
}

TEST_F(ArbiterTest, the_same_commit_again_is_granted_again) {
  const ProbeAnswer held = arbiter.probe(a_probe("j1"), now());
  arbiter.commit(a_commit("j1", held.hold), now());

  const CommitAnswer again = arbiter.commit(a_commit("j1", held.hold), now());

  EXPECT_TRUE(again.is_granted);
  EXPECT_TRUE(again.is_repeated);
}

TEST_F(ArbiterTest, a_commit_with_an_epoch_that_is_not_above_the_highest_seen_is_stale) {
  const ProbeAnswer held = arbiter.probe(a_probe("j1"), now());
  arbiter.commit(a_commit("j1", held.hold, {2, 3}), now());
  arbiter.release(JobId("j1"), {2, 3});
  const ProbeAnswer second = arbiter.probe(a_probe("j1"), now());

  EXPECT_THAT(
      arbiter.commit(a_commit("j1", second.hold, {2, 3}), now()).reason, HasSubstr("stale")
  );
  EXPECT_THAT(
      arbiter.commit(a_commit("j1", second.hold, {1, 9}), now()).reason, HasSubstr("stale")
  );
  EXPECT_TRUE(arbiter.commit(a_commit("j1", second.hold, {2, 4}), now()).is_granted);
}

TEST_F(ArbiterTest, no_guest_gets_more_cpu_than_the_contract_gives_one) {
  contract.guest_cpu_milli = 500;
  contract.guest_cpu_each_milli = 250;
  apply();

  EXPECT_EQ(arbiter.probe(a_probe("j1"), now()).grant.cpu_milli, 250u);
  EXPECT_EQ(arbiter.probe(a_probe("j2"), now()).grant.cpu_milli, 250u);
}

TEST_F(ArbiterTest, cpu_is_granted_in_part_down_to_the_minimum) {
  contract.guest_cpu_milli = 500;
  apply();

  const ProbeAnswer partly = arbiter.probe(a_probe("j1"), now());
  EXPECT_EQ(partly.grant.cpu_milli, 500u);
  const ProbeAnswer none = arbiter.probe(a_probe("j2"), now());
  EXPECT_THAT(none.refusal.reason, HasSubstr("0 free"));
  EXPECT_FALSE(none.refusal.is_permanent);

  wire::Probe greedy = a_probe("j3");
  greedy.resources.cpu_milli_min = 600;
  EXPECT_TRUE(arbiter.probe(greedy, now()).refusal.is_permanent);
}

TEST_F(ArbiterTest, memory_disk_and_places_are_counted_over_holds_and_leases) {
  wire::Probe probe = a_probe("j1");
  probe.resources.cpu_milli = 100;
  probe.resources.memory_mib = 3000;
  const ProbeAnswer held = arbiter.probe(probe, now());
  arbiter.commit(a_commit("j1", held.hold), now());

  probe.job = JobId("j2");
  EXPECT_THAT(arbiter.probe(probe, now()).refusal.reason, HasSubstr("1000 free"));
  probe.resources.memory_mib = 5000;
  EXPECT_TRUE(arbiter.probe(probe, now()).refusal.is_permanent);
  probe.resources.memory_mib = 10;
  conditions.disk_free_mib = 6000;  // 2048 granted, 2048 reserved, 2048 wanted
  apply();
  EXPECT_THAT(arbiter.probe(probe, now()).refusal.reason, HasSubstr("disk"));
  conditions.disk_free_mib = 7000;
  contract.max_guests = 1;
  apply();
  EXPECT_THAT(arbiter.probe(probe, now()).refusal.reason, HasSubstr("guest places"));
}

TEST_F(ArbiterTest, gpus_are_chosen_by_memory_capability_and_freedom) {
  wire::Probe probe = a_probe("j1");
  probe.resources.gpus = 1;
  probe.resources.gpu_memory_mib = 10'000;
  probe.resources.compute_capability_min = "7.0";

  EXPECT_THAT(arbiter.probe(probe, now()).grant.gpus, ElementsAre(0u));
  probe.job = JobId("j2");
  EXPECT_THAT(arbiter.probe(probe, now()).refusal.reason, HasSubstr("needs 1 GPUs, 0 free"));
  probe.resources.gpus = 2;
  EXPECT_TRUE(arbiter.probe(probe, now()).refusal.is_permanent);
}

TEST_F(ArbiterTest, a_contract_that_lends_no_gpu_refuses_who_needs_one_for_good) {
  contract.lends_gpus = false;
  apply();
  wire::Probe probe = a_probe("j1");
  EXPECT_FALSE(arbiter.probe(probe, now()).hold.empty());

  probe.job = JobId("j2");
  probe.resources.gpus = 1;
  const auto refusal = arbiter.probe(probe, now()).refusal;
  EXPECT_TRUE(refusal.is_permanent);
  EXPECT_THAT(refusal.reason, HasSubstr("the node lends 0 such"));
}

TEST_F(ArbiterTest, a_gpu_with_foreign_processes_or_a_wedged_one_is_busy) {
  wire::Probe probe = a_probe("j1");
  probe.resources.gpus = 1;
  conditions.gpus = {
      GpuTelemetry{.index = 0, .foreign_processes = 2},
      GpuTelemetry{.index = 1, .is_wedged = true}};
  apply();

  const ProbeAnswer answer = arbiter.probe(probe, now());

  EXPECT_THAT(answer.refusal.reason, HasSubstr("GPU 0 is used by 2 foreign processes"));
  EXPECT_THAT(answer.refusal.reason, HasSubstr("GPU 1 is wedged"));
  contract.idle.foreign_vram_mib = 500;  // the owner tolerates a desktop
  conditions.gpus[0].foreign_vram_mib = 300;
  apply();
  EXPECT_THAT(arbiter.probe(probe, now()).grant.gpus, ElementsAre(0u));
  conditions.gpus[0].foreign_vram_mib = 501;
  apply();
  EXPECT_THAT(arbiter.probe(probe, now()).refusal.reason, HasSubstr("GPU 0 is used by 2 foreign"));
}

TEST_F(ArbiterTest, a_sick_gpu_is_not_lent_and_says_why) {
  wire::Probe probe = a_probe("j1");
  probe.resources.gpus = 2;
  conditions.gpus = {GpuTelemetry{.index = 0, .sickness = "it has been slowed by heat"}};
  apply();

  EXPECT_THAT(
      arbiter.probe(probe, now()).refusal.reason,
      HasSubstr("GPU 0 is sick: it has been slowed by heat")
  );
  probe.resources.gpus = 1;
  EXPECT_THAT(arbiter.probe(probe, now()).grant.gpus, ElementsAre(1u));
}

TEST_F(ArbiterTest, a_reclaimed_gpu_is_not_lent_and_a_hold_on_it_is_not_committed) {
  wire::Probe probe = a_probe("j1");
  probe.resources.gpus = 1;
  const ProbeAnswer held = arbiter.probe(probe, now());
  conditions.reclaimed_gpus = {0};
  apply();

  EXPECT_THAT(arbiter.commit(a_commit("j1", held.hold), now()).reason, HasSubstr("taken back"));
}

TEST_F(ArbiterTest, a_paused_gpu_is_not_lent_and_a_hold_on_it_is_not_committed) {
  wire::Probe probe = a_probe("j1");
  probe.resources.gpus = 1;
  const ProbeAnswer held = arbiter.probe(probe, now());
  conditions.paused_gpus = {0};
  apply();
  EXPECT_THAT(arbiter.commit(a_commit("j1", held.hold), now()).reason, HasSubstr("was paused"));
  EXPECT_EQ(arbiter.lending(now()), LendingState::kOpen) << "the rest of the node";

  probe.resources.gpus = 2;
  EXPECT_THAT(
      arbiter.probe(probe, now()).refusal.reason, HasSubstr("GPU 0 is paused by the owner")
  );
}

TEST_F(ArbiterTest, a_gpu_outside_its_own_window_is_not_lent_and_the_others_are) {
  wire::Probe probe = a_probe("j1");
  probe.resources.gpus = 1;
  probe.resources.cpu_milli = 100;
  const ProbeAnswer held = arbiter.probe(probe, now());
  ASSERT_THAT(held.grant.gpus, ElementsAre(0u));
  conditions.gpu_windows = {{0, 0, "outside its lending windows"}};
  apply();
  EXPECT_THAT(
      arbiter.commit(a_commit("j1", held.hold), now()).reason,
      HasSubstr("GPU 0 is outside its lending windows")
  );
  EXPECT_EQ(arbiter.lending(now()), LendingState::kOpen) << "the rest of the node";
  EXPECT_THAT(arbiter.probe(probe, now()).grant.gpus, ElementsAre(0u)) << "the same hold";
  probe.job = JobId("j2");
  EXPECT_THAT(arbiter.probe(probe, now()).grant.gpus, ElementsAre(1u));

  probe.job = JobId("j3");
  probe.resources.gpus = 2;
  const Refusal refused = arbiter.probe(probe, now()).refusal;
  EXPECT_THAT(refused.reason, HasSubstr("GPU 0 is outside its lending windows"));
  EXPECT_FALSE(refused.is_permanent) << "it opens again";
}

TEST_F(ArbiterTest, of_two_gpus_the_one_that_closes_last_is_given) {
  wire::Probe probe = a_probe("j1");
  probe.resources.gpus = 1;
  conditions.gpu_windows = {{0, 3600, ""}, {1, 7200, ""}};
  apply();
  const ProbeAnswer first = arbiter.probe(probe, now());
  EXPECT_THAT(first.grant.gpus, ElementsAre(1u));
  arbiter.cancel(first.hold);

  conditions.gpu_windows = {{1, 7200, ""}, {0, 0, ""}};  // the latter not within a week
  apply();
  probe.job = JobId("j2");
  EXPECT_THAT(arbiter.probe(probe, now()).grant.gpus, ElementsAre(0u));
}

TEST_F(ArbiterTest, allow_lists_refuse_for_good_but_the_own_lab_may_always_come) {
  contract.allow_users = {"bob"};
  apply();
  EXPECT_TRUE(arbiter.probe(a_probe("j1"), now()).refusal.is_permanent);

  contract.allow_users = {};
  contract.allow_labs = {"lab-c"};
  apply();
  EXPECT_THAT(arbiter.probe(a_probe("j1"), now()).refusal.reason, HasSubstr("lab lab-x"));
  wire::Probe own = a_probe("j1");
  own.lab = LabId("lab-a");
  EXPECT_FALSE(arbiter.probe(own, now()).hold.empty());

  contract.allow_labs = {};
  contract.allow_images = {"sha256:aa"};
  apply();
  EXPECT_THAT(arbiter.probe(a_probe("j2"), now()).refusal.reason, HasSubstr("image"));
}

TEST_F(ArbiterTest, each_reason_not_to_lend_is_named) {
  const auto reason = [&] { return arbiter.probe(a_probe("j1"), now()).refusal.reason; };
  conditions.is_able = false;
  conditions.unable_because = "the warden does not answer";
  apply();
  EXPECT_EQ(reason(), "the warden does not answer");
  conditions.closed_until = now().boot + seconds(5);
  apply();
  EXPECT_THAT(reason(), HasSubstr("after a reclaim"));
  conditions.is_owner_present = true;
  apply();
  EXPECT_EQ(arbiter.lending(now()), LendingState::kOwnerPresent);
  contract.windows = {{{"mon"}, "00:00", "00:01"}};
  apply();
  EXPECT_THAT(reason(), HasSubstr("opens mon 00:00 (UTC)"));
  conditions.is_paused = true;
  apply();
  EXPECT_THAT(reason(), HasSubstr("paused"));
  conditions.is_reclaimed = true;
  apply();
  EXPECT_THAT(reason(), HasSubstr("taken the node back"));
  contract.lends = false;
  apply();
  EXPECT_THAT(reason(), HasSubstr("lends: false"));
  conditions.is_draining = true;
  apply();
  EXPECT_THAT(reason(), HasSubstr("leaving"));
}

TEST_F(ArbiterTest, a_commit_is_refused_when_the_owner_paused_after_the_hold) {
  const ProbeAnswer held = arbiter.probe(a_probe("j1"), now());
  conditions.is_paused = true;
  apply();

  EXPECT_FALSE(arbiter.commit(a_commit("j1", held.hold), now()).is_granted);
}

TEST_F(ArbiterTest, a_more_urgent_probe_replaces_a_weaker_hold_but_never_a_lease) {
  wire::Probe all = a_probe("j1");
  all.resources.cpu_milli = all.resources.cpu_milli_min = 2000;
  const ProbeAnswer weak = arbiter.probe(all, now());
  all.job = JobId("j2");
  all.priority = 1;

  const ProbeAnswer strong = arbiter.probe(all, now());

  ASSERT_FALSE(strong.hold.empty());
  EXPECT_FALSE(arbiter.commit(a_commit("j1", weak.hold), now()).is_granted);
  EXPECT_TRUE(arbiter.commit(a_commit("j2", strong.hold), now()).is_granted);
  all.job = JobId("j3");
  all.priority = 0;
  EXPECT_TRUE(arbiter.probe(all, now()).hold.empty());
}

TEST_F(ArbiterTest, the_own_lab_comes_before_any_priority_if_the_contract_says_so) {
  wire::Probe all = a_probe("j1");
  all.resources.cpu_milli = all.resources.cpu_milli_min = 2000;
  all.priority = 0;
  arbiter.probe(all, now());
  all.job = JobId("j2");
  all.lab = LabId("lab-a");
  all.priority = 7;

  EXPECT_FALSE(arbiter.probe(all, now()).hold.empty());

  contract.own_lab_first = false;
  apply();
  all.job = JobId("j3");
  EXPECT_TRUE(arbiter.probe(all, now()).hold.empty());
}

TEST_F(ArbiterTest, members_of_gangs_run_where_the_contract_says_so_and_others_anywhere) {
  wire::Probe member = a_probe("j1");
  member.gang = GangId("g-1");
  const ProbeAnswer refused = arbiter.probe(member, now());
  EXPECT_TRUE(refused.hold.empty());
  EXPECT_TRUE(refused.refusal.is_permanent);
  EXPECT_EQ(refused.refusal.reason, "the contract does not allow members of gangs");
  EXPECT_FALSE(arbiter.probe(a_probe("j2"), now()).hold.empty());

  contract.gangs = true;
  apply();
  EXPECT_FALSE(arbiter.probe(member, now()).hold.empty());
}

TEST_F(ArbiterTest, a_lease_restored_after_a_restart_counts_and_fences) {
  arbiter.restore_lease(JobId("j1"), Lease{{3, 2}, Grant{{0}, 2000, 100, 100}, now().boot});

  EXPECT_TRUE(arbiter.probe(a_probe("j2"), now()).hold.empty());
  EXPECT_TRUE(arbiter.renew(JobId("j1"), {3, 2}, now().boot + seconds(15)));
  EXPECT_FALSE(arbiter.renew(JobId("j1"), {3, 1}, now().boot + seconds(15)));
  arbiter.release(JobId("j1"), {3, 1});
  EXPECT_EQ(arbiter.leases().size(), 1u);
  arbiter.release(JobId("j1"), {3, 2});
  EXPECT_FALSE(arbiter.probe(a_probe("j2"), now()).hold.empty());
}

TEST_F(ArbiterTest, holds_are_bounded) {
  contract.max_guests = 1000;
  apply();
  wire::Probe small = a_probe("j");
  small.resources.cpu_milli = small.resources.cpu_milli_min = 1;
  small.resources.memory_mib = small.resources.disk_mib = 1;
  for (std::size_t i = 0; i < Arbiter::kHoldsMax; ++i) {
    small.job = JobId("j" + std::to_string(i));
    ASSERT_FALSE(arbiter.probe(small, now()).hold.empty());
  }
  small.job = JobId("one-too-many");

  EXPECT_THAT(arbiter.probe(small, now()).refusal.reason, HasSubstr("too many probes"));
}

TEST(Capability, compares_numbers_not_text) {
  EXPECT_TRUE(is_capable("10.0", "9.0"));
  EXPECT_TRUE(is_capable("8.6", "8.6"));
  EXPECT_TRUE(is_capable("", ""));
  EXPECT_FALSE(is_capable("8.0", "8.6"));
  EXPECT_FALSE(is_capable("", "7.0"));
  EXPECT_FALSE(is_capable("8.6", "new"));
}

TEST_F(ArbiterTest, a_job_whose_data_is_not_here_is_refused_until_the_node_offers_it) {
  wire::Probe probe = a_probe("j1");
  probe.data = {"digits"};
  const ProbeAnswer refused = arbiter.probe(probe, now());
  facts.data_sets = {"digits"};
  apply();

  EXPECT_TRUE(refused.hold.empty());
  EXPECT_TRUE(refused.refusal.is_permanent);
  EXPECT_EQ(refused.refusal.reason, "the node offers no data set digits");
  EXPECT_FALSE(arbiter.probe(probe, now()).hold.empty());
}

TEST_F(ArbiterTest, data_that_vanished_between_probe_and_commit_ends_the_hold) {
  facts.data_sets = {"digits"};
  apply();
  wire::Probe probe = a_probe("j1");
  probe.data = {"digits"};
  const ProbeAnswer held = arbiter.probe(probe, now());
  facts.data_sets.clear();
  apply();
  wire::Commit commit = a_commit("j1", held.hold);
  commit.spec.data = {"digits"};

  const CommitAnswer answer = arbiter.commit(commit, now());

  EXPECT_FALSE(answer.is_granted);
  EXPECT_EQ(answer.reason, "the node no longer offers data set digits");
}

}  // namespace
}  // namespace rn::arbiter
