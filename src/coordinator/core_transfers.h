// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coordinator/core_state.h"

// How fast copies go, over all nodes that share a line (ADR 0008).
namespace rn::coordinator {

/// What a node says that it sends. Only copies of attempts that it holds, to peers that the
/// coordinator has named, are taken, and fetches as core_fetches.h has it; their worth and their
/// largest possible size are known here.
void on_transfers(State& state, NodeEntry& node, const wire::Transfers& message);

/// Plans and tells the rates if it is time to: within 100 ms of what changes the picture, else four
/// times a second while something is sent. Cheap if not.
void plan_transfers(State& state);

/// When plan_transfers() has something to do, if that is before `otherwise`.
Instant transfers_wake(const State& state, Instant otherwise);

/// Evacuations with deadlines that one plan looks at; more go by what is left of the lines.
inline constexpr std::size_t kEvacuationsPlanned = 256;

}  // namespace rn::coordinator
