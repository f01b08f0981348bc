// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_job_ends.h"

#include <algorithm>

#include "base/planted.h"
#include "coordinator/core_copies.h"
#include "coordinator/core_evacuation.h"
#include "coordinator/core_gang_ends.h"
#include "coordinator/core_gang_life.h"
#include "coordinator/core_garbage.h"
#include "coordinator/core_holders.h"
#include "coordinator/core_job_life.h"
#include "coordinator/core_placement.h"
#include "coordinator/core_why.h"

namespace rn::coordinator {

namespace {

constexpr std::int32_t kRestartHere = 85;       // "checkpoint written, restart me"
constexpr std::int32_t kRestartAnywhere = 99;   // OAR's "re-submit me"
constexpr std::int32_t kRestartElsewhere = 75;  // EX_TEMPFAIL

constexpr std::uint32_t kRefusalsMax = 20;  ///< in a row; with the back-off more than an hour

/// The coordinator's own stop has done its work, or something else ended the attempt first.
void forget_stop(JobEntry& job) {
  if (job.row.stop_end != AttemptEnd::kMigrated) return;
  job.row.stop_end = AttemptEnd::kNone;
  job.row.stop_reason.clear();
  job.row.stop_saves_first = false;
  job.row.is_going_home = false;
}

/// I3: what was published counts only with a success of the epoch that published it.
void void_outputs(State& state, JobEntry& job) {
  if (job.row.job.outputs == Digest{}) return;
  job.row.job.outputs = Digest{};
  state.save(job);
}

void queue_later(State& state, JobEntry& job, std::int64_t wait, const std::string& why) {
  job.row.not_before_wall_ms = wait == 0 ? 0 : state.wall_ms() + wait;
  state.note(
      job,
      "job.restart",
      why,
      {{"restarts", std::to_string(job.row.job.restarts)}, {"wait_ms", std::to_string(wait)}}
  );
  queue_again(state, job, why);
}

/// After something that is the job's own doing: counts, waits, gives up at last.
void restart(State& state, JobEntry& job, bool counts, const std::string& why) {
  forget_stop(job);
  if (counts) ++job.row.job.restarts;
  const std::uint32_t limit = job.row.job.spec.max_restarts;
  if (job.row.job.restarts > limit)
    return finish(
        state, job, JobState::kFailed, why + "; " + std::to_string(limit) + " restarts are used up"
    );
  queue_later(state, job, counts ? backoff_ms(state.config, job.row.job.restarts) : 0, why);
}

/// A node that cannot start it says nothing of the job, so no restart is used up.
void refused(State& state, JobEntry& job, const Attempt& a) {
  forget_stop(job);
  job.row.avoid = a.node;
  const std::string why = state.name_of(a.node) + " could not start it: " + a.detail;
  const std::uint32_t times = ended_in_a_row(state, job, AttemptEnd::kRefused);
  if (times > kRefusalsMax)
    return finish(
        state,
        job,
        JobState::kFailed,
        why + "; refused " + std::to_string(times) + " times in a row"
    );
  queue_later(state, job, backoff_ms(state.config, times), why);
}

/// Crashed soon after a resume: the generation is suspected, and the one before it is tried, once.
bool falls_back(State& state, JobEntry& job, const AttemptEntry& attempt) {
  const Attempt& a = attempt.row.attempt;
  if (a.resumed_generation == 0 || a.resumed_generation != job.row.job.durable.generation)
    return false;
  if (a.started_wall_ms == 0 || job.row.is_fallback) return false;
  const std::int64_t ran = ran_ms(state, attempt);
  if (ran >= static_cast<std::int64_t>(state.config.crash_after_resume_s) * 1000) return false;
  const std::uint32_t condemned = job.row.job.durable.generation;
  job.row.job.durable = job.row.job.previous;
  job.row.job.previous = GenerationRef();
  job.row.is_fallback = true;
  const std::uint32_t next = job.row.job.durable.generation;
  state.note(
      job,
      "generation.condemned",
      "crashed " + short_duration(ran) + " after resuming from generation " +
          std::to_string(condemned) + ": next from " +
          (next == 0 ? "the start" : "generation " + std::to_string(next)),
      {{"generation", std::to_string(condemned)}}
  );
  return true;
}

void crashed(State& state, JobEntry& job, AttemptEntry& attempt) {
  ++state.metrics.attempts_crashed;
  const Attempt& a = attempt.row.attempt;
  const std::string what = a.detail.empty() ? "exit code " + std::to_string(a.exit_code) : a.detail;
  job.row.job.exit_code = a.exit_code;
  // The end was taken at 0, but its outputs did not come home: computed again from the checkpoint.
  if (a.exit_code == 0) return restart(state, job, true, what);
  job.row.avoid = a.node;
  if (falls_back(state, job, attempt))
    return restart(state, job, true, what + " soon after a resume");
  finish(state, job, JobState::kFailed, what);
}

void asked_for_restart(State& state, JobEntry& job, AttemptEntry& attempt) {
  const Attempt& a = attempt.row.attempt;
  const std::string what = "asked to be restarted (exit code " + std::to_string(a.exit_code) + ")";
  switch (a.exit_code) {
    case kRestartHere: {
      // No progress since the last start is no checkpoint: then it counts, or it would spin.
      const bool has_progress = job.row.job.durable.generation > a.resumed_generation;
      job.row.home = a.node;
      job.row.is_displaced = true;
      return restart(state, job, !has_progress, what);
    }
    case kRestartElsewhere:
      job.row.avoid = a.node;
      return restart(state, job, true, what);
    default:
      return restart(state, job, true, what);
  }
}

ReclaimKind kind_of(const State& state, const NodeId& node) {
  ReclaimKind kind = ReclaimKind::kNotice;
  std::int64_t newest = -1;
  for (auto at = state.reclaims.lower_bound({node, ReclaimId()});
       at != state.reclaims.end() && at->first.first == node;
       ++at) {
    if (at->second.record.declared_wall_ms < newest) continue;
    newest = at->second.record.declared_wall_ms;
    kind = at->second.record.kind;
  }
  return kind;
}

void count_displacement(State& state, AttemptEnd end, const NodeId& node) {
  if (end == AttemptEnd::kMigrated) return;
  switch (end == AttemptEnd::kLost ? ReclaimKind::kLost : kind_of(state, node)) {
    case ReclaimKind::kAnnounced:
      ++state.metrics.displacements_announced;
      break;
    case ReclaimKind::kNotice:
      ++state.metrics.displacements_notice;
      break;
    case ReclaimKind::kEmergency:
      ++state.metrics.displacements_emergency;
      break;
    case ReclaimKind::kLost:
      ++state.metrics.displacements_lost;
      break;
  }
}

/// With what its node has to say about it, as outputs that could not be read.
std::string success_words(const Attempt& a) {
  return "exit code 0" + (a.detail.empty() ? "" : "; " + a.detail);
}

void conclude(State& state, JobEntry& job, AttemptEntry& attempt, AttemptEnd end) {
  const bool is_alone = planted("coordinator.finishes_one_member") && end == AttemptEnd::kSucceeded;
  if (job.row.job.gang && !is_alone) return member_ended(state, job, attempt, end);
  const Attempt& a = attempt.row.attempt;
  if (job.row.stop_end == AttemptEnd::kCancelled || job.row.stop_end == AttemptEnd::kTimedOut)
    return end == AttemptEnd::kSucceeded
               ? finish(state, job, JobState::kSucceeded, success_words(a))
               : finish_stopped(state, job);
  const bool was_slow = job.row.stop_end == AttemptEnd::kMigrated && !job.row.is_going_home;
  const bool was_asked = job.row.stop_end != AttemptEnd::kNone;
  switch (end) {
    case AttemptEnd::kSucceeded:
      job.row.job.exit_code = 0;
      return finish(state, job, JobState::kSucceeded, success_words(a));
    case AttemptEnd::kCrashed:
      // Whatever a job answers to a notice, it is preempted, not failed (Slurm's rule).
      if (attempt.was_noticed && a.exit_code != 0)
        return displace(state, job, a.node, "stopped after a notice");
      return crashed(state, job, attempt);
    case AttemptEnd::kMigrated:
      if (!was_asked && asks_for_restart(a.exit_code))
        return asked_for_restart(state, job, attempt);
      if (was_slow) return restart(state, job, true, std::string(job.row.stop_reason));
      return displace(state, job, a.node, "moves: " + a.detail, job.row.is_going_home);
    case AttemptEnd::kReclaimed:
    case AttemptEnd::kLost:
      if (planted("coordinator.fails_the_reclaimed"))
        return finish(state, job, JobState::kFailed, "its node was taken back");
      return displace(state, job, a.node, a.detail.empty() ? "its node was taken back" : a.detail);
    case AttemptEnd::kRefused:
      return refused(state, job, a);
    case AttemptEnd::kHolderAway:
      forget_stop(job);
      return wait_for_holder(state, job, attempt);
    case AttemptEnd::kCancelled:
      return finish(state, job, JobState::kCancelled, a.detail);
    case AttemptEnd::kTimedOut:
      return finish(state, job, JobState::kFailed, a.detail);
    case AttemptEnd::kNone:
    case AttemptEnd::kFenced:
      return displace(state, job, a.node, "its node gave it up: " + a.detail);
  }
}

}  // namespace

bool asks_for_restart(std::int32_t exit_code) {
  return exit_code == kRestartHere || exit_code == kRestartAnywhere ||
         exit_code == kRestartElsewhere;
}

std::int64_t ran_ms(const State& state, const AttemptEntry& attempt) {
  const Attempt& a = attempt.row.attempt;
  // The node's clock may have been set, and its word may have come late: short only if both say so.
  const nanoseconds heard_of = attempt.running_since == Instant{}
                                   ? nanoseconds(0)
                                   : nanoseconds(state.now.boot - attempt.running_since);
  return std::max<std::int64_t>(
      a.ended_wall_ms - a.started_wall_ms,
      std::chrono::duration_cast<milliseconds>(heard_of).count()
  );
}

std::uint32_t ended_in_a_row(const State& state, const JobEntry& job, AttemptEnd end) {
  std::uint32_t count = 0;
  auto at = state.attempts.upper_bound({job.row.job.id, job.row.job.epoch});
  while (at != state.attempts.begin()) {
    --at;
    const Attempt& a = at->second.row.attempt;
    if (a.job != job.row.job.id || a.end != end) break;
    ++count;
  }
  return count;
}

std::int64_t backoff_ms(const Config& config, std::uint32_t times) {
  const std::uint32_t doublings = std::min(times == 0 ? 0 : times - 1, 20u);
  return std::min<std::int64_t>(
      static_cast<std::int64_t>(config.backoff_first_ms) << doublings, config.backoff_max_ms
  );
}

void end_attempt(
    State& state, JobEntry& job, AttemptEntry& attempt, const wire::AttemptEvent& event
) {
  const wire::AttemptReport& report = event.report;
  Attempt& a = attempt.row.attempt;
  attempt.row.last_seq = event.seq;
  a.exit_code = report.exit_code;
  a.ended_wall_ms = event.at_wall_ms;
  const bool is_waiting = job.row.job.state == JobState::kQueued || job.placement.has_value();
  attempt.row.is_tail_open = report.end != AttemptEnd::kFenced;
  attempt.waits_for = believed_holders(state, job, report.waits_for);
  AttemptEnd end = report.end;
  if (end == AttemptEnd::kRefused || end == AttemptEnd::kHolderAway)
    end = attempt.waits_for.empty() ? AttemptEnd::kRefused : AttemptEnd::kHolderAway;
  close_attempt(state, attempt, end, report.detail);
  if (!is_waiting) {
    count_displacement(state, end, a.node);
    return conclude(state, job, attempt, end);
  }
  if (job.row.job.gang) return;  // its gang has gone on without it
  // It drained while its job waited, or came back from being lost with an end.
  if (report.end == AttemptEnd::kSucceeded) {
    if (job.placement) cancel_placement(state, job);
    if (job.row.job.state == JobState::kQueued) state.move(job, JobState::kPlacing, "came back");
    state.move(job, JobState::kStarting, "came back finished");
    job.row.job.node = a.node;
    finish(state, job, JobState::kSucceeded, success_words(a));
  }
}

void queue_again(State& state, JobEntry& job, const std::string& reason) {
  job.row.queued_wall_ms = state.wall_ms();
  job.row.job.node = NodeId();
  state.move(job, JobState::kQueued, reason);
}

void close_attempt(State& state, AttemptEntry& attempt, AttemptEnd end, const std::string& detail) {
  Attempt& a = attempt.row.attempt;
  attempt.ended_in = a.state;
  a.state = AttemptState::kEnded;
  a.end = end;
  if (!detail.empty()) a.detail = detail;
  if (a.ended_wall_ms == 0) a.ended_wall_ms = state.wall_ms();
  attempt.commit.reset();
  attempt.plan = {};
  state.save(attempt);
  if (NodeEntry* node = state.find_node(a.node)) node->attempts.erase({a.job, a.epoch});
  state.is_dispatch_wanted = true;
  JobEntry* job = state.find_job(a.job);
  if (job == nullptr) return;
  if (end != AttemptEnd::kSucceeded && job->row.job.epoch == a.epoch) void_outputs(state, *job);
  state.note(
      *job,
      "attempt.ended",
      "attempt " + to_string(a.epoch) + " on " + state.name_of(a.node) + " ended: " +
          std::string(to_string(end)) + (a.detail.empty() ? "" : " (" + a.detail + ")"),
      {{"end", std::string(to_string(end))},
       {"exit_code", std::to_string(a.exit_code)},
       {"step", std::to_string(attempt.row.last_step)},
       {"safe_generation", std::to_string(attempt.row.safe_generation)}}
  );
}

void displace(
    State& state, JobEntry& job, const NodeId& from, const std::string& reason, bool is_homecoming
) {
  if (job.row.job.gang) return member_lost(state, job, from, reason);
  if (is_homecoming) {
    ++state.metrics.migrations_back;
  } else {
    ++job.row.job.displacements;
    if (job.row.home.empty()) job.row.home = from;
  }
  forget_stop(job);
  job.row.is_displaced = true;
  job.row.not_before_wall_ms = 0;
  const std::uint32_t generation = resume_point(job).resume.generation;
  state.note(
      job,
      "job.displaced",
      reason + "; " + resume_words(job),
      {{"from", from.str()}, {"generation", std::to_string(generation)}}
  );
  queue_again(state, job, reason);
  if (!is_homecoming) note_displaced(state, job.row.job.id, from);
}

void finish(State& state, JobEntry& job, JobState state_to, const std::string& reason) {
  GangEntry* const gang = state.gang_of(job);
  if (gang != nullptr && gang->row.state != GangState::kOver &&
      !planted("coordinator.finishes_one_member"))
    return finish_gang(state, *gang, state_to, reason);
  job.row.job.finished_wall_ms = state.wall_ms();
  job.row.stop_end = AttemptEnd::kNone;
  if (state_to != JobState::kSucceeded) void_outputs(state, job);
  state.move(job, state_to, reason);
  if (state_to == JobState::kSucceeded) ++state.metrics.jobs_succeeded;
  if (state_to == JobState::kFailed) ++state.metrics.jobs_failed;
  if (state_to == JobState::kCancelled) ++state.metrics.jobs_cancelled;
  state.note(job, "job." + std::string(to_string(state_to)), reason);
  job.refusals.clear();
  collect_job(state, job);
}

void finish_stopped(State& state, JobEntry& job) {
  const bool is_timeout = job.row.stop_end == AttemptEnd::kTimedOut;
  const std::string reason = job.row.stop_reason;
  finish(state, job, is_timeout ? JobState::kFailed : JobState::kCancelled, reason);
}

void send_stop(State& state, JobEntry& job, AttemptEntry& attempt) {
  const bool saves = job.row.stop_saves_first;
  job.stop_sent = state.now.boot;
  state.send(
      attempt.row.attempt.node,
      wire::StopAttempt{
          .job = job.row.job.id,
          .epoch = attempt.row.attempt.epoch,
          .mode = saves ? StopMode::kSaveFirst : StopMode::kAtOnce,
          .deadline_ms = saves ? job.row.stop_deadline_ms : 0,
          .end = job.row.stop_end,
          .reason = job.row.stop_reason}
  );
}

void stop_job(
    State& state,
    JobEntry& job,
    AttemptEnd end,
    bool saves_first,
    std::uint32_t deadline_ms,
    const std::string& reason
) {
  if (is_terminal(job.row.job.state)) return;
  if (GangEntry* const gang = state.gang_of(job))
    return stop_gang(state, *gang, end, saves_first, deadline_ms, reason);
  AttemptEntry* attempt = state.newest_attempt(job);
  const bool is_waiting = job.row.job.state == JobState::kQueued || job.placement.has_value();
  job.row.stop_end = end;
  job.row.stop_saves_first = saves_first;
  job.row.stop_deadline_ms = deadline_ms;
  job.row.stop_reason = reason;
  if (is_waiting || attempt == nullptr || !attempt->is_live()) {
    if (job.placement) cancel_placement(state, job);
    if (attempt != nullptr && attempt->is_live())
      close_attempt(state, *attempt, AttemptEnd::kCancelled, reason);
    return finish_stopped(state, job);
  }
  state.save(job);
  state.note(job, "job.stopping", reason);
  // Also while the commit is unanswered: it was sent before, so the node has the attempt or says
  // that it has not.
  send_stop(state, job, *attempt);
}

}  // namespace rn::coordinator
