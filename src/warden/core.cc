// SPDX-License-Identifier: Apache-2.0
#include "warden/core.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/log.h"
#include "warden/profile.h"

namespace rn::warden {

WardenCore::WardenCore(CoreConfig config, Journal journal, Rng& rng)
    : config_(std::move(config)), journal_(std::move(journal)), rng_(rng) {
  is_restarted_ = journal_.boot_id != config_.boot_id;
  is_journal_new_ = journal_.boot_id.empty() || config_.is_journal_lost;
}

Output WardenCore::start(Now now) {
  now_ = now;
  if (config_.is_journal_damaged) {
    journal_.is_paused = true;
    note_trouble(
        "the warden's journal was damaged: guests that run are kept, and new ones wait, because it "
        "may have said that you took the machine back; next: reclaim-agent resume"
    );
  }
  if (config_.is_journal_lost)
    note_trouble("the warden's journal was removed: what you had said is known from its copy");
  if (is_restarted_) {
    journal_.boot_id = config_.boot_id;
    if (journal_.paused_until_wall_ms > 0) {
      const auto left = milliseconds(journal_.paused_until_wall_ms - to_ms(now.wall));
      journal_.paused_until_boot_ns = to_ns(now.boot + std::max(left, milliseconds(0)));
    }
    for (warden_wire::PausedGpu& paused : journal_.paused_gpus) {
      if (paused.until_wall_ms == 0) continue;
      const auto left = milliseconds(paused.until_wall_ms - to_ms(now.wall));
      paused.until_boot_ns = to_ns(now.boot + std::max(left, milliseconds(0)));
    }
    for (GuestRecord& guest : journal_.guests) guest.pid = 0;
    // No guest has outlived the boot, and its instants mean nothing now.
    journal_.announced = {0, 0, "", journal_.announced.reclaim};
    std::erase_if(journal_.announced_gpus, [](const auto& one) { return one.reclaim.empty(); });
  }
  for (ReclaimRecord& reclaim : journal_.reclaims) {
    if (!is_open(reclaim) || reclaim.phase == ReclaimPhase::kCleared) continue;
    if (is_restarted_) {
      // Instants of two boots cannot be compared: what was not finished starts over, and its
      // deadline has passed.
      reclaim.boot_id = config_.boot_id;
      reclaim.declared_ns = reclaim.deadline_ns = to_ns(now.boot);
      reclaim.cut_ns = reclaim.killed_ns = 0;
    }
    const bool had_begun =
        reclaim.phase == ReclaimPhase::kCut || reclaim.phase == ReclaimPhase::kWedged;
    if (had_begun) clear(reclaim);
  }
  if (config_.is_kill_journal_damaged) journal_.emergencies_seen = 0;
  if (config_.is_hand_journal_damaged) journal_.hand_emergencies_seen = 0;
  if (config_.is_kill_journal_damaged || config_.is_hand_journal_damaged) {
    // After a reboot every gate is shut, and no guest is left to be cut.
    const bool is_rebooted = is_restarted_ && !is_journal_new_;
    heed_lost_orders(!is_rebooted && is_shut_by_unknown(config_.found));
  }
  advance_all();
  set_gates();
  changed();
  return take();
}

Output WardenCore::handle(const Event& event, Now now) {
  RN_ASSERT(now.boot >= now_.boot, "time does not go back");
  now_ = now;
  std::visit([this](const auto& e) { on(e); }, event);
  return take();
}

Output WardenCore::take() {
  if (is_changed_) {
    out_.journal = journal_;
    out_.is_state_changed = true;
    is_changed_ = false;
  }
  return std::exchange(out_, Output{});
}

void WardenCore::changed() {
  is_changed_ = true;
}

std::optional<Instant> WardenCore::wake_at() const {
  std::optional<Instant> at;
  const auto consider = [&](Instant instant) {
    if (!at || instant < *at) at = instant;
  };
  for (const ReclaimRecord& reclaim : journal_.reclaims) {
    const bool is_waiting = reclaim.phase == ReclaimPhase::kEvacuating && reclaim.deadline_ns > 0 &&
                            !clearings_.contains(reclaim.id);
    if (is_waiting) consider(instant_from_ns(reclaim.deadline_ns));
  }
  for (const auto& [id, clearing] : clearings_) consider(clearing.repeat_at);
  const auto& announced = journal_.announced;
  const bool is_coming = announced.deadline_ns > 0 && announced.reclaim.empty() &&
                         (announced.declare_ns > to_ns(now_.boot) || is_due());
  if (is_coming) consider(instant_from_ns(announced.declare_ns));
  for (const warden_wire::AnnouncedGpu& ahead : journal_.announced_gpus) {
    if (ahead.reclaim.empty() && (ahead.declare_ns > to_ns(now_.boot) || is_gpu_due(ahead)))
      consider(instant_from_ns(ahead.declare_ns));
  }
  if (journal_.is_paused && journal_.paused_until_boot_ns > 0)
    consider(instant_from_ns(journal_.paused_until_boot_ns));
  for (const warden_wire::PausedGpu& paused : journal_.paused_gpus)
    if (paused.until_boot_ns > 0) consider(instant_from_ns(paused.until_boot_ns));
  return at;
}

namespace {

GuestState state_of(const GuestRecord& guest) {
  switch (guest.phase) {
    case GuestPhase::kPreparing:
      return GuestState::kUnknown;
    case GuestPhase::kReady:
    case GuestPhase::kReleasing:
      return guest.was_started ? GuestState::kRemoved : GuestState::kDiskReady;
    case GuestPhase::kStarting:
      return GuestState::kDiskReady;
    case GuestPhase::kRunning:
      return GuestState::kRunning;
    case GuestPhase::kExited:
    case GuestPhase::kRemoving:
      return GuestState::kExited;
  }
  return GuestState::kUnknown;
}

}  // namespace

warden_wire::WardenState WardenCore::state() const {
  warden_wire::WardenState state;
  for (const GuestRecord& guest : journal_.guests) {
    warden_wire::GuestReport report;
    report.guest = guest.guest;
    report.state = state_of(guest);
    report.exit_code = guest.exit_code;
    report.is_oom_killed = guest.is_oom_killed;
    report.is_vanished = guest.is_vanished;
    report.is_cut = is_cut(guest);
    report.disk = guest.disk;
    report.started_boot_ns = guest.started_boot_ns;
    report.gpus = guest.gpus;
    report.container = guest.container;
    state.guests.push_back(std::move(report));
  }
  state.reclaims = journal_.reclaims;
  for (const ImageRecord& known : journal_.images) state.images.push_back(known.digest);
  state.is_paused = journal_.is_paused;
  state.paused_until_wall_ms = journal_.paused_until_wall_ms;
  state.paused_gpus = journal_.paused_gpus;
  state.announced = journal_.announced;
  state.announced_gpus = journal_.announced_gpus;
  state.engine = engine_version_;
  state.engine_refusal = engine_refusal_;
  state.is_engine_up = is_engine_up_;
  state.is_recovering = !is_reconciled_;
  state.troubles = troubles_;
  return state;
}

std::vector<GuestRecord> WardenCore::live_guests() const {
  std::vector<GuestRecord> live;
  for (const GuestRecord& guest : journal_.guests) {
    if (guest.phase == GuestPhase::kStarting || guest.phase == GuestPhase::kRunning)
      live.push_back(guest);
  }
  return live;
}

void WardenCore::answer(const Caller& caller, warden_wire::Answer reply) {
  reply.request = caller.number;
  effect(SendAnswer{caller, std::move(reply)});
}

void WardenCore::answer(const Caller& caller, const Status& status) {
  warden_wire::Answer reply;
  if (!status) {
    reply.code = to_string(status.error().code);
    reply.message = status.error().message;
    reply.hint = status.error().hint;
  }
  answer(caller, std::move(reply));
}

void WardenCore::answer(const std::vector<Caller>& callers, const Status& status) {
  for (const Caller& caller : callers) answer(caller, status);
}

void WardenCore::on(const Asked& event) {
  if (is_owner_only(event.request) && !event.caller.is_owner) {
    return answer(
        event.caller,
        fail(ErrorCode::kDenied, "only the owner may do this", "ask the owner of the machine")
    );
  }
  std::visit([&](const auto& request) { ask(event.caller, request); }, event.request);
}

void WardenCore::on(const EngineChanged& event) {
  const bool is_same_version = event.version.empty() || engine_version_ == event.version;
  if (is_engine_up_ == event.is_up && is_same_version && engine_refusal_ == event.refusal) return;
  is_engine_up_ = event.is_up;
  engine_refusal_ = event.refusal;
  if (!event.version.empty()) engine_version_ = event.version;
  out_.is_state_changed = true;
}

void WardenCore::on(const Tick&) {
  if (journal_.is_paused && journal_.paused_until_boot_ns > 0 &&
      journal_.paused_until_boot_ns <= to_ns(now_.boot)) {
    journal_.is_paused = false;
    journal_.paused_until_boot_ns = journal_.paused_until_wall_ms = 0;
    changed();
  }
  const auto ended = std::erase_if(journal_.paused_gpus, [&](const warden_wire::PausedGpu& one) {
    return one.until_boot_ns > 0 && one.until_boot_ns <= to_ns(now_.boot);
  });
  if (ended > 0) changed();
  advance_all();
}

void WardenCore::ask(const Caller& caller, const warden_wire::Query&) {
  warden_wire::Answer reply;
  reply.state = state();
  answer(caller, std::move(reply));
}

void WardenCore::pause_gpus(const warden_wire::Pause& request) {
  for (const std::uint32_t gpu : request.gpus) {
    std::erase_if(journal_.paused_gpus, [&](const auto& one) { return one.gpu == gpu; });
    warden_wire::PausedGpu paused;
    paused.gpu = gpu;
    if (request.for_s > 0) {
      paused.until_boot_ns = to_ns(now_.boot + seconds(request.for_s));
      paused.until_wall_ms = to_ms(now_.wall + seconds(request.for_s));
    }
    journal_.paused_gpus.push_back(paused);
  }
  changed();
}

void WardenCore::ask(const Caller& caller, const warden_wire::Pause& request) {
  if (const Status known = warden_wire::check_gpus(request.gpus); !known)
    return answer(caller, known);
  if (!request.gpus.empty()) {
    pause_gpus(request);
    return answer(caller, Status());
  }
  const bool is_changing = !journal_.is_paused || request.for_s > 0;
  journal_.is_paused = true;
  journal_.paused_until_boot_ns = journal_.paused_until_wall_ms = 0;
  if (request.for_s > 0) {
    journal_.paused_until_boot_ns = to_ns(now_.boot + seconds(request.for_s));
    journal_.paused_until_wall_ms = to_ms(now_.wall + seconds(request.for_s));
  }
  if (is_changing) changed();
  answer(caller, Status());
}

void WardenCore::ask(const Caller& caller, const warden_wire::Resume& request) {
  const auto ended = std::erase_if(journal_.paused_gpus, [&](const warden_wire::PausedGpu& one) {
    return request.gpus.empty() ||
           std::find(request.gpus.begin(), request.gpus.end(), one.gpu) != request.gpus.end();
  });
  if (ended > 0) changed();
  if (!request.gpus.empty()) return answer(caller, Status());
  if (journal_.is_paused) changed();
  journal_.is_paused = false;
  journal_.paused_until_boot_ns = journal_.paused_until_wall_ms = 0;
  answer(caller, Status());
}

/// The shell answers it where transfers are bounded: nothing of it is journalled.
void WardenCore::ask(const Caller& caller, const warden_wire::SetTransfers&) {
  answer(
      caller,
      fail(
          ErrorCode::kUnsupported,
          "this warden does not bound transfers: they are paced by the agent alone",
          "start it with --transfers INTERFACE:RATE"
      )
  );
}

// ---- operations

OpId WardenCore::begin(Kind kind, const GuestName& guest, std::vector<Caller> callers) {
  const OpId op = next_op_++;
  operations_[op] = Operation{kind, guest, {}, std::move(callers)};
  return op;
}

std::optional<WardenCore::Operation> WardenCore::end(OpId op) {
  auto node = operations_.extract(op);
  if (node.empty()) return std::nullopt;  // answered before, or of an earlier life
  return std::move(node.mapped());
}

bool WardenCore::join(const Caller& caller, Kind kind, const GuestName& guest) {
  for (auto& [op, operation] : operations_) {
    if (operation.kind != kind || operation.guest != guest) continue;
    operation.callers.push_back(caller);
    return true;
  }
  return false;
}

void WardenCore::on(const Signalled& event) {
  const auto operation = end(event.op);
  if (!operation) return;
  for (const Caller& caller : operation->callers) {
    if (!event.count) {
      answer(caller, fail(event.count.error()));
      continue;
    }
    warden_wire::Answer reply;
    reply.signalled = *event.count;
    answer(caller, std::move(reply));
  }
}

void WardenCore::ask(const Caller& caller, const warden_wire::LoadImage& request) {
  if (image(request.digest) != nullptr) return answer(caller, Status());
  for (auto& [op, operation] : operations_) {
    if (operation.kind != Kind::kImport || operation.digest != request.digest) continue;
    operation.callers.push_back(caller);
    return;
  }
  if (journal_.images.size() >= kMaxImages)
    return answer(caller, fail(ErrorCode::kExhausted, "the node holds 256 images already"));
  if (!is_reconciled_)
    return answer(caller, fail(ErrorCode::kUnavailable, "the warden is still recovering"));
  const OpId op = begin(Kind::kImport, {}, {caller});
  operations_[op].digest = request.digest;
  effect(Import{op, request});
}

void WardenCore::on(const Imported& event) {
  const auto operation = end(event.op);
  if (!operation) return;
  if (!event.id) return answer(operation->callers, fail(event.id.error()));
  if (image(operation->digest) == nullptr) {
    journal_.images.push_back({operation->digest, *event.id});
    changed();
  }
  answer(operation->callers, Status());
}

const ImageRecord* WardenCore::image(const std::string& digest) const {
  for (const ImageRecord& known : journal_.images) {
    if (known.digest == digest) return &known;
  }
  return nullptr;
}

}  // namespace rn::warden
