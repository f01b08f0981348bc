// SPDX-License-Identifier: Apache-2.0
#include "evaluate/flows.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace rn::evaluate {
namespace {

/// Two machines in each of two buildings; lines carry 100 bytes/s, that of the first building 150.
class FlowsTest : public testing::Test {
 protected:
  static reclaim::Topology site() {
    reclaim::TopologyDeclaration declared;
    declared.switches = {
        {"root", "", {}}, {"east", "root", {150, 150, 0}}, {"west", "root", {1000, 1000, 0}}};
    declared.nodes = {
        {"a", "east", {200, 200, 0}},
        {"b", "east", {200, 200, 0}},
        {"c", "west", {200, 200, 0}},
        {"d", "west", {200, 200, 0.5}}};
    return reclaim::Topology::make(declared).value();
  }

  Flows::Id send(const char* from, const char* to, double bytes) {
    const std::size_t number = arrived.size();
    arrived.push_back(-1);
    return flows.start(
        {.from = topology.find(from, ""),
         .to = topology.find(to, ""),
         .bytes = bytes,
         .on_arrived = [this, number] { arrived[number] = seconds_of(agenda.now()); }}
    );
  }

  void until(double at_s) {
    while (agenda.step(moment_of(at_s))) {
    }
  }

  std::uint32_t link(const std::string& name) const {
    for (std::uint32_t i = 0; i < topology.links().size(); ++i) {
      if (topology.links()[i].name == name) return i;
    }
    ADD_FAILURE() << "no link " << name;
    return 0;
  }

  Agenda agenda;
  reclaim::Topology topology = site();
  Flows flows{agenda, topology};
  std::vector<double> arrived;
};

TEST_F(FlowsTest, one_alone_has_its_slowest_line) {
  send("a", "c", 1500);
  until(100);
  EXPECT_NEAR(arrived[0], 10, 1e-6);
  EXPECT_NEAR(flows.bytes(), 1500, 1e-3);
}

TEST_F(FlowsTest, two_share_a_line_and_who_is_left_has_all_of_it) {
  send("a", "c", 750);
  send("b", "d", 1500);
  until(100);
  EXPECT_NEAR(arrived[0], 10, 1e-6) << "75 bytes/s each";
  EXPECT_NEAR(arrived[1], 15.5, 1e-6) << "750 in ten seconds, the rest at 150, and half a second";
}

TEST_F(FlowsTest, what_one_does_not_ask_for_goes_to_the_others) {
  const Flows::Id slow = send("a", "c", 1e6);
  const Flows::Id other = send("b", "d", 1e6);
  flows.pace(slow, 30);
  until(1);
  EXPECT_NEAR(flows.rate(slow), 30, 1e-9);
  EXPECT_NEAR(flows.rate(other), 120, 1e-9);
  EXPECT_NEAR(flows.sent(other), 120, 1e-3);
}

TEST_F(FlowsTest, one_that_is_stopped_answers_what_it_has_sent_and_never_arrives) {
  const Flows::Id id = send("a", "c", 1500);
  until(4);
  EXPECT_NEAR(flows.stop(id), 600, 1e-3);
  EXPECT_FALSE(flows.has(id));
  until(100);
  EXPECT_EQ(arrived[0], -1);
}

TEST_F(FlowsTest, a_line_that_carries_less_from_now_on_slows_what_crosses_it) {
  send("a", "c", 1500);
  until(5);
  flows.set_line(link("east up"), 75);
  until(100);
  EXPECT_NEAR(arrived[0], 15, 1e-6);
}

TEST_F(FlowsTest, a_line_that_carries_nothing_holds_up_and_goes_on_later) {
  send("a", "c", 1500);
  until(5);
  flows.set_line(link("east up"), 0);
  until(50);
  EXPECT_EQ(arrived[0], -1);
  flows.set_line(link("east up"), 150);
  until(100);
  EXPECT_NEAR(arrived[0], 55, 1e-6);
}

TEST_F(FlowsTest, nothing_to_send_arrives_at_once) {
  send("a", "d", 0);
  until(100);
  EXPECT_NEAR(arrived[0], 0.5, 1e-6);
}

/// The definition of max-min fairness: who gets less than it could crosses a full line on which
/// nobody gets more.
TEST_F(FlowsTest, whoever_is_held_up_crosses_a_full_line_on_which_nobody_has_more) {
  SeededRng rng(5);
  const char* const places[] = {"a", "b", "c", "d"};
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<Flows::Id, std::vector<std::uint32_t>>> all;
    for (std::uint64_t i = 0, n = 1 + rng.below(6); i < n; ++i) {
      const std::uint64_t from = rng.below(4);
      const std::uint64_t to = (from + 1 + rng.below(3)) % 4;
      const auto id = send(places[from], places[to], 1e9);
      all.emplace_back(
          id, topology.path(topology.find(places[from], ""), topology.find(places[to], "")).links
      );
    }
    until(seconds_of(agenda.now()) + 1);
    std::vector<double> sum(topology.links().size(), 0);
    std::vector<double> most(topology.links().size(), 0);
    for (const auto& [id, links] : all) {
      for (const std::uint32_t at : links) {
        sum[at] += flows.rate(id);
        most[at] = std::max(most[at], flows.rate(id));
      }
    }
    for (const auto& [id, links] : all) {
      bool is_bound = false;
      for (const std::uint32_t at : links) {
        ASSERT_LE(sum[at], topology.links()[at].rate * (1 + 1e-9));
        is_bound = is_bound || (sum[at] >= topology.links()[at].rate * (1 - 1e-9) &&
                                most[at] <= flows.rate(id) * (1 + 1e-9));
      }
      ASSERT_TRUE(is_bound);
    }
    for (const auto& [id, links] : all) flows.stop(id);
  }
}

TEST_F(FlowsTest, what_each_transfer_carried_is_told_once_and_comes_to_all_that_was_sent) {
  std::vector<double> told;
  flows.on_carried([&](double bytes) { told.push_back(bytes); });
  send("a", "c", 1500);
  const Flows::Id broken_off = send("c", "d", 1e6);
  send("b", "d", 1e6);

  until(30);
  flows.stop(broken_off);
  until(40);
  flows.close();

  ASSERT_EQ(told.size(), 3u);
  EXPECT_NEAR(told[0], 1500, 1);
  EXPECT_GT(told[1], 1500);
  EXPECT_NEAR(told[0] + told[1] + told[2], flows.bytes(), 1e-3);
}

}  // namespace
}  // namespace rn::evaluate
