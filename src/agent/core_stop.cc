// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/core_state.h"
#include "base/log.h"
#include "base/planted.h"
#include "model/suspicion.h"

namespace rn::agent {

namespace {

constexpr nanoseconds kMarginMax = seconds(2);  // before a deadline: kill and last snapshot
/// With a tick, half a second: who does not know of the notice would only compute what is lost.
constexpr milliseconds kStopAfterSaveBegan{400};
constexpr std::int32_t kExitBySignal = 128;
constexpr std::int32_t kExitCheckpointed = 85;  // "checkpoint written, restart me"
constexpr std::int32_t kExitResubmit = 99;
constexpr std::int32_t kExitTemporary = 75;

bool asks_for_restart(std::int32_t exit_code) {
  return exit_code == kExitCheckpointed || exit_code == kExitResubmit ||
         exit_code == kExitTemporary;
}

/// It crashed by itself soon after a resume and had saved nothing: what it resumed from may have
/// been useless already, and so may what it left behind (ADR 0005). As a generation that would
/// stand between the job and the one before.
bool has_crashed_at_once(const Attempt& a, Instant now) {
  if (a.row.end != AttemptEnd::kCrashed || a.row.restored.generation == 0) return false;
  if (!a.row.generations.empty() || a.put_off) return false;
  return to_ns(now) - a.row.started_ns < nanoseconds(seconds(kCrashAfterResumeS)).count();
}

}  // namespace

/// The earliest deadline wins, and what comes at once wins over everything; an order for an attempt
/// whose processes are gone already is void.
void Core::State::order_stop(Attempt& a, StopOrder order) {
  if (a.row.is_fenced || a.row.phase >= Phase::kStopping) return;
  StopOrder& stop = a.row.stop;
  const bool is_first = stop.end == AttemptEnd::kNone;
  const bool is_at_once = order.deadline_ns == 0;
  if (!is_first && !is_at_once && order.deadline_ns >= stop.deadline_ns) return;
  if (!is_at_once) {
    const std::int64_t left = order.deadline_ns - to_ns(now_.boot);
    order.kill_ns = order.deadline_ns - std::clamp<std::int64_t>(left / 5, 0, kMarginMax.count());
  }
  log::info(
      "attempt.stop_ordered",
      {{"job", a.name.job.str()},
       {"end", std::string(to_string(order.end))},
       {"in_ms", is_at_once ? 0 : (order.deadline_ns - to_ns(now_.boot)) / 1'000'000},
       {"reason", order.reason}}
  );
  stop = std::move(order);
  a.is_dirty = true;
  a.is_saved_in_time = a.is_gang_saved = false;
  if (const auto off = std::exchange(a.put_off, std::nullopt))
    order_stop(a, off->order);  // its deadline may be the earlier one
  if (a.row.phase >= Phase::kStopping) return;
  if (a.row.phase < Phase::kStarting) {
    cancel_works(a, true);
    decide_end(a, stop.end, stop.reason);
    set_phase(a, Phase::kClosing);
    return;
  }
  // What another member of its gang saves may need it to the end, whatever it has itself.
  const bool cannot_save =
      a.row.phase == Phase::kStarting || (a.commit.spec.checkpoint.is_stateless && !a.commit.gang);
  if (is_at_once || cannot_save) {
    set_phase(a, Phase::kStopping);
    return;
  }
  if (a.row.phase == Phase::kRunning) {
    const CheckpointSpec& spec = a.commit.spec.checkpoint;
    a.row.is_signalled = spec.signal == SaveSignal::kNone && !is_told_by_word(spec);
    a.row.signalled = 0;
    a.row.signals_in_doubt = 0;
    a.is_safe_after_notice = false;
    a.noticed_at = now_.boot;
    set_phase(a, Phase::kNoticed);
  }
  a.is_notice_due = true;
}

/// The owner gave the node back before the deadline: who was not stopped yet runs on.
void Core::State::withdraw_stop(Attempt& a, const ReclaimId& reclaim) {
  if (a.put_off && a.put_off->order.reclaim == reclaim) a.put_off.reset();
  if (a.row.phase != Phase::kNoticed || a.row.stop.reclaim != reclaim) return;
  const bool may_leave = a.row.signalled + a.row.signals_in_doubt > 0;
  if (may_leave && !saves_when_told(a.commit.spec.checkpoint))
    a.row.told_until_ns = a.row.stop.deadline_ns;
  a.row.stop = {};
  a.is_notice_due = true;
  set_phase(a, Phase::kRunning);
}

/// What the guest reads is what holds: the newest order, or none. It is told once, and again where
/// the warden may not have written it.
void Core::State::tell_notice(Attempt& a) {
  if (!a.is_notice_due) return;
  const bool is_free = !is_asking(a, Ask::kNotice);  // else what is written now comes after it
  const bool is_noticed = a.row.phase == Phase::kNoticed;
  if (is_free)
    ask(a,
        Ask::kNotice,
        is_noticed ? notice(a.name, a.row.stop) : warden_wire::WriteNotice{a.name, 0, 0, ""});
  a.is_notice_due = !is_free || !is_asking(a, Ask::kNotice);
}

StopOrder Core::State::stop_order(const ReclaimRecord& record) const {
  return StopOrder{
      AttemptEnd::kReclaimed,
      std::max<std::int64_t>(record.deadline_ns, 1),
      record.message.empty() ? "the owner takes the node back" : record.message,
      record.id,
      0};
}

warden_wire::WriteNotice Core::State::notice(const GuestName& guest, const StopOrder& stop) const {
  const std::int64_t left_ms = (stop.deadline_ns - to_ns(now_.boot)) / 1'000'000;
  return warden_wire::WriteNotice{
      guest,
      to_ms(now_.wall) + left_ms,
      static_cast<std::uint32_t>(std::max<std::int64_t>(left_ms / 1000, 0)),
      stop.reason};
}

/// It would wait here for as long as the owner likes.
void Core::State::hand_back(Attempt& a) {
  if (a.row.phase > Phase::kStarting) return;
  order_stop(
      a,
      StopOrder{AttemptEnd::kReclaimed, 0, "the owner paused lending before it had started", {}, 0}
  );
}

/// The epoch is stale: nothing of it may have an effect any more.
void Core::State::fence(Attempt& a, const std::string& why) {
  if (a.row.is_fenced) return;
  log::warning(
      "attempt.fenced",
      {{"job", a.name.job.str()}, {"epoch", to_string(a.name.epoch)}, {"why", why}}
  );
  a.row.is_fenced = true;
  a.row.events.clear();
  a.row.stop = StopOrder{AttemptEnd::kFenced, 0, why, {}, 0};
  a.is_dirty = true;
  cancel_works(a, true);
  drop_disk_users(a);
  decide_end(a, AttemptEnd::kFenced, why);
  if (has_guest(a.row.phase)) {
    set_phase(a, Phase::kStopping);
    return;
  }
  if (a.row.phase != Phase::kEnded) end(a);
}

bool Core::State::ends_as_orphan(Attempt& a) {
  const std::uint32_t orphan_s = std::min(contract_.orphan_limit_s, a.commit.spec.orphan_limit_s);
  if (now_.boot - a.renewed_at < seconds(orphan_s)) return false;
  order_stop(
      a,
      StopOrder{
          AttemptEnd::kLost,
          0,
          "the coordinator was away for " + std::to_string(orphan_s) + " s (orphan limit)",
          {},
          0}
  );
  return true;
}

void Core::State::step_running(Attempt& a) {
  step_stay(a);
  if (a.row.phase != Phase::kRunning) return;
  tell_notice(a);
  if (ends_as_orphan(a)) return;
  const std::uint32_t longest_s = a.commit.spec.max_duration_s;
  if (longest_s != 0 &&
      to_ns(now_.boot) - a.row.started_ns >= nanoseconds(seconds(longest_s)).count()) {
    order_stop(
        a,
        StopOrder{
            AttemptEnd::kTimedOut,
            0,
            "ran longer than its max_duration_s of " + std::to_string(longest_s),
            {},
            0}
    );
  }
}

/// Its next complete generation is safe, or, of who would only compute what is lost (no process
/// catches a signal, or the job says that it goes on after a save), on its way: the files lie
/// there, and the snapshot goes on without the guest. A member of a gang stays, with whatever it
/// has saved itself, until all that save have: others may still need it for that.
bool Core::State::has_saved_enough(const Attempt& a) const {
  if (a.commit.gang) return a.is_gang_saved || planted("agent.leaves_first");
  if (a.is_safe_after_notice) return true;
  const bool is_deaf = a.row.is_signalled && a.row.signalled == 0;
  if (is_deaf && a.is_saved_in_time) return true;
  const bool goes_on = is_deaf || saves_when_told(a.commit.spec.checkpoint);
  return goes_on && a.works.contains(Task::kSnapshot) && a.is_snapshot_after_notice &&
         a.snapshot_at && now_.boot - *a.snapshot_at >= kStopAfterSaveBegan;
}

void Core::State::step_noticed(Attempt& a) {
  const StopOrder& stop = a.row.stop;
  const std::int64_t now_ns = to_ns(now_.boot);
  if (now_ns >= stop.kill_ns || has_saved_enough(a)) {
    set_phase(a, Phase::kStopping);
    ask(a, Ask::kKill, warden_wire::KillGuest{a.name});
    return;
  }
  tell_notice(a);
  if (a.row.is_signalled || is_asking(a, Ask::kSignal)) return;
  ask(a, Ask::kSignal, save_request(a));
  if (!is_asking(a, Ask::kSignal)) return;  // later
  ++a.row.signals_in_doubt;
  a.is_dirty = true;
}

/// No process of the guest is left. What that means depends on who wanted it.
void Core::State::on_gone(Attempt& a, std::optional<std::int32_t> exit_code, bool is_oom_killed) {
  if (!has_guest(a.row.phase)) return;
  const Phase before = a.row.phase;
  if (a.is_watching) {
    out_.effects.emplace_back(StopWatch{a.name});
    a.is_watching = false;
  }
  if (a.row.is_fenced) {
    end(a);
    return;
  }
  a.row.exit_code = exit_code.value_or(0);
  a.has_left = exit_code && *exit_code < kExitBySignal;
  a.gone_at = now_.wall;
  a.is_dirty = true;
  const StopOrder& stop = a.row.stop;
  const ReclaimRecord* const cut = cutting_reclaim(a);
  const bool was_told_before = to_ns(now_.boot) < a.row.told_until_ns;
  const bool may_be_signalled =
      a.row.signals_in_doubt > 0 && !planted("agent.forgets_whom_it_signalled");
  const bool was_asked_to_leave =
      a.row.signalled > 0 || may_be_signalled || a.was_told_in_wait || was_told_before;
  const bool was_ordered = before == Phase::kNoticed || before == Phase::kStopping;
  if (cut != nullptr && (!was_ordered || stop.end == AttemptEnd::kReclaimed)) {
    a.row.is_disk_gone = true;
    drop_disk_users(a);
    decide_end(
        a, AttemptEnd::kReclaimed, "cut by a reclaim (" + std::string(to_string(cut->kind)) + ")"
    );
  } else if (before == Phase::kStopping) {
    decide_end(a, stop.end, stop.reason);
  } else if (before == Phase::kNoticed && !(exit_code == 0 && !was_asked_to_leave)) {
    // A guest that was signalled and left did so because of us, with whatever code: it goes on from
    // its newest generation. A job that was really finished finishes again, from there.
    decide_end(a, stop.end, stop.reason);
  } else if (exit_code && (a.was_told_in_wait || was_told_before)) {
    decide_end(a, AttemptEnd::kReclaimed, "left at a notice that was withdrawn");
  } else if (!exit_code) {
    decide_end(a, AttemptEnd::kLost, "the container vanished");
  } else if (*exit_code == 0) {
    decide_end(a, AttemptEnd::kSucceeded, "");
  } else if (is_oom_killed) {
    decide_end(
        a,
        AttemptEnd::kCrashed,
        "killed: used more than its " + std::to_string(a.row.grant.memory_mib) + " MiB of memory"
    );
  } else if (asks_for_restart(*exit_code)) {
    decide_end(
        a,
        AttemptEnd::kMigrated,
        "asked to be restarted (exit code " + std::to_string(*exit_code) + ")"
    );
  } else {
    decide_end(a, AttemptEnd::kCrashed, "exit code " + std::to_string(*exit_code));
  }
  after_guest(a);
}

void Core::State::decide_end(Attempt& a, AttemptEnd end, const std::string& detail) {
  a.row.end = end;
  if (!detail.empty()) a.row.detail = detail;
  a.is_dirty = true;
}

bool Core::State::saves_at_end(const Attempt& a) const {
  if (a.commit.spec.checkpoint.is_stateless || a.row.is_disk_gone || a.row.started_ns == 0)
    return false;
  switch (a.row.end) {
    case AttemptEnd::kReclaimed:
    case AttemptEnd::kMigrated:
    case AttemptEnd::kLost:
    case AttemptEnd::kTimedOut:
      return true;
    case AttemptEnd::kCrashed:
      return !has_crashed_at_once(a, now_.boot);
    case AttemptEnd::kNone:
    case AttemptEnd::kSucceeded:
    case AttemptEnd::kCancelled:
    case AttemptEnd::kFenced:
    case AttemptEnd::kRefused:
    case AttemptEnd::kHolderAway:
      return false;
  }
  return false;
}

void Core::State::after_guest(Attempt& a) {
  if (a.row.end == AttemptEnd::kSucceeded) {
    set_phase(a, Phase::kPublishing);
    return;
  }
  if (a.row.end == AttemptEnd::kCancelled || a.row.end == AttemptEnd::kRefused) {
    set_phase(a, Phase::kClosing);
    return;
  }
  set_phase(a, a.row.is_disk_gone ? Phase::kDraining : Phase::kSaving);
}

void Core::State::step_saving(Attempt& a) {
  if (a.works.contains(Task::kSnapshot)) return;
  if (saves_at_end(a) && !a.is_final_snapshot_done) {
    if (may_work(a, Task::kSnapshot)) take_snapshot(a, true);
    return;
  }
  const bool has_log = a.row.started_ns != 0 && !a.log.is_done;
  if (has_log && !a.log.is_final_spooled) return;  // step_log() does it
  set_phase(a, Phase::kDraining);
}

/// Nothing of ours may work on the guest's disk any longer. The log is the exception: its tail,
/// written before the cut, is still read (one short copy beside the clearing, which waits for
/// nobody).
void Core::State::drop_disk_users(Attempt& a) {
  for (const Task task : {Task::kSnapshot, Task::kUpload, Task::kPrepare}) {
    const auto found = a.works.find(task);
    if (found == a.works.end()) continue;
    cancel_work(found->second);
    a.works.erase(task);
  }
  if (a.is_watching) out_.effects.emplace_back(StopWatch{a.name});
  a.is_watching = false;
}

void Core::State::end(Attempt& a) {
  cancel_works(a, true);
  set_phase(a, Phase::kEnded);
  // The warden starts nobody on a GPU that a guest of its has: one is free when that is removed.
  if (a.row.grant.gpus.empty()) arbiter_.release(a.name.job, a.name.epoch);
}

void Core::State::step_ended(Attempt& a) {
  if (a.row.is_released) return;
  if (!a.is_remove_asked) {
    ask(a, Ask::kRemove, warden_wire::RemoveGuest{a.name});
    a.is_remove_asked = is_asking(a, Ask::kRemove);
    return;
  }
  if (is_asking(a, Ask::kRemove)) return;
  arbiter_.release(a.name.job, a.name.epoch);
  ask(a, Ask::kRelease, warden_wire::ReleaseDisk{a.name});
}

}  // namespace rn::agent
