// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coordinator/core_state.h"

// What owners are told of their machines besides reclaims: events of the audit log, which
// notifications are made from (notify_rules.cc).
namespace rn::coordinator {

/// `gpu.sick`, `gpu.well`: what the node's newest heartbeat says of its GPUs. Once a minute at most
/// for a node: one that lies must not fill the log.
void follow_health(State& state, NodeEntry& node);

/// `node.clock_apart`, `node.clock_right`: its wall clock, by which the hours of its contract are
/// counted, and ours differ by minutes, or do no more. Once an hour at most for a node, and again
/// after our start.
void follow_clock(State& state, NodeEntry& node);

/// `node.lent`: a guest runs, and none has for a quarter of an hour. With each heartbeat.
void follow_guests(State& state, NodeEntry& node);

/// `node.wanted`: a job has waited for wanted_after_s, and only machines of one lab could take
/// it, which do not lend now. Once for a job. Looks once a minute, and at the first jobs of many.
void look_for_wanted(State& state);

}  // namespace rn::coordinator
