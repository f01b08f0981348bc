// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/core_state.h"
#include "agent/owner_words.h"
#include "base/log.h"
#include "base/planted.h"

// What the owner takes back from afar (ADR 0017). The coordinator hands the order on, and this node
// does what its owner's own command would do: a notice is declared at the warden, "now" goes to its
// kill socket. Nothing of it is journalled here: an order comes once, counts for seconds, and what
// was taken is the warden's record.
namespace rn::agent {

namespace {

constexpr std::size_t kOrdersKept = 32;
constexpr std::size_t kBeatsKept = 32;
constexpr seconds kToldAgain{60};  // to a coordinator that may have missed it

bool is_answered(const TakeBackOrder& order) {
  return order.answer && order.answer->outcome != OrderOutcome::kUnclear;
}

std::string refusal_words(const std::string& message, const std::string& hint) {
  return hint.empty() ? message : message + " (" + hint + ")";
}

}  // namespace

/// By which an order says how old it is.
void Core::State::note_beat() {
  beats_.push_back({heartbeat_seq_, heartbeat_at_});
  if (beats_.size() > kBeatsKept) beats_.pop_front();
}

/// By our own boot clock alone. An order that names no heartbeat of this connection is over.
Instant Core::State::end_of(std::uint64_t beat_seq, std::uint32_t valid_ms) const {
  if (planted("agent.begins_old_orders")) return now_.boot + seconds(60);
  const auto beat = std::find_if(beats_.begin(), beats_.end(), [&](const SentBeat& sent) {
    return sent.seq == beat_seq;
  });
  return beat == beats_.end() ? Instant() : beat->at + milliseconds(valid_ms);
}

/// Why it cannot be meant; empty = it can.
std::string Core::State::unknown_gpus(const wire::TakeBack& order) const {
  const Status valid = warden_wire::check_gpus(order.gpus);
  if (!valid) return refusal_words(valid.error().message, valid.error().hint);
  NodeView known;
  known.facts = facts_;
  for (const auto& [id, row] : reclaims_) known.reclaims.push_back(row.record);
  const auto missing = gpus_not_there(order.gpus, known, [](std::uint32_t) { return false; });
  return missing.empty() ? "" : no_such_gpus(missing, known).message;
}

TakeBackOrder* Core::State::find_order(const std::string& id) {
  const auto found = std::find_if(orders_.begin(), orders_.end(), [&](const TakeBackOrder& one) {
    return one.wanted.order == id;
  });
  return found == orders_.end() ? nullptr : &*found;
}

bool Core::State::has_open_orders() const {
  return std::any_of(orders_.begin(), orders_.end(), [](const TakeBackOrder& order) {
    return !order.answer;
  });
}

void Core::State::on_message(const wire::TakeBack& m) {
  if (TakeBackOrder* const known = find_order(m.order)) return tell_order(*known);
  if (orders_.size() >= kOrdersKept) orders_.pop_front();
  orders_.push_back({m, now_.boot, {}});
  TakeBackOrder& order = orders_.back();
  if (now_.boot >= end_of(m.beat, m.valid_ms)) return answer_order(order, OrderOutcome::kLate, "");
  if (m.kind == ReclaimKind::kLost)
    return answer_order(order, OrderOutcome::kRefused, "nobody takes back what is lost");
  if (std::string why = unknown_gpus(m); !why.empty())
    return answer_order(order, OrderOutcome::kRefused, std::move(why));
  log::warning(
      "owner.order_by_the_coordinator",
      {{"order", m.order}, {"kind", std::string(to_string(m.kind))}, {"of", gpu_words(m.gpus)}}
  );
  carry_out(order);
}

void Core::State::carry_out(TakeBackOrder& order) {
  const wire::TakeBack& wanted = order.wanted;
  if (wanted.kind == ReclaimKind::kEmergency) {
    const std::uint64_t mask = warden_wire::mask_of(wanted.gpus);
    out_.effects.emplace_back(KillNow{wanted.order, mask, end_of(wanted.beat, wanted.valid_ms)});
    return;
  }
  if (!is_warden_connected_)
    return answer_order(order, OrderOutcome::kRefused, "its warden does not answer");
  warden_wire::DeclareReclaim declare;
  declare.kind = wanted.kind;
  declare.gpus = wanted.gpus;
  declare.in_s = wanted.in_s;
  declare.notice_s = notice_s_of(contract_);
  const std::uint64_t number = next_ask_++;
  asks_[number] = PendingAsk{{}, Ask::kTakeBack, now_.boot, {}, wanted.order};
  out_.effects.emplace_back(AskWarden{{number, std::move(declare)}});
}

void Core::State::answer_order(TakeBackOrder& order, OrderOutcome outcome, std::string message) {
  order.answer = wire::TakenBack{order.wanted.order, outcome, {}, std::move(message)};
  tell_order(order);
}

void Core::State::answer_order(TakeBackOrder& order, const ReclaimId& reclaim) {
  order.answer = wire::TakenBack{order.wanted.order, OrderOutcome::kTaken, reclaim, ""};
  tell_order(order);
}

void Core::State::tell_order(TakeBackOrder& order) {
  if (order.answer && is_welcome_) send(*order.answer);
}

/// The connection that an answer left by may have been broken.
void Core::State::tell_orders() {
  for (TakeBackOrder& order : orders_)
    if (now_.boot - order.came_at < kToldAgain) tell_order(order);
}

void Core::State::on_order_answer(const std::string& id, const warden_wire::Answer& answer) {
  TakeBackOrder* const order = find_order(id);
  if (order == nullptr || is_answered(*order)) return;
  if (answer.code.empty()) return answer_order(*order, answer.reclaim.id);
  const bool is_old = answer.code == to_string(ErrorCode::kDenied);
  answer_order(
      *order,
      OrderOutcome::kRefused,
      is_old ? "its warden is older than its agent, and takes this from the owner there alone"
             : refusal_words(answer.message, answer.hint)
  );
}

/// While the journal waits for room: no row stands behind an order, nor behind what is said of it.
bool Core::State::hears_order_in_wait(const Event& event) {
  const auto* const reply = std::get_if<WardenReply>(&event);
  const auto* const answer =
      reply == nullptr ? nullptr : std::get_if<warden_wire::Answer>(&reply->reply);
  if (answer == nullptr) return false;
  const auto asked = asks_.find(answer->request);
  if (asked == asks_.end() || asked->second.kind != Ask::kTakeBack) return false;
  on_answer(*answer);
  return true;
}

/// The warden's record of an emergency comes before its last word: clearing takes its time.
void Core::State::settle_kills() {
  for (TakeBackOrder& order : orders_) {
    if (order.wanted.kind != ReclaimKind::kEmergency || is_answered(order)) continue;
    for (const auto& [id, row] : reclaims_) {
      const ReclaimRecord& record = row.record;
      const bool is_of_it = record.kind == ReclaimKind::kEmergency &&
                            record.phase != ReclaimPhase::kReturned &&
                            record.boot_id == config_.boot_id &&
                            (record.gpus.empty() || record.gpus == order.wanted.gpus);
      if (!is_of_it) continue;
      answer_order(order, id);
      break;
    }
  }
}

void Core::State::on(const KilledNow& e) {
  TakeBackOrder* const order = find_order(e.order);
  if (order == nullptr || is_answered(*order)) return;
  if (e.is_late) return answer_order(*order, OrderOutcome::kLate, "");
  if (!e.error) return answer_order(*order, ReclaimId());
  const bool is_unclear = e.error->code == ErrorCode::kTimeout;
  answer_order(
      *order,
      is_unclear ? OrderOutcome::kUnclear : OrderOutcome::kRefused,
      refusal_words(e.error->message, e.error->hint)
  );
}

/// Of what was asked of the warden and is not answered. The kill socket's orders have an end of
/// their own.
void Core::State::doubt_orders(const char* why, nanoseconds older_than) {
  for (TakeBackOrder& order : orders_) {
    const bool is_asked = order.wanted.kind != ReclaimKind::kEmergency && !order.answer;
    if (is_asked && now_.boot - order.came_at >= older_than)
      answer_order(order, OrderOutcome::kUnclear, why);
  }
}

}  // namespace rn::agent
