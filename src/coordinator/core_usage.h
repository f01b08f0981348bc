// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "coordinator/core_state.h"
#include "sched/queue.h"

// Who used and lent how much, how long nodes were lent, and telemetry in buckets.
namespace rn::coordinator {

/// Adds the lent time since the last call to the node's history. Before lending or state changes.
void account_exposure(State& state, NodeEntry& node);
/// Charges running attempts for the time since the last call, at most two heartbeats (a suspended
/// coordinator charges nobody for its sleep). Every second.
void account_usage(State& state);
/// Writes what was charged since the last time, and nothing when nothing was: all sums, of one
/// instant.
void save_usage(State& state);
/// Writes how long nodes were lent, into their histories.
void save_lent(State& state);
void add_to_rollup(State& state, NodeEntry& node);
/// Closes buckets whose time is over.
void close_rollups(State& state);
std::map<UserId, sched::Standing> standings(const State& state);

}  // namespace rn::coordinator
