// SPDX-License-Identifier: Apache-2.0
#include "sched/gang_choice.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "model/gang.h"

namespace rn::sched {
namespace {

/// Owns what a Candidate borrows. Its nodes know gangs and lend to them.
struct GangSite {
  struct Node {
    NodeFacts facts;
    Contract contract;
    NodeTelemetry telemetry;
  };

  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<Candidate> candidates;
  std::vector<std::string> groups;

  Node& add(const std::string& id, std::uint32_t cpu_milli = 4000, const char* group = "") {
    auto node = std::make_unique<Node>();
    node->facts.cpu_milli = cpu_milli;
    node->facts.memory_mib = 16'000;
    node->facts.features = {kGangsFeature};
    node->contract.gangs = true;
    candidates.push_back(
        {.node = NodeId(id),
         .lab = LabId("lab-" + id),
         .facts = &node->facts,
         .contract = &node->contract,
         .telemetry = &node->telemetry}
    );
    groups.emplace_back(group);
    nodes.push_back(std::move(node));
    return *nodes.back();
  }
};

GangDemand a_gang(std::uint32_t size) {
  GangDemand demand;
  demand.member.resources = {.cpu_milli = 1000, .cpu_milli_min = 100, .memory_mib = 1000};
  demand.member.user = UserId("ann");
  demand.member.lab = LabId("lab-x");
  demand.member.is_member = true;
  demand.size = size;
  return demand;
}

using Names = std::vector<std::string>;

Names names_of(const GangChoice& choice, const GangSite& site) {
  Names names;
  for (const GangSeat& seat : choice.seats) names.push_back(site.candidates[seat.index].node.str());
  return names;
}

Names chosen(const GangDemand& demand, const GangSite& site) {
  const auto choice = choose_gang(demand, site.candidates, site.groups);
  return choice ? names_of(*choice, site) : Names{"nobody"};
}

/// By the words of the declaration, for members on different nodes.
double value_of(const GangDemand& demand, const GangSite& site, std::uint32_t subset) {
  double slowest = 1;
  double product = 1;
  std::set<std::string> groups;
  for (std::size_t i = 0; i < site.candidates.size(); ++i) {
    if (((subset >> i) & 1) == 0) continue;
    const Candidate& c = site.candidates[i];
    const Judgement judgement = judge(demand.member, c);
    if (judgement.fit != Fit::kFits) return -1;
    const Ranked ranked = score(demand.member, c, i, judgement.cpu_milli);
    slowest = std::min(slowest, ranked.speed);
    product *= ranked.worth;
    if (std::find(demand.had.begin(), demand.had.end(), c.node) != demand.had.end())
      product *= 1.05;
    if (demand.avoided.contains(c.node)) product *= 0.5;
    groups.insert(site.groups[i]);
  }
  const bool is_one = groups.size() == 1 && !groups.begin()->empty();
  return slowest * product * (is_one ? 1.1 : 1);
}

TEST(GangChoice, no_subset_of_eight_nodes_is_worth_more) {
  SeededRng rng(7);
  const char* const switches[] = {"", "east", "west"};
  for (int round = 0; round < 200; ++round) {
    GangSite site;
    for (int i = 0; i < 8; ++i) {
      const auto cpu = static_cast<std::uint32_t>(200 + 200 * rng.below(6));
      site.add("n-" + std::to_string(i), cpu, switches[rng.below(3)]);
      const double rate = 1e-5 * static_cast<double>(rng.below(20));
      site.candidates.back().outlook = constant_curve(rate, 2 * rate);
      if (rng.below(8) == 0) site.candidates.back().lending = LendingState::kPaused;
    }
    GangDemand demand = a_gang(static_cast<std::uint32_t>(2 + rng.below(4)));
    demand.had = {NodeId("n-3"), NodeId(), NodeId("n-5")};
    demand.had.resize(demand.size);
    if (rng.below(2) == 0) demand.avoided.insert(NodeId("n-1"));
    double best = -1;
    for (std::uint32_t subset = 0; subset < 256; ++subset) {
      if (static_cast<std::uint32_t>(__builtin_popcount(subset)) != demand.size) continue;
      best = std::max(best, value_of(demand, site, subset));
    }

    const auto choice = choose_gang(demand, site.candidates, site.groups);

    ASSERT_EQ(choice.has_value(), best >= 0) << "round " << round;
    if (!choice) continue;
    EXPECT_NEAR(choice->value, best, 1e-12) << "round " << round;
    std::uint32_t taken = 0;
    for (const GangSeat& seat : choice->seats) taken |= 1u << seat.index;
    EXPECT_NEAR(value_of(demand, site, taken), best, 1e-12) << "round " << round;
  }
}

TEST(GangChoice, all_or_none) {
  GangSite site;
  site.add("a");
  site.add("b");
  site.add("c").contract.gangs = false;

  EXPECT_EQ(chosen(a_gang(2), site), (Names{"a", "b"}));
  EXPECT_EQ(chosen(a_gang(3), site), Names{"nobody"});
  EXPECT_EQ(room_now(a_gang(3), site.candidates), 2u);
}

TEST(GangChoice, the_slowest_sets_the_pace_so_two_fast_ones_that_leave_sooner_may_be_better) {
  GangSite site;
  site.add("fast-1", 1000);
  site.add("fast-2", 1000);
  site.add("slow", 200);
  for (Candidate& c : site.candidates) c.outlook = constant_curve(2e-5, 2e-5);
  site.candidates[2].outlook = constant_curve(0, 0);

  EXPECT_EQ(chosen(a_gang(2), site), (Names{"fast-1", "fast-2"}));
}

TEST(GangChoice, nodes_at_one_switch_are_preferred_among_equals) {
  GangSite site;
  site.add("a", 4000, "east");
  site.add("b", 4000, "west");
  site.add("c", 4000, "west");

  const auto choice = choose_gang(a_gang(2), site.candidates, site.groups);

  ASSERT_TRUE(choice);
  EXPECT_EQ(names_of(*choice, site), (Names{"b", "c"}));
  EXPECT_EQ(choice->group, "west");
}

TEST(GangChoice, members_are_back_on_the_nodes_where_they_ran_each_on_its_own) {
  GangSite site;
  for (const char* id : {"a", "b", "c", "d"}) site.add(id);
  GangDemand demand = a_gang(3);
  demand.had = {NodeId("d"), NodeId("gone"), NodeId("c")};

  EXPECT_EQ(chosen(demand, site), (Names{"d", "a", "c"}));
}

TEST(GangChoice, a_node_counts_as_often_as_members_fit_if_they_need_not_be_spread) {
  GangSite site;
  site.add("a");
  site.nodes[0]->facts.memory_mib = 4000;  // three quarters of it are lent: three members
  GangDemand demand = a_gang(3);

  EXPECT_EQ(chosen(demand, site), Names{"nobody"});
  demand.is_spread = false;
  EXPECT_EQ(chosen(demand, site), (Names{"a", "a", "a"}));
  demand.size = 4;
  EXPECT_EQ(chosen(demand, site), Names{"nobody"});
  EXPECT_EQ(room_ever(demand, site.candidates), 3u);
}

TEST(GangChoice, room_that_others_take_now_is_room_that_there_may_be) {
  GangSite site;
  site.add("a");
  site.add("b");
  site.candidates[1].used_memory_mib = 12'000;
  site.add("c");
  site.candidates[2].lending = LendingState::kOutsideWindow;

  EXPECT_EQ(room_now(a_gang(3), site.candidates), 1u);
  EXPECT_EQ(room_ever(a_gang(3), site.candidates), 3u);
}

TEST(GangChoice, who_is_cut_off_from_transfers_takes_no_member_now) {
  GangSite site;
  site.add("a");
  site.add("b").facts.are_transfers_cut = true;

  EXPECT_EQ(judge(a_gang(2).member, site.candidates[1]).fit, Fit::kNotNow);
  EXPECT_EQ(room_now(a_gang(2), site.candidates), 1u);
  EXPECT_EQ(room_ever(a_gang(2), site.candidates), 2u);
  Demand single = a_gang(2).member;
  single.is_member = false;
  EXPECT_EQ(judge(single, site.candidates[1]).fit, Fit::kFits);
}

TEST(GangChoice, who_does_not_know_or_want_gangs_never_takes_a_member) {
  GangSite site;
  site.add("old").facts.features.clear();
  site.add("unwilling").contract.gangs = false;
  site.add("closed");
  site.candidates[2].has_peer_port = false;

  for (const Candidate& c : site.candidates)
    EXPECT_EQ(judge(a_gang(2).member, c).fit, Fit::kNever) << c.node.str();
  Demand single = a_gang(2).member;
  single.is_member = false;
  for (const Candidate& c : site.candidates)
    EXPECT_EQ(judge(single, c).fit, Fit::kFits) << c.node.str();
}

}  // namespace
}  // namespace rn::sched
