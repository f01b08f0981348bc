// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <string>

#include "agent/core_state.h"
#include "model/gang_link.h"

// The links between members of gangs are the shell's (gang_links.h). The core says whose guests
// have them, and starts each with what it needs to know of the others.
namespace rn::agent {

namespace {

/// Where torch.distributed's programs meet, as launchers choose it.
constexpr const char* kMasterPort = "29500";

std::string member_address(std::uint32_t rank) {
  return gang_link::kPrefix + std::to_string(rank + 1);
}

bool may_be_linked(Phase phase) {
  return phase == Phase::kStarting || phase == Phase::kRunning || phase == Phase::kNoticed;
}

}  // namespace

std::vector<LinkedGuest> Core::State::linked_guests() const {
  std::vector<LinkedGuest> out;
  for (const auto& [name, a] : attempts_) {
    const bool is_member = a.commit.gang && a.row.gang_go && !a.row.is_fenced;
    if (!is_member || !may_be_linked(a.row.phase)) continue;
    out.push_back({name, *a.commit.gang, a.row.disk, a.row.gang_go->members});
  }
  return out;
}

/// What this agent and its warden know, both of them.
void Core::State::offer_features() {
  facts_.features.clear();
  std::copy_if(
      own_features_.begin(),
      own_features_.end(),
      std::back_inserter(facts_.features),
      [this](const std::string& one) {
        const auto& wardens = warden_.features;
        return std::find(wardens.begin(), wardens.end(), one) != wardens.end();
      }
  );
}

/// Addresses are the same wherever the members run. What the submitter has said of the place where
/// they meet stays.
void Core::State::link_member(const GangPlace& place, warden_wire::StartGuest& start) {
  start.gang = warden_wire::GangMember{place.rank, place.size};
  std::string all;
  for (std::uint32_t rank = 0; rank < place.size; ++rank)
    all += (rank == 0 ? "" : "\n") + member_address(rank);
  start.env["RECLAIM_NODES_IPS"] = all;
  start.env["RECLAIM_MASTER_NODE_IP"] = member_address(0);
  start.env.emplace("MASTER_ADDR", member_address(0));
  start.env.emplace("MASTER_PORT", kMasterPort);
}

}  // namespace rn::agent
