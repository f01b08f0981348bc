// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_job_life.h"

#include <algorithm>

#include "base/assert.h"
#include "base/log.h"
#include "base/planted.h"
#include "coordinator/core_copies.h"
#include "coordinator/core_evacuation.h"
#include "coordinator/core_gang_life.h"
#include "coordinator/core_holders.h"
#include "coordinator/core_job_ends.h"
#include "coordinator/core_placement.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kLogPiece = 1u << 20;
constexpr std::uint32_t kBeatsAbsent = 3;
constexpr std::size_t kTroubleBytes = 1024;
constexpr nanoseconds kRestoreWaits = std::chrono::minutes(5);  // agents give up after two
/// More of it no machine has: what is told beyond is a mistake, or a lie.
constexpr std::uint64_t kMemoryMost_mib = 1u << 24;
constexpr std::size_t kTroublesTold = 8;  // per attempt: a guest must not fill the history

JobState job_state_of(AttemptState state) {
  switch (state) {
    case AttemptState::kLeased:
    case AttemptState::kFetching:
    case AttemptState::kPreparing:
    case AttemptState::kReady:
    case AttemptState::kStarting:
      return JobState::kStarting;
    case AttemptState::kRunning:
      return JobState::kRunning;
    case AttemptState::kNoticed:
      return JobState::kNoticed;
    case AttemptState::kSaving:
      return JobState::kSaving;
    case AttemptState::kDraining:
    case AttemptState::kEnded:
      return JobState::kDraining;
  }
  return JobState::kStarting;
}

bool holds_guest(AttemptState state) {
  return state != AttemptState::kDraining && state != AttemptState::kEnded;
}

std::string reason_for(const State& state, const JobEntry& job, AttemptState phase) {
  const std::string where = state.name_of(job.row.job.node);
  switch (phase) {
    case AttemptState::kLeased:
      return "leased by " + where;
    case AttemptState::kFetching:
      return where + " fetches the image";
    case AttemptState::kPreparing:
      return where + " prepares the work folder";
    case AttemptState::kReady:
      return "is ready on " + where + ", and waits for the others of its gang";
    case AttemptState::kStarting:
      return "starts on " + where;
    case AttemptState::kRunning:
      return "runs on " + where;
    case AttemptState::kNoticed:
      return job.row.stop_reason.empty() ? where + " is taken back: the job may save"
                                         : "may save on " + where + ": " + job.row.stop_reason;
    case AttemptState::kSaving:
      return "its last state on " + where + " is saved";
    case AttemptState::kDraining:
      return "what is not yet elsewhere leaves " + where;
    case AttemptState::kEnded:
      return "ended on " + where;
  }
  return where;
}

/// Walks a job from the queue to where its attempt is, one legal step after the other.
void follow(State& state, JobEntry& job, JobState to, const std::string& reason) {
  if (job.row.job.state == JobState::kQueued && to != JobState::kQueued)
    state.move(job, JobState::kPlacing, reason);
  if (job.row.job.state == JobState::kPlacing && to != JobState::kStarting)
    state.move(job, JobState::kStarting, reason);
  if (may_follow(job.row.job.state, to)) state.move(job, to, reason);
}

/// The node came back before its job was placed elsewhere: it keeps it.
void reattach(State& state, JobEntry& job, AttemptEntry& attempt, AttemptState phase) {
  if (job.placement) cancel_placement(state, job);
  ++state.metrics.reattached;
  job.row.is_displaced = false;
  if (job.row.job.displacements > 0) --job.row.job.displacements;  // it did not move after all
  job.row.job.node = attempt.row.attempt.node;
  follow(state, job, job_state_of(phase), reason_for(state, job, phase));
  state.note(
      job, "job.reattached", state.name_of(job.row.job.node) + " came back with it: nothing moves"
  );
  NodeEntry* node = state.find_node(job.row.job.node);
  if (node == nullptr) return;
  node->attempts.insert({job.row.job.id, attempt.row.attempt.epoch});
  note_evacuees(state, *node);
}

bool waits_for_place(const JobEntry& job) {
  return job.row.job.state == JobState::kQueued ||
         (job.row.job.state == JobState::kPlacing && job.placement.has_value());
}

/// What keeps a guest from being saved goes into the job's history once, and stays in `why` until
/// it is saved.
void take_trouble(
    State& state, const JobEntry& job, AttemptEntry& attempt, const std::string& words
) {
  const std::string trouble = words.substr(0, kTroubleBytes);
  attempt.save_trouble = trouble;
  if (trouble.empty() || attempt.told_troubles.size() >= kTroublesTold) return;
  if (attempt.told_troubles.insert(trouble).second) state.note(job, "checkpoint.trouble", trouble);
}

/// While its restore waits that is the job's reason; afterwards what its attempt does is.
void hear_restore(
    State& state, JobEntry& job, AttemptEntry& attempt, const wire::AttemptReport& report
) {
  const bool was_waiting = !attempt.waits_for.empty();
  take_restore_wait(state, job, attempt, report);
  if (!was_waiting || !attempt.waits_for.empty() || waits_for_place(job)) return;
  job.row.job.reason = reason_for(state, job, attempt.row.attempt.state);
  state.save(job);
}

void take_numbers(State& state, AttemptEntry& attempt, const wire::AttemptReport& report) {
  attempt.row.safe_generation = std::max(attempt.row.safe_generation, report.safe_generation);
  attempt.row.last_step = std::max(attempt.row.last_step, report.step);
  attempt.since_save_ms = report.since_save_ms;
  attempt.since_save_told = state.now.boot;
  attempt.saving = report.saving.substr(0, kTroubleBytes);
  if (report.gpus.size() <= kMaxGpus) attempt.gpus = report.gpus;
  Attempt& a = attempt.row.attempt;
  a.memory_peak_mib =
      std::max(a.memory_peak_mib, std::min(report.memory_peak_mib, kMemoryMost_mib));
  a.gpu_memory_peak_mib =
      std::max(a.gpu_memory_peak_mib, std::min(report.gpu_memory_peak_mib, kMemoryMost_mib));
  attempt.cpu_ms = report.cpu_ms;
  attempt.is_visited = report.is_visited;
  attempt.reported_end = report.end;
}

wire::AttemptVerdict verdict_on(
    State& state, NodeEntry& node, const wire::AttemptReport& report, bool is_hello
) {
  wire::AttemptVerdict verdict{.job = report.job, .epoch = report.epoch};
  AttemptEntry* attempt = state.find_attempt(report.job, report.epoch);
  JobEntry* job = state.find_job(report.job);
  const bool is_ours = attempt != nullptr && attempt->row.attempt.node == node.row.node;
  if (job == nullptr || !is_ours || !attempt->is_live() ||
      !state.is_current(report.job, report.epoch)) {
    // Nothing more is wanted from it: it may forget the attempt once the guest is gone.
    verdict.is_end_known = true;
    if (job == nullptr && is_hello && report.state != AttemptState::kEnded)
      state.note(
          node,
          "attempt.of_unknown_job",
          "holds attempt " + to_string(report.epoch) + " of job " + report.job.str().substr(0, 64) +
              ", which is not in this database: it is stopped"
      );
    if (attempt != nullptr && is_ours && report.state != AttemptState::kEnded)
      say_fenced(state, node, *attempt, "an attempt");
    return verdict;
  }
  verdict.is_current = true;
  verdict.departure = departure_of(state, report.job, node.row.node);
  attempt->beats_absent = 0;
  take_numbers(state, *attempt, report);
  take_trouble(state, *job, *attempt, report.save_trouble);
  hear_restore(state, *job, *attempt, report);
  if (is_hello) member_greeted(state, *job, report.epoch);
  member_reported(state, *job, *attempt, report);
  if (waits_for_place(*job) && attempt->is_granted) {
    // Only a hello reattaches: what drains goes on draining, and its job stays in the queue.
    const bool is_finished = report.end == AttemptEnd::kSucceeded;
    if (is_hello && !job->row.job.gang && (holds_guest(report.state) || is_finished))
      reattach(state, *job, *attempt, report.state);
    return verdict;
  }
  grant(state, *job, *attempt);
  return verdict;
}

std::set<AttemptKey> keys_of(const std::vector<wire::AttemptReport>& reports) {
  std::set<AttemptKey> keys;
  for (const wire::AttemptReport& report : reports) keys.insert({report.job, report.epoch});
  return keys;
}

void lose_attempt(State& state, NodeEntry& node, const AttemptKey& key, const std::string& detail) {
  AttemptEntry* attempt = state.find_attempt(key.first, key.second);
  JobEntry* job = state.find_job(key.first);
  node.attempts.erase(key);
  if (attempt == nullptr || job == nullptr || !attempt->is_live()) return;
  close_attempt(state, *attempt, AttemptEnd::kLost, detail);
  if (!state.is_current(key.first, key.second) || waits_for_place(*job)) return;
  if (job->row.job.gang)
    return attempt->is_granted
               ? member_ended(state, *job, *attempt, AttemptEnd::kLost)
               : member_not_granted(state, *job, node.row.node, "the lease was never granted");
  if (job->row.stop_end != AttemptEnd::kNone && job->row.stop_end != AttemptEnd::kMigrated)
    return finish_stopped(state, *job);
  if (!attempt->is_granted) return queue_again(state, *job, "the lease was never granted");
  displace(state, *job, node.row.node, detail);
}

void answer_event(
    State& state, NodeEntry& node, const wire::AttemptEvent& event, bool is_accepted
) {
  state.send(
      node,
      wire::AttemptAck{
          .job = event.report.job,
          .epoch = event.report.epoch,
          .seq = event.seq,
          .is_accepted = is_accepted}
  );
}

void learn_restore_time(State& state, const AttemptEntry& attempt) {
  constexpr double kNewest = 0.3;
  NodeEntry* node = state.find_node(attempt.row.attempt.node);
  const double took_s = std::chrono::duration<double>(state.now.boot - attempt.since).count();
  if (node != nullptr && took_s > 0) node->restore_s += kNewest * (took_s - node->restore_s);
}

void advance(State& state, JobEntry& job, AttemptEntry& attempt, const wire::AttemptEvent& event) {
  const AttemptState phase = event.report.state;
  Attempt& row = attempt.row.attempt;
  const bool is_change = row.state != phase;
  if (is_change) attempt.state_since = state.now.boot;
  if (phase == AttemptState::kNoticed) attempt.was_noticed = true;
  if (phase == AttemptState::kRunning && row.started_wall_ms == 0) {
    row.started_wall_ms = event.at_wall_ms;
    attempt.running_since = state.now.boot;
    learn_restore_time(state, attempt);
    if (job.row.job.started_wall_ms == 0) {
      job.row.job.started_wall_ms = event.at_wall_ms;
      state.moved.push_back(job.row.job.id);
    }
  }
  row.state = phase;
  row.detail = event.report.detail;
  hear_restore(state, job, attempt, event.report);
  state.save(attempt);
  // A drain that lasted too long: its job waits in the queue already, and only the copies count.
  if (!is_change || waits_for_place(job)) return;
  const std::string reason = reason_for(state, job, phase);
  follow(state, job, job_state_of(phase), reason);
  state.note(
      job,
      "attempt." + std::string(to_string(phase)),
      reason,
      {{"at_wall_ms", std::to_string(event.at_wall_ms)},
       {"at_boot_ns", std::to_string(event.at_boot_ns)},
       {"step", std::to_string(event.report.step)},
       {"safe_generation", std::to_string(event.report.safe_generation)}}
  );
  NodeEntry* node = state.find_node(row.node);
  if (phase == AttemptState::kNoticed && node != nullptr) note_evacuees(state, *node);
  member_moved(state, job, attempt);
}

/// How old the work is that only its last generation holds, when its guest was stopped: what it
/// computes again if it does not wait for that. 0 where nobody knows. Nodes say these times, and
/// may say any.
nanoseconds work_at_stake(
    const State& state, const JobEntry& job, const AttemptEntry& attempt, const NodeEntry& node
) {
  constexpr std::int64_t kFar_ms = 1'000'000'000'000'000;
  const Attempt& a = attempt.row.attempt;
  const GenerationRef& durable = job.row.job.durable;
  const bool is_its_own = durable.generation > 0 && durable.epoch == a.epoch;
  const std::int64_t told_ms = is_its_own ? durable.created_wall_ms : a.started_wall_ms;
  if (told_ms <= 0) return nanoseconds(0);
  const std::int64_t elsewhere_ms =
      std::min(told_ms, kFar_ms) + std::clamp(node.clock_offset_ms, -kFar_ms, kFar_ms);
  // While it is being saved, the newest save is yet to come.
  const bool is_saved = a.state == AttemptState::kDraining && attempt.since_save_ms >= 0;
  const Instant since = is_saved ? attempt.since_save_told : attempt.state_since;
  const std::int64_t age_ms = (is_saved ? std::min(attempt.since_save_ms, kFar_ms) : 0) +
                              (state.now.boot - since) / milliseconds(1);
  const std::int64_t stake_ms = state.wall_ms() - age_ms - elsewhere_ms;
  constexpr std::int64_t kDay_ms = 86'400'000;
  return milliseconds(std::clamp<std::int64_t>(stake_ms, 0, kDay_ms));
}

/// How long a displaced job waits for its last generation: as long as it would have to compute
/// again, so that it is never down for more than twice what the better choice would have cost, but
/// no longer than its node sends. Also where little is at stake a copy gets some time.
nanoseconds drain_patience(
    const State& state, const JobEntry& job, const AttemptEntry& attempt, const NodeEntry* node
) {
  const nanoseconds least = milliseconds(state.config.drain_wait_ms);
  if (node == nullptr) return least;
  const nanoseconds most = seconds(node->row.contract.max_drain_s) + state.heartbeat();
  return std::max(least, std::min(most, work_at_stake(state, job, attempt, *node)));
}

/// The job is queued or runs elsewhere: it follows nobody's stop any more.
bool is_too_slow(
    const State& state, const JobEntry& job, const AttemptEntry& attempt, const NodeEntry* node
) {
  const AttemptState phase = attempt.row.attempt.state;
  if (phase != AttemptState::kDraining && phase != AttemptState::kSaving) return false;
  const AttemptEnd end = attempt.reported_end;
  const bool is_taken_back =
      end == AttemptEnd::kReclaimed || end == AttemptEnd::kMigrated || end == AttemptEnd::kLost ||
      (end == AttemptEnd::kNone &&
       (attempt.was_noticed || (node != nullptr && node->lending == LendingState::kReclaimed)));
  return is_taken_back &&
         state.now.boot - attempt.state_since >= drain_patience(state, job, attempt, node);
}

void look_at(State& state, JobEntry& job, AttemptEntry& attempt) {
  NodeEntry* node = state.find_node(attempt.row.attempt.node);
  if (waits_for_place(job)) return;
  if (is_too_slow(state, job, attempt, node)) {
    const nanoseconds waited = state.now.boot - attempt.state_since;
    displace(
        state,
        job,
        attempt.row.attempt.node,
        "its last generation took longer than " + short_duration(waited / milliseconds(1)) +
            " to leave the node"
    );
    return;
  }
  if (job.row.stop_end != AttemptEnd::kNone &&
      state.now.boot - job.stop_sent >= state.heartbeat()) {
    send_stop(state, job, attempt);
  }
  const bool is_stuck =
      job.row.stop_end == AttemptEnd::kMigrated && !job.row.is_going_home &&
      state.now.boot - attempt.since >=
          milliseconds(state.config.start_timeout_ms) + milliseconds(state.config.drain_wait_ms);
  if (is_stuck) {  // whatever lives there is fenced as soon as the successor is placed
    const std::string why = std::string(job.row.stop_reason) + ", nor could be stopped";
    return displace(state, job, attempt.row.attempt.node, why);
  }
  const bool is_starting = attempt.is_granted && attempt.row.attempt.state < AttemptState::kRunning;
  // A restore that waits for holders ends by itself, and uses up no restart.
  const nanoseconds more = attempt.waits_for.empty() ? nanoseconds(0) : kRestoreWaits;
  if (is_starting && job.row.stop_end == AttemptEnd::kNone &&
      state.now.boot - attempt.since >= milliseconds(state.config.start_timeout_ms) + more) {
    state.note(job, "attempt.slow_start", "did not start in time; it is tried elsewhere");
    job.row.avoid = attempt.row.attempt.node;
    job.row.stop_end = AttemptEnd::kMigrated;
    job.row.stop_reason = "did not start within " + short_duration(state.config.start_timeout_ms);
    state.save(job);
    send_stop(state, job, attempt);
  }
}

}  // namespace

void grant(State& state, JobEntry& job, AttemptEntry& attempt) {
  if (attempt.is_granted) return;
  attempt.is_granted = true;
  attempt.commit.reset();
  attempt.since = state.now.boot;
  job.awaited.clear();
  ++state.metrics.leases_granted;
  end_evacuation(state, job.row.job.id);
  job.row.is_displaced = false;
  job.commits_lost = 0;
  job.refusals.clear();
  if (job.row.job.state == JobState::kPlacing)
    state.move(job, JobState::kStarting, reason_for(state, job, AttemptState::kLeased));
}

void say_fenced(State& state, NodeEntry& node, AttemptEntry& attempt, const std::string& what) {
  ++state.metrics.effects_fenced;
  if (attempt.is_fencing_said) return;
  attempt.is_fencing_said = true;
  const AttemptKey key{attempt.row.attempt.job, attempt.row.attempt.epoch};
  const JobEntry* job = state.find_job(key.first);
  if (job == nullptr) return;
  state.note(
      *job,
      "attempt.fenced",
      what + " of epoch " + to_string(key.second) + " on " + state.name_of(node.row.node) +
          " is refused: the job's epoch is " + to_string(job->row.job.epoch)
  );
}

void on_attempt_event(State& state, NodeEntry& sender, const wire::AttemptEvent& event) {
  const wire::AttemptReport& report = event.report;
  AttemptEntry* attempt = state.find_attempt(report.job, report.epoch);
  JobEntry* job = state.find_job(report.job);
  const bool is_ours = attempt != nullptr && (attempt->row.attempt.node == sender.row.node ||
                                              planted("coordinator.hears_anybody"));
  if (job == nullptr || !is_ours) {
    ++state.metrics.effects_fenced;
    return answer_event(state, sender, event, false);
  }
  if (!attempt->is_live()) {
    // A repetition of what is recorded is acknowledged; anything newer comes from a fenced attempt.
    const bool is_repeat = event.seq <= attempt->row.last_seq;
    if (!is_repeat) say_fenced(state, sender, *attempt, "an event");
    return answer_event(state, sender, event, is_repeat);
  }
  if (!state.is_current(report.job, report.epoch)) {
    say_fenced(state, sender, *attempt, "an event");
    return answer_event(state, sender, event, false);
  }
  if (event.seq <= attempt->row.last_seq) return answer_event(state, sender, event, true);
  take_numbers(state, *attempt, report);
  grant(state, *job, *attempt);
  member_reported(state, *job, *attempt, report);
  if (report.state != AttemptState::kEnded) {
    attempt->row.last_seq = event.seq;
    advance(state, *job, *attempt, event);
    return answer_event(state, sender, event, true);
  }
  if (attempt->is_checking_outputs) {
    attempt->held_end = event;  // acknowledged when the outputs are looked at
    return;
  }
  end_attempt(state, *job, *attempt, event);
  answer_event(state, sender, event, true);
}

void on_log_append(State& state, NodeEntry& sender, const wire::LogAppend& message) {
  AttemptEntry* attempt = state.find_attempt(message.job, message.epoch);
  const bool is_ours = attempt != nullptr && (attempt->row.attempt.node == sender.row.node ||
                                              planted("coordinator.takes_logs_of_anybody"));
  const bool is_open =
      is_ours && (attempt->row.is_tail_open ||
                  (attempt->is_live() && state.is_current(message.job, message.epoch)));
  if (!is_open || message.bytes.size() > kLogPiece) {
    if (is_ours && !is_open) say_fenced(state, sender, *attempt, "a log");
    state.send(
        sender, wire::LogAck{.job = message.job, .epoch = message.epoch, .is_accepted = false}
    );
    return;
  }
  state.metrics.log_bytes += message.bytes.size();
  if (planted("coordinator.acknowledges_logs_early"))
    on_log_stored(
        state, LogStored{message.job, message.epoch, message.offset + message.bytes.size()}
    );
  state.act(AppendLog{message.job, message.epoch, message.offset, message.bytes});
}

void on_log_stored(State& state, const LogStored& event) {
  const AttemptEntry* attempt = state.find_attempt(event.job, event.epoch);
  if (attempt == nullptr) return;
  state.send(
      attempt->row.attempt.node,
      wire::LogAck{
          .job = event.job,
          .epoch = event.epoch,
          .next_offset = event.next_offset,
          .is_accepted = true}
  );
}

void on_publish_outputs(State& state, NodeEntry& sender, const wire::PublishOutputs& message) {
  AttemptEntry* attempt = state.find_attempt(message.job, message.epoch);
  const JobEntry* job = state.find_job(message.job);
  const bool is_ours = attempt != nullptr && attempt->row.attempt.node == sender.row.node;
  if (is_ours && job != nullptr && job->row.job.epoch == message.epoch &&
      job->row.job.outputs == message.listing && message.listing != Digest{}) {
    state.send(sender, wire::AttemptAck{.job = message.job, .epoch = message.epoch});
    return;
  }
  const bool is_open =
      is_ours && ((attempt->is_live() && state.is_current(message.job, message.epoch)) ||
                  planted("coordinator.publishes_what_is_fenced"));
  if (!is_open) {
    if (is_ours) say_fenced(state, sender, *attempt, "outputs");
    state.send(
        sender, wire::AttemptAck{.job = message.job, .epoch = message.epoch, .is_accepted = false}
    );
    return;
  }
  attempt->is_checking_outputs = true;
  state.act(CheckOutputs{message.job, message.epoch, message.listing});
}

void on_outputs_checked(State& state, const OutputsChecked& event) {
  AttemptEntry* attempt = state.find_attempt(event.job, event.epoch);
  JobEntry* job = state.find_job(event.job);
  if (attempt == nullptr || job == nullptr) return;
  attempt->is_checking_outputs = false;
  NodeEntry* node = state.find_node(attempt->row.attempt.node);
  const bool is_open = (attempt->is_live() && state.is_current(event.job, event.epoch)) ||
                       planted("coordinator.publishes_what_is_fenced");
  if (!is_open) return;
  if (!event.status) {
    // Not answered: the agent repeats, after it has uploaded what was missing.
    log::warning(
        "outputs.incomplete", {{"job", event.job.str()}, {"why", event.status.error().describe()}}
    );
    attempt->held_end.reset();
    return;
  }
  const OutputsRow row{
      .job = event.job,
      .epoch = event.epoch,
      .listing = event.listing,
      .published_wall_ms = state.wall_ms()};
  state.write(PutOutputs{row});
  job->row.job.outputs = event.listing;
  state.save(*job);
  state.note(*job, "outputs.published", "outputs of epoch " + to_string(event.epoch));
  if (node != nullptr) state.send(*node, wire::AttemptAck{.job = event.job, .epoch = event.epoch});
  if (!attempt->held_end) return;
  const wire::AttemptEvent held = *attempt->held_end;
  attempt->held_end.reset();
  end_attempt(state, *job, *attempt, held);
  if (node != nullptr) answer_event(state, *node, held, true);
}

std::vector<wire::AttemptVerdict> reconcile_hello(
    State& state, NodeEntry& node, const std::vector<wire::AttemptReport>& reports
) {
  std::vector<wire::AttemptVerdict> verdicts;
  verdicts.reserve(reports.size());
  const std::set<AttemptKey> reported = keys_of(reports);
  for (const wire::AttemptReport& report : reports)
    verdicts.push_back(verdict_on(state, node, report, true));
  const std::set<AttemptKey> held = node.attempts;
  for (const AttemptKey& key : held) {
    if (!reported.contains(key)) lose_attempt(state, node, key, "the node holds it no more");
  }
  return verdicts;
}

std::vector<wire::AttemptVerdict> reconcile_beat(
    State& state, NodeEntry& node, const std::vector<wire::AttemptReport>& reports
) {
  std::vector<wire::AttemptVerdict> verdicts;
  verdicts.reserve(reports.size());
  const std::set<AttemptKey> reported = keys_of(reports);
  for (const wire::AttemptReport& report : reports)
    verdicts.push_back(verdict_on(state, node, report, false));
  const std::set<AttemptKey> held = node.attempts;
  for (const AttemptKey& key : held) {
    AttemptEntry* attempt = state.find_attempt(key.first, key.second);
    if (reported.contains(key) || attempt == nullptr || !attempt->is_granted) continue;
    if (++attempt->beats_absent >= kBeatsAbsent)
      lose_attempt(state, node, key, "the node no longer reports it");
  }
  return verdicts;
}

void lose_attempts_of(State& state, NodeEntry& node) {
  const std::set<AttemptKey> held = node.attempts;
  for (const AttemptKey& key : held) {
    AttemptEntry* attempt = state.find_attempt(key.first, key.second);
    JobEntry* job = state.find_job(key.first);
    if (attempt == nullptr || job == nullptr || node.row.is_revoked || !attempt->is_granted) {
      lose_attempt(state, node, key, "its node is gone");
      continue;
    }
    if (!state.is_current(key.first, key.second) || waits_for_place(*job)) continue;
    if (job->row.stop_end != AttemptEnd::kNone && job->row.stop_end != AttemptEnd::kMigrated) {
      lose_attempt(state, node, key, "its node is gone");
      continue;
    }
    displace(state, *job, node.row.node, state.name_of(node.row.node) + " is lost");
  }
}

void look_at_attempts(State& state) {
  const std::set<JobId> all = state.unfinished;
  for (const JobId& id : all) {
    JobEntry& job = *state.find_job(id);
    if (job.row.job.gang) continue;  // looked at together: look_at_gangs()
    AttemptEntry* attempt = state.newest_attempt(job);
    if (attempt != nullptr && attempt->is_live()) look_at(state, job, *attempt);
  }
}

}  // namespace rn::coordinator
