// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/core_state.h"
#include "base/log.h"

// While the journal waits for room on a full disk. No row can be written, so nothing may be done
// that needs one: what the warden and the works say is kept in order, what the coordinator repeats
// is let go, and what can be answered without a row is. The owner's commands are the warden's, who
// needs neither this process nor its disk.
namespace rn::agent {

namespace {

constexpr std::size_t kHeldMessagesMax = 256;  // orders of the coordinator that it may not repeat

bool is_wardens(const Event& event) {
  return std::holds_alternative<WardenConnected>(event) ||
         std::holds_alternative<WardenReply>(event) ||
         std::holds_alternative<WardenDisconnected>(event);
}

bool is_state(const Event& event) {
  const auto* const reply = std::get_if<WardenReply>(&event);
  return reply != nullptr && std::holds_alternative<warden_wire::StateChanged>(reply->reply);
}

template <class T>
bool is_message(const Event& event) {
  const auto* const message = std::get_if<CoordinatorMessage>(&event);
  return message != nullptr && std::holds_alternative<T>(message->message);
}

bool is_order(const wire::Message& message) {
  return std::holds_alternative<wire::StopAttempt>(message) ||
         std::holds_alternative<wire::CollectGarbage>(message);
}

/// The later one says all that the earlier one said.
bool replaces(const Event& later, const Event& earlier) {
  if (std::holds_alternative<WardenDisconnected>(later)) return is_wardens(earlier);
  if (is_state(later)) return is_state(earlier);
  if (const auto* seen = std::get_if<GenerationDetected>(&later)) {
    const auto* const before = std::get_if<GenerationDetected>(&earlier);
    return before != nullptr && before->guest == seen->guest;
  }
  if (const auto* trouble = std::get_if<SaveTrouble>(&later)) {
    const auto* const before = std::get_if<SaveTrouble>(&earlier);
    return before != nullptr && before->guest == trouble->guest;
  }
  if (is_message<wire::Welcome>(later)) return is_message<wire::Welcome>(earlier);
  if (is_message<wire::HeartbeatAck>(later)) return is_message<wire::HeartbeatAck>(earlier);
  const bool is_once =
      std::holds_alternative<OwnerLeaves>(later) || std::holds_alternative<WardenActed>(later);
  return is_once && later.index() == earlier.index();
}

}  // namespace

/// In one sentence, short enough for a refusal.
std::string Core::State::room_words() const {
  return std::string("its disk is full, and the agent's journal waits for room; next: ") +
         kRoomHelp;
}

void Core::State::on(const JournalWaits& e) {
  log::warning("agent.waits_for_its_journal", {{"why", e.why}, {"next", kRoomHelp}});
  wait_ = JournalWait{e.why, now_.boot, e.told, {}, {}};
  tell_notices_in_wait(warden_);  // again: what told them may be among what waits
}

/// The earliest that this guest has, whether its row is there or not. Without an end: none.
StopOrder Core::State::notice_in_wait(const Attempt& a, const warden_wire::WardenState& state)
    const {
  StopOrder first;
  const bool is_others = a.row.phase == Phase::kNoticed && a.row.stop.reclaim.empty();
  if (is_others && a.row.stop.deadline_ns > 0) first = a.row.stop;
  for (const ReclaimRecord& record : state.reclaims) {
    const bool is_notice =
        (record.phase == ReclaimPhase::kDeclared || record.phase == ReclaimPhase::kEvacuating) &&
        record.kind != ReclaimKind::kEmergency;
    if (!is_notice || !covers(record, a)) continue;
    StopOrder order = stop_order(record);
    if (first.end == AttemptEnd::kNone || order.deadline_ns < first.deadline_ns)
      first = std::move(order);
  }
  return first;
}

/// A notice is no decision of ours: its guest may read it before we can write it down. Nobody is
/// signalled, since who leaves at a signal must be known not to have finished, also after a crash.
void Core::State::tell_notices_in_wait(const warden_wire::WardenState& state) {
  for (auto& [name, a] : attempts_) {
    const bool can_save = a.row.phase == Phase::kRunning || a.row.phase == Phase::kNoticed;
    if (!can_save || a.row.is_fenced || a.commit.spec.checkpoint.is_stateless) continue;
    const StopOrder order = notice_in_wait(a, state);
    std::int64_t& told = wait_->noticed[name];
    if (told == order.deadline_ns) continue;
    told = order.deadline_ns;
    const bool is_withdrawn = order.end == AttemptEnd::kNone;
    if (!is_withdrawn) a.was_told_in_wait = true;
    ask_node(
        Ask::kNotice, is_withdrawn ? warden_wire::WriteNotice{name, 0, 0, ""} : notice(name, order)
    );
  }
}

/// As if it all came now, one after another.
void Core::State::on(const JournalGoesOn&) {
  if (!wait_) return;
  const std::deque<Event> held = std::move(wait_->held);
  for (const auto& [name, deadline_ns] : wait_->noticed) {
    const auto found = attempts_.find(name);
    if (found != attempts_.end()) found->second.is_notice_due = true;  // what holds now
  }
  log::info(
      "agent.goes_on_with_its_journal",
      {{"waited_ms", (now_.boot - wait_->since) / milliseconds(1)}, {"held", held.size()}}
  );
  wait_.reset();
  for (const Event& event : held) {
    std::visit([this](const auto& each) { on(each); }, event);
    drive();
  }
}

/// Bounded: one of each kind and guest, and answers to what was asked before, which are as many.
void Core::State::hold(Event event) {
  std::erase_if(wait_->held, [&](const Event& earlier) { return replaces(event, earlier); });
  wait_->held.push_back(std::move(event));
}

/// Those that change rows; the others change memory only and are taken at once.
bool Core::State::holds_in_wait(const Event& event) {
  return is_wardens(event) || std::holds_alternative<WorkDone>(event) ||
         std::holds_alternative<GenerationDetected>(event) ||
         std::holds_alternative<SaveTrouble>(event) || std::holds_alternative<OwnerLeaves>(event) ||
         std::holds_alternative<WardenActed>(event);
}

void Core::State::hear_in_wait(const Event& event) {
  if (hears_order_in_wait(event)) return;
  if (is_state(event)) {
    const auto& reply = std::get<WardenReply>(event).reply;
    tell_notices_in_wait(std::get<warden_wire::StateChanged>(reply).state);
  }
  if (holds_in_wait(event)) return hold(event);
  if (const auto* message = std::get_if<CoordinatorMessage>(&event)) {
    if (!is_connected_) return;
    heard_at_ = now_.boot;
    return hear_in_wait(message->message);
  }
  if (std::holds_alternative<JournalWaits>(event)) return;
  if (std::holds_alternative<Tick>(event)) return arbiter_.expire(now_);
  std::visit([this](const auto& e) { on(e); }, event);
}

/// The job is not kept from other nodes until there is room. A lease whose row is among what waits
/// is given up, and fenced as soon as the row is there.
void Core::State::refuse_in_wait(const wire::Commit& commit) {
  const bool is_told =
      std::any_of(wait_->told.begin(), wait_->told.end(), [&](const wire::AttemptReport& r) {
        return r.job == commit.job && r.epoch == commit.epoch;
      });
  if (is_told) return on_message(commit);  // granted before, and durable
  wire::CommitReply reply;
  reply.hold = commit.hold;
  reply.job = commit.job;
  reply.epoch = commit.epoch;
  reply.reason = room_words();
  send(std::move(reply));
  if (find(commit.job, commit.epoch) == nullptr) return;
  wire::StopAttempt given_up;
  given_up.job = commit.job;
  given_up.epoch = commit.epoch;
  given_up.mode = StopMode::kFenced;
  given_up.reason = "its lease was refused: the disk was full";
  if (wait_->held.size() < kHeldMessagesMax) hold(CoordinatorMessage{given_up});
}

/// What is let go here comes again: the agent asks anew for what was not answered.
void Core::State::hear_in_wait(const wire::Message& message) {
  if (const auto* welcome = std::get_if<wire::Welcome>(&message)) {
    refusal_.clear();
    is_welcome_ = true;
    heartbeat_at_ = Instant{};
    heartbeat_every_ = std::max(milliseconds(welcome->heartbeat_ms), milliseconds(100));
    lost_after_ = std::max(welcome->lost_after, 1u);
    hold(CoordinatorMessage{message});
  } else if (const auto* ack = std::get_if<wire::HeartbeatAck>(&message)) {
    clock_offset_ms_ = ack->clock_offset_ms;
    on_hazard(ack->hazard);  // no row either, and a later acknowledgement may take this one's place
    for (const wire::AttemptVerdict& verdict : ack->verdicts) {
      const Attempt* const a = find(verdict.job, verdict.epoch);
      const bool is_good = verdict.is_current && !verdict.is_end_known;
      if (a != nullptr && is_good) on_verdict(verdict);  // a lease is no row
    }
    hold(CoordinatorMessage{message});
  } else if (const auto* probe = std::get_if<wire::Probe>(&message)) {
    on_message(*probe);  // refused, as the conditions say
  } else if (const auto* cancel = std::get_if<wire::CancelHold>(&message)) {
    on_message(*cancel);
  } else if (const auto* refused = std::get_if<wire::Refused>(&message)) {
    on_message(*refused);
  } else if (const auto* commit = std::get_if<wire::Commit>(&message)) {
    refuse_in_wait(*commit);
  } else if (const auto* order = std::get_if<wire::TakeBack>(&message)) {
    on_message(*order);  // no row stands behind it
  } else if (const auto* edit = std::get_if<wire::EditContract>(&message)) {
    if (find_edit(edit->edit) == nullptr)
      answer_edit(edit->edit, EditState::kRefused, room_words());  // it needs a row, or a file
  } else if (is_order(message) && wait_->held.size() < kHeldMessagesMax) {
    hold(CoordinatorMessage{message});
  }
}

}  // namespace rn::agent
