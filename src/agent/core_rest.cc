// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/core_state.h"

namespace rn::agent {

/// Something that a tick repeats, gives up or goes on with.
bool Core::State::has_work_to_do() const {
  const bool has_claims =
      has_edge() && (!claims_ || !claims_->transfers.empty() || !claims_refusal_.empty());
  return !attempts_.empty() || !works_.empty() || !queue_.empty() || !asks_.empty() ||
         !fetches_.empty() || !told_transfers_.empty() || has_claims || announce_sent_ ||
         has_open_orders() || proposal_ || !edit_in_use_.empty() || node_.is_leaving;
}

/// None waits for an answer or for its time.
bool Core::State::are_reclaims_told(Now now) const {
  if (warden_.announced.deadline_ns != 0 || announcement_.deadline_ns != 0) return false;
  if (!warden_.announced_gpus.empty()) return false;
  return std::all_of(reclaims_.begin(), reclaims_.end(), [&](const auto& entry) {
    const ReclaimRow& row = entry.second;
    const ReclaimRecord& record = row.record;
    const bool is_open =
        record.phase == ReclaimPhase::kDeclared || record.phase == ReclaimPhase::kEvacuating;
    const bool is_closing =
        record.phase == ReclaimPhase::kReturned && record.boot_id == config_.boot_id &&
        now.boot < instant_from_ns(record.returned_ns) + seconds(contract_.min_free_s);
    return row.is_acked && row.acked == record.phase && !is_open && !is_closing;
  });
}

bool Core::State::rests(Now now) const {
  const bool is_served = is_started_ && !is_left_ && !wait_ && is_welcome_ &&
                         is_warden_connected_ && is_reconciled_ && warden_.is_engine_up &&
                         !warden_.is_recovering && telemetry_at_;
  if (!is_served || has_work_to_do() || !are_reclaims_told(now)) return false;
  const bool is_timeless = calendar_ && !calendar_->change && contract_.gpu_windows.empty() &&
                           contract_.idle.idle_minutes == 0 && arbiter_.holds(now) == 0;
  return is_timeless && arbiter_.lending(now) == told_lending_;
}

void Core::State::on(const NothingHappened& e) {
  if (telemetry_at_) telemetry_at_ = std::max(*telemetry_at_, e.measured_at);
  if (e.beats == 0) return;
  heartbeat_seq_ += e.beats;
  heartbeat_at_ = e.beat_at;
  heard_at_ = e.heard_at;
  note_beat();
}

}  // namespace rn::agent
