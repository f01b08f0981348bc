// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coordinator/core_state.h"

// Owners' orders to take a node back, given from afar (ADR 0017). Each goes to its node once, as
// long as it counts; what the node then does is its own record. Nothing here gives back.
namespace rn::coordinator {

/// "order-0001": a name that a caller gives, so that saying it again is the same.
bool is_callers_name(const std::string& text);

Result<Answer> order_reclaim(State& state, const Caller& caller, const OrderReclaim& command);
/// After a heartbeat of its, by which the node knows how old an order is.
void send_orders(State& state, NodeEntry& node);
void on_taken_back(State& state, const NodeEntry& node, const wire::TakenBack& answer);
void look_at_orders(State& state);
/// What was under way is over: a coordinator that was away tells nobody of it any more.
void restore_orders(State& state, const Snapshot& snapshot);

}  // namespace rn::coordinator
