// SPDX-License-Identifier: Apache-2.0
#pragma once

// A small site whose owners take machines back, for tests of where their jobs go.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core_harness.h"

namespace rn::coordinator {

/// Three labs that lend one slot each, and a store.
class Evacuations : public CoreSite {
 protected:
  void SetUp() override {
    start();
    add_node("a", "lab-a").hello.facts.images = {a_image("base").digest};
    for (const auto& [name, lab] : {std::pair("b", "lab-b"), std::pair("c", "lab-c")})
      add_node(name, lab);
    add_node("store", "storage").hello.contract.lends = false;
    for (auto& [name, id] : names) {
      node(name).hello.contract.max_guests = 1;
      connect(node(name));
    }
    settle();
  }

  /// Runs on `at` with one durable generation at the holder.
  JobId saved(
      const std::string& at, const JobSpec& spec = a_spec(), const std::string& holder = "store"
  ) {
    std::map<std::string, FakeAgent::Answer> before;
    for (auto& [name, id] : names) {
      before[name] = node(name).to_probe;
      if (name != at) node(name).to_probe = FakeAgent::Answer::kRefuse;
    }
    const JobId id = running(spec);
    for (auto& [name, id_of] : names) node(name).to_probe = before[name];
    EXPECT_EQ(where(id), at);
    GenerationRef ref = generation(id, 1);
    ref.bytes = 100'000'000;
    ref.new_bytes = 100'000'000;
    EXPECT_TRUE(commit_generation(node(at), ref, {receipt(node(holder), ref)}).is_accepted);
    pass(6000);  // what was refused is forgotten
    return id;
  }

  /// Silent for so long that it is lost.
  void lose(const std::vector<std::string>& lost) {
    for (const std::string& at : lost) node(at).beats = false;
    pass(config.heartbeat_ms * (config.lost_after + 1));
  }

  ReclaimRecord record(const std::string& at, std::int64_t notice_s, const char* id = "r-1") {
    ReclaimRecord r;
    r.id = ReclaimId(id);
    r.node = node(at).id;
    r.kind = ReclaimKind::kNotice;
    r.phase = ReclaimPhase::kEvacuating;
    r.boot_id = "boot-1";
    r.declared_ns = 1'000'000'000;
    r.deadline_ns = r.declared_ns + notice_s * 1'000'000'000;
    r.declared_wall_ms = to_ms(clock.now().wall);
    return r;
  }

  void take_back(const std::string& at, std::int64_t notice_s, const char* id = "r-1") {
    tell(node(at), wire::ReclaimReport{record(at, notice_s, id)});
  }

  void notice(const JobId& id) { say(node(where(id)), id, job(id).epoch, AttemptState::kNoticed); }

  /// The guest is cut, and its attempt ends as taken back.
  void leave(const JobId& id) {
    FakeAgent& from = node(where(id));
    from.lending = LendingState::kReclaimed;
    beat(from);
    say(from, id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kReclaimed);
  }

  void update(const std::string& at) {
    FakeAgent& agent = node(at);
    tell(agent, wire::NodeUpdate{agent.hello.facts, agent.hello.contract, agent.hello.address});
  }

  /// What the owner has the kernel let through.
  void grant(const std::string& at, std::uint64_t bps) {
    node(at).hello.facts.transfers_bps = bps;
    update(at);
  }

  void cut(const std::string& at, bool is_cut) {
    node(at).hello.facts.are_transfers_cut = is_cut;
    update(at);
  }

  std::string name_of(const std::string& node_id) const {
    for (const auto& [name, id] : names)
      if (id.str() == node_id) return name;
    return node_id;
  }

  std::string chosen(const JobId& id) {
    const auto view = core->evacuation(id);
    return view ? name_of(view->destination) : "none";
  }

  /// Peers of the newest plan that the node was told, best first.
  std::vector<std::string> plan(const std::string& at) {
    std::vector<std::string> peers;
    for (const auto& ack : node(at).received<wire::HeartbeatAck>()) {
      if (ack.plans.empty()) continue;
      peers.clear();
      for (const PeerGrant& peer : ack.plans.front().copies)
        peers.push_back(name_of(peer.node.str()));
    }
    return peers;
  }
};

}  // namespace rn::coordinator
