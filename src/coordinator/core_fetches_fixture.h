// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "coordinator/core_harness.h"

namespace rn::coordinator {

inline constexpr std::uint64_t kMB = 1'000'000;

/// A holder and two laboratories behind one line out of their building; outside of it
/// a store, and a machine that restores what the holder has.
class Restoring : public CoreSite {
 protected:
  /// Bytes a second of the line.
  explicit Restoring(double line = 12.5e6) {
    reclaim::TopologyDeclaration declared;
    declared.switches = {{"campus", "", {}}, {"building-a", "campus", {line, line, 0.001}}};
    for (const char* name : {"a", "b", "holder"})
      declared.nodes.push_back({name, "building-a", {125e6, 125e6, 0}});
    config.topology = *reclaim::Topology::make(declared);
  }

  void build() {
    start();
    for (const char* name : {"a", "b", "c"}) add_node(name, std::string("lab-") + name);
    for (const char* name : {"holder", "store"}) {
      FakeAgent& keeper = add_node(name, std::string("lab-") + name);
      keeper.hello.contract.lends = false;
      update(keeper);
      keeper.lending = LendingState::kNotLending;
    }
    settle();
    job_a_ = running(only("lab-a"));
    job_b_ = running(only("lab-b"));
    restoring_ = running(only("lab-c"));
    tell(node("store"), wire::Holdings{{job_a_, job_b_, restoring_}});
    const GenerationRef ref = generation(restoring_, 1);
    ASSERT_TRUE(commit_generation(node("c"), ref, {receipt(node("holder"), ref)}).is_accepted);
    say(node("c"), restoring_, job(restoring_).epoch, AttemptState::kEnded, AttemptEnd::kReclaimed);
    pass(2000);
    ASSERT_EQ(state(restoring_), JobState::kStarting) << core->why(restoring_, clock.now()).value();
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

  wire::FetchReport a_fetch(std::uint64_t bytes) {
    wire::FetchReport report;
    report.id = 900;
    report.job = restoring_;
    report.epoch = job(restoring_).epoch;
    report.peer = node("c").id;
    report.bytes_left = bytes;
    report.is_size_known = true;
    return report;
  }

  void fetches(const std::string& sender, std::vector<wire::FetchReport> reports) {
    tell(node(sender), wire::Transfers{{}, 0, std::move(reports)});
  }

  void restores(std::uint64_t bytes) { fetches("holder", {a_fetch(bytes)}); }

  void copies(const JobId& id, std::uint64_t bytes, std::uint32_t deadline_ms = 0) {
    tell(node(where(id)), wire::Transfers{{copy_report(id, bytes, deadline_ms)}, 0});
  }

  void notice(const JobId& id) { say(node(where(id)), id, job(id).epoch, AttemptState::kNoticed); }

  wire::TransferRate told(const std::string& sender) {
    const auto message = node(sender).last<wire::TransferRates>();
    EXPECT_EQ(message.rates.size(), 1u);
    return message.rates.empty() ? wire::TransferRate{} : message.rates[0];
  }

  /// Mbit/s, as the node was told last.
  double rate(const std::string& sender) {
    return static_cast<double>(told(sender).rate_bps) / 1e6;
  }

  bool has_heard_rates(const std::string& sender) {
    return !node(sender).received<wire::TransferRates>().empty();
  }

  JobId job_a_;
  JobId job_b_;
  JobId restoring_;
};

}  // namespace rn::coordinator
