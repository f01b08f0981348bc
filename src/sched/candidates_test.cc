// SPDX-License-Identifier: Apache-2.0
#include "sched/candidates.h"

#include <memory>

#include <gtest/gtest.h>

namespace rn::sched {
namespace {

/// Owns what a Candidate borrows.
struct Site {
  struct Node {
    NodeFacts facts;
    Contract contract;
    NodeTelemetry telemetry;
  };

  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<Candidate> candidates;

  Node& add(const char* id, const char* lab, std::vector<Gpu> gpus = {}) {
    auto node = std::make_unique<Node>();
    node->facts.hostname = std::string("host-") + id;
    node->facts.cpu_milli = 4000;
    node->facts.memory_mib = 16'000;
    node->facts.gpus = std::move(gpus);
    for (const Gpu& gpu : node->facts.gpus) node->telemetry.gpus.push_back({.index = gpu.index});
    candidates.push_back(
        {.node = NodeId(id),
         .lab = LabId(lab),
         .facts = &node->facts,
         .contract = &node->contract,
         .telemetry = &node->telemetry}
    );
    nodes.push_back(std::move(node));
    return *nodes.back();
  }
};

Gpu a_gpu(std::uint32_t index, std::uint64_t mib, const char* capability = "8.6") {
  return {.index = index, .memory_mib = mib, .compute_capability = capability};
}

Demand a_demand(std::uint32_t gpus = 0, std::uint64_t gpu_mib = 0) {
  return {
      .resources = {.gpus = gpus, .gpu_memory_mib = gpu_mib},
      .user = UserId("ann"),
      .lab = LabId("lab-x"),
      .image_digest = "sha256:aa"};
}

std::vector<std::string> ranked(const Demand& demand, const Site& site) {
  std::vector<std::string> ids;
  for (const Ranked& r : rank(demand, site.candidates))
    ids.push_back(site.candidates[r.index].node.str());
  return ids;
}

using Ids = std::vector<std::string>;

TEST(Judge, too_small_a_gpu_is_infeasible_and_a_busy_one_is_not_now) {
  Site site;
  site.add("small", "a", {a_gpu(0, 8192)});
  site.add("busy", "a", {a_gpu(0, 24'576)}).telemetry.gpus[0].foreign_processes = 1;

  const Judgement small = judge(a_demand(1, 16'384), site.candidates[0]);
  const Judgement busy = judge(a_demand(1, 16'384), site.candidates[1]);

  EXPECT_EQ(small.fit, Fit::kNever);
  EXPECT_EQ(small.reason, "has 8192 MiB of GPU memory, 16384 wanted");
  EXPECT_EQ(busy.fit, Fit::kNotNow);
  EXPECT_EQ(busy.reason, "GPUs busy with processes of the owner");
}

TEST(Judge, live_free_memory_counts_not_the_size_on_the_box) {
  Site site;
  site.add("n", "a", {a_gpu(0, 24'576)}).telemetry.gpus[0].memory_used_mib = 12'000;

  EXPECT_EQ(judge(a_demand(1, 16'384), site.candidates[0]).reason, "too little GPU memory free");
  EXPECT_EQ(judge(a_demand(1, 12'000), site.candidates[0]).fit, Fit::kFits);
}

TEST(Judge, foreign_processes_below_the_contracts_limit_are_tolerated) {
  Site site;
  auto& node = site.add("n", "a", {a_gpu(0, 24'576)});
  GpuTelemetry& gpu = node.telemetry.gpus[0];
  gpu = {.index = 0, .memory_used_mib = 900, .foreign_processes = 1, .foreign_vram_mib = 300};
  node.contract.idle.foreign_vram_mib = 500;

  EXPECT_EQ(judge(a_demand(1), site.candidates[0]).fit, Fit::kFits) << "600 are not the owner's";
  gpu.foreign_vram_mib = 501;
  EXPECT_EQ(judge(a_demand(1), site.candidates[0]).fit, Fit::kNotNow);
}

TEST(Judge, a_sick_gpu_is_nobodys_and_the_others_are_as_before) {
  Site site;
  auto& node = site.add("n", "a", {a_gpu(0, 24'576), a_gpu(1, 24'576)});
  node.telemetry.gpus[0].sickness = "it has fallen off the bus";

  EXPECT_EQ(judge(a_demand(1), site.candidates[0]).fit, Fit::kFits);
  EXPECT_EQ(judge(a_demand(2), site.candidates[0]).fit, Fit::kNotNow);
  EXPECT_EQ(judge(a_demand(2), site.candidates[0]).reason, "a GPU is sick");
}

TEST(Judge, a_gpu_outside_its_own_window_is_nobodys_now_and_the_others_are_as_before) {
  Site site;
  auto& node = site.add("n", "a", {a_gpu(0, 24'576), a_gpu(1, 24'576)});
  node.telemetry.gpus[0].is_outside_window = true;

  EXPECT_EQ(judge(a_demand(1), site.candidates[0]).fit, Fit::kFits);
  EXPECT_EQ(judge(a_demand(2), site.candidates[0]).fit, Fit::kNotNow);
  EXPECT_EQ(judge(a_demand(2), site.candidates[0]).reason, "GPUs outside their lending windows");
}

TEST(Rank, a_gpu_whose_own_window_ends_within_the_job_comes_after_one_that_stays) {
  Site site;
  site.add("n-1", "a", {a_gpu(0, 24'576)}).telemetry.gpus[0].closes_in_s = 1800;
  site.add("n-2", "a", {a_gpu(0, 24'576)});
  EXPECT_EQ(ranked(a_demand(1), site), (Ids{"n-2", "n-1"}));

  Demand brief = a_demand(1);
  brief.horizon_s = 600;
  EXPECT_EQ(ranked(brief, site), (Ids{"n-1", "n-2"})) << "it has ended by then";
  EXPECT_EQ(ranked(a_demand(), site), (Ids{"n-1", "n-2"})) << "without a GPU it is the same to it";
}

TEST(Rank, of_several_gpus_those_that_close_last_count) {
  Site site;
  auto& both = site.add("n-1", "a", {a_gpu(0, 24'576), a_gpu(1, 24'576)});
  both.telemetry.gpus[0].closes_in_s = 1800;
  site.add("n-2", "a", {a_gpu(0, 24'576), a_gpu(1, 24'576)}).telemetry.gpus[1].closes_in_s = 3600;

  EXPECT_EQ(ranked(a_demand(2), site), (Ids{"n-2", "n-1"}));
  EXPECT_EQ(ranked(a_demand(1), site), (Ids{"n-1", "n-2"})) << "each has one that stays";
}

TEST(Judge, what_the_driver_keeps_for_itself_is_not_free_and_not_the_owners) {
  Site site;
  auto& node = site.add("n", "a", {a_gpu(0, 81'559)});
  node.telemetry.gpus[0] = {
      .index = 0,
      .memory_used_mib = 300,
      .memory_reserved_mib = 480,
      .foreign_processes = 1,
      .foreign_vram_mib = 300};
  node.contract.idle.foreign_vram_mib = 500;

  EXPECT_EQ(judge(a_demand(1, 80'779), site.candidates[0]).fit, Fit::kFits);
  EXPECT_EQ(judge(a_demand(1, 80'780), site.candidates[0]).reason, "too little GPU memory free");
}

TEST(Judge, compute_capability_is_compared_as_numbers) {
  Site site;
  site.add("n", "a", {a_gpu(0, 8192, "10.0")});
  Demand demand = a_demand(1);
  demand.resources.compute_capability_min = "9.0";

  EXPECT_EQ(judge(demand, site.candidates[0]).fit, Fit::kFits);
  demand.resources.compute_capability_min = "10.1";
  EXPECT_EQ(judge(demand, site.candidates[0]).reason, "has compute capability 10.0, 10.1 wanted");
}

TEST(Judge, only_lent_gpus_count) {
  Site site;
  site.add("n", "a", {a_gpu(0, 8192), a_gpu(1, 8192)}).contract.gpus = {1};

  EXPECT_EQ(judge(a_demand(2), site.candidates[0]).reason, "lends 1 GPUs, 2 wanted");
  EXPECT_EQ(judge(a_demand(1), site.candidates[0]).fit, Fit::kFits);
}

TEST(Judge, a_contract_that_lends_no_gpu_has_none) {
  Site site;
  site.add("n", "a", {a_gpu(0, 8192), a_gpu(1, 8192)}).contract.lends_gpus = false;

  EXPECT_EQ(judge(a_demand(1), site.candidates[0]).reason, "lends 0 GPUs, 1 wanted");
  EXPECT_EQ(judge(a_demand(0), site.candidates[0]).fit, Fit::kFits);
}

TEST(Judge, a_contract_that_does_not_admit_the_user_lab_or_image_is_infeasible) {
  Site site;
  auto& node = site.add("n", "a");
  node.contract.allow_users = {"bob"};
  EXPECT_EQ(judge(a_demand(), site.candidates[0]).reason, "its contract does not admit user ann");
  node.contract.allow_users = {"ann"};
  node.contract.allow_labs = {"lab-y"};
  EXPECT_EQ(judge(a_demand(), site.candidates[0]).reason, "its contract does not admit lab lab-x");
  node.contract.allow_labs = {"lab-x"};
  node.contract.allow_images = {"sha256:bb"};
  EXPECT_EQ(judge(a_demand(), site.candidates[0]).fit, Fit::kNever);
  node.contract.allow_images = {"sha256:aa"};
  EXPECT_EQ(judge(a_demand(), site.candidates[0]).fit, Fit::kFits);
}

TEST(Judge, what_runs_already_is_not_given_twice) {
  Site site;
  site.add("n", "a", {a_gpu(0, 8192), a_gpu(1, 8192)});
  site.candidates[0].used_gpus = 2;
  EXPECT_EQ(judge(a_demand(1), site.candidates[0]).reason, "GPUs busy with other jobs");

  site.candidates[0].used_gpus = 0;
  site.candidates[0].used_cpu_milli = 3950;
  EXPECT_EQ(judge(a_demand(), site.candidates[0]).reason, "cores busy with other jobs");
}

TEST(Judge, fewer_cores_than_wanted_are_granted_down_to_the_minimum) {
  Site site;
  site.add("n", "a").contract.guest_cpu_milli = 500;

  EXPECT_EQ(judge(a_demand(), site.candidates[0]).cpu_milli, 500U);
}

TEST(Judge, one_guest_is_granted_no_more_than_the_contract_gives_one) {
  Site site;
  Contract& contract = site.add("n", "a").contract;
  contract.guest_cpu_milli = 500;
  contract.guest_cpu_each_milli = 250;

  EXPECT_EQ(judge(a_demand(), site.candidates[0]).cpu_milli, 250U);
}

TEST(Judge, a_node_that_only_stores_never_runs_anything) {
  Site site;
  site.add("storage", "a").contract.lends = false;

  EXPECT_EQ(judge(a_demand(), site.candidates[0]).fit, Fit::kNever);
}

TEST(Rank, a_calm_node_goes_before_a_restless_one) {
  Site site;
  site.add("a-restless", "a");
  site.add("b-calm", "b");
  site.candidates[0].outlook = constant_curve(1.0 / 3600, 1.4 / 3600);

  EXPECT_EQ(ranked(a_demand(), site), (Ids{"b-calm", "a-restless"}));
}

TEST(Rank, what_counts_is_the_hazard_over_the_time_that_the_job_needs) {
  Site site;
  site.add("a-leaves-tonight", "a");
  site.add("b-restless", "b");
  site.candidates[0].outlook.leaves_in_s = 2 * 3600;
  site.candidates[1].outlook = constant_curve(1.0 / 36'000, 1.0 / 36'000);
  Demand demand = a_demand();

  demand.horizon_s = 3600;
  EXPECT_EQ(ranked(demand, site), (Ids{"a-leaves-tonight", "b-restless"}));
  demand.horizon_s = 8 * 3600;
  EXPECT_EQ(ranked(demand, site), (Ids{"b-restless", "a-leaves-tonight"}));
}

TEST(Rank, a_whole_core_goes_before_half_a_one) {
  Site site;
  site.add("a-half", "a").contract.guest_cpu_milli = 500;
  site.add("b-full", "b").contract.guest_cpu_milli = 1000;

  EXPECT_EQ(ranked(a_demand(), site), (Ids{"b-full", "a-half"}));
}

TEST(Rank, the_own_lab_does_not_outweigh_that_its_owner_is_nearly_here) {
  Site site;
  site.add("own", "lab-x");
  site.add("calm", "lab-c");
  site.candidates[0].outlook = constant_curve(1 / 30'000.0, 1 / 30'000.0);
  site.candidates[1].outlook = constant_curve(1 / 400'000.0, 1 / 400'000.0);
  EXPECT_EQ(ranked(a_demand(), site), (Ids{"calm", "own"}));

  site.candidates[0].outlook = constant_curve(1 / 200'000.0, 1 / 200'000.0);
  EXPECT_EQ(ranked(a_demand(), site), (Ids{"own", "calm"}));
}

TEST(Rank, own_lab_goes_first_home_before_everything_and_a_failed_node_last) {
  Site site;
  site.add("a", "lab-a");
  site.add("b", "lab-x");
  site.add("c", "lab-c");
  site.add("d", "lab-d");
  Demand demand = a_demand();
  demand.preferred = NodeId("c");
  demand.avoided = NodeId("a");

  EXPECT_EQ(ranked(demand, site), (Ids{"c", "b", "d", "a"}));
}

TEST(Rank, where_an_evacuation_went_goes_before_home) {
  Site site;
  site.add("a", "lab-a");
  site.add("b", "lab-x");
  site.add("c", "lab-c");
  Demand demand = a_demand();
  demand.preferred = NodeId("c");
  demand.chosen = NodeId("a");

  EXPECT_EQ(ranked(demand, site), (Ids{"a", "c", "b"}));
  EXPECT_NE(
      because(demand, site.candidates[0], rank(demand, site.candidates)[0])
          .find("where its evacuation went"),
      std::string::npos
  );
}

TEST(Rank, who_grants_the_notice_that_is_asked_for_goes_first_and_home_still_before_it) {
  Site site;
  site.add("a-short", "a").contract.notice_s = 60;
  site.add("b-long", "b").contract.notice_s = 300;
  Demand demand = a_demand();

  EXPECT_EQ(ranked(demand, site), (Ids{"a-short", "b-long"}));
  demand.notice_s = 300;
  EXPECT_EQ(ranked(demand, site), (Ids{"b-long", "a-short"}));
  EXPECT_NE(
      because(demand, site.candidates[0], rank(demand, site.candidates)[1])
          .find("gives 60 s of notice, 300 asked for"),
      std::string::npos
  );
  demand.preferred = NodeId("a-short");
  EXPECT_EQ(ranked(demand, site), (Ids{"a-short", "b-long"}));
}

TEST(Rank, the_longest_notice_is_that_of_a_node_which_can_run_the_job) {
  Site site;
  site.add("a", "lab-a").contract.notice_s = 60;
  site.add("b", "lab-b").contract.notice_s = 900;
  Demand demand = a_demand();
  demand.only_labs = {"lab-a"};

  EXPECT_EQ(longest_notice_s(demand, site.candidates), 60U);
  demand.only_labs = {"lab-c"};
  EXPECT_EQ(longest_notice_s(demand, site.candidates), std::nullopt);
}

TEST(Rank, equal_nodes_are_filled_before_empty_ones_are_opened) {
  Site site;
  site.add("a-empty", "a", {a_gpu(0, 8192), a_gpu(1, 8192)});
  site.add("b-half-full", "b", {a_gpu(0, 8192), a_gpu(1, 8192)});
  site.candidates[1].used_gpus = 1;

  EXPECT_EQ(ranked(a_demand(1), site), (Ids{"b-half-full", "a-empty"}));
}

TEST(Explain, says_how_many_gpus_can_ever_match_and_which_is_closest) {
  Site site;
  site.add("n-1", "lab-a", {a_gpu(0, 8192), a_gpu(1, 8192)});
  site.add("n-2", "lab-b", {a_gpu(0, 12'288)});

  EXPECT_EQ(
      explain(a_demand(1, 16'384), site.candidates),
      "0 of 3 GPUs can ever match; closest: lab-b/host-n-2 has 12288 MiB of GPU memory, 16384 "
      "wanted"
  );
  EXPECT_FALSE(is_feasible(a_demand(1, 16'384), site.candidates));
}

TEST(Explain, says_why_nothing_can_now) {
  Site site;
  site.add("n-1", "lab-a");
  site.add("n-2", "lab-b");
  site.add("n-3", "lab-b");
  site.candidates[0].lending = LendingState::kReclaimed;
  site.candidates[1].lending = LendingState::kReclaimed;
  site.candidates[2].is_up = false;

  EXPECT_EQ(
      explain(a_demand(), site.candidates),
      "3 of 3 nodes could run it, none can now: 1 not connected; 2 taken back by its owner"
  );
  EXPECT_TRUE(is_feasible(a_demand(), site.candidates));
  EXPECT_EQ(explain(a_demand(), {}), "no node has joined yet");
}

TEST(
    Explain, names_nodes_whose_engine_is_refused_and_not_those_that_are_closed_for_another_reason
) {
  Site site;
  for (const char* id : {"n-1", "n-2", "n-3", "n-4", "n-5", "n-6"}) {
    site.add(id, "lab-a").facts.engine_refusal = "engine 19.3 is below 20.10.24";
    site.candidates.back().lending = LendingState::kNotLending;
  }
  site.candidates[4].lending = LendingState::kReclaimed;
  site.candidates[5].is_up = false;

  const std::string refused = ": its container engine is refused: engine 19.3 is below 20.10.24; ";
  EXPECT_EQ(
      explain(a_demand(), site.candidates),
      "6 of 6 nodes could run it, none can now: lab-a/host-n-1" + refused + "lab-a/host-n-2" +
          refused + "lab-a/host-n-3" + refused +
          "1 more with a container engine that is refused; 1 not connected; "
          "1 taken back by its owner"
  );
}

TEST(Data, a_job_goes_only_where_all_its_data_sets_are) {
  Site site;
  site.add("none", "lab-x");
  site.add("one", "lab-x").facts.data_sets = {"digits"};
  site.add("both", "lab-b").facts.data_sets = {"digits", "imagenet"};
  Demand demand = a_demand();
  demand.data = {"imagenet", "digits"};
  demand.preferred = NodeId("none");

  EXPECT_EQ(ranked(demand, site), (Ids{"both"}));
  EXPECT_EQ(judge(demand, site.candidates[1]).fit, Fit::kNever);
  EXPECT_EQ(judge(demand, site.candidates[1]).reason, "offers no data set imagenet");
}

TEST(Data, a_data_set_that_nobody_offers_is_named) {
  Site site;
  site.add("n-1", "lab-a").facts.data_sets = {"digits"};
  site.add("n-2", "lab-b").facts.data_sets = {"imagenet"};
  Demand demand = a_demand();
  demand.data = {"digits", "cifar"};

  EXPECT_EQ(explain(demand, site.candidates), "no node offers data set cifar");
  EXPECT_FALSE(is_feasible(demand, site.candidates));
  demand.data = {"digits", "imagenet"};
  EXPECT_EQ(
      explain(demand, site.candidates),
      "0 of 2 nodes can ever match; closest: lab-a/host-n-1 offers no data set imagenet"
  );
}

TEST(Data, a_node_that_has_the_data_and_is_too_small_is_closer_than_one_without) {
  Site site;
  site.add("n-1", "lab-a");
  site.add("n-2", "lab-b").facts.data_sets = {"digits"};
  Demand demand = a_demand();
  demand.data = {"digits"};
  demand.resources.memory_mib = 24'000;

  EXPECT_EQ(
      explain(demand, site.candidates),
      "0 of 2 nodes can ever match; closest: lab-b/host-n-2 has 12000 MiB for guests, 24000 wanted"
  );
}

}  // namespace
}  // namespace rn::sched
