// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coordinator/core_state.h"

// Owners' edits of a node's contract, made from afar (ADR 0024). Each goes to its node once; the
// node decides by itself whether it takes effect or waits for somebody there, and says what its
// contract is. No contract that somebody wants is kept here.
namespace rn::coordinator {

/// kNotFound, kDenied: who may edit the contract of this node. Owners of its lab, and admins of it.
Status may_edit_contract(State& state, const Caller& caller, const NodeId& node);

Result<Answer> propose_contract(State& state, const Caller& caller, const ProposeContract& command);
void on_contract_edited(State& state, const NodeEntry& node, const wire::ContractEdited& answer);
void look_at_edits(State& state);
/// The node's row has its newest contract; what it was `before` is told in an event.
void follow_contract(
    State& state,
    NodeEntry& node,
    const Contract& before,
    const std::string& version,
    const ContractProposal& proposal
);

}  // namespace rn::coordinator
