// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_contracts.h"

#include <algorithm>
#include <utility>

#include "arbiter/contract_order.h"
#include "arbiter/contract_rules.h"
#include "coordinator/core_orders.h"

namespace rn::coordinator {

namespace {

constexpr std::chrono::minutes kEditKept{10};
/// After its time an edit that was sent is answered: a node that is at work on it may take so long.
constexpr std::chrono::seconds kEditAnswerTakes{10};
constexpr std::size_t kEditsOfAll = 4096;
constexpr std::size_t kEditWordsMax = 400;
constexpr std::size_t kEditNameMax = 64;

constexpr const char* kSetByHand = "on the machine itself: reclaim-agent contract set FILE";

std::string changes_text(const Contract& before, const Contract& now) {
  std::string text;
  for (const std::string& one : arbiter::changes(before, now))
    text += (text.empty() ? "" : "; ") + one;
  return text.substr(0, kEditWordsMax);
}

EditEntry* find_edit(State& state, const NodeId& node, const std::string& id) {
  const auto found = std::find_if(state.edits.begin(), state.edits.end(), [&](const auto& one) {
    return one.row.node == node && one.row.id == id;
  });
  return found == state.edits.end() ? nullptr : &*found;
}

std::string edit_digest(const ProposeContract& command) {
  return command.from + " " + command.replaces + " " + arbiter::version_of(command.contract);
}

void note_contract_edit(
    State& state, const NodeEntry& node, const ContractEdit& row, std::string kind
) {
  state.note(node, std::move(kind), row.message, {{"edit", row.id}, {"user", row.user.str()}});
}

Status check_edit(const NodeEntry& node, const ProposeContract& command) {
  if (!is_callers_name(command.edit))
    return fail(
        ErrorCode::kInvalid,
        "edit: expected 8 to 64 letters, digits, - or _",
        "name each edit anew, and a repetition of it the same"
    );
  RN_CHECK(arbiter::check_bounds(command.contract));
  return arbiter::check_contract(command.contract, node.row.facts);
}

/// What it was made from is what there is.
Status check_base(const NodeEntry& node, const std::string& name, const ProposeContract& command) {
  if (command.from != node.contract_version)
    return fail(
        ErrorCode::kConflict,
        "the contract of " + name + " is not the one any more that this was made from",
        "look at the one in force now, and make the change in it"
    );
  if (command.replaces == node.proposal.id) return {};
  if (node.proposal.id.empty())
    return fail(
        ErrorCode::kConflict,
        "the change that it was to replace waits no more at " + name,
        "look at the contract in force now"
    );
  return fail(
      ErrorCode::kConflict,
      "a change by " + node.proposal.user.str() + " waits at " + name +
          " for somebody there: " + changes_text(node.row.contract, node.proposal.contract),
      "look at it, and say that yours replaces it"
  );
}

Status check_reached(const State& state, const NodeEntry& node, const std::string& name) {
  if (node.row.is_revoked || node.row.state == NodeState::kLeft)
    return fail(
        ErrorCode::kConflict, name + " has left the site", "on the machine: reclaim-agent status"
    );
  if (node.connection == 0 || node.beat_on != node.connection)
    return fail(
        ErrorCode::kUnavailable, name + " does not answer now: nothing was done", kSetByHand
    );
  if (node.contract_version.empty())
    return fail(
        ErrorCode::kUnsupported,
        "the agent of " + name + " is older, and takes no contract from elsewhere",
        kSetByHand
    );
  const bool is_busy = std::any_of(state.edits.begin(), state.edits.end(), [&](const auto& one) {
    return one.row.node == node.row.node && one.row.state == EditState::kSent;
  });
  if (is_busy || state.edits.size() >= kEditsOfAll)
    return fail(ErrorCode::kExhausted, "another edit is under way", "try again in a minute");
  return {};
}

void send_edit(
    State& state, NodeEntry& node, const Caller& caller, const ProposeContract& command
) {
  EditEntry entry;
  entry.row.id = command.edit;
  entry.row.node = command.node;
  entry.row.user = caller.user;
  entry.row.sent_wall_ms = state.wall_ms();
  entry.row.message = caller.user.str() + " changes the contract by the coordinator: " +
                      changes_text(node.row.contract, command.contract);
  entry.content = edit_digest(command);
  entry.made = state.now.boot;
  entry.until = state.now.boot + milliseconds(state.config.order_valid_ms);
  // The event is durable before the message leaves.
  note_contract_edit(state, node, entry.row, "contract.edit_sent");
  entry.row.message = state.name_of(command.node) + " is told";
  wire::EditContract message;
  message.edit = command.edit;
  message.user = caller.user;
  message.from = command.from;
  message.replaces = command.replaces;
  message.contract = command.contract;
  message.beat = node.beat;
  message.valid_ms = static_cast<std::uint32_t>((entry.until - node.beat_at) / milliseconds(1));
  state.edits.push_back(std::move(entry));
  state.send(node, std::move(message));
}

std::string words_of(const std::string& name, const wire::ContractEdited& answer) {
  const std::string words = answer.message.substr(0, kEditWordsMax);
  switch (answer.state) {
    case EditState::kInForce:
      return "in force at " + name + (words.empty() ? "" : ": " + words);
    case EditState::kPending:
      return "it waits at " + name + ": " + words;
    case EditState::kLate:
      return name + " heard of it too late: nothing was done";
    case EditState::kConflict:
    case EditState::kRefused:
      return name + " does not do it: " + words;
    case EditState::kRejected:
    case EditState::kExpired:
    case EditState::kReplaced:
      return "it waits no more: " + words;
    case EditState::kSent:
    case EditState::kUnanswered:
      break;
  }
  return words;
}

/// What a node says waits there; what cannot be meant is nothing.
ContractProposal readable(const ContractProposal& told) {
  const bool is_good = is_callers_name(told.id) && told.user.str().size() <= kEditNameMax &&
                       told.from.size() <= kEditNameMax && arbiter::check_bounds(told.contract);
  return is_good ? told : ContractProposal{};
}

}  // namespace

Status may_edit_contract(State& state, const Caller& caller, const NodeId& id) {
  const NodeEntry* const node = state.find_node(id);
  if (node == nullptr)
    return fail(ErrorCode::kNotFound, "no node " + id.str(), "`reclaim nodes` lists the nodes");
  // Not even an administrator of another lab: whose machine it is decides.
  if (caller.role >= Role::kOwner && !caller.lab.empty() && caller.lab == node->row.lab) return {};
  return fail(
      ErrorCode::kDenied,
      "the contract of " + state.name_of(id) + " is edited by the owners of lab " +
          node->row.lab.str() + " alone",
      "ask one of them"
  );
}

Result<Answer> propose_contract(
    State& state, const Caller& caller, const ProposeContract& command
) {
  RN_CHECK(may_edit_contract(state, caller, command.node));
  NodeEntry& node = *state.find_node(command.node);
  RN_CHECK(check_edit(node, command));
  if (const EditEntry* const known = find_edit(state, command.node, command.edit)) {
    if (known->content == edit_digest(command)) return ContractProposed{known->row};
    return fail(
        ErrorCode::kConflict,
        "edit " + command.edit + " was made with another content",
        "name a new edit otherwise"
    );
  }
  const std::string name = state.name_of(command.node);
  RN_CHECK(check_reached(state, node, name));
  RN_CHECK(check_base(node, name, command));
  send_edit(state, node, caller, command);
  return ContractProposed{state.edits.back().row};
}

void on_contract_edited(State& state, const NodeEntry& node, const wire::ContractEdited& answer) {
  EditEntry* const edit = find_edit(state, node.row.node, answer.edit);
  if (edit == nullptr) return;
  const EditState was = edit->row.state;
  const bool is_open = was == EditState::kSent || was == EditState::kUnanswered;
  const bool is_news = is_open || (was == EditState::kPending && answer.state != was);
  if (!is_news || answer.state == EditState::kSent) return;
  edit->row.state = answer.state;
  edit->row.message = words_of(state.name_of(node.row.node), answer);
  edit->made = state.now.boot;
  note_contract_edit(
      state, node, edit->row, "contract.edit_" + std::string(to_string(answer.state))
  );
}

void look_at_edits(State& state) {
  std::erase_if(state.edits, [&](const EditEntry& edit) {
    if (edit.row.state == EditState::kSent || state.now.boot - edit.made <= kEditKept) return false;
    const NodeEntry* const node = state.find_node(edit.row.node);
    return node == nullptr || node->proposal.id != edit.row.id;
  });
  for (EditEntry& edit : state.edits) {
    const bool is_over =
        edit.row.state == EditState::kSent && state.now.boot >= edit.until + kEditAnswerTakes;
    if (!is_over) continue;
    edit.row.state = EditState::kUnanswered;
    edit.row.message = state.name_of(edit.row.node) +
                       " was told and has not answered: its contract, when it is heard of, says "
                       "what it did";
    if (const NodeEntry* const node = state.find_node(edit.row.node))
      note_contract_edit(state, *node, edit.row, "contract.edit_unanswered");
  }
}

void follow_contract(
    State& state,
    NodeEntry& node,
    const Contract& before,
    const std::string& version,
    const ContractProposal& proposal
) {
  node.contract_version = version.size() <= kEditNameMax ? version : "";
  const ContractProposal was = std::exchange(node.proposal, readable(proposal));
  if (before != node.row.contract)
    state.note(
        node, "contract.changed", "its contract: " + changes_text(before, node.row.contract)
    );
  if (was.id == node.proposal.id) return;
  if (node.proposal.id.empty())
    return state.note(
        node, "contract.waits_no_more", "no change of the contract waits", {{"edit", was.id}}
    );
  state.note(
      node,
      "contract.waits",
      "a change by " + node.proposal.user.str() + " waits for somebody at the machine: " +
          changes_text(node.row.contract, node.proposal.contract),
      {{"edit", node.proposal.id}, {"user", node.proposal.user.str()}}
  );
}

}  // namespace rn::coordinator
