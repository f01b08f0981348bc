// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "model/fields.h"
#include "model/node.h"

namespace rn {

/// How far an edit of a contract is that came from afar (ADR 0024). Sent: its node has not
/// answered. In force: it only narrowed, or somebody at the machine has accepted it. Pending: it
/// waits for them. Conflict: it was made from another contract, or another one waits. Refused,
/// late: nothing was done. Unanswered: the node was told, and its contract says what it did.
/// Rejected, expired, replaced: of one that was pending.
enum class EditState : std::uint8_t {
  kSent,
  kInForce,
  kPending,
  kConflict,
  kRefused,
  kLate,
  kUnanswered,
  kRejected,
  kExpired,
  kReplaced
};
RN_ENUM(
    EditState,
    "sent",
    "in_force",
    "pending",
    "conflict",
    "refused",
    "late",
    "unanswered",
    "rejected",
    "expired",
    "replaced"
)

/// A contract that waits on its node until somebody there accepts or rejects it.
struct ContractProposal {
  std::string id;    ///< as who made it named it; empty: there is none
  UserId user;       ///< who made it, as the coordinator says
  std::string from;  ///< version of the contract that it was made from
  Contract contract;
  std::int64_t came_wall_ms = 0;   ///< by the node's clock
  std::int64_t until_wall_ms = 0;  ///< then it is forgotten

  RN_FIELDS(ContractProposal, id, user, from, contract, came_wall_ms, until_wall_ms)
};

/// What became of an edit, without the contract that it said.
struct ContractEdit {
  std::string id;
  NodeId node;
  UserId user;
  EditState state = EditState::kSent;
  std::string message;  ///< in words, and what to do
  std::int64_t sent_wall_ms = 0;

  RN_FIELDS(ContractEdit, id, node, user, state, message, sent_wall_ms)
};

}  // namespace rn
