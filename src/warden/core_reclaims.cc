// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/log.h"
#include "base/planted.h"
#include "warden/core.h"

namespace rn::warden {

namespace {

constexpr std::uint32_t kMaxNoticeS = 900;  ///< the longest notice there is

std::int64_t later_of(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}

}  // namespace

bool covers(const ReclaimRecord& reclaim, const std::vector<std::uint32_t>& guest_gpus) {
  if (reclaim.gpus.empty()) return true;
  return std::any_of(guest_gpus.begin(), guest_gpus.end(), [&](std::uint32_t gpu) {
    return std::find(reclaim.gpus.begin(), reclaim.gpus.end(), gpu) != reclaim.gpus.end();
  });
}

bool is_open(const ReclaimRecord& reclaim) {
  return reclaim.phase != ReclaimPhase::kReturned;
}

Status being_cleared() {
  return fail(ErrorCode::kUnavailable, "the guests are being cleared", "wait a moment");
}

ReclaimRecord* WardenCore::find(const ReclaimId& id) {
  for (ReclaimRecord& reclaim : journal_.reclaims) {
    if (reclaim.id == id) return &reclaim;
  }
  return nullptr;
}

ReclaimRecord* WardenCore::open_reclaim_of(
    const std::vector<std::uint32_t>& gpus, std::int64_t deadline_ns
) {
  const auto says_all = [&](const ReclaimRecord& whole) {
    if (whole.phase != ReclaimPhase::kEvacuating || clearings_.contains(whole.id)) return true;
    return whole.deadline_ns != 0 && whole.deadline_ns <= deadline_ns;
  };
  for (ReclaimRecord& reclaim : journal_.reclaims) {
    const bool is_same = reclaim.gpus == gpus;
    // One GPU that the owner takes must not come back with the contract's window. And one that they
    // want before the rest of the machine is an order of its own: the rest keeps its notice.
    const bool is_contracts = reclaim.id == journal_.announced.reclaim;
    const bool is_covering = reclaim.gpus.empty() && !is_contracts && says_all(reclaim);
    if (is_open(reclaim) && (is_same || is_covering)) return &reclaim;
  }
  return nullptr;
}

bool WardenCore::is_shut(const ReclaimRecord& reclaim) const {
  return is_open(reclaim) &&
         (reclaim.cut_ns != 0 || reclaim.phase == ReclaimPhase::kCut ||
          reclaim.phase == ReclaimPhase::kCleared || reclaim.phase == ReclaimPhase::kWedged ||
          clearings_.contains(reclaim.id));
}

bool WardenCore::is_cut(const GuestRecord& guest) const {
  return std::any_of(
      journal_.reclaims.begin(),
      journal_.reclaims.end(),
      [&](const ReclaimRecord& reclaim) { return is_shut(reclaim) && covers(reclaim, guest.gpus); }
  );
}

void WardenCore::set_gates() {
  SetGates gates;
  gates.is_node_open = is_reconciled_ && std::none_of(
                                             journal_.reclaims.begin(),
                                             journal_.reclaims.end(),
                                             [&](const ReclaimRecord& reclaim) {
                                               return reclaim.gpus.empty() && is_shut(reclaim);
                                             }
                                         );
  for (const GuestRecord& guest : journal_.guests) {
    const bool is_open_to_it =
        guest.phase == GuestPhase::kRunning && !guest.is_condemned && !is_cut(guest);
    if (gates.is_node_open && is_open_to_it) gates.open_slots.push_back(guest.slot);
  }
  effect(std::move(gates));
}

void WardenCore::move_to(ReclaimRecord& reclaim, ReclaimPhase phase) {
  RN_ASSERT(may_follow(reclaim.phase, phase), "a reclaim goes through its phases in order");
  if (reclaim.phase != phase) {
    log::info("reclaim.phase", {{"reclaim", reclaim.id.str()}, {"phase", to_string(phase)}});
  }
  reclaim.phase = phase;
  changed();
}

ReclaimRecord& WardenCore::declare(
    ReclaimKind kind, std::vector<std::uint32_t> gpus, Instant deadline
) {
  ReclaimRecord reclaim;
  reclaim.id = ReclaimId("r-" + rng_.hex(8));
  reclaim.kind = kind;
  reclaim.gpus = std::move(gpus);
  reclaim.boot_id = config_.boot_id;
  reclaim.declared_ns = to_ns(now_.boot);
  reclaim.deadline_ns = to_ns(deadline);
  reclaim.declared_wall_ms = to_ms(now_.wall);
  journal_.reclaims.push_back(std::move(reclaim));
  ReclaimRecord& added = journal_.reclaims.back();
  log::info("reclaim.declared", {{"reclaim", added.id.str()}, {"kind", to_string(added.kind)}});
  move_to(added, ReclaimPhase::kEvacuating);
  return added;
}

namespace {

Status check(const warden_wire::DeclareReclaim& request) {
  if (request.kind == ReclaimKind::kLost)
    return fail(ErrorCode::kInvalid, "a lost node is found by its silence, not declared");
  if (request.kind == ReclaimKind::kAnnounced && seconds(request.in_s) > kMaxAnnounced)
    return fail(ErrorCode::kInvalid, "a reclaim can be announced at most a week ahead");
  if (request.kind == ReclaimKind::kNotice && request.notice_s > kMaxNoticeS)
    return fail(ErrorCode::kInvalid, "notice is at most 15 minutes", "announce it with a time");
  if (request.message.size() > kMaxMessageBytes)
    return fail(ErrorCode::kInvalid, "the message is longer than 1 KiB");
  return warden_wire::check_gpus(request.gpus);
}

std::vector<std::uint32_t> in_order(std::vector<std::uint32_t> gpus) {
  std::sort(gpus.begin(), gpus.end());
  gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
  return gpus;
}

}  // namespace

void WardenCore::ask(const Caller& caller, const warden_wire::DeclareReclaim& request) {
  if (const Status valid = check(request); !valid) return answer(caller, valid);
  nanoseconds in{};
  if (request.kind == ReclaimKind::kNotice) in = seconds(request.notice_s);
  if (request.kind == ReclaimKind::kAnnounced) in = seconds(request.in_s);
  const Instant deadline = now_.boot + in;
  const auto gpus = in_order(request.gpus);
  ReclaimRecord* reclaim = open_reclaim_of(gpus, to_ns(deadline));
  if (reclaim == nullptr) {
    reclaim = &declare(request.kind, gpus, deadline);
    reclaim->message = request.message;
  } else if (reclaim->phase == ReclaimPhase::kEvacuating) {
    // The owner changed their mind: only earlier and stronger, never weaker.
    const bool is_earlier = reclaim->deadline_ns == 0 || to_ns(deadline) < reclaim->deadline_ns;
    if (is_earlier) {
      reclaim->deadline_ns = to_ns(deadline);
      if (request.kind == ReclaimKind::kEmergency) reclaim->kind = ReclaimKind::kEmergency;
      changed();
    }
  }
  hand_to_owner(*reclaim);
  const ReclaimId id = reclaim->id;
  advance(*reclaim);
  warden_wire::Answer reply;
  reply.reclaim = *find(id);
  answer(caller, std::move(reply));
}

/// A guest that has ended is not yet evacuated: its last snapshot and its copies are the agent's to
/// report. One that the agent has had removed has nothing left to move.
bool WardenCore::is_evacuated(const ReclaimRecord& reclaim) const {
  if (may_be_unknown()) return false;  // of whom it would be true is not known yet
  const auto done = evacuated_.find(reclaim.id);
  return std::all_of(journal_.guests.begin(), journal_.guests.end(), [&](const GuestRecord& guest) {
    if (guest.slot == kNoSlot || !covers(reclaim, guest.gpus)) return true;
    return done != evacuated_.end() &&
           std::find(done->second.begin(), done->second.end(), guest.guest) != done->second.end();
  });
}

/// Deadlines, early evacuations, and the repetition of clearings that failed or got no answer.
void WardenCore::advance(ReclaimRecord& reclaim) {
  if (!is_open(reclaim)) return;
  if (const auto clearing = clearings_.find(reclaim.id); clearing != clearings_.end()) {
    if (now_.boot >= clearing->second.repeat_at) clear(reclaim);
    return;
  }
  if (reclaim.phase != ReclaimPhase::kEvacuating || reclaim.deadline_ns == 0) return;
  if (to_ns(now_.boot) >= reclaim.deadline_ns || is_evacuated(reclaim)) clear(reclaim);
}

/// What kept a reclaim from being verified may have gone just now.
void WardenCore::look_again() {
  for (auto& [id, clearing] : clearings_)
    if (!clearing.is_running) clearing.repeat_at = std::min(clearing.repeat_at, now_.boot);
}

void WardenCore::advance_all() {
  fall_due();
  for (ReclaimRecord& reclaim : journal_.reclaims) advance(reclaim);
}

void WardenCore::clear(ReclaimRecord& reclaim) {
  Clearing& clearing = clearings_[reclaim.id];
  clearing.is_running = true;
  clearing.repeat_at = now_.boot + config_.clear_limit;
  Clear order;
  order.reclaim = reclaim.id;
  order.is_whole_node = reclaim.gpus.empty();
  order.gpus = reclaim.gpus;
  for (GuestRecord& guest : journal_.guests) {
    const bool is_meant = covers(reclaim, guest.gpus) || planted("warden.clears_the_neighbours");
    if (guest.slot == kNoSlot || !is_meant) continue;
    guest.is_condemned = true;
    order.guests.push_back(guest);
  }
  changed();
  effect(std::move(order));
}

void WardenCore::on(const WasCut& event) {
  ReclaimRecord* reclaim = find(event.reclaim);
  if (reclaim == nullptr || !is_open(*reclaim)) return;
  if (reclaim->cut_ns == 0) reclaim->cut_ns = event.cut_ns;
  if (reclaim->phase == ReclaimPhase::kEvacuating) move_to(*reclaim, ReclaimPhase::kCut);
  changed();
}

void WardenCore::on(const WasCleared& event) {
  ReclaimRecord* reclaim = find(event.reclaim);
  if (reclaim == nullptr || !clearings_.contains(event.reclaim)) return;
  finish_clear(*reclaim, event.report);
}

void WardenCore::finish_clear(ReclaimRecord& reclaim, const ClearReport& report) {
  if (!is_open(reclaim)) return;
  if (reclaim.phase == ReclaimPhase::kEvacuating) move_to(reclaim, ReclaimPhase::kCut);
  reclaim.processes_killed += report.processes;
  reclaim.killed_ns = later_of(reclaim.killed_ns, report.killed_ns);
  reclaim.remains = report.remains;
  changed();
  if (!report.remains.empty()) {
    if (reclaim.phase != ReclaimPhase::kCleared) move_to(reclaim, ReclaimPhase::kWedged);
    Clearing& clearing = clearings_[reclaim.id];
    clearing.is_running = false;
    clearing.pause = clearing.pause.count() == 0
                         ? config_.retry_clear_min
                         : std::min(clearing.pause * 2, config_.retry_clear_max);
    clearing.repeat_at = now_.boot + clearing.pause;
    log::warning(
        "reclaim.wedged", {{"reclaim", reclaim.id.str()}, {"sees", report.remains.front()}}
    );
    return;
  }
  clearings_.erase(reclaim.id);
  evacuated_.erase(reclaim.id);
  if (reclaim.phase != ReclaimPhase::kCleared) {
    reclaim.cleared_ns = report.cleared_ns;
    move_to(reclaim, ReclaimPhase::kCleared);
  }
  for (GuestRecord& guest : journal_.guests) {
    const bool has_run = guest.phase == GuestPhase::kRunning && guest.is_condemned;
    if (has_run && covers(reclaim, guest.gpus)) set_exited(guest, 137, false);
  }
}

void WardenCore::on(const EmergencyDone& event) {
  std::uint64_t& seen =
      event.is_by_hand ? journal_.hand_emergencies_seen : journal_.emergencies_seen;
  if (event.sequence <= seen) return;
  seen = event.sequence;
  if (!event.is_by_hand) emergency_until_ = {};
  // The owner gave the node back while the order was being carried out. The deed shut the gates
  // after the release had opened them.
  const std::int64_t ordered_ns = event.ordered_ns != 0 ? event.ordered_ns : event.declared_ns;
  const bool is_over = ordered_ns < to_ns(released_at_);
  if (is_over && event.is_cut_only) {
    changed();
    return set_gates();
  }
  ReclaimRecord& reclaim = take_for_owner(event.gpu_mask, event.declared_ns, event.cut_ns);
  if (event.is_cut_only) return set_gates();
  condemn_at_once(reclaim, event.declared_ns);
  if (event.report.killed_ns == 0) return clear(reclaim);  // died between intent and kill
  finish_clear(reclaim, event.report);
  const bool is_its_own = reclaim.declared_ns == event.declared_ns;
  if (is_over && is_its_own && reclaim.phase == ReclaimPhase::kCleared) give_back(reclaim);
  set_gates();
}

/// So that a guest which ends meanwhile is known to be the owner's deed, and nobody is sent here.
/// The kill socket clears; should its answer never come, this core does it again.
void WardenCore::on(const EmergencyBegun& event) {
  ReclaimRecord& reclaim = take_for_owner(event.gpu_mask, event.declared_ns, 0);
  condemn_at_once(reclaim, event.declared_ns);
  Clearing& clearing = clearings_[reclaim.id];
  clearing.is_running = true;
  clearing.repeat_at = now_.boot + config_.clear_limit;
  emergency_until_ = clearing.repeat_at;
  set_gates();
}

void WardenCore::condemn_at_once(ReclaimRecord& reclaim, std::int64_t declared_ns) {
  if (reclaim.phase == ReclaimPhase::kEvacuating) {
    reclaim.kind = ReclaimKind::kEmergency;
    reclaim.deadline_ns = declared_ns;
  }
  for (GuestRecord& guest : journal_.guests) {
    if (guest.slot != kNoSlot && covers(reclaim, guest.gpus)) guest.is_condemned = true;
  }
  changed();
}

/// A cut alone ends nothing: without a deadline the guests are there when it is released. A notice
/// that is running keeps its own, and what it is.
ReclaimRecord& WardenCore::take_for_owner(
    std::uint64_t gpu_mask, std::int64_t declared_ns, std::int64_t cut_ns
) {
  std::vector<std::uint32_t> gpus;
  for (std::uint32_t gpu = 0; gpu < 64; ++gpu) {
    if ((gpu_mask >> gpu) & 1) gpus.push_back(gpu);
  }
  ReclaimRecord* reclaim = open_reclaim_of(gpus, declared_ns);
  if (reclaim == nullptr) {
    reclaim = &declare(ReclaimKind::kEmergency, std::move(gpus), Instant{});
    reclaim->declared_ns = declared_ns;
    reclaim->declared_wall_ms -= (to_ns(now_.boot) - declared_ns) / 1'000'000;
  }
  hand_to_owner(*reclaim);
  if (reclaim->cut_ns == 0) reclaim->cut_ns = cut_ns;
  changed();
  return *reclaim;
}

void WardenCore::ask(const Caller& caller, const warden_wire::EvacuationDone& request) {
  ReclaimRecord* reclaim = find(request.reclaim);
  if (reclaim == nullptr)
    return answer(caller, fail(ErrorCode::kNotFound, "no reclaim " + request.reclaim.str()));
  if (reclaim->phase == ReclaimPhase::kEvacuating) {
    auto& done = evacuated_[reclaim->id];
    for (const GuestName& guest : request.guests) {
      if (find(guest) == nullptr) continue;
      if (std::find(done.begin(), done.end(), guest) == done.end()) done.push_back(guest);
    }
    advance(*reclaim);
  }
  answer(caller, Status());
}

void WardenCore::ask(const Caller& caller, const warden_wire::Release& request) {
  if (const Status valid = warden_wire::check_gpus(request.gpus); !valid)
    return answer(caller, valid);
  const auto gpus = in_order(request.gpus);
  const auto is_meant = [&](const ReclaimRecord& reclaim) {
    if (!is_open(reclaim)) return false;
    return gpus.empty() ||
           (!reclaim.gpus.empty() &&
            std::includes(gpus.begin(), gpus.end(), reclaim.gpus.begin(), reclaim.gpus.end()));
  };
  const auto is_being_cleared = [&](const ReclaimRecord& reclaim) {
    const auto clearing = clearings_.find(reclaim.id);
    const bool is_clearing = reclaim.phase != ReclaimPhase::kWedged &&
                             clearing != clearings_.end() && clearing->second.is_running;
    return is_meant(reclaim) && (is_clearing || reclaim.phase == ReclaimPhase::kCut);
  };
  auto& all = journal_.reclaims;
  // In an emergency also when another order has ended the same reclaim: this one's end would take
  // it back again.
  if (now_.boot < emergency_until_ || std::any_of(all.begin(), all.end(), is_being_cleared))
    return answer(caller, being_cleared());
  warden_wire::Answer reply;
  for (ReclaimRecord& reclaim : all) {
    if (!is_meant(reclaim)) continue;
    give_back(reclaim);
    reply.reclaim = reclaim;
  }
  if (gpus.empty()) released_at_ = now_.boot;
  drop_old_reclaims();
  advance_all();  // what the contract takes back may have waited behind the owner's reclaim
  set_gates();
  answer(caller, std::move(reply));
}

void WardenCore::give_back(ReclaimRecord& reclaim) {
  clearings_.erase(reclaim.id);
  evacuated_.erase(reclaim.id);
  reclaim.returned_ns = to_ns(now_.boot);
  move_to(reclaim, ReclaimPhase::kReturned);
  if (reclaim.id == journal_.announced.reclaim) journal_.announced = {};
  std::erase_if(journal_.announced_gpus, [&](const auto& held) {
    return held.reclaim == reclaim.id;
  });
}

/// What was seen of guests is the owner's to judge: only what is clean goes back by itself.
void WardenCore::give_back_if_clean(const Caller& caller, ReclaimRecord& reclaim) {
  if (clearings_.contains(reclaim.id) || reclaim.phase == ReclaimPhase::kCut ||
      reclaim.phase == ReclaimPhase::kWedged)
    return answer(caller, being_cleared());
  give_back(reclaim);
  drop_old_reclaims();
  set_gates();
  answer(caller, Status());
}

void WardenCore::drop_old_reclaims() {
  auto& all = journal_.reclaims;
  auto returned = static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [](const auto& r) {
    return !is_open(r);
  }));
  for (auto it = all.begin(); it != all.end() && returned > kKeptReclaims;) {
    if (is_open(*it)) {
      ++it;
      continue;
    }
    it = all.erase(it);
    --returned;
  }
}

}  // namespace rn::warden
