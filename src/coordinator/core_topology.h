// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "coordinator/core_state.h"
#include "reclaim/topology.h"

namespace rn::coordinator {

/// Where the node hangs in the declared network: by its id, else by its hostname; nullopt if it is
/// not declared.
inline std::optional<reclaim::Topology::Place> place_of(const State& state, const NodeEntry& node) {
  return state.config.topology.find(node.row.node.str(), node.row.facts.hostname);
}

}  // namespace rn::coordinator
