// SPDX-License-Identifier: Apache-2.0
// What nodes send to the coordinator (outputs), planned beside the copies.
#include "coordinator/core_harness.h"
#include "coordinator/core_transfers.h"

namespace rn::coordinator {
namespace {

constexpr std::uint64_t kOneMb = 1'000'000;
constexpr double kLeast = 1;  ///< Mbit/s, which an agent sends whatever it is told

/// Two laboratories' machines behind one line of 100 Mbit/s out of their building; a store and the
/// coordinator are at the campus' root. The guest of a is over, and its outputs go home.
class Outputs : public CoreSite {
 protected:
  explicit Outputs(double background = 0) {
    declared.switches = {
        {"campus", "", {}}, {"building-a", "campus", {12.5e6, 12.5e6, 0.001, background}}};
    declared.nodes = {
        {"a", "building-a", {125e6, 125e6, 0}}, {"b", "building-a", {125e6, 125e6, 0}}};
  }

  void build() {
    config.topology = *reclaim::Topology::make(declared);
    start();
    add_node("a", "lab-a");
    add_node("b", "lab-b");
    FakeAgent& store = add_node("store", "lab-s");
    store.hello.contract.lends = false;
    update(store);
    store.lending = LendingState::kNotLending;
    settle();
    ended_ = running(only("lab-a"));
    other_ = running(only("lab-b"));
    say(node("a"), ended_, job(ended_).epoch, AttemptState::kDraining);
    pass(config.heartbeat_ms + 500);
    for (auto& [id, agent] : agents) agent.inbox.clear();
  }

  static JobSpec only(const std::string& lab) {
    JobSpec spec = a_spec();
    spec.only_labs = {lab};
    return spec;
  }

  void update(FakeAgent& agent) {
    tell(agent, wire::NodeUpdate{agent.hello.facts, agent.hello.contract, agent.hello.address});
  }

  wire::TransferReport outputs_of(
      const JobId& id, std::uint64_t bytes, std::uint32_t deadline_ms = 0
  ) {
    wire::TransferReport report = copy_report(id, bytes);
    report.peer = NodeId();
    report.deadline_ms = deadline_ms;
    return report;
  }

  void uploads(std::uint64_t bytes, std::uint32_t deadline_ms = 0) {
    tell(node("a"), wire::Transfers{{outputs_of(ended_, bytes, deadline_ms)}, 0});
  }

  void copies(std::uint64_t bytes, std::uint32_t deadline_ms = 0) {
    tell(node("b"), wire::Transfers{{copy_report(other_, bytes, deadline_ms)}, 0});
  }

  wire::TransferRate told(const std::string& name) {
    const auto message = node(name).last<wire::TransferRates>();
    EXPECT_EQ(message.rates.size(), 1u);
    return message.rates.empty() ? wire::TransferRate{} : message.rates[0];
  }

  /// Mbit/s.
  double rate(const std::string& name) { return static_cast<double>(told(name).rate_bps) / 1e6; }

  std::string why() { return core->why(ended_, clock.now()).value(); }

  reclaim::TopologyDeclaration declared;
  JobId ended_;
  JobId other_;
};

TEST_F(Outputs, they_go_as_fast_as_the_lines_from_the_node_to_the_coordinator) {
  build();

  uploads(200 * kOneMb);
  pass(250);

  EXPECT_NEAR(rate("a"), 95, 0.1) << "the building's line, less the margin";
  EXPECT_EQ(told("a").id, 7u);
  EXPECT_FALSE(told("a").is_promised);
  EXPECT_EQ(core->metrics().uploads, 1u);
  EXPECT_EQ(core->metrics().transfers, 0u);
  EXPECT_NE(why().find("its outputs come from lab-a/"), std::string::npos) << why();
  EXPECT_NE(why().find("200 MB left at 95 Mbit/s"), std::string::npos) << why();
}

TEST_F(Outputs, those_of_two_nodes_share_their_buildings_line) {
  build();
  say(node("b"), other_, job(other_).epoch, AttemptState::kDraining);
  double most = 0;

  for (int i = 0; i < 8; ++i) {
    uploads(200 * kOneMb);
    tell(node("b"), wire::Transfers{{outputs_of(other_, 100 * kOneMb)}, 0});
    pass(250);
    most = std::max(most, rate("a") + rate("b"));
  }

  EXPECT_LE(most, 95.1) << "without a plan TCP would take all of the line, and its queue";
  EXPECT_GT(most, 90);
}

/// 60 Mbit/s of the line are said to be others'.
class BesideOthers : public Outputs {
 protected:
  BesideOthers() : Outputs(7.5e6) {}
};

TEST_F(BesideOthers, what_others_send_over_a_line_is_left_to_them) {
  build();

  uploads(200 * kOneMb);
  pass(250);

  EXPECT_NEAR(rate("a"), 35, 0.1);
}

/// The coordinator's machine hangs in the building, so nothing of this leaves it.
class AtHome : public Outputs {
 protected:
  AtHome() { declared.nodes.push_back({"coordinator", "building-a", {25e6, 25e6, 0}}); }
};

TEST_F(AtHome, the_line_of_the_coordinators_machine_counts) {
  build();

  uploads(500 * kOneMb);
  pass(250);

  EXPECT_NEAR(rate("a"), 190, 0.1);
}

TEST_F(Outputs, a_promised_evacuation_arrives_in_time_beside_them) {
  build();
  say(node("b"), other_, job(other_).epoch, AttemptState::kNoticed);
  double outputs = 500e6;
  double evacuated = 100e6;
  double at_s = 0;
  for (; evacuated > 0 && at_s < 10; at_s += 0.25) {
    uploads(static_cast<std::uint64_t>(outputs));
    copies(static_cast<std::uint64_t>(evacuated), static_cast<std::uint32_t>(10'000 - at_s * 1000));
    pass(250);
    ASSERT_TRUE(told("b").is_promised) << at_s;
    EXPECT_LE(rate("a") + rate("b"), 95.1) << at_s;
    evacuated -= rate("b") * 1e6 / 8 * 0.25;
    outputs -= std::max(rate("a"), kLeast) * 1e6 / 8 * 0.25;
  }

  EXPECT_LE(at_s, 0.95 * 10);
  EXPECT_EQ(count_events("evacuation.refused"), 0u);
}

TEST_F(Outputs, nobody_who_copies_all_the_time_holds_them_up_for_more_than_ten_minutes) {
  build();
  double outputs = 2e9;
  double held_s = 0;
  for (int i = 0; i < 700; ++i) {
    uploads(static_cast<std::uint64_t>(outputs));
    copies(i % 2 == 0 ? 15'000'000 : 3'200'000);  // by turns, as fast as the line is
    pass(1000);
    EXPECT_LE(rate("a") + rate("b"), 95.1) << held_s;
    if (rate("a") > 90) break;
    outputs -= std::max(rate("a"), kLeast) * 1e6 / 8;
    held_s += 1;
  }

  EXPECT_GT(held_s, 300) << "they make way";
  EXPECT_LE(held_s, reclaim::kUploadPatience_s + 1);
}

TEST_F(Outputs, a_deadline_that_nobody_ordered_is_none) {
  build();

  copies(50 * kOneMb);
  uploads(500 * kOneMb, 60'000);
  pass(250);

  EXPECT_LT(rate("a"), 1) << "I15";
}

TEST_F(Outputs, of_a_node_that_is_taken_back_they_come_before_checkpoints_and_promise_nothing) {
  build();
  node("a").lending = LendingState::kReclaimed;
  pass(config.heartbeat_ms + 500);

  copies(50 * kOneMb);
  uploads(500 * kOneMb, 60'000);
  pass(250);

  EXPECT_NEAR(rate("a"), 95, 0.1);
  EXPECT_FALSE(told("a").is_promised);
  EXPECT_EQ(count_events("evacuation.admitted"), 0u);
}

TEST_F(Outputs, the_contract_and_the_grant_of_the_sender_bound_them) {
  build();
  node("a").hello.contract.uplink_bps_normal = 20'000'000;
  node("a").hello.contract.uplink_bps_evacuation = 60'000'000;
  update(node("a"));
  uploads(500 * kOneMb);
  pass(250);
  EXPECT_NEAR(rate("a"), 19, 0.1);

  node("a").hello.facts.transfers_bps = 10'000'000;
  update(node("a"));
  uploads(500 * kOneMb);
  pass(250);
  EXPECT_NEAR(rate("a"), 9.5, 0.1);
}

TEST_F(Outputs, who_sends_none_of_what_it_says_gives_the_line_to_others) {
  build();

  for (int i = 0; i < 10; ++i) {
    uploads(500 * kOneMb);
    copies(500 * kOneMb - static_cast<std::uint64_t>(i) * 3 * kOneMb);
    pass(250);
  }

  EXPECT_LE(rate("a"), 1.6) << "I15";
  EXPECT_GT(rate("b"), 93);
}

TEST_F(Outputs, of_a_guest_that_still_runs_or_of_another_node_they_are_not_believed) {
  build();

  tell(node("b"), wire::Transfers{{outputs_of(other_, kOneMb)}, 0});
  pass(250);
  tell(node("b"), wire::Transfers{{outputs_of(ended_, kOneMb)}, 0});
  pass(250);

  EXPECT_EQ(core->metrics().uploads, 0u) << "I15";
  EXPECT_TRUE(node("b").received<wire::TransferRates>().empty());
}

TEST_F(Outputs, that_are_over_are_planned_no_more) {
  build();
  uploads(500 * kOneMb);
  pass(250);

  tell(node("a"), wire::Transfers{});

  EXPECT_EQ(core->metrics().uploads, 0u);
  EXPECT_EQ(why().find("its outputs come"), std::string::npos) << why();
}

}  // namespace
}  // namespace rn::coordinator
