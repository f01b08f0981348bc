// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/core_state.h"
#include "base/log.h"
#include "base/planted.h"

namespace rn::agent {

namespace {

constexpr seconds kRemainsPatience{30};  // of a node that leaves, with what ended guests leave

}  // namespace

bool Core::State::covers(const ReclaimRecord& record, const Attempt& a) const {
  if (record.gpus.empty()) return true;
  return std::any_of(record.gpus.begin(), record.gpus.end(), [&](std::uint32_t gpu) {
    const auto& own = a.row.grant.gpus;
    return std::find(own.begin(), own.end(), gpu) != own.end();
  });
}

void Core::State::write_reclaim(const ReclaimRow& row) {
  reclaim_sent_at_.erase(row.record.id);  // what changed is told at once
  out_.writes.push_back({"reclaim/" + row.record.id.str(), encode_row(row)});
}

void Core::State::on_reclaims(const std::vector<ReclaimRecord>& records) {
  std::vector<ReclaimId> changed;
  for (ReclaimRecord record : records) {
    record.node = config_.node;
    const auto known = reclaims_.find(record.id);
    const bool is_over = record.phase == ReclaimPhase::kReturned;  // whose it was is told no more
    const bool is_own =
        is_over ? known != reclaims_.end() && known->second.is_own : is_announced(record.id);
    if (known != reclaims_.end() && known->second.record == record &&
        known->second.is_own == is_own)
      continue;
    ReclaimRow& row = reclaims_[record.id];
    row.is_own = is_own;
    const bool is_new_phase = row.record.id.empty() || row.record.phase != record.phase;
    row.record = record;
    write_reclaim(row);
    if (is_new_phase)
      log::info(
          "reclaim.phase",
          {{"reclaim", record.id.str()},
           {"kind", std::string(to_string(record.kind))},
           {"phase", std::string(to_string(record.phase))}}
      );
    changed.push_back(record.id);
  }
  for (const ReclaimId& id : changed) {
    const ReclaimRecord& record = reclaims_.at(id).record;
    if (record.phase == ReclaimPhase::kReturned) apply_reclaim(record);
  }
  // What one gives back another may still take, and a guest may have come since it was declared.
  for (const ReclaimRecord& record : records) {
    if (record.phase != ReclaimPhase::kReturned) apply_reclaim(reclaims_.at(record.id).record);
  }
  // What the coordinator knows to its end and the warden has forgotten is history.
  std::erase_if(reclaims_, [&](const auto& entry) {
    const ReclaimRow& row = entry.second;
    const bool is_known = row.is_acked && row.acked == ReclaimPhase::kReturned &&
                          row.record.phase == ReclaimPhase::kReturned;
    return is_known &&
           std::none_of(records.begin(), records.end(), [&](const ReclaimRecord& record) {
             return record.id == entry.first;
           });
  });
}

void Core::State::apply_reclaim(const ReclaimRecord& record) {
  for (auto& [name, a] : attempts_) {
    if (!covers(record, a)) continue;
    switch (record.phase) {
      case ReclaimPhase::kDeclared:
      case ReclaimPhase::kEvacuating:
        if (record.kind == ReclaimKind::kEmergency) {
          drop_cut(a);
        } else {
          leave_by(a, record);
        }
        break;
      case ReclaimPhase::kCut:
      case ReclaimPhase::kCleared:
      case ReclaimPhase::kWedged:
        drop_cut(a);
        break;
      case ReclaimPhase::kReturned:
        if (record.cut_ns == 0 && record.killed_ns == 0) withdraw_stop(a, record.id);
        break;
    }
  }
}

/// The warden cuts and clears: whatever of ours looks into the guest's disk lets go. Generations in
/// the own store still go out.
void Core::State::drop_cut(Attempt& a) {
  if (a.row.phase == Phase::kEnded) return;
  a.put_off.reset();
  if (a.row.phase < Phase::kStarting) {
    order_stop(a, StopOrder{AttemptEnd::kReclaimed, 0, "the owner took the node back", {}, 0});
    return;
  }
  if (!a.row.is_disk_gone) {
    a.row.is_disk_gone = true;
    a.is_dirty = true;
  }
  drop_disk_users(a);
  if (a.row.phase == Phase::kStarting)
    order_stop(a, StopOrder{AttemptEnd::kReclaimed, 0, "the owner took the node back", {}, 0});
}

/// Repeated until the coordinator has acknowledged the phase that the record is in.
void Core::State::report_reclaims() {
  if (!is_welcome_) return;
  for (const auto& [id, row] : reclaims_) {
    if (row.is_acked && row.acked == row.record.phase) continue;
    const auto sent = reclaim_sent_at_.find(id);
    if (sent != reclaim_sent_at_.end() && !is_due(sent->second)) continue;
    reclaim_sent_at_[id] = now_.boot;
    send(wire::ReclaimReport{row.record});
  }
}

/// Nothing of it is left to move: its last snapshot is taken, copies of it are held elsewhere (or
/// given up, step_draining()), its outputs are with the coordinator, its log is in the spool.
bool Core::State::is_evacuated(const Attempt& a) const {
  if (a.row.is_fenced) return !has_guest(a.row.phase);
  if (a.row.phase == Phase::kEnded) return true;
  if (a.row.phase < Phase::kDraining) return false;
  if (a.row.started_ns != 0 && !a.log.is_final_spooled) return false;
  if (a.row.phase == Phase::kPublishing) return a.row.has_outputs;
  if (a.row.phase != Phase::kDraining || a.row.generations.empty()) return true;
  if (planted("agent.evacuates_before_copies")) return true;
  using reclaim::SnapshotAnswer;
  const bool has_waited = a.schedule.answer == SnapshotAnswer::kNotDue;
  if (has_waited && planted("agent.takes_a_wait_for_a_copy")) return true;
  const GenerationRow& last = a.row.generations.back();
  return last.is_committed || last.is_refused ||
         last.receipts.size() >= std::max<std::size_t>(a.row.plan.wanted, 1);
}

/// The owner need not wait for the deadline once everything is elsewhere. What is not elsewhere by
/// then goes on from the own store after the cut, under the contract's cap.
void Core::State::step_evacuations() {
  if (!is_reconciled_) return;
  for (const auto& [id, row] : reclaims_) {
    const ReclaimRecord& record = row.record;
    const bool is_open =
        record.phase == ReclaimPhase::kDeclared || record.phase == ReclaimPhase::kEvacuating;
    if (!is_open || record.kind == ReclaimKind::kEmergency) continue;
    const auto sent = evacuated_sent_at_.find(id);
    if (sent != evacuated_sent_at_.end() && !is_due(sent->second)) continue;
    std::vector<GuestName> guests;
    bool is_done = true;
    for (const auto& [name, a] : attempts_) {
      if (!covers(record, a)) continue;
      guests.push_back(name);
      is_done = is_done && is_evacuated(a);
    }
    if (!is_done) continue;
    evacuated_sent_at_[id] = now_.boot;
    ask_node(Ask::kEvacuated, warden_wire::EvacuationDone{id, std::move(guests)}, id);
  }
}

void Core::State::refresh_conditions() {
  arbiter::Conditions c;
  c.utc_offset_s = utc_offset_s_;
  c.is_paused = warden_.is_paused;
  for (const auto& paused : warden_.paused_gpus) c.paused_gpus.push_back(paused.gpu);
  c.gpu_windows = gpu_windows();
  std::int64_t returned_ns = 0;
  bool is_taken_now = false;
  for (const auto& [id, row] : reclaims_) {
    const ReclaimRecord& record = row.record;
    // One GPU that the contract takes is taken; that it is lent again closes nothing.
    if (row.is_own && (record.gpus.empty() || record.phase == ReclaimPhase::kReturned)) continue;
    if (record.phase == ReclaimPhase::kReturned) {
      if (record.boot_id == config_.boot_id)
        returned_ns = std::max(returned_ns, record.returned_ns);
      continue;
    }
    if (record.gpus.empty()) {
      c.is_reclaimed = true;
      is_taken_now =
          is_taken_now || record.kind == ReclaimKind::kEmergency ||
          (record.phase != ReclaimPhase::kDeclared && record.phase != ReclaimPhase::kEvacuating);
    } else {
      c.reclaimed_gpus.insert(c.reclaimed_gpus.end(), record.gpus.begin(), record.gpus.end());
    }
  }
  c.is_taken_later = c.is_reclaimed && !is_taken_now;
  if (returned_ns > 0)
    c.closed_until = instant_from_ns(returned_ns) + seconds(contract_.min_free_s);
  c.is_owner_present = telemetry_at_ && contract_.idle.idle_minutes != 0 &&
                       idle_s_ < std::uint64_t{contract_.idle.idle_minutes} * 60;
  c.is_draining = node_.is_leaving;
  c.taken_because = taken_because();
  // A driver that hangs stops the measuring: who sits at the machine, and which GPU is the owner's
  // own, is not known then.
  const nanoseconds unmeasured = telemetry_at_ ? now_.boot - *telemetry_at_ : nanoseconds(0);
  const bool is_measured = telemetry_at_ && unmeasured < config_.telemetry_trusted;
  c.is_able = !wait_ && is_warden_connected_ && is_reconciled_ && !warden_.is_recovering &&
              warden_.is_engine_up && is_measured;
  if (wait_) {
    c.unable_because = room_words();
  } else if (!is_warden_connected_ || !is_reconciled_) {
    c.unable_because = "the warden does not answer";
  } else if (!warden_.is_engine_up) {
    c.unable_because = engine_words();
  } else if (warden_.is_recovering) {
    c.unable_because = "the warden is still looking what runs on the machine";
  } else if (!telemetry_at_) {
    c.unable_because = "the agent has not measured the machine yet";
  } else {
    c.unable_because = "the machine could not be measured for " +
                       std::to_string(unmeasured / seconds(1)) +
                       " s (a GPU driver that hangs?); next: nvidia-smi, then restart the agent";
  }
  c.disk_free_mib = telemetry_.disk_free_mib;
  c.gpus = telemetry_.gpus;
  for (const GpuTelemetry& seen : warden_.gpus) {
    const auto own = std::find_if(c.gpus.begin(), c.gpus.end(), [&](const GpuTelemetry& gpu) {
      return gpu.index == seen.index;
    });
    if (own == c.gpus.end()) {
      c.gpus.push_back(seen);
    } else {
      own->is_wedged = own->is_wedged || seen.is_wedged;
    }
  }
  telemetry_.gpus = c.gpus;
  arbiter_.set_conditions(std::move(c));
}

/// What is left of ended guests (containers of an engine that hangs, disks) has some time to go;
/// then `reclaim-warden leave` takes it away, and nobody waits for it.
bool Core::State::are_guests_gone() {
  const bool are_over = std::all_of(attempts_.begin(), attempts_.end(), [this](const auto& entry) {
    const AttemptRow& row = entry.second.row;
    return row.phase == Phase::kEnded && (row.events.empty() || row.is_fenced || is_disowned_);
  });
  if (!are_over || attempts_.empty()) {
    only_remains_since_.reset();
    return are_over;
  }
  if (!only_remains_since_) only_remains_since_ = now_.boot;
  return now_.boot - *only_remains_since_ >= kRemainsPatience;
}

void Core::State::step_leaving() {
  // Of a node that died after its goodbye the coordinator wants to hear no more: it has left.
  if (!node_.is_leaving || !are_guests_gone() || !(is_welcome_ || is_disowned_)) return;
  // The warden is not left with guests that it has yet to look for.
  const auto own = reclaims_.find(warden_.announced.reclaim);
  const bool is_clearing = own != reclaims_.end() &&
                           own->second.record.phase != ReclaimPhase::kCleared &&
                           own->second.record.phase != ReclaimPhase::kWedged;
  if (is_clearing) return;
  const bool are_reported = std::all_of(reclaims_.begin(), reclaims_.end(), [](const auto& entry) {
    return entry.second.is_acked && entry.second.acked == entry.second.record.phase;
  });
  if (!are_reported && !is_disowned_) return;
  for (const auto& [name, a] : attempts_)
    log::warning(
        "node.leaves_remains", {{"job", name.job.str()}, {"next", "reclaim-warden leave"}}
    );
  if (!is_disowned_) send(wire::Leave{node_.leave_reason});
  out_.effects.emplace_back(LeftForGood{is_disowned_});
  is_left_ = true;
}

}  // namespace rn::agent
