// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/core_state.h"
#include "base/log.h"

namespace rn::agent {

namespace {

constexpr std::uint32_t kLogFailuresMax = 5;
constexpr std::size_t kLeftOutBytesMax = 2000;

/// Short or local works don't wait behind transfers.
bool is_light(Task task) {
  return task == Task::kLog || task == Task::kForget || task == Task::kGarbage ||
         task == Task::kHoldings;
}

}  // namespace

bool is_for_good_here(const Error& error) {
  return !is_retryable(error.code) || error.code == ErrorCode::kExhausted;
}

void Core::State::step_log(Attempt& a) {
  LogState& log = a.log;
  if (a.row.is_fenced || log.is_done || a.row.started_ns == 0) return;
  if (a.row.phase < Phase::kRunning || a.row.phase == Phase::kEnded) return;
  if (log.in_flight && is_due(log.sent_at)) log.in_flight.reset();
  if (!may_work(a, Task::kLog)) return;
  const bool is_guest_gone = a.row.phase >= Phase::kSaving;
  const bool can_send = is_welcome_ && !log.in_flight;
  const bool has_more = can_send && log.acked < log.spooled;
  const bool is_last = is_guest_gone && !log.is_final_spooled;
  const bool is_time = !is_guest_gone && now_.boot - log.looked_at >= config_.log_interval;
  if (!has_more && !is_last && !is_time) return;
  log.looked_at = now_.boot;
  log.is_final_asked = is_guest_gone;
  work(
      a,
      Task::kLog,
      ReadLog{
          a.row
              .disk,  // after a cut, too: the clearing leaves the disk mounted until it is released
          log.acked,
          can_send ? config_.log_append_bytes : 0,
          !a.commit.spec.checkpoint.tell_hook.empty()}
  );
}

void Core::State::on_log(Attempt& a, const WorkResult& result) {
  LogState& log = a.log;
  const auto* const read = std::get_if<LogRead>(&result);
  if (read == nullptr) {
    retry_work(a, Task::kLog);
    if (a.row.phase >= Phase::kSaving && ++a.log_failures >= kLogFailuresMax)
      log.is_done = log.is_final_spooled = true;
    return;
  }
  a.log_failures = 0;
  if (read->hook) hear_hook(a, *read->hook);
  log.spooled = read->spooled_bytes;
  if (log.is_final_asked) log.is_final_spooled = true;
  if (read->bytes.empty() || read->offset != log.acked || log.in_flight || !is_welcome_) return;
  log.in_flight = read->offset + read->bytes.size();
  log.sent_at = now_.boot;
  send(wire::LogAppend{a.name.job, a.name.epoch, read->offset, read->bytes});
}

bool Core::State::is_log_done(const Attempt& a) const {
  if (a.row.is_fenced || a.log.is_done || a.row.started_ns == 0) return true;
  return a.log.is_final_spooled && a.log.acked >= a.log.spooled;
}

// ---- works

bool Core::State::may_work(const Attempt& a, Task task) const {
  if (a.works.contains(task)) return false;
  const auto after = a.work_after.find(task);
  return after == a.work_after.end() || now_.boot >= after->second;
}

void Core::State::retry_work(Attempt& a, Task task) {
  a.work_after[task] = now_.boot + config_.repeat;
}

WorkId Core::State::work(
    Attempt& a, Task task, WorkBody body, NodeId peer, std::uint32_t generation
) {
  const WorkId id = next_work_++;
  if (task != Task::kCopy) a.works[task] = id;
  works_[id] = PendingWork{a.name, task, std::move(peer), generation, false};
  queue_.push_back(Work{id, a.name, std::move(body)});
  return id;
}

void Core::State::work_node(Task task, GuestName guest, WorkBody body) {
  const WorkId id = next_work_++;
  works_[id] = PendingWork{guest, task, {}, 0, false};
  queue_.push_back(Work{id, std::move(guest), std::move(body)});
}

/// Light works start at once. Of the others, those of attempts that are being evacuated come first,
/// then the oldest; copies have an own, smaller bound. The queue is bounded by attempts times
/// tasks.
void Core::State::pump_works() {
  std::size_t running = 0;
  std::size_t copying = 0;
  for (const auto& [id, pending] : works_) {
    if (!pending.is_started || is_light(pending.task)) continue;
    ++running;
    if (pending.task == Task::kCopy) ++copying;
  }
  const auto is_urgent = [&](const Work& w) {
    const auto found = attempts_.find(w.guest);
    return found != attempts_.end() && found->second.row.phase >= Phase::kNoticed;
  };
  std::stable_partition(queue_.begin(), queue_.end(), is_urgent);
  for (auto it = queue_.begin(); it != queue_.end();) {
    PendingWork& pending = works_.at(it->id);
    const bool is_copy = pending.task == Task::kCopy;
    const bool has_room = is_light(pending.task) || (running < config_.works_max &&
                                                     (!is_copy || copying < config_.copies_max));
    if (!has_room) {
      ++it;
      continue;
    }
    if (!is_light(pending.task)) ++running;
    if (is_copy) ++copying;
    pending.is_started = true;
    pending.started_at = now_.boot;
    out_.effects.emplace_back(StartWork{std::move(*it)});
    it = queue_.erase(it);
  }
}

void Core::State::cancel_work(WorkId id) {
  const auto found = works_.find(id);
  if (found == works_.end()) return;
  if (found->second.is_started) {
    out_.effects.emplace_back(CancelWork{id});
  } else {
    std::erase_if(queue_, [&](const Work& w) { return w.id == id; });
  }
  works_.erase(found);
}

void Core::State::cancel_works(Attempt& a, bool also_copies) {
  for (const auto& [task, id] : a.works) cancel_work(id);
  a.works.clear();
  if (!also_copies) return;
  for (const auto& [peer, id] : a.copies) cancel_work(id);
  a.copies.clear();
}

void Core::State::on(const WorkDone& e) {
  const auto found = works_.find(e.id);
  if (found == works_.end()) return;  // cancelled
  const PendingWork pending = found->second;
  works_.erase(found);
  if (pending.task == Task::kHoldings) return send_holdings(e.result);
  const auto attempt = attempts_.find(pending.guest);
  if (attempt == attempts_.end() || pending.task == Task::kForget || pending.task == Task::kGarbage)
    return;
  if (pending.task != Task::kCopy) attempt->second.works.erase(pending.task);
  on_work(attempt->second, pending, e.result);
}

void Core::State::on_work(Attempt& a, const PendingWork& pending, const WorkResult& result) {
  const auto* const error = std::get_if<Error>(&result);
  switch (pending.task) {
    case Task::kFetch:
      if (a.row.phase != Phase::kFetching) return;
      if (const auto* fetched = std::get_if<ImageFetched>(&result)) {
        set_phase(a, Phase::kLoading);
        ask(a,
            Ask::kLoad,
            warden_wire::LoadImage{
                a.commit.image_digest, fetched->archive_path, a.commit.image_layers});
      } else if (error != nullptr && is_for_good_here(*error)) {
        order_stop(a, StopOrder{AttemptEnd::kRefused, 0, "image: " + error->message, {}, 0});
      } else {
        retry_work(a, Task::kFetch);
      }
      return;
    case Task::kPrepare:
      if (a.row.phase == Phase::kRestoring) on_prepared(a, result);
      return;
    case Task::kSnapshot:
      on_snapshot(a, result);
      return;
    case Task::kUpload:
      if (const auto* uploaded = std::get_if<OutputsUploaded>(&result)) {
        a.row.outputs = uploaded->listing;
        a.row.has_outputs = true;
        a.upload_trouble.clear();
        if (!uploaded->left_out.empty())
          a.row.detail += (a.row.detail.empty() ? "" : "; ") +
                          ("not brought home: " + readable(uploaded->left_out, kLeftOutBytesMax));
        a.is_dirty = true;
      } else if (error != nullptr && !is_retryable(error->code) && !a.row.is_disk_gone) {
        decide_end(a, AttemptEnd::kCrashed, "outputs could not be brought home: " + error->message);
        set_phase(a, Phase::kClosing);
      } else {
        if (error != nullptr) note_failed_upload(a, *error);
        retry_work(a, Task::kUpload);
      }
      return;
    case Task::kLog:
      on_log(a, result);
      return;
    case Task::kCopy:
      on_copied(a, pending, result);
      return;
    case Task::kForget:
    case Task::kGarbage:
    case Task::kHoldings:
      return;
  }
}

}  // namespace rn::agent
