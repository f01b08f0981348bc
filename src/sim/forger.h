// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/rng.h"
#include "sim/cluster.h"

namespace rn::sim {

/// Says in a node's name what its agent did not say: with the node's own certificate and keys,
/// hence what a provider that lies could say (threat model, "rogue provider"). Nothing of it may
/// change anything but the fate of jobs on that node; the checkers look.
class Forger {
 public:
  /// Both outlive it.
  Forger(Cluster& cluster, Rng& rng) : cluster_(cluster), rng_(rng) {}

  /// kinds(): "generation", "stale", "event", "outputs", "log", "lease", "tickets", "reclaim",
  /// "beat", "hello", "store", "fetch".
  static const std::vector<std::string>& kinds();
  /// Another kind, which the swarm does not draw: what no machine has, said of itself in facts,
  /// contract and heartbeats, under another's name, too.
  static constexpr const char* kOfItself = "facts";

  /// Forges one message of this kind from the node. False if there is nothing to forge now (no
  /// connection, no job that fits).
  bool forge(std::size_t node, const std::string& kind);

 private:
  /// A job that is not the node's, and one that is or was.
  const coordinator::AttemptRow* foreign_attempt(std::size_t node);
  const coordinator::AttemptRow* past_attempt(std::size_t node);
  std::vector<const coordinator::AttemptRow*> attempts(
      const std::function<bool(const coordinator::AttemptRow&)>& is_wanted
  );
  const coordinator::AttemptRow* any(
      const std::function<bool(const coordinator::AttemptRow&)>& is_wanted
  );

  GenerationRef invented_generation(const Job& job, LeaseEpoch epoch);
  std::vector<Receipt> receipts_of_all(
      std::size_t node, const GenerationRef& generation, bool are_friends
  );
  bool forge_generation(std::size_t node);
  bool forge_from_the_past(std::size_t node);
  bool forge_of_itself(std::size_t node);
  bool forge_about_others(std::size_t node, const std::string& kind);
  bool forge_transfers(AgentHost& agent, const coordinator::AttemptRow& row);
  Digest empty_listing();
  bool forge_hello(std::size_t node);
  bool forge_transfer(std::size_t node, bool is_store);

  Cluster& cluster_;
  Rng& rng_;
};

}  // namespace rn::sim
