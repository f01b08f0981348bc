// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_gang_life.h"

#include <algorithm>
#include <set>
#include <utility>

#include "coordinator/core_gang_ends.h"
#include "coordinator/core_gang_members.h"
#include "coordinator/core_gang_sets.h"
#include "coordinator/core_job_ends.h"

namespace rn::coordinator {

namespace {

constexpr nanoseconds kGangRestoreWaits = std::chrono::minutes(5);  // as for a job
constexpr nanoseconds kEarlierBy = std::chrono::seconds(1);
constexpr std::int64_t kStoppingMost_ms = 86'400'000;  // by a wall clock, which may have been set

bool is_under_way(const GangEntry& gang) {
  return gang.row.state == GangState::kPreparing || gang.row.state == GangState::kRunning ||
         gang.row.state == GangState::kStopping;
}

/// Only of a gang that has been committed and is not over.
GangEntry* active_gang(State& state, const JobEntry& job) {
  GangEntry* gang = state.gang_of(job);
  return gang != nullptr && is_under_way(*gang) ? gang : nullptr;
}

GangCause cause_at(
    GangCauseKind kind, const JobEntry& job, const NodeId& node, std::string reason
) {
  return {
      .kind = kind,
      .rank = job.row.job.gang->rank,
      .node = node,
      .reason = "rank " + std::to_string(job.row.job.gang->rank) + ": " + std::move(reason)};
}

/// What a member's job says while its gang stops.
void mark_stopping(State& state, const GangEntry& gang, JobEntry& job) {
  const bool is_asked = gang.row.stop_end != AttemptEnd::kNone;
  job.row.stop_end = is_asked ? gang.row.stop_end : AttemptEnd::kMigrated;
  job.row.stop_reason = gang.row.cause.reason;
  job.row.stop_saves_first = gang.row.stop_saves_first;
  job.row.stop_deadline_ms = gang.row.stop_deadline_ms;
  state.save(job);
}

/// All members are told to end: with time to save, or at once.
void stop_all(State& state, GangEntry& gang, GangCause cause, bool saves, nanoseconds time) {
  GangLife& life = life_of(state, gang);
  const nanoseconds given = saves ? std::max(time, nanoseconds(0)) : nanoseconds(0);
  gang.row.cause = std::move(cause);
  gang.row.stop_saves_first = saves;
  gang.row.stopped_wall_ms = state.wall_ms();
  gang.row.stop_deadline_ms = static_cast<std::uint32_t>(given / milliseconds(1));
  life.stop_until = state.now.boot + given;
  life.crashed_at = state.now.boot;
  life.is_saved = false;
  state.move(gang, GangState::kStopping);
  for (MemberView& member : members_of(state, gang)) mark_stopping(state, gang, *member.job);
  note_gang(
      state,
      gang,
      "gang.stopping",
      gang.row.cause.reason + (saves ? ": all members may save" : ": all members are stopped"),
      {{"cause", std::string(to_string(gang.row.cause.kind))},
       {"rank", std::to_string(gang.row.cause.rank)},
       {"node", gang.row.cause.node.str()},
       {"deadline_ms", std::to_string(gang.row.stop_deadline_ms)}}
  );
  send_stops(state, gang);
  state.stirred.insert(gang.row.id);
}

/// How long ago, without the time in which this process itself stood still: what nodes said
/// meanwhile lies unread, perhaps also now.
nanoseconds listened_since(const State& state, Instant then) {
  const nanoseconds passed = state.now.boot - then;
  const nanoseconds not_looked = state.now.boot - state.silence_looked_at;
  if (not_looked > state.heartbeat()) return passed - not_looked;
  return then < state.stood_still_until ? passed - state.stood_still : passed;
}

nanoseconds save_time(const State& state) {
  return std::chrono::seconds(state.config.gang_save_s);
}

/// Before they were told to go there is no guest, and nothing to save.
void stop_for(State& state, GangEntry& gang, GangCause cause, nanoseconds time) {
  if (!gang.row.is_go && cause.kind != GangCauseKind::kSlow) cause.kind = GangCauseKind::kAbort;
  stop_all(state, gang, std::move(cause), gang.row.is_go, time);
}

/// A machine's trouble explains a crash that is not judged yet; a crash explains nothing.
void explain(State& state, GangEntry& gang, GangCause cause) {
  if (gang.row.cause.kind != GangCauseKind::kUnclear) return;
  gang.row.cause = std::move(cause);
  state.save(gang);
  note_gang(
      state,
      gang,
      "gang.explained",
      "the crash of a member is explained: " + gang.row.cause.reason,
      {{"cause", std::string(to_string(gang.row.cause.kind))}}
  );
}

void hasten(State& state, GangEntry& gang, Instant deadline) {
  GangLife& life = life_of(state, gang);
  if (deadline + kEarlierBy >= life.stop_until) return;
  const Instant until = std::max(deadline, state.now.boot);
  const std::int64_t passed_ms =
      std::max<std::int64_t>(state.wall_ms() - gang.row.stopped_wall_ms, 0);
  const std::int64_t left_ms = (until - state.now.boot) / milliseconds(1);
  life.stop_until = until;
  gang.row.stop_deadline_ms =
      static_cast<std::uint32_t>(std::clamp<std::int64_t>(passed_ms + left_ms, 0, 86'400'000));
  state.save(gang);
  send_stops(state, gang);
}

/// Its attempt is over and its gang is not: for people it drains.
void wait_for_others(State& state, JobEntry& job, const std::string& reason) {
  if (job.row.job.state == JobState::kQueued || is_terminal(job.row.job.state)) return;
  if (job.row.job.state == JobState::kPlacing) state.move(job, JobState::kStarting, reason);
  state.move(job, JobState::kDraining, reason);
}

std::string end_words(const Attempt& a) {
  if (!a.detail.empty()) return a.detail;
  return a.end == AttemptEnd::kCrashed ? "exit code " + std::to_string(a.exit_code)
                                       : std::string(to_string(a.end));
}

void end_of_running(
    State& state, GangEntry& gang, JobEntry& job, const AttemptEntry& attempt, AttemptEnd end
) {
  const Attempt& a = attempt.row.attempt;
  const auto stop = [&](GangCauseKind kind) {
    stop_all(state, gang, cause_at(kind, job, a.node, end_words(a)), true, save_time(state));
  };
  switch (end) {
    case AttemptEnd::kSucceeded:
      return;
    case AttemptEnd::kCrashed:
      // Whatever a job answers to a notice, it is preempted, not failed.
      if (attempt.was_noticed && a.exit_code != 0) return stop(GangCauseKind::kNotice);
      return stop(a.exit_code == 0 ? GangCauseKind::kCrash : GangCauseKind::kUnclear);
    case AttemptEnd::kMigrated:
      return stop(
          asks_for_restart(a.exit_code) ? GangCauseKind::kRestart : GangCauseKind::kReclaim
      );
    case AttemptEnd::kLost:
      return stop(GangCauseKind::kLost);
    case AttemptEnd::kNone:
    case AttemptEnd::kFenced:
    case AttemptEnd::kReclaimed:
      return stop(GangCauseKind::kReclaim);
    case AttemptEnd::kRefused:
    case AttemptEnd::kHolderAway:
      return stop(GangCauseKind::kAbort);
    case AttemptEnd::kCancelled:
    case AttemptEnd::kTimedOut:
      gang.row.stop_end = end;
      return stop(GangCauseKind::kStopped);
  }
}

void end_of_stopping(
    State& state, GangEntry& gang, const JobEntry& job, const Attempt& a, AttemptEnd end
) {
  if (end == AttemptEnd::kReclaimed)
    return explain(state, gang, cause_at(GangCauseKind::kReclaim, job, a.node, end_words(a)));
  if (end == AttemptEnd::kLost)
    return explain(state, gang, cause_at(GangCauseKind::kLost, job, a.node, end_words(a)));
  if (end != AttemptEnd::kTimedOut || gang.row.stop_end != AttemptEnd::kNone) return;
  gang.row.stop_end = end;
  gang.row.cause.reason = end_words(a);
  state.save(gang);
}

/// Its guest may begin only when all are ready.
void note_rogue(State& state, GangEntry& gang, const JobEntry& job, const NodeId& node) {
  if (const NodeEntry* entry = state.find_node(node))
    state.note(
        *entry,
        "gang.rogue_start",
        "began the guest of rank " + std::to_string(job.row.job.gang->rank) + " of gang " +
            gang.row.id.str() + " before it was told to",
        {{"gang", gang.row.id.str()}, {"job", job.row.job.id.str()}}
    );
  stop_for(
      state,
      gang,
      cause_at(GangCauseKind::kAbort, job, node, state.name_of(node) + " began without word"),
      nanoseconds(0)
  );
}

/// Until the owner's deadline, as far as it is known.
nanoseconds time_of_notice(const State& state, const JobEntry& job, const NodeId& node) {
  const auto found = state.evacuations.find(job.row.job.id);
  const bool is_known = found != state.evacuations.end() && found->second.source == node &&
                        !found->second.is_stranded;
  return is_known ? nanoseconds(found->second.deadline - state.now.boot) : save_time(state);
}

bool is_ready(const State& state, const MemberView& member) {
  if (member.attempt == nullptr || !member.attempt->is_live()) return false;
  const auto node = state.nodes.find(member.attempt->row.attempt.node);
  return member.attempt->is_granted && member.attempt->row.attempt.state == AttemptState::kReady &&
         node != state.nodes.end() && state.is_up(node->second);
}

void go_if_ready(State& state, GangEntry& gang) {
  std::vector<MemberView> members = members_of(state, gang);
  const bool all = !members.empty() &&
                   std::all_of(members.begin(), members.end(), [&](const MemberView& member) {
                     return is_ready(state, member);
                   });
  if (!all) {
    const std::string words = waiting_members_words(state, gang);
    for (MemberView& member : members) {
      // What people see in lists; it goes to the disk with the row.
      if (is_ready(state, member))
        member.job->row.job.reason =
            "waits for the others of gang " + gang.row.id.str() + ": " + words;
    }
    return;
  }
  gang.row.is_go = true;
  gang.row.cause = GangCause{};
  state.gang_aborts.erase(gang.row.id);
  state.move(gang, GangState::kRunning);
  note_gang(
      state,
      gang,
      "gang.running",
      "all " + std::to_string(members.size()) + " members are ready: they begin from " +
          (gang.row.set.number == 0 ? "the start" : set_words(gang.row.set)),
      {{"epoch", to_string(gang.row.epoch)}, {"set", std::to_string(gang.row.set.number)}}
  );
  for (MemberView& member : members) send_go(state, gang, member);
}

void go_again(State& state, GangEntry& gang) {
  for (MemberView& member : members_of(state, gang)) {
    const bool is_due = state.now.boot - member.known->go_sent >= state.heartbeat() / 2;
    if (is_due && is_ready(state, member)) send_go(state, gang, member);
  }
}

/// A crash is the program's own when every other machine was heard after it, and none has broken
/// links; one that is not heard is lost by then, or taken.
void judge(State& state, GangEntry& gang) {
  if (gang.row.cause.kind != GangCauseKind::kUnclear) return;
  const GangLife& life = life_of(state, gang);
  bool are_all_heard = true;
  for (const MemberView& member : members_of(state, gang)) {
    // Who has crashed, too, may have done so as its machine went.
    if (member.attempt == nullptr || has_succeeded(member)) continue;
    const NodeId& node = member.attempt->row.attempt.node;
    if (is_node_gone(state, node))
      return explain(
          state,
          gang,
          cause_at(GangCauseKind::kLost, *member.job, node, state.name_of(node) + " is lost")
      );
    const NodeEntry& entry = state.nodes.at(node);
    are_all_heard = are_all_heard && entry.heard >= life.crashed_at + state.heartbeat() / 2;
  }
  // Who was heard just before the crash is lost by then.
  const bool is_time_up =
      listened_since(state, life.crashed_at) >= state.lost_after() + state.heartbeat();
  if (!are_all_heard && !is_time_up) return;
  if (const std::string links = broken_links_words(state, gang); !links.empty()) {
    GangCause cause = gang.row.cause;
    cause.kind = GangCauseKind::kLinks;
    cause.reason += "; " + links;
    return explain(state, gang, std::move(cause));
  }
  gang.row.cause.kind = GangCauseKind::kCrash;
  state.save(gang);
}

/// Each who saves has a safe generation that was captured after the stop, all of one step, or has
/// ended.
bool have_all_saved(State& state, const GangEntry& gang) {
  constexpr std::int64_t kFar_ms = 1'000'000'000'000;
  std::set<std::int64_t> marks;
  for (const MemberView& member : members_of(state, gang)) {
    if (!is_saver(gang, member.rank) || has_ended(state, gang, member)) continue;
    const AttemptEntry& attempt = *member.attempt;
    if (attempt.since_save_ms < 0) return false;
    const Instant captured =
        attempt.since_save_told - milliseconds(std::min(attempt.since_save_ms, kFar_ms));
    if (captured < gang.state_since) return false;
    marks.insert(attempt.row.last_step);
  }
  return marks.size() <= 1;
}

bool may_leave(State& state, const GangEntry& gang) {
  if (gang.row.cause.kind == GangCauseKind::kUnclear) return false;
  const std::vector<MemberView> members = members_of(state, gang);
  const bool have_all_ended =
      std::all_of(members.begin(), members.end(), [&](const MemberView& member) {
        return has_ended(state, gang, member);
      });
  if (have_all_ended) return true;
  const nanoseconds drain =
      gang.row.is_go ? milliseconds(state.config.drain_wait_ms) : milliseconds(0);
  return !state.is_in_grace() &&
         listened_since(state, life_of(state, gang).stop_until) >= save_time(state) + drain;
}

void settle_done(State& state, GangEntry& gang) {
  const std::vector<MemberView> members = members_of(state, gang);
  if (!is_done(gang, members)) return;
  const bool have_all_ended =
      std::all_of(members.begin(), members.end(), [&](const MemberView& member) {
        return has_ended(state, gang, member);
      });
  if (have_all_ended) return finish_gang(state, gang, JobState::kSucceeded, "exit code 0");
  stop_all(
      state,
      gang,
      {.kind = GangCauseKind::kSucceeded, .reason = "rank 0 has ended with exit code 0"},
      false,
      nanoseconds(0)
  );
}

void settle(State& state, GangEntry& gang) {
  switch (gang.row.state) {
    case GangState::kPreparing:
      return go_if_ready(state, gang);
    case GangState::kRunning:
      go_again(state, gang);
      return settle_done(state, gang);
    case GangState::kStopping:
      judge(state, gang);
      if (may_leave(state, gang)) return leave_stopping(state, gang);
      if (!gang.row.stop_saves_first || life_of(state, gang).is_saved) return;
      if (!have_all_saved(state, gang)) return;
      life_of(state, gang).is_saved = true;
      return send_stops(state, gang);
    case GangState::kWaiting:
    case GangState::kOver:
      return;
  }
}

/// The owner of a member's machine takes part no more.
bool stop_where_unwanted(State& state, GangEntry& gang) {
  for (const MemberView& member : members_of(state, gang)) {
    if (has_ended(state, gang, member)) continue;
    const NodeId& node = member.attempt->row.attempt.node;
    const NodeRow& row = state.nodes.at(node).row;
    if (row.contract.gangs && !row.facts.are_transfers_cut) continue;
    stop_for(
        state,
        gang,
        cause_at(
            GangCauseKind::kNotice,
            *member.job,
            node,
            row.contract.gangs
                ? "the owner of " + state.name_of(node) + " has cut transfers, and with them links"
                : "the contract of " + state.name_of(node) + " admits no members of gangs any more"
        ),
        std::chrono::seconds(row.contract.notice_s)
    );
    return true;
  }
  return false;
}

/// Who keeps the others waiting for too long. From the last grant to ready, and from there to a
/// running guest.
void stop_slow(State& state, GangEntry& gang) {
  Instant since = gang.state_since;
  nanoseconds more{0};
  const MemberView* slow = nullptr;
  const std::vector<MemberView> members = members_of(state, gang);
  for (const MemberView& member : members) {
    if (member.attempt == nullptr || !member.attempt->is_live()) continue;
    const AttemptState phase = member.attempt->row.attempt.state;
    since = std::max(since, gang.row.is_go ? gang.state_since : member.attempt->since);
    if (!member.attempt->waits_for.empty()) more = kGangRestoreWaits;
    const bool is_slow =
        gang.row.is_go ? phase < AttemptState::kRunning : phase != AttemptState::kReady;
    if (is_slow && slow == nullptr) slow = &member;
  }
  const nanoseconds limit = milliseconds(state.config.start_timeout_ms) + more;
  if (slow == nullptr || listened_since(state, since) < limit) return;
  stop_for(
      state,
      gang,
      cause_at(
          GangCauseKind::kSlow,
          *slow->job,
          slow->attempt->row.attempt.node,
          state.name_of(slow->attempt->row.attempt.node) + " did not start it within " +
              short_duration(state.config.start_timeout_ms)
      ),
      save_time(state)
  );
}

/// Half of a ticket's life before it ends, and once after a start of ours.
void renew_tickets(State& state, GangEntry& gang) {
  const nanoseconds half = std::chrono::seconds(state.config.ticket_valid_s) / 2;
  for (MemberView& member : members_of(state, gang)) {
    const bool is_due = state.now.boot - member.known->go_sent >= half;
    if (is_due && !has_ended(state, gang, member)) send_go(state, gang, member);
  }
}

}  // namespace

void member_reported(
    State& state, JobEntry& job, AttemptEntry& attempt, const wire::AttemptReport& report
) {
  GangEntry* gang = active_gang(state, job);
  if (gang == nullptr || attempt.row.attempt.epoch != gang->row.epoch) return;
  note_found(state, job, report);
  GangMember& known = life_of(state, *gang).members.at(job.row.job.gang->rank);
  known.links_broken = std::max(known.links_broken, report.links_broken);
  // A ready one was told to go and has not heard it: it is told again, after what answers it here.
  const bool is_late =
      gang->row.state == GangState::kRunning && report.state == AttemptState::kReady;
  if (is_late || gang->row.state == GangState::kStopping) state.stirred.insert(gang->row.id);
}

void member_greeted(State& state, const JobEntry& job, LeaseEpoch epoch) {
  const GangEntry* gang = active_gang(state, job);
  if (gang == nullptr || epoch != gang->row.epoch || !gang->row.is_go) return;
  life_of(state, *gang).members.at(job.row.job.gang->rank).greeted = state.now.boot;
}

void member_moved(State& state, JobEntry& job, AttemptEntry& attempt) {
  GangEntry* gang = active_gang(state, job);
  if (gang == nullptr || attempt.row.attempt.epoch != gang->row.epoch) return;
  state.stirred.insert(gang->row.id);
  const AttemptState phase = attempt.row.attempt.state;
  const NodeId node = attempt.row.attempt.node;
  if (gang->row.state == GangState::kPreparing) {
    if (phase == AttemptState::kStarting || phase == AttemptState::kRunning)
      return note_rogue(state, *gang, job, node);
    if (phase >= AttemptState::kNoticed && phase < AttemptState::kEnded)
      stop_for(
          state,
          *gang,
          cause_at(GangCauseKind::kAbort, job, node, state.name_of(node) + " is taken back"),
          nanoseconds(0)
      );
    return;
  }
  if (gang->row.state != GangState::kRunning || phase != AttemptState::kNoticed) return;
  stop_for(
      state,
      *gang,
      cause_at(GangCauseKind::kNotice, job, node, state.name_of(node) + " is taken back"),
      time_of_notice(state, job, node)
  );
}

void member_ended(State& state, JobEntry& job, AttemptEntry& attempt, AttemptEnd end) {
  note_last_found(state, job, end != AttemptEnd::kLost && end != AttemptEnd::kFenced);
  GangEntry* gang = active_gang(state, job);
  if (gang == nullptr || attempt.row.attempt.epoch != gang->row.epoch) return;
  state.stirred.insert(gang->row.id);
  const Attempt& a = attempt.row.attempt;
  wait_for_others(
      state,
      job,
      end == AttemptEnd::kSucceeded ? "finished, waits for the others of gang " + gang->row.id.str()
                                    : "has ended, its gang stops: " + end_words(a)
  );
  switch (gang->row.state) {
    case GangState::kPreparing:
      return stop_for(
          state,
          *gang,
          cause_at(
              GangCauseKind::kAbort,
              job,
              a.node,
              state.name_of(a.node) + " could not start it: " + end_words(a)
          ),
          nanoseconds(0)
      );
    case GangState::kRunning:
      return end_of_running(state, *gang, job, attempt, end);
    case GangState::kStopping:
      return end_of_stopping(state, *gang, job, a, end);
    case GangState::kWaiting:
    case GangState::kOver:
      return;
  }
}

void member_lost(State& state, JobEntry& job, const NodeId& node, const std::string& reason) {
  GangEntry* gang = active_gang(state, job);
  if (gang == nullptr) return;
  state.stirred.insert(gang->row.id);
  GangCause cause = cause_at(GangCauseKind::kLost, job, node, reason);
  if (gang->row.state == GangState::kStopping) return explain(state, *gang, std::move(cause));
  stop_for(state, *gang, std::move(cause), save_time(state));
}

void member_not_granted(
    State& state, JobEntry& job, const NodeId& node, const std::string& reason
) {
  GangEntry* gang = active_gang(state, job);
  if (gang == nullptr) return;
  state.stirred.insert(gang->row.id);
  wait_for_others(state, job, state.name_of(node) + " no longer held the place");
  if (gang->row.state != GangState::kPreparing) return;
  stop_for(
      state,
      *gang,
      cause_at(
          GangCauseKind::kAbort,
          job,
          node,
          state.name_of(node) + " no longer held the place: " + reason.substr(0, 200)
      ),
      nanoseconds(0)
  );
}

void member_called_back(State& state, const JobId& job, ReclaimKind kind, Instant deadline) {
  JobEntry* entry = state.find_job(job);
  GangEntry* gang = entry == nullptr ? nullptr : active_gang(state, *entry);
  const bool is_now = kind == ReclaimKind::kNotice || kind == ReclaimKind::kEmergency;
  if (gang == nullptr || !is_now) return;  // what is announced begins with the member's notice
  const AttemptEntry* attempt = state.newest_attempt(*entry);
  if (attempt == nullptr || !attempt->is_live()) return;
  state.stirred.insert(gang->row.id);
  const bool is_cut = kind == ReclaimKind::kEmergency;
  const NodeId node = attempt->row.attempt.node;
  GangCause cause = cause_at(
      is_cut ? GangCauseKind::kReclaim : GangCauseKind::kNotice,
      *entry,
      node,
      state.name_of(node) + " is taken back" + (is_cut ? " at once" : "")
  );
  if (gang->row.state == GangState::kStopping) {
    explain(state, *gang, std::move(cause));
    if (!is_cut) hasten(state, *gang, deadline);
    return;
  }
  stop_for(state, *gang, std::move(cause), is_cut ? save_time(state) : deadline - state.now.boot);
}

void stop_gang(
    State& state,
    GangEntry& gang,
    AttemptEnd end,
    bool saves_first,
    std::uint32_t deadline_ms,
    const std::string& reason
) {
  if (gang.row.state == GangState::kOver || gang.row.stop_end == AttemptEnd::kCancelled) return;
  gang.row.stop_end = end;
  if (gang.row.state == GangState::kWaiting) {
    const bool is_timeout = end == AttemptEnd::kTimedOut;
    return finish_gang(state, gang, is_timeout ? JobState::kFailed : JobState::kCancelled, reason);
  }
  const bool saves = saves_first && gang.row.is_go;
  nanoseconds time = milliseconds(deadline_ms);
  // Somebody's owner may have said that there is less time.
  if (gang.row.state == GangState::kStopping)
    time = std::min<nanoseconds>(time, life_of(state, gang).stop_until - state.now.boot);
  stop_all(state, gang, {.kind = GangCauseKind::kStopped, .reason = reason}, saves, time);
}

bool are_others_idle(State& state, const JobEntry& job, double below_percent) {
  const GangEntry* gang = state.gang_of(job);
  if (gang == nullptr) return true;
  const std::vector<MemberView> members = members_of(state, *gang);
  return std::all_of(members.begin(), members.end(), [&](const MemberView& member) {
    if (member.job == &job) return true;
    if (member.attempt == nullptr || !member.attempt->use_to_stop) return false;
    const auto mean = member.attempt->use_to_stop->mean(state.now.boot);
    return mean && *mean < below_percent;
  });
}

void settle_gangs(State& state) {
  // NOTE: a gang that is stopped because of another event of the same kind is looked at once more.
  for (int rounds = 0; rounds < 4 && !state.stirred.empty(); ++rounds) {
    for (const GangId& id : std::exchange(state.stirred, {})) {
      if (GangEntry* gang = state.find_gang(id)) settle(state, *gang);
    }
  }
  state.stirred.clear();
}

void look_at_gangs(State& state) {
  const std::set<GangId> open = state.open_gangs;
  for (const GangId& id : open) {
    GangEntry* gang = state.find_gang(id);
    if (gang == nullptr || !is_under_way(*gang)) continue;
    const bool is_stopping = gang->row.state == GangState::kStopping;
    if (!is_stopping && !stop_where_unwanted(state, *gang)) stop_slow(state, *gang);
    if (gang->row.state == GangState::kRunning) renew_tickets(state, *gang);
    const GangLife& life = life_of(state, *gang);
    if (is_stopping && state.now.boot - life.stop_sent >= state.heartbeat())
      send_stops(state, *gang);
    settle(state, *gang);
  }
}

void restore_gangs(State& state) {
  for (const GangId& id : state.open_gangs) {
    GangEntry& gang = *state.find_gang(id);
    GangLife& life = life_of(state, gang);
    restore_sets(state, gang);
    if (gang.row.state != GangState::kStopping) continue;
    const std::int64_t told_ms = gang.row.stop_deadline_ms;
    const std::int64_t left_ms = gang.row.stopped_wall_ms + told_ms - state.wall_ms();
    life.stop_until = state.now.boot + milliseconds(std::clamp<std::int64_t>(left_ms, 0, told_ms));
    life.crashed_at = state.now.boot;
    // Saves of after the stop count, also those of before our start.
    const std::int64_t stopping_ms = state.wall_ms() - gang.row.stopped_wall_ms;
    gang.state_since =
        state.now.boot - milliseconds(std::clamp<std::int64_t>(stopping_ms, 0, kStoppingMost_ms));
  }
}

}  // namespace rn::coordinator
