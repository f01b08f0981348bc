// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include "base/fs.h"
#include "base/log.h"
#include "base/planted.h"
#include "warden/core.h"
#include "warden/profile.h"

namespace rn::warden {

namespace {

constexpr std::int32_t kKilledCode = 137;  ///< 128 + SIGKILL

tl::unexpected<Error> no_such_guest(const GuestName& guest) {
  return fail(
      ErrorCode::kNotFound,
      "no disk of job " + guest.job.str() + " at epoch " + to_string(guest.epoch),
      "prepare its disk first"
  );
}

tl::unexpected<Error> wrong_phase(const GuestRecord& guest, const char* wanted) {
  return fail(
      ErrorCode::kConflict,
      "job " + guest.guest.job.str() + " is " + std::string(to_string(guest.phase)) + ", " + wanted
  );
}

tl::unexpected<Error> still_recovering() {
  return fail(
      ErrorCode::kUnavailable, "the warden is still recovering", "try again in a few seconds"
  );
}

}  // namespace

GuestRecord* WardenCore::find(const GuestName& guest) {
  for (GuestRecord& record : journal_.guests) {
    if (record.guest == guest) return &record;
  }
  return nullptr;
}

/// There is none of that name, or it was not found yet: a journal that was lost says nothing.
Status WardenCore::unknown(const GuestName& guest) const {
  if (may_be_unknown()) return still_recovering();
  return no_such_guest(guest);
}

/// Whether a guest without a record is gone for certain.
Status WardenCore::gone() const {
  if (may_be_unknown()) return still_recovering();
  return {};
}

Status WardenCore::may_take_guests(const std::vector<std::uint32_t>& gpus) const {
  if (!is_reconciled_) return still_recovering();
  if (journal_.is_paused)
    return fail(ErrorCode::kUnavailable, "the owner has paused lending", "try another node");
  for (const warden_wire::PausedGpu& paused : journal_.paused_gpus) {
    if (std::find(gpus.begin(), gpus.end(), paused.gpu) == gpus.end()) continue;
    return fail(
        ErrorCode::kUnavailable,
        "the owner has paused lending of GPU " + std::to_string(paused.gpu),
        "try another GPU, or another node"
    );
  }
  for (const ReclaimRecord& reclaim : journal_.reclaims) {
    if (!is_open(reclaim) || !covers(reclaim, gpus)) continue;
    if (planted("warden.starts_on_taken_nodes")) continue;
    return fail(
        ErrorCode::kUnavailable, "the owner has taken the machine back", "try another node"
    );
  }
  return {};
}

// ---- disks

void WardenCore::ask(const Caller& caller, const warden_wire::PrepareDisk& request) {
  if (const Status name = check_guest_name(request.guest); !name) return answer(caller, name);
  if (join(caller, Kind::kMakeDisk, request.guest)) return;
  if (const GuestRecord* guest = find(request.guest)) {
    if (guest->phase == GuestPhase::kReleasing)
      return answer(caller, wrong_phase(*guest, "its disk is being deleted"));
    // After a restart the record comes from the journal, and what it names is made and mounted only
    // when the machine was searched.
    if (!is_reconciled_ || guest->phase == GuestPhase::kPreparing)
      return answer(caller, still_recovering());
    warden_wire::Answer reply;
    reply.disk = guest->disk;
    return answer(caller, std::move(reply));
  }
  if (request.disk_mib < 16 || request.disk_mib > (std::uint64_t{16} << 20))
    return answer(caller, fail(ErrorCode::kInvalid, "disk_mib must be 16 to 16,777,216"));
  if (const Status may = may_take_guests({}); !may) return answer(caller, may);
  if (journal_.guests.size() >= kMaxGuests)
    return answer(caller, fail(ErrorCode::kExhausted, "the node holds 128 attempts already"));
  GuestRecord record;
  record.guest = request.guest;
  record.disk_mib = request.disk_mib;
  journal_.guests.push_back(record);
  changed();
  effect(MakeDisk{begin(Kind::kMakeDisk, request.guest, {caller}), request.guest, request.disk_mib}
  );
}

void WardenCore::on(const DiskMade& event) {
  const auto operation = end(event.op);
  if (!operation) return;
  GuestRecord* guest = find(operation->guest);
  if (guest == nullptr) return answer(operation->callers, no_such_guest(operation->guest));
  changed();
  if (!event.folder) {
    std::erase_if(journal_.guests, [&](const auto& g) { return g.guest == operation->guest; });
    return answer(operation->callers, fail(event.folder.error()));
  }
  guest->phase = GuestPhase::kReady;
  guest->disk = *event.folder;
  for (const Caller& caller : operation->callers) {
    warden_wire::Answer reply;
    reply.disk = guest->disk;
    answer(caller, std::move(reply));
  }
}

void WardenCore::ask(const Caller& caller, const warden_wire::AdoptDisk& request) {
  const GuestRecord* guest = find(request.guest);
  if (guest == nullptr) return answer(caller, unknown(request.guest));
  if (guest->is_adopted) return answer(caller, Status());
  if (guest->phase != GuestPhase::kReady)
    return answer(caller, wrong_phase(*guest, "so its disk cannot be adopted now"));
  if (join(caller, Kind::kAdopt, request.guest)) return;
  effect(AdoptDisk{begin(Kind::kAdopt, request.guest, {caller}), request.guest});
}

void WardenCore::ask(const Caller& caller, const warden_wire::ReleaseDisk& request) {
  GuestRecord* guest = find(request.guest);
  if (guest == nullptr) return answer(caller, gone());
  if (join(caller, Kind::kDrop, request.guest)) return;
  if (guest->phase != GuestPhase::kReady && guest->phase != GuestPhase::kReleasing)
    return answer(caller, wrong_phase(*guest, "so its disk cannot be released"));
  if (planted("warden.keeps_disks")) {
    std::erase_if(journal_.guests, [&](const auto& g) { return g.guest == request.guest; });
    changed();
    return answer(caller, Status());
  }
  guest->phase = GuestPhase::kReleasing;
  changed();
  effect(DropDisk{begin(Kind::kDrop, request.guest, {caller}), request.guest});
}

// ---- start

Status WardenCore::may_start(const warden_wire::StartGuest& request, const GuestRecord* guest)
    const {
  RN_CHECK(check_start(request));
  if (guest == nullptr) return unknown(request.guest);
  if (guest->phase == GuestPhase::kStarting && !guest->is_condemned)
    return fail(ErrorCode::kUnavailable, "its earlier start is being looked after", "try again");
  if (guest->phase != GuestPhase::kReady || guest->is_condemned || guest->was_started)
    return wrong_phase(*guest, "or has run: it cannot be started");
  if (!guest->is_adopted)
    return fail(ErrorCode::kConflict, "the work folder is still the agent's", "adopt the disk");
  RN_CHECK(may_take_guests(request.gpus));
  if (!is_engine_up_)
    return fail(ErrorCode::kUnavailable, "the container engine does not answer", "try again");
  if (image(request.image_digest) == nullptr)
    return fail(
        ErrorCode::kNotFound, "image " + request.image_digest + " is not loaded", "load it first"
    );
  for (const GuestRecord& other : journal_.guests) {
    if (other.slot == kNoSlot) continue;
    for (const std::uint32_t gpu : request.gpus) {
      if (std::find(other.gpus.begin(), other.gpus.end(), gpu) == other.gpus.end()) continue;
      return fail(
          ErrorCode::kConflict,
          "GPU " + std::to_string(gpu) + " has a guest: " + other.guest.job.str()
      );
    }
  }
  return {};
}

std::optional<std::uint32_t> WardenCore::free_slot() const {
  std::array<bool, kSlots> is_taken{};
  for (const GuestRecord& guest : journal_.guests) {
    if (guest.slot < kSlots) is_taken[guest.slot] = true;
  }
  const auto free = std::find(is_taken.begin(), is_taken.end(), false);
  if (free == is_taken.end()) return std::nullopt;
  return static_cast<std::uint32_t>(free - is_taken.begin());
}

void WardenCore::ask(const Caller& caller, const warden_wire::StartGuest& request) {
  GuestRecord* guest = find(request.guest);
  if (guest != nullptr && !guest->is_condemned) {
    if (join(caller, Kind::kStart, request.guest) || join(caller, Kind::kGo, request.guest)) return;
    const bool has_run =
        guest->phase == GuestPhase::kRunning || guest->phase == GuestPhase::kExited;
    if (has_run) return answer(caller, Status());
  }
  if (const Status may = may_start(request, guest); !may) return answer(caller, may);
  const auto slot = free_slot();
  if (!slot) return answer(caller, fail(ErrorCode::kExhausted, "all gates are in use"));
  guest->phase = GuestPhase::kStarting;
  guest->slot = *slot;
  guest->gpus = request.gpus;
  changed();
  const OpId op = begin(Kind::kStart, request.guest, {caller});
  effect(Start{op, *guest, request, image(request.image_digest)->id});
}

/// The shell has removed all traces of it, or never made any.
void WardenCore::give_up_start(GuestRecord& guest) {
  guest.phase = GuestPhase::kReady;
  guest.slot = kNoSlot;
  guest.container.clear();
  guest.pid = 0;
  guest.gpus.clear();
  changed();
  if (auto waiting = kills_waiting_.extract(guest.guest); !waiting.empty())
    answer(waiting.mapped(), Status());
  advance_all();
}

void WardenCore::on(const Started& event) {
  const auto operation = end(event.op);
  if (!operation) return;
  GuestRecord* guest = find(operation->guest);
  if (guest == nullptr || guest->phase != GuestPhase::kStarting)
    return answer(operation->callers, fail(ErrorCode::kConflict, "the guest is gone"));
  if (!event.result) {
    give_up_start(*guest);
    return answer(operation->callers, fail(event.result.error()));
  }
  guest->container = event.result->container;
  guest->pid = event.result->pid;
  guest->started_boot_ns = event.result->started_boot_ns;
  changed();
  if (guest->is_condemned || is_cut(*guest)) {
    answer(
        operation->callers, fail(ErrorCode::kUnavailable, "it was stopped before it could start")
    );
    auto waiting = kills_waiting_.extract(guest->guest);
    return kill(*guest, waiting.empty() ? std::vector<Caller>() : std::move(waiting.mapped()));
  }
  effect(Go{begin(Kind::kGo, guest->guest, operation->callers), *guest});
}

void WardenCore::finish_start(const Operation& operation, const Status& status) {
  GuestRecord* guest = find(operation.guest);
  if (guest != nullptr && guest->phase == GuestPhase::kStarting) {
    changed();
    if (status) {
      guest->phase = GuestPhase::kRunning;
      guest->was_started = true;
    }
    if (!status || guest->is_condemned) {
      auto waiting = kills_waiting_.extract(guest->guest);
      kill(*guest, waiting.empty() ? std::vector<Caller>() : std::move(waiting.mapped()));
    }
  }
  answer(operation.callers, status);
}

// ---- while it runs

void WardenCore::ask(const Caller& caller, const warden_wire::SignalGuest& request) {
  const GuestRecord* guest = find(request.guest);
  if (guest == nullptr) return answer(caller, unknown(request.guest));
  if (guest->phase != GuestPhase::kRunning)
    return answer(caller, wrong_phase(*guest, "so it gets no signal"));
  if (request.signal == SaveSignal::kNone) return answer(caller, Status());
  effect(Signal{begin(Kind::kSignal, request.guest, {caller}), *guest, request.signal});
}

void WardenCore::ask(const Caller& caller, const warden_wire::TellGuest& request) {
  const GuestRecord* guest = find(request.guest);
  if (guest == nullptr) return answer(caller, unknown(request.guest));
  if (guest->phase != GuestPhase::kRunning)
    return answer(caller, wrong_phase(*guest, "so it is not told to save"));
  const bool is_inside =
      request.file.size() <= warden_wire::kTellFileMax && is_safe_relative_path(request.file);
  if (request.is_for_init ? !request.file.empty() : !is_inside)
    return answer(
        caller, fail(ErrorCode::kInvalid, "the file to tell it by is not inside its folder")
    );
  effect(Signal{begin(Kind::kSignal, request.guest, {caller}), *guest, SaveSignal::kNone, request});
}

void WardenCore::ask(const Caller& caller, const warden_wire::WriteNotice& request) {
  const GuestRecord* guest = find(request.guest);
  if (guest == nullptr) return answer(caller, unknown(request.guest));
  if (guest->disk.empty() || guest->phase == GuestPhase::kReleasing)
    return answer(caller, wrong_phase(*guest, "so it has no folder for a notice"));
  effect(Notify{begin(Kind::kNotify, request.guest, {caller}), request});
}

void WardenCore::ask(const Caller& caller, const warden_wire::KillGuest& request) {
  GuestRecord* guest = find(request.guest);
  if (guest == nullptr) return answer(caller, gone());
  if (!guest->is_condemned) {
    guest->is_condemned = true;
    changed();
  }
  if (guest->phase == GuestPhase::kRunning) return kill(*guest, {caller});
  if (guest->phase == GuestPhase::kStarting) {
    if (guest->container.empty()) {
      kills_waiting_[guest->guest].push_back(caller);
      return;
    }
    return kill(*guest, {caller});
  }
  answer(caller, Status());
}

void WardenCore::kill(GuestRecord& guest, std::vector<Caller> callers) {
  guest.is_condemned = true;
  for (auto& [op, operation] : operations_) {
    if (operation.kind != Kind::kKill || operation.guest != guest.guest) continue;
    operation.callers.insert(operation.callers.end(), callers.begin(), callers.end());
    return;
  }
  effect(Kill{begin(Kind::kKill, guest.guest, std::move(callers)), guest});
}

void WardenCore::finish_kill(const Operation& operation, const Status& status) {
  GuestRecord* guest = find(operation.guest);
  const bool is_live = guest != nullptr && (guest->phase == GuestPhase::kRunning ||
                                            guest->phase == GuestPhase::kStarting);
  if (status && is_live) set_exited(*guest, kKilledCode, false);
  if (!status)
    log::warning(
        "guest.kill_failed",
        {{"job", operation.guest.job.str()}, {"why", status.error().describe()}}
    );
  answer(operation.callers, status);
}

void WardenCore::set_exited(GuestRecord& guest, std::int32_t exit_code, bool is_oom_killed) {
  guest.phase = GuestPhase::kExited;
  guest.was_started = true;
  guest.exit_code = exit_code;
  guest.is_oom_killed = is_oom_killed;
  guest.pid = 0;
  if (severed_.erase(guest.guest) > 0) guest.is_vanished = true;
  changed();
  if (auto waiting = kills_waiting_.extract(guest.guest); !waiting.empty())
    answer(waiting.mapped(), Status());
  advance_all();
}

void WardenCore::on(const Exited& event) {
  GuestRecord* guest = find(event.guest);
  if (guest == nullptr || guest->container != event.container) return;
  if (guest->phase == GuestPhase::kRunning || guest->phase == GuestPhase::kStarting) {
    guest->is_vanished = event.is_vanished;
    return set_exited(*guest, event.exit_code, event.is_oom_killed);
  }
  // A kill was answered first; the engine now knows the true end.
  if (guest->phase == GuestPhase::kExited && guest->exit_code == kKilledCode &&
      (guest->exit_code != event.exit_code || guest->is_oom_killed != event.is_oom_killed)) {
    guest->exit_code = event.exit_code;
    guest->is_oom_killed = event.is_oom_killed;
    changed();
  }
}

void WardenCore::ask(const Caller& caller, const warden_wire::RemoveGuest& request) {
  GuestRecord* guest = find(request.guest);
  if (guest == nullptr) return answer(caller, gone());
  if (guest->phase == GuestPhase::kReady || guest->phase == GuestPhase::kReleasing)
    return answer(caller, Status());
  if (join(caller, Kind::kForget, request.guest)) return;
  if (guest->phase != GuestPhase::kExited && guest->phase != GuestPhase::kRemoving)
    return answer(caller, wrong_phase(*guest, "so it cannot be removed: kill it first"));
  guest->phase = GuestPhase::kRemoving;
  changed();
  effect(Forget{begin(Kind::kForget, request.guest, {caller}), *guest});
}

void WardenCore::on(const Finished& event) {
  const auto operation = end(event.op);
  if (!operation) return;
  if (operation->kind == Kind::kGo) return finish_start(*operation, event.status);
  if (operation->kind == Kind::kKill) return finish_kill(*operation, event.status);
  GuestRecord* guest = find(operation->guest);
  if (guest != nullptr && event.status) {
    if (operation->kind == Kind::kAdopt) {
      guest->is_adopted = true;
      changed();
    }
    if (operation->kind == Kind::kForget) {
      guest->phase = GuestPhase::kReady;
      guest->slot = kNoSlot;
      guest->container.clear();
      changed();
      look_again();
      advance_all();
    }
    if (operation->kind == Kind::kDrop) {
      std::erase_if(journal_.guests, [&](const auto& g) { return g.guest == operation->guest; });
      changed();
    }
  }
  answer(operation->callers, event.status);
}

}  // namespace rn::warden
