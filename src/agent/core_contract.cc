// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/core_state.h"
#include "arbiter/contract_order.h"
#include "arbiter/contract_rules.h"
#include "base/log.h"
#include "base/planted.h"

// Edits of the contract from afar (ADR 0024). What only narrows the contract in force takes effect
// at once; anything else waits, journalled, until somebody at the machine accepts it. So whoever
// speaks for the owner from elsewhere can take back and never give away.
namespace rn::agent {

namespace {

constexpr std::size_t kEditsKept = 32;
constexpr std::size_t kEditWordsMax = 128;  // of names that others chose
constexpr std::size_t kReasonsTold = 3;
constexpr seconds kEditToldAgain{60};  // to a coordinator that may have missed it
constexpr std::int64_t kProposalKept_ms = 7LL * 86'400 * 1000;

/// "; " between them, and how many more there are.
std::string first_reasons(const std::vector<std::string>& reasons) {
  std::string text;
  for (std::size_t i = 0; i < std::min(reasons.size(), kReasonsTold); ++i)
    text += (i == 0 ? "" : "; ") + reasons[i];
  if (reasons.size() > kReasonsTold)
    text += "; and " + std::to_string(reasons.size() - kReasonsTold) + " more";
  return text;
}

}  // namespace

void Core::State::take_contract(const Contract& contract, std::int32_t utc_offset_s) {
  contract_ = contract;
  contract_version_ = arbiter::version_of(contract_);
  utc_offset_s_ = utc_offset_s;
  calendar_.reset();
  gpu_calendars_.clear();
  arbiter_.set_contract(contract_);
}

ContractEditing* Core::State::find_edit(const std::string& id) {
  const auto found = std::find_if(edits_.begin(), edits_.end(), [&](const ContractEditing& one) {
    return one.edit == id;
  });
  return found == edits_.end() ? nullptr : &*found;
}

ContractEditing& Core::State::note_edit(const std::string& id) {
  if (ContractEditing* const known = find_edit(id)) return *known;
  if (edits_.size() >= kEditsKept) edits_.pop_front();
  edits_.push_back({id, now_.boot, {}});
  return edits_.back();
}

void Core::State::answer_edit(const std::string& id, EditState state, std::string message) {
  ContractEditing& edit = note_edit(id);
  edit.since = now_.boot;
  edit.answer = wire::ContractEdited{id, state, std::move(message)};
  tell_edit(edit);
}

void Core::State::tell_edit(const ContractEditing& edit) {
  if (edit.answer && is_welcome_) send(*edit.answer);
}

/// The connection that an answer left by may have been broken.
void Core::State::tell_edits() {
  for (const ContractEditing& edit : edits_)
    if (now_.boot - edit.since < kEditToldAgain) tell_edit(edit);
}

/// True if it was answered: as too late, or as what no contract can be.
bool Core::State::is_refused(const wire::EditContract& m) {
  if (now_.boot >= end_of(m.beat, m.valid_ms)) {
    answer_edit(m.edit, EditState::kLate, "");
    return true;
  }
  Status good = arbiter::check_bounds(m.contract);
  if (good) good = arbiter::check_contract(m.contract, facts_);
  if (good && (m.edit.size() > kEditWordsMax || m.user.str().size() > kEditWordsMax))
    good = fail(ErrorCode::kInvalid, "its names are too long");
  if (!good) answer_edit(m.edit, EditState::kRefused, good.error().message);
  return !good;
}

/// True if it was answered: it is not what its author thinks that is changed by it.
bool Core::State::is_in_conflict(const wire::EditContract& m) {
  if (!edit_in_use_.empty() || m.from != contract_version_) {
    answer_edit(m.edit, EditState::kConflict, "its contract was changed meanwhile");
    return true;
  }
  if (m.replaces == (proposal_ ? proposal_->id : "")) return false;
  answer_edit(
      m.edit,
      EditState::kConflict,
      proposal_
          ? "a change by " + proposal_->user.str() + " waits there for somebody at the machine"
          : std::string("the change that it was to replace waits no more")
  );
  return true;
}

void Core::State::on_message(const wire::EditContract& m) {
  if (const ContractEditing* const known = find_edit(m.edit)) return tell_edit(*known);
  if (proposal_ && proposal_->id == m.edit)
    return answer_edit(m.edit, EditState::kPending, "it waits for somebody at the machine");
  note_edit(m.edit);
  if (is_refused(m) || is_in_conflict(m)) return;
  log::warning("owner.edit_by_the_coordinator", {{"edit", m.edit}, {"user", m.user.str()}});
  if (m.contract == contract_) {
    if (proposal_) drop_proposal(EditState::kReplaced, "taken back by " + m.user.str());
    return answer_edit(m.edit, EditState::kInForce, "the contract is as it was");
  }
  const bool takes_any = planted("agent.takes_any_edit");
  if (!takes_any && !arbiter::narrows(contract_, m.contract, facts_)) return propose(m);
  edit_in_use_ = m.edit;
  out_.effects.emplace_back(UseContract{m.edit, contract_version_, m.contract});
}

void Core::State::propose(const wire::EditContract& m) {
  if (proposal_)
    answer_edit(proposal_->id, EditState::kReplaced, m.user.str() + " has made another change");
  const std::int64_t now_ms = to_ms(now_.wall);
  proposal_ =
      ContractProposal{m.edit, m.user, m.from, m.contract, now_ms, now_ms + kProposalKept_ms};
  is_proposal_dirty_ = true;
  answer_edit(
      m.edit,
      EditState::kPending,
      "somebody at the machine has to say `reclaim-agent contract accept`: " +
          first_reasons(arbiter::widenings(contract_, m.contract, facts_))
  );
  send_node_update();
}

void Core::State::drop_proposal(EditState state, std::string message) {
  const std::string id = proposal_->id;
  proposal_.reset();
  is_proposal_dirty_ = true;
  log::info("owner.proposal_over", {{"edit", id}, {"state", std::string(to_string(state))}});
  answer_edit(id, state, std::move(message));
  send_node_update();
}

/// Of a contract that is in force now: what it was, and what it was instead of. The owner's own
/// leaves what waits where it is: it is judged anew by who accepts it.
void Core::State::settle_edit(const std::string& edit) {
  if (edit_in_use_ == edit) edit_in_use_.clear();
  if (edit.empty()) return;
  if (proposal_ && proposal_->id == edit)
    return drop_proposal(EditState::kInForce, "accepted at the machine");
  if (proposal_) drop_proposal(EditState::kReplaced, "another change is in force");
  answer_edit(edit, EditState::kInForce, "");
}

void Core::State::on(const EditUnusable& e) {
  if (edit_in_use_ == e.edit) edit_in_use_.clear();
  const bool is_conflict = e.error.code == ErrorCode::kConflict;
  const ContractEditing* const known = find_edit(e.edit);
  if (known != nullptr && known->answer) return tell_edit(*known);
  answer_edit(e.edit, is_conflict ? EditState::kConflict : EditState::kRefused, e.error.message);
}

void Core::State::on(const ProposalRejected& e) {
  if (proposal_ && proposal_->id == e.id)
    drop_proposal(EditState::kRejected, "rejected at the machine");
}

/// By the wall clock, which a person set: the worst that a wrong one does is to forget it.
void Core::State::step_proposal() {
  if (proposal_ && proposal_->contract == contract_)
    drop_proposal(EditState::kInForce, "it is what the contract says");
  if (proposal_ && to_ms(now_.wall) >= proposal_->until_wall_ms)
    drop_proposal(EditState::kExpired, "nobody at the machine has accepted it for a week");
}

}  // namespace rn::agent
