// SPDX-License-Identifier: Apache-2.0
#include "reclaim/topology.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace rn::reclaim {
namespace {

constexpr double kGbit = 1e9 / 8;

TopologyLine a_line(double gbit, double latency_s = 0) {
  return {gbit * kGbit, gbit * kGbit, latency_s};
}

/// campus ─ building-a (1 Gbit/s) ─ floor-1, floor-2 (10 Gbit/s); campus ─ building-b.
TopologyDeclaration a_campus() {
  return {
      {{"campus", "", {}},
       {"floor-1", "building-a", a_line(10)},
       {"building-a", "campus", a_line(1, 0.001)},
       {"floor-2", "building-a", a_line(10)},
       {"building-b", "campus", a_line(2, 0.002)}},
      {{"a-1", "floor-1", a_line(1)},
       {"a-2", "floor-2", {kGbit, 0.5 * kGbit, 0}},
       {"b-1", "building-b", a_line(1)},
       {"store", "campus", a_line(10)}}};
}

Topology made(const TopologyDeclaration& declared) {
  auto topology = Topology::make(declared);
  EXPECT_TRUE(topology) << topology.error().describe();
  return *std::move(topology);
}

std::vector<std::string> crossed(const Topology& topology, const char* from, const char* to) {
  std::vector<std::string> names;
  for (const auto link : topology.path(topology.find(from, ""), topology.find(to, "")).links)
    names.push_back(topology.links()[link].name);
  return names;
}

using Names = std::vector<std::string>;

TEST(Topology, a_path_goes_up_to_the_lowest_common_switch_and_down_again) {
  const Topology topology = made(a_campus());

  EXPECT_EQ(
      crossed(topology, "a-1", "b-1"),
      (Names{"a-1 up", "floor-1 up", "building-a up", "building-b down", "b-1 down"})
  );
  EXPECT_EQ(
      crossed(topology, "a-1", "a-2"), (Names{"a-1 up", "floor-1 up", "floor-2 down", "a-2 down"})
  );
  EXPECT_EQ(
      crossed(topology, "store", "a-1"),
      (Names{"store up", "building-a down", "floor-1 down", "a-1 down"})
  );
  EXPECT_EQ(crossed(topology, "a-1", "a-1"), Names{});
}

TEST(Topology, the_switches_above_a_node_are_named_without_the_root) {
  const Topology topology = made(a_campus());

  EXPECT_EQ(topology.switches_above(*topology.find("a-1", "")), (Names{"floor-1", "building-a"}));
  EXPECT_EQ(topology.switches_above(*topology.find("b-1", "")), Names{"building-b"});
  EXPECT_EQ(topology.switches_above(*topology.find("store", "")), Names{});
}

TEST(Topology, switches_in_common_are_a_share_of_those_above_the_first) {
  const Topology topology = made(a_campus());
  const auto shared = [&](const char* a, const char* b) {
    return topology.shared_switches(*topology.find(a, ""), *topology.find(b, ""));
  };

  EXPECT_EQ(shared("a-1", "a-1"), 1);
  EXPECT_EQ(shared("a-1", "a-2"), 0.5) << "the building, and not the floor";
  EXPECT_EQ(shared("a-1", "b-1"), 0);
  EXPECT_EQ(shared("b-1", "a-1"), 0);
  EXPECT_EQ(shared("store", "a-1"), 0);
}

TEST(Topology, a_path_is_as_fast_as_its_slowest_line_and_as_late_as_all_together) {
  const Topology topology = made(a_campus());

  const auto far = topology.path(topology.find("store", ""), topology.find("b-1", ""));
  const auto near = topology.path(topology.find("a-1", ""), topology.find("a-2", ""));
  const auto back = topology.path(topology.find("a-2", ""), topology.find("a-1", ""));

  EXPECT_DOUBLE_EQ(far.rate, kGbit);
  EXPECT_DOUBLE_EQ(far.latency_s, 0.002);
  EXPECT_DOUBLE_EQ(near.rate, 0.5 * kGbit);
  EXPECT_DOUBLE_EQ(back.rate, kGbit);
}

TEST(Topology, one_that_is_not_declared_hangs_at_the_root) {
  const Topology topology = made(a_campus());

  const auto path = topology.path(std::nullopt, topology.find("a-1", ""));

  ASSERT_EQ(path.links.size(), 3u);
  EXPECT_EQ(topology.links()[path.links[0]].name, "building-a down");
  EXPECT_TRUE(topology.path(std::nullopt, std::nullopt).links.empty());
  EXPECT_TRUE(std::isinf(Topology().path(std::nullopt, std::nullopt).rate));
}

TEST(Topology, a_node_is_found_by_its_id_before_its_hostname) {
  TopologyDeclaration declared = a_campus();
  declared.nodes.push_back({"n-7", "campus", a_line(1)});
  const Topology topology = made(declared);

  EXPECT_EQ(topology.nodes()[*topology.find("n-7", "a-1")], "n-7");
  EXPECT_EQ(topology.nodes()[*topology.find("n-8", "a-1")], "a-1");
  EXPECT_FALSE(topology.find("n-8", "elsewhere"));
  EXPECT_FALSE(Topology().find("n-8", "a-1"));
}

struct BadTopology {
  const char* name;
  void (*spoil)(TopologyDeclaration&);
  ErrorCode code;
  const char* says;
};

class TopologyRefuses : public testing::TestWithParam<BadTopology> {};

TEST_P(TopologyRefuses, what_cannot_be_and_names_it) {
  TopologyDeclaration declared = a_campus();
  GetParam().spoil(declared);

  const auto topology = Topology::make(declared);

  ASSERT_FALSE(topology);
  EXPECT_EQ(topology.error().code, GetParam().code);
  EXPECT_NE(topology.error().message.find(GetParam().says), std::string::npos)
      << topology.error().message;
  EXPECT_FALSE(topology.error().hint.empty());
}

using Declared = TopologyDeclaration&;
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(
    Topology,
    TopologyRefuses,
    testing::Values(
        BadTopology{
            "a_loop",
            [](Declared d) { d.switches[2].parent = "floor-1"; },
            ErrorCode::kInvalid,
            "floor-1 → building-a → floor-1"},
        BadTopology{
            "no_root",
            [](Declared d) {
              d.switches[0].parent = "floor-1";
              d.switches[0].line = a_line(1);
            },
            ErrorCode::kInvalid,
            "a loop: campus → floor-1 → building-a → campus"},
        BadTopology{
            "itself_as_parent",
            [](Declared d) { d.switches[4].parent = "building-b"; },
            ErrorCode::kInvalid,
            "a loop: building-b → building-b"},
        BadTopology{
            "two_roots",
            [](Declared d) { d.switches[4].parent = ""; },
            ErrorCode::kInvalid,
            "'campus' and 'building-b' both have no parent"},
        BadTopology{
            "an_unknown_parent",
            [](Declared d) { d.switches[1].parent = "building-c"; },
            ErrorCode::kInvalid,
            "'building-c' of 'floor-1'"},
        BadTopology{
            "an_unknown_switch",
            [](Declared d) { d.nodes[0].at = "floor-9"; },
            ErrorCode::kInvalid,
            "'a-1' hangs at 'floor-9'"},
        BadTopology{
            "a_switch_twice",
            [](Declared d) { d.switches[3].name = "floor-1"; },
            ErrorCode::kInvalid,
            "'floor-1' is declared twice"},
        BadTopology{
            "a_node_twice",
            [](Declared d) { d.nodes[1].name = "a-1"; },
            ErrorCode::kInvalid,
            "'a-1' is declared twice"},
        BadTopology{
            "a_node_and_a_switch_of_one_name",
            [](Declared d) { d.nodes[1].name = "floor-1"; },
            ErrorCode::kInvalid,
            "has the name of a link"},
        BadTopology{
            "a_name_that_is_empty",
            [](Declared d) { d.nodes[1].name = ""; },
            ErrorCode::kInvalid,
            "a node has no name"},
        BadTopology{
            "no_nodes", [](Declared d) { d.nodes.clear(); }, ErrorCode::kInvalid, "names no node"},
        BadTopology{
            "no_switches",
            [](Declared d) { d.switches.clear(); },
            ErrorCode::kInvalid,
            "declares no links"},
        BadTopology{
            "a_rate_of_zero",
            [](Declared d) { d.nodes[2].line.down = 0; },
            ErrorCode::kInvalid,
            "'b-1'"},
        BadTopology{
            "a_negative_rate",
            [](Declared d) { d.switches[1].line.up = -kGbit; },
            ErrorCode::kInvalid,
            "'floor-1'"},
        BadTopology{
            "an_absurd_rate",
            [](Declared d) { d.nodes[2].line.up = 1e13; },
            ErrorCode::kInvalid,
            "'b-1'"},
        BadTopology{
            "no_number",
            [](Declared d) { d.nodes[2].line.up = kNoNumber; },
            ErrorCode::kInvalid,
            "'b-1'"},
        BadTopology{
            "a_negative_latency",
            [](Declared d) { d.nodes[2].line.latency_s = -1; },
            ErrorCode::kInvalid,
            "latency_ms"},
        BadTopology{
            "a_tree_that_is_too_deep",
            [](Declared d) {
              for (int i = 0; i < 20; ++i)
                d.switches.push_back(
                    {"s" + std::to_string(i),
                     i == 0 ? "campus" : "s" + std::to_string(i - 1),
                     a_line(1)}
                );
            },
            ErrorCode::kExhausted,
            "levels deep"},
        BadTopology{
            "too_many_nodes",
            [](Declared d) { d.nodes.resize(kMaxTopologyNodes + 1); },
            ErrorCode::kExhausted,
            "more than 16384 nodes"}
    ),
    [](const auto& test) { return test.param.name; }
);

}  // namespace
}  // namespace rn::reclaim
