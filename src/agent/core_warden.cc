// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/core_state.h"
#include "base/error_words.h"
#include "base/log.h"

namespace rn::agent {

namespace {

constexpr seconds kStrangerPatience{10};  // between two tries to remove what is not ours
constexpr seconds kAbsencePatience{10};   // after a start that the warden's state does not show yet
constexpr std::uint32_t kDoublingsMax = 3;  // of the pause before what failed is asked again: 16 s

bool is_step_of_start(Ask kind) {
  return kind == Ask::kLoad || kind == Ask::kPrepare || kind == Ask::kAdopt || kind == Ask::kStart;
}

/// An answer without a folder is none: what would be emptied in it is the owner's.
warden_wire::Answer no_disk(warden_wire::Answer answer) {
  answer.code = to_string(ErrorCode::kUnavailable);
  answer.message = "the warden answered no disk";
  return answer;
}

}  // namespace

void Core::State::on(const WardenConnected&) {
  is_warden_connected_ = true;
  is_reconciled_ = false;
  ask_node(Ask::kQuery, warden_wire::Query{});
}

void Core::State::on(const WardenActed&) {
  ask_node(Ask::kQuery, warden_wire::Query{});
}

void Core::State::on(const WardenDisconnected&) {
  is_warden_connected_ = is_reconciled_ = false;
  asks_.clear();
  for (auto& [name, a] : attempts_) {
    if (is_asking(a, Ask::kNotice)) a.is_notice_due = true;
    a.asks.clear();
  }
  strangers_.clear();
  evacuated_sent_at_.clear();
  announce_sent_.reset();
  for (auto& [gpu, watch] : gpu_watches_) watch.told_at.reset();
  forget_claims();
  doubt_orders("its warden went away before it had answered", nanoseconds(0));
}

void Core::State::ask(Attempt& a, Ask kind, warden_wire::Request request) {
  if (!is_warden_connected_ || is_asking(a, kind)) return;
  const auto after = a.ask_after.find(kind);
  if (after != a.ask_after.end() && now_.boot < after->second) return;
  const std::uint64_t number = next_ask_++;
  a.asks[kind] = number;
  asks_[number] = PendingAsk{a.name, kind, now_.boot, {}, {}};
  out_.effects.emplace_back(AskWarden{{number, std::move(request)}});
}

void Core::State::ask_node(Ask kind, warden_wire::Request request, ReclaimId reclaim) {
  if (!is_warden_connected_) return;
  const std::uint64_t number = next_ask_++;
  asks_[number] = PendingAsk{{}, kind, now_.boot, std::move(reclaim), {}};
  out_.effects.emplace_back(AskWarden{{number, std::move(request)}});
}

void Core::State::time_out_asks() {
  for (auto it = asks_.begin(); it != asks_.end();) {
    if (now_.boot - it->second.sent_at < config_.reply_timeout) {
      ++it;
      continue;
    }
    const auto found = attempts_.find(it->second.guest);
    if (found != attempts_.end()) {
      found->second.asks.erase(it->second.kind);
      if (it->second.kind == Ask::kNotice) found->second.is_notice_due = true;
    }
    const bool was_query = it->second.kind == Ask::kQuery;
    if (it->second.kind == Ask::kTransfers) claims_asked_.reset();
    it = asks_.erase(it);
    if (was_query && !is_reconciled_) ask_node(Ask::kQuery, warden_wire::Query{});
  }
}

void Core::State::on(const WardenReply& e) {
  if (!is_warden_connected_) return;
  if (const auto* changed = std::get_if<warden_wire::StateChanged>(&e.reply)) {
    on_state(changed->state);
    return;
  }
  on_answer(std::get<warden_wire::Answer>(e.reply));
}

void Core::State::on_answer(const warden_wire::Answer& answer) {
  const auto found = asks_.find(answer.request);
  if (found == asks_.end()) return;
  const PendingAsk pending = found->second;
  asks_.erase(found);
  if (pending.kind == Ask::kQuery) {
    if (answer.code.empty()) on_state(answer.state);
    return;
  }
  if (pending.kind == Ask::kTransfers) return on_claims(answer);
  if (pending.kind == Ask::kTakeBack) return on_order_answer(pending.order, answer);
  if (pending.kind == Ask::kAnnounce && !answer.code.empty())
    log::info("announcement.refused", {{"code", answer.code}, {"message", answer.message}});
  const auto attempt = attempts_.find(pending.guest);
  if (attempt == attempts_.end()) return;
  Attempt& a = attempt->second;
  a.asks.erase(pending.kind);
  if (!answer.code.empty()) {
    on_ask_failed(a, pending.kind, answer);
    return;
  }
  on_attempt_answer(a, pending.kind, answer);
}

void Core::State::on_attempt_answer(Attempt& a, Ask kind, const warden_wire::Answer& answer) {
  const Phase phase = a.row.phase;
  a.ask_failures.erase(kind);
  if (is_step_of_start(kind)) a.stuck_since.reset();
  switch (kind) {
    case Ask::kLoad:
      if (phase == Phase::kLoading) set_phase(a, Phase::kMounting);
      return;
    case Ask::kPrepare:
      if (phase != Phase::kMounting) return;
      if (answer.disk.empty()) return on_ask_failed(a, kind, no_disk(answer));
      a.row.disk = answer.disk;
      set_phase(a, Phase::kRestoring);
      return;
    case Ask::kAdopt:
      if (phase == Phase::kAdopting) on_adopted(a);
      return;
    case Ask::kStart:
      if (phase == Phase::kStarting) on_started(a, to_ns(now_.boot));
      return;
    case Ask::kSignal:
      on_told_to_leave(a, answer.signalled);
      return;
    case Ask::kTell:
      if (phase == Phase::kRunning) on_told(a, answer.signalled);
      return;
    case Ask::kKill:
      // The state that follows says whether it is gone; a kill that found nothing means it is.
      if (phase == Phase::kStopping) on_gone(a, std::nullopt, false);
      return;
    case Ask::kRemove:
    case Ask::kNotice:
    case Ask::kQuery:
    case Ask::kEvacuated:
    case Ask::kAnnounce:
    case Ask::kTransfers:
    case Ask::kTakeBack:
      return;
    case Ask::kRelease:
      a.row.is_released = true;
      a.is_dirty = true;
      return;
  }
}

/// kNotFound when removing is success; a retryable code is tried again; anything else ends an
/// attempt that did not run yet.
void Core::State::on_ask_failed(Attempt& a, Ask kind, const warden_wire::Answer& answer) {
  const ErrorCode code = error_code_of(answer.code).value_or(ErrorCode::kInternal);
  // Cleaning up may wait; for an engine that is gone it is asked ever more seldom, until it is
  // back.
  const std::uint32_t failures = a.ask_failures[kind]++;
  const bool is_cleaning = kind == Ask::kRemove || kind == Ask::kRelease;
  a.ask_after[kind] =
      now_.boot + config_.repeat * (is_cleaning ? 1 << std::min(failures, kDoublingsMax) : 1);
  const bool is_gone = code == ErrorCode::kNotFound;
  if (is_cleaning && !is_gone) a.is_remove_asked = false;  // from the beginning: each is idempotent
  if (is_gone && (kind == Ask::kRelease || kind == Ask::kKill || kind == Ask::kRemove)) {
    if (kind == Ask::kRelease) {
      a.row.is_released = true;
      a.is_dirty = true;
    }
    if (kind == Ask::kKill && a.row.phase == Phase::kStopping) on_gone(a, std::nullopt, false);
    return;
  }
  if (kind == Ask::kNotice && is_retryable(code)) a.is_notice_due = true;
  if (kind == Ask::kTell) on_not_told(a, code, answer);
  if (kind == Ask::kSignal) {
    const bool is_refusal = code == ErrorCode::kConflict || is_gone;  // of one that has ended, say
    if (is_refusal && a.row.signals_in_doubt > 0) --a.row.signals_in_doubt;
    a.row.is_signalled = true;  // nobody could be signalled: its next generation is waited for
    a.is_dirty = true;
    return;
  }
  log::warning(
      "warden.refused",
      {{"job", a.name.job.str()}, {"code", answer.code}, {"message", answer.message}}
  );
  if (!is_step_of_start(kind) || a.row.phase > Phase::kStarting) return;
  const bool is_reclaimed = code == ErrorCode::kUnavailable && cutting_reclaim(a) != nullptr;
  if (is_reclaimed) {
    order_stop(a, StopOrder{AttemptEnd::kReclaimed, 0, "the owner took the node back", {}});
    return;
  }
  if (code == ErrorCode::kUnavailable && is_paused_for(a)) return hand_back(a);
  // After a timeout it may have started: asked again, too.
  const bool has_room_soon =
      kind == Ask::kPrepare && code == ErrorCode::kExhausted && is_disk_to_come();
  if (code == ErrorCode::kUnavailable || code == ErrorCode::kTimeout || has_room_soon)
    return failed_start_step(a, answer.message);
  order_stop(a, StopOrder{AttemptEnd::kRefused, 0, answer.message, {}});
}

/// An attempt that has ended has given its lease back, and its disk not yet: the arbiter gives away
/// what the warden does not have until then.
bool Core::State::is_disk_to_come() const {
  return std::any_of(attempts_.begin(), attempts_.end(), [](const auto& one) {
    return one.second.row.phase == Phase::kEnded && !one.second.row.is_released;
  });
}

/// The step is asked again, but not for ever: a node whose engine or warden cannot do it must not
/// keep the job from the others. A step that takes long without failing has the coordinator's time.
void Core::State::failed_start_step(Attempt& a, const std::string& why) {
  if (!a.stuck_since) a.stuck_since = now_.boot;
  if (now_.boot - *a.stuck_since >= config_.start_patience) give_up_start(a, why);
}

void Core::State::give_up_start(Attempt& a, const std::string& why) {
  const auto waited = std::chrono::duration_cast<seconds>(config_.start_patience).count();
  const std::string words = why + " (waited " + std::to_string(waited) + " s)";
  order_stop(a, StopOrder{AttemptEnd::kRefused, 0, words, {}, 0});
}

/// The reclaim whose cut took this attempt's guest, if one did.
const ReclaimRecord* Core::State::cutting_reclaim(const Attempt& a) const {
  const ReclaimRecord* best = nullptr;
  for (const auto& [id, row] : reclaims_) {
    const ReclaimRecord& record = row.record;
    if (record.boot_id != config_.boot_id || !covers(record, a)) continue;
    const bool is_cut =
        record.cut_ns > 0 || record.killed_ns > 0 ||
        (record.kind == ReclaimKind::kEmergency && record.phase != ReclaimPhase::kReturned);
    if (!is_cut) continue;
    const std::int64_t cut_ns = std::max({record.cut_ns, record.killed_ns, record.declared_ns});
    if (record.phase == ReclaimPhase::kReturned && cut_ns < a.row.leased_ns) continue;
    if (best == nullptr || record.declared_ns > best->declared_ns) best = &record;
  }
  return best;
}

/// The node, or a GPU that it was granted: what has not started goes elsewhere.
bool Core::State::is_paused_for(const Attempt& a) const {
  const std::vector<std::uint32_t>& granted = a.row.grant.gpus;
  return warden_.is_paused ||
         std::any_of(
             warden_.paused_gpus.begin(),
             warden_.paused_gpus.end(),
             [&](const warden_wire::PausedGpu& paused) {
               return std::find(granted.begin(), granted.end(), paused.gpu) != granted.end();
             }
         );
}

void Core::State::on_state(const warden_wire::WardenState& state) {
  const bool is_first = !was_reconciled_;
  const bool is_node_new = state.images != warden_.images || state.data_sets != warden_.data_sets ||
                           state.engine_refusal != warden_.engine_refusal ||
                           state.transfers != warden_.transfers ||
                           state.features != warden_.features || is_first;
  warden_ = state;
  is_reconciled_ = was_reconciled_ = true;
  if (state.is_engine_up) {
    if (engine_gone_since_) {
      for (auto& [name, a] : attempts_) {
        a.ask_failures.clear();
        a.ask_after.clear();
      }
    }
    engine_gone_since_.reset();
  } else if (!engine_gone_since_) {
    engine_gone_since_ = now_.boot;
  }
  on_reclaims(state.reclaims);
  settle_kills();
  if (is_node_new) {
    facts_.images = state.images;
    facts_.engine_refusal = state.engine_refusal;
    tell_grant(state.transfers);
    offer_data_sets(state.data_sets);
    offer_features();
    arbiter_.set_facts(facts_);
    send_node_update();
  }
  for (auto& [name, a] : attempts_) {
    const auto report = std::find_if(
        state.guests.begin(),
        state.guests.end(),
        [&, &wanted = name](const warden_wire::GuestReport& r) { return r.guest == wanted; }
    );
    const bool is_listed = report != state.guests.end();
    // What a warden that still searches the machine does not list may run all the same.
    if (is_listed || !state.is_recovering) on_guest(a, is_listed ? &*report : nullptr);
    // One whose start was asked for may run already: the warden's answer tells.
    if (is_paused_for(a) && a.row.phase < Phase::kStarting) hand_back(a);
  }
  clean_strangers(state);
}

/// What the kernel holds copies to is as good as a thinner line, also while the warden is away.
void Core::State::tell_grant(const warden_wire::TransfersEdge& edge) {
  const std::uint64_t bytes_per_s = std::min(edge.bytes_per_s, kMostGranted_bps / 8);
  facts_.transfers_bps = edge.is_there ? bytes_per_s * 8 : 0;
  facts_.are_transfers_cut = edge.is_there && edge.is_cut;
}

std::string Core::State::engine_words() const {
  return warden_.engine_refusal.empty()
             ? "the container engine is down"
             : "the container engine is refused: " + warden_.engine_refusal;
}

/// What the owner offers and the warden has. Neither alone is enough: the warden's flags say where
/// something is, the agent's configuration that it is lent.
void Core::State::offer_data_sets(const std::vector<std::string>& there) {
  std::vector<std::string> offered;
  std::string missing;
  for (const std::string& name : config_.data_sets) {
    const bool is_there = std::find(there.begin(), there.end(), name) != there.end();
    if (is_there) offered.push_back(name);
    if (!is_there) missing += (missing.empty() ? "" : ", ") + name;
  }
  std::sort(offered.begin(), offered.end());
  facts_.data_sets = std::move(offered);
  if (missing != missing_data_sets_ && !missing.empty())
    log::warning(
        "data.not_offered",
        {{"data_sets", missing},
         {"why", "the warden has no such data set, or its folder is not there"},
         {"next", "reclaim-warden serve --data-set NAME=FOLDER"}}
    );
  missing_data_sets_ = std::move(missing);
}

void Core::State::on_guest(Attempt& a, const warden_wire::GuestReport* report) {
  const Phase phase = a.row.phase;
  const GuestState state = report != nullptr ? report->state : GuestState::kRemoved;
  if (report != nullptr && !report->disk.empty() && report->disk != a.row.disk &&
      phase > Phase::kMounting && phase < Phase::kEnded) {
    a.row.disk = report->disk;
    a.is_dirty = true;
  }
  if (report != nullptr) a.container = report->container;
  switch (state) {
    case GuestState::kRunning:
      a.is_seen_running = true;
      if (phase == Phase::kRunning) a.was_told_in_wait = false;  // and stayed: it was withdrawn
      if (phase == Phase::kStarting) on_started(a, report->started_boot_ns);
      return;
    case GuestState::kExited:
      if (phase == Phase::kStarting) on_started(a, report->started_boot_ns);
      if (has_guest(a.row.phase)) {
        const auto code = report->is_vanished ? std::nullopt : std::optional(report->exit_code);
        on_gone(a, code, report->is_oom_killed);
      }
      return;
    case GuestState::kUnknown:
    case GuestState::kDiskReady:
    case GuestState::kRemoved:
      break;
  }
  if (phase == Phase::kStopping) {
    on_gone(a, std::nullopt, false);
    return;
  }
  if (phase != Phase::kRunning && phase != Phase::kNoticed) return;
  const bool is_old = to_ns(now_.boot) - a.row.started_ns > nanoseconds(kAbsencePatience).count();
  if (a.is_seen_running || is_old || cutting_reclaim(a) != nullptr) on_gone(a, std::nullopt, false);
}

/// Recovery by label: a guest that no journal row wants is killed and removed.
void Core::State::clean_strangers(const warden_wire::WardenState& state) {
  for (const warden_wire::GuestReport& report : state.guests) {
    const auto found = attempts_.find(report.guest);
    if (found != attempts_.end()) continue;
    const auto asked = strangers_.find(report.guest);
    if (asked != strangers_.end() && now_.boot - asked->second < kStrangerPatience) continue;
    strangers_[report.guest] = now_.boot;
    log::warning(
        "guest.unknown", {{"job", report.guest.job.str()}, {"epoch", to_string(report.guest.epoch)}}
    );
    if (report.state == GuestState::kRunning)
      ask_node(Ask::kKill, warden_wire::KillGuest{report.guest});
    ask_node(Ask::kRemove, warden_wire::RemoveGuest{report.guest});
    ask_node(Ask::kRelease, warden_wire::ReleaseDisk{report.guest});
  }
  std::erase_if(strangers_, [&](const auto& entry) {
    return std::none_of(state.guests.begin(), state.guests.end(), [&](const auto& report) {
      return report.guest == entry.first;
    });
  });
}

}  // namespace rn::agent
