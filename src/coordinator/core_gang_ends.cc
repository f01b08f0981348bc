// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_gang_ends.h"

#include <algorithm>
#include <set>
#include <utility>

#include "coordinator/core_evacuation.h"
#include "coordinator/core_gang_members.h"
#include "coordinator/core_gang_placement.h"
#include "coordinator/core_gang_sets.h"
#include "coordinator/core_job_ends.h"
#include "coordinator/core_job_life.h"

namespace rn::coordinator {

namespace {

constexpr std::uint32_t kGangRefusalsMax = 20;  // of one member, in a row
constexpr std::uint32_t kUnreadableMax = 3;     // restores of one set that failed, by one node
constexpr std::int32_t kGangRestartHere = 85;   // "checkpoint written, restart me"
constexpr nanoseconds kSlowLeftOut = std::chrono::minutes(10);

/// Members are queued by their gang alone; each has its old node first.
struct Requeue {
  std::string reason;
  std::int64_t pause_ms = 0;
  bool is_displacement = false;
  bool is_restart = false;
};

void burn(State& state, MemberView& member) {
  AttemptEntry* attempt = member.attempt;
  if (attempt == nullptr || !attempt->is_live()) return;
  const bool is_draining = attempt->row.attempt.state == AttemptState::kDraining &&
                           !is_node_gone(state, attempt->row.attempt.node);
  if (is_draining) return;
  const bool was_told = attempt->is_granted && !is_node_gone(state, attempt->row.attempt.node);
  close_attempt(
      state,
      *attempt,
      was_told ? AttemptEnd::kReclaimed : AttemptEnd::kLost,
      "its gang has stopped: epoch " + to_string(attempt->row.attempt.epoch) + " is burnt"
  );
}

void queue_member(State& state, const GangEntry& gang, MemberView& member, const Requeue& how) {
  JobEntry& job = *member.job;
  burn(state, member);
  end_evacuation(state, job.row.job.id);
  if (how.is_displacement) ++job.row.job.displacements;
  if (how.is_restart) ++job.row.job.restarts;
  job.row.stop_end = AttemptEnd::kNone;
  job.row.stop_reason.clear();
  job.row.stop_saves_first = false;
  job.row.stop_deadline_ms = 0;
  job.row.is_displaced = gang.row.is_displaced;
  job.row.not_before_wall_ms = gang.row.not_before_wall_ms;
  job.row.job.outputs = Digest{};  // what a member published alone is void with its epoch
  if (member.attempt != nullptr && member.attempt->row.attempt.node != job.row.avoid)
    job.row.home = member.attempt->row.attempt.node;
  queue_again(state, job, how.reason);
}

void queue_gang(State& state, GangEntry& gang, const Requeue& how) {
  gang.row.not_before_wall_ms = how.pause_ms == 0 ? 0 : state.wall_ms() + how.pause_ms;
  gang.row.queued_wall_ms = state.wall_ms();
  gang.row.is_displaced = !how.is_restart;  // what is its own doing waits as others do
  gang.row.is_go = false;
  gang.row.stop_saves_first = false;
  gang.row.stop_deadline_ms = 0;
  gang.row.stopped_wall_ms = 0;
  if (how.is_displacement || how.is_restart)
    note_gang(state, gang, how.is_restart ? "gang.restart" : "gang.displaced", how.reason);
  for (MemberView& member : members_of(state, gang)) queue_member(state, gang, member, how);
  state.move(gang, GangState::kWaiting);
  note_gang(
      state,
      gang,
      "gang.waiting",
      how.reason + "; next from " +
          (gang.row.set.number == 0 ? "the start" : set_words(gang.row.set)),
      {{"set", std::to_string(gang.row.set.number)},
       {"mark", std::to_string(gang.row.set.mark)},
       {"wait_ms", std::to_string(how.pause_ms)},
       {"cause", std::string(to_string(gang.row.cause.kind))}}
  );
}

const Job& first_job(State& state, const GangEntry& gang) {
  return state.find_job(gang.row.members.front())->row.job;
}

void restart_gang(State& state, GangEntry& gang, bool counts, const std::string& why) {
  const Job& job = first_job(state, gang);
  const std::uint32_t restarts = job.restarts + (counts ? 1 : 0);
  const std::uint32_t limit = job.spec.max_restarts;
  if (restarts > limit)
    return finish_gang(
        state, gang, JobState::kFailed, why + "; " + std::to_string(limit) + " restarts are used up"
    );
  queue_gang(
      state,
      gang,
      {.reason = why,
       .pause_ms = counts ? backoff_ms(state.config, restarts) : 0,
       .is_restart = counts}
  );
}

/// The member whose end is the gang's.
MemberView* cause_of(const GangEntry& gang, std::vector<MemberView>& members) {
  const auto found = std::find_if(members.begin(), members.end(), [&](const MemberView& member) {
    return member.rank == gang.row.cause.rank;
  });
  return found == members.end() ? nullptr : &*found;
}

/// All went on from the newest set, and one crashed soon after: the one before it is tried, once.
bool set_is_suspect(State& state, const GangEntry& gang, const MemberView& member) {
  const GangSet& set = gang.row.set;
  if (set.number == 0 || gang.row.is_fallback || !(set.epoch < gang.row.epoch)) return false;
  if (member.attempt == nullptr || member.attempt->row.attempt.started_wall_ms == 0) return false;
  return ran_ms(state, *member.attempt) <
         static_cast<std::int64_t>(state.config.crash_after_resume_s) * 1000;
}

void crash_gang(State& state, GangEntry& gang, MemberView& member) {
  ++state.metrics.attempts_crashed;
  const Attempt& a = member.attempt->row.attempt;
  const std::string what =
      member_words(state, member) + ": " +
      (a.detail.empty() ? "exit code " + std::to_string(a.exit_code) : a.detail);
  for (MemberView& one : members_of(state, gang)) one.job->row.job.exit_code = a.exit_code;
  // Its outputs did not come home: computed again from the set.
  if (a.exit_code == 0) return restart_gang(state, gang, true, what);
  // Told after it was judged. Neither the program nor the set is to blame.
  if (const std::string links = broken_links_words(state, gang); !links.empty())
    return restart_gang(state, gang, true, what + "; " + links);
  member.job->row.avoid = a.node;
  if (!set_is_suspect(state, gang, member))
    return finish_gang(state, gang, JobState::kFailed, what);
  condemn_set(
      state, gang, what + " " + short_duration(ran_ms(state, *member.attempt)) + " after resuming"
  );
  restart_gang(state, gang, true, what + " soon after a resume");
}

void restart_as_asked(State& state, GangEntry& gang, const MemberView& member) {
  const std::int32_t code = member.attempt->row.attempt.exit_code;
  // No set since the last start is no progress: then it counts, or it would spin.
  const bool has_progress = gang.row.set.number > 0 && gang.row.set.epoch == gang.row.epoch;
  restart_gang(
      state,
      gang,
      code != kGangRestartHere || !has_progress,
      member_words(state, member) + " asked to be restarted (exit code " + std::to_string(code) +
          ")"
  );
}

/// Its node could not put back what the set has of it: the set is not to be had, if another node
/// has said so just before, or if this one says so again and again.
bool set_is_unreadable(const State& state, const GangEntry& gang, const MemberView& member) {
  if (gang.row.set.number == 0 || member.job->of_set.generation == 0) return false;
  std::set<NodeId> nodes;
  std::uint32_t times = 0;
  auto at = state.attempts.upper_bound({member.job->row.job.id, gang.row.epoch});
  while (at != state.attempts.begin()) {
    --at;
    const AttemptEntry& attempt = at->second;
    const Attempt& a = attempt.row.attempt;
    if (a.job != member.job->row.job.id || a.end != AttemptEnd::kRefused ||
        attempt.ended_in != AttemptState::kPreparing ||
        a.resumed_generation != member.job->of_set.generation)
      break;
    ++times;
    nodes.insert(a.node);
  }
  return nodes.size() > 1 || times >= kUnreadableMax;
}

/// Before they were told to go, or one of them could not be begun: nothing is counted.
void abort_gang(State& state, GangEntry& gang, MemberView* member) {
  const std::string& why = gang.row.cause.reason;
  // A commit that was lost says nothing of what the node would have done.
  const bool is_refused = member != nullptr && member->attempt != nullptr &&
                          member->attempt->is_granted &&
                          member->attempt->row.attempt.end == AttemptEnd::kRefused;
  if (is_refused && ended_in_a_row(state, *member->job, AttemptEnd::kRefused) > kGangRefusalsMax)
    return finish_gang(state, gang, JobState::kFailed, why + "; refused too often in a row");
  if (is_refused && set_is_unreadable(state, gang, *member)) condemn_set(state, gang, why);
  if (member != nullptr) member->job->row.avoid = gang.row.cause.node;
  constexpr std::int64_t kFirstPause_ms = 500;
  constexpr std::int64_t kLongestPause_ms = 60'000;
  const std::uint32_t times = state.gang_aborts[gang.row.id]++;
  queue_gang(
      state,
      gang,
      {.reason = why, .pause_ms = std::min(kFirstPause_ms << std::min(times, 8u), kLongestPause_ms)}
  );
}

/// Counted, or a node that is slow for good would keep its gang from running for ever.
void restart_without_slow(State& state, GangEntry& gang, MemberView* member) {
  const NodeId& node = gang.row.cause.node;
  const std::string& why = gang.row.cause.reason;
  if (member != nullptr) member->job->row.avoid = node;
  state.find_job(gang.row.members.front())->refusals[node] =
      Refusal{.reason = why.substr(0, 200), .until = state.now.boot + kSlowLeftOut};
  restart_gang(state, gang, true, std::string(why));
}

void displace_gang(State& state, GangEntry& gang) {
  queue_gang(state, gang, {.reason = gang.row.cause.reason, .is_displacement = true});
}

}  // namespace

void finish_gang(State& state, GangEntry& gang, JobState to, const std::string& reason) {
  if (gang.row.state == GangState::kOver) return;
  const JobEntry* const first = state.find_job(gang.row.members.front());
  if (gang.row.state == GangState::kWaiting && first != nullptr) cancel_gang_round(state, *first);
  gang.row.stop_end = AttemptEnd::kNone;
  state.move(gang, GangState::kOver);  // first: finish() asks whether it is
  for (MemberView& member : members_of(state, gang)) {
    if (is_terminal(member.job->row.job.state)) continue;
    if (member.attempt != nullptr && member.attempt->is_live())
      close_attempt(state, *member.attempt, AttemptEnd::kCancelled, reason);
    member.job->row.stop_reason.clear();
    finish(state, *member.job, to, reason);
    end_evacuation(state, member.job->row.job.id);
  }
  note_gang(state, gang, "gang.over", reason, {{"job_state", std::string(to_string(to))}});
  state.gang_lives.erase(gang.row.id);
  state.gang_aborts.erase(gang.row.id);
}

void leave_stopping(State& state, GangEntry& gang) {
  std::vector<MemberView> members = members_of(state, gang);
  if (is_done(gang, members)) return finish_gang(state, gang, JobState::kSucceeded, "exit code 0");
  if (gang.row.stop_end != AttemptEnd::kNone) {
    const bool is_timeout = gang.row.stop_end == AttemptEnd::kTimedOut;
    const std::string reason = gang.row.cause.reason;
    return finish_gang(state, gang, is_timeout ? JobState::kFailed : JobState::kCancelled, reason);
  }
  MemberView* member = cause_of(gang, members);
  const bool has_attempt = member != nullptr && member->attempt != nullptr;
  switch (gang.row.cause.kind) {
    case GangCauseKind::kAbort:
      return abort_gang(state, gang, member);
    case GangCauseKind::kUnclear:
    case GangCauseKind::kCrash:
      return has_attempt ? crash_gang(state, gang, *member) : displace_gang(state, gang);
    case GangCauseKind::kLinks:
      return restart_gang(state, gang, true, std::string(gang.row.cause.reason));
    case GangCauseKind::kSlow:
      return restart_without_slow(state, gang, member);
    case GangCauseKind::kRestart:
      return has_attempt ? restart_as_asked(state, gang, *member) : displace_gang(state, gang);
    case GangCauseKind::kNone:
    case GangCauseKind::kNotice:
    case GangCauseKind::kReclaim:
    case GangCauseKind::kLost:
    case GangCauseKind::kStopped:
    case GangCauseKind::kSucceeded:
      return displace_gang(state, gang);
  }
}

}  // namespace rn::coordinator
