// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_idle.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/counted.h"
#include "coordinator/core_gang_life.h"
#include "coordinator/core_job_life.h"
#include "model/quota.h"
#include "sched/quota.h"

namespace rn::coordinator {

namespace {

/// A system that runs nothing still does a little on each of its cores.
constexpr std::uint32_t kBusyCpuPercent = 5;
constexpr std::uint64_t kBusyCpuMilli = 500;
constexpr double kMostPercent = 1000;  ///< a node that says more is not believed
constexpr std::uint32_t kToldLeastS = 60;

/// Its processor time is looked at every few seconds, beats come when they come: one that did not
/// change for so long stands still.
constexpr nanoseconds kCpuStill = std::chrono::seconds(30);

/// In percent of the busiest of its GPUs; nullopt if the node says nothing of them.
std::optional<double> use_of_gpus(const NodeEntry& node, const std::vector<std::uint32_t>& gpus) {
  std::optional<double> most;
  for (const GpuTelemetry& live : node.telemetry.gpus) {
    if (live.is_unseen || std::find(gpus.begin(), gpus.end(), live.index) == gpus.end()) continue;
    most = std::max(most.value_or(0), static_cast<double>(live.utilisation_percent));
  }
  return most;
}

bool are_cores_busy(const NodeEntry& node) {
  const std::uint32_t percent = node.telemetry.cpu_percent;
  return percent > kBusyCpuPercent &&
         std::uint64_t{percent} * node.row.facts.cpu_milli / 100 > kBusyCpuMilli;
}

/// How many cores it used since its processor time was another one.
void follow_cores(const State& state, AttemptEntry& attempt) {
  const nanoseconds since = state.now.boot - attempt.cpu_seen;
  const bool is_known = attempt.cpu_seen_ms > 0 && attempt.cpu_ms >= attempt.cpu_seen_ms;
  if (attempt.cpu_ms == attempt.cpu_seen_ms && since < kCpuStill) return;
  attempt.cores_milli.reset();
  if (is_known && since.count() > 0)
    attempt.cores_milli = static_cast<double>(attempt.cpu_ms - attempt.cpu_seen_ms) /
                          std::chrono::duration<double>(since).count();
  attempt.cpu_seen_ms = attempt.cpu_ms;
  attempt.cpu_seen = state.now.boot;
}

/// In percent of its GPUs or of its cores; nullopt: nobody knows.
std::optional<double> percent_used(
    const State& state, const NodeEntry& node, const JobSpec& spec, AttemptEntry& attempt
) {
  follow_cores(state, attempt);
  const std::optional<double>& cores = attempt.cores_milli;
  std::optional<double> use;
  if (spec.resources.gpus > 0) {
    use = use_of_gpus(node, attempt.gpus);
    const bool is_at_work = cores ? *cores > kBusyCpuMilli : are_cores_busy(node);
    if (use && is_at_work) use = 100;
  } else if (const auto granted = attempt.row.granted_cpu_milli; cores && granted > 0) {
    use = std::min(kMostPercent, *cores * 100 / static_cast<double>(granted));
    // A whole core is little of the thirty that somebody asked for, and no idleness.
    if (*cores > kBusyCpuMilli) use = std::max(*use, 100.0);
  }
  if (use && attempt.is_visited) use = std::max(*use, 100.0);
  return use;
}

/// The mean over the window, once it was looked at for so long.
std::optional<double> add_use(
    const State& state,
    std::optional<sched::UseWindow>& window,
    std::uint32_t window_s,
    nanoseconds span,
    double use
) {
  if (window_s == 0) return std::nullopt;
  const sched::UseWindow wanted{std::chrono::seconds(window_s)};
  if (!window || window->window() != wanted.window()) window = wanted;  // a quota was changed
  window->add(state.now.boot, span, use);
  return window->mean(state.now.boot);
}

std::string stop_command(const Job& job) {
  return "`reclaim stop " + std::to_string(job.number) + "`";
}

const char* things_of(const Job& job) {
  return job.spec.resources.gpus > 0 ? "GPUs" : "cores";
}

/// Whoever is stopped for it is told before.
std::uint32_t told_after_s(const State& state, const IdleStop& stop) {
  const std::uint32_t after_s = state.config.idle_after_s;
  if (after_s == 0 || stop.after_s == 0) return after_s;
  return std::min(after_s, std::max(kToldLeastS, stop.after_s / 2));
}

void mark_idle(
    State& state, JobEntry& job, const AttemptEntry& attempt, double use, std::uint32_t after_s
) {
  Job& j = job.row.job;
  const bool is_idle = use < state.config.idle_below_percent;
  if (is_idle == (j.idle_since_wall_ms != 0)) return;
  j.idle_since_wall_ms =
      is_idle ? std::max<std::int64_t>(1, state.wall_ms() - std::int64_t{after_s} * 1000) : 0;
  state.save(job);
  if (!is_idle) return;
  const double cores = static_cast<double>(attempt.row.granted_cpu_milli) / 1000;
  state.note(
      job,
      "job.idle",
      "used " + decimal(use, 1) + " % of " +
          (j.spec.resources.gpus > 0 ? counted(j.spec.resources.gpus, "GPU")
                                     : decimal(cores, 1) + " cores") +
          " of " + state.name_of(j.node) + " in the last " +
          short_duration(std::int64_t{after_s} * 1000) + ": " + stop_command(j) +
          " leaves them to others",
      {{"use_percent", decimal(use, 1)}, {"over_s", std::to_string(after_s)}}
  );
}

void stop_idle(State& state, JobEntry& job, double use, const IdleStop& stop) {
  const Job& j = job.row.job;
  if (use >= state.config.idle_below_percent || job.row.stop_end != AttemptEnd::kNone) return;
  if (!are_others_idle(state, job, state.config.idle_below_percent)) return;
  const std::string why = "used " + decimal(use, 1) + " % of its " + things_of(j) + " for " +
                          short_duration(std::int64_t{stop.after_s} * 1000) + " (idle_stop" +
                          (stop.whose.empty() ? "" : " of " + stop.whose) + ")";
  state.note(job, "job.idle_stop", why);
  stop_job(state, job, AttemptEnd::kCancelled, true, state.config.stop_deadline_ms, why);
}

void look_at_use_of(State& state, const NodeEntry& node, JobEntry& job, AttemptEntry& attempt) {
  const nanoseconds span =
      std::min<nanoseconds>(state.now.boot - attempt.use_seen, 2 * state.heartbeat());
  attempt.use_seen = state.now.boot;
  const auto use = percent_used(state, node, job.row.job.spec, attempt);
  if (!use) return;
  const IdleStop stop = idle_stop_of(state, job.row.job);
  const std::uint32_t told_s = told_after_s(state, stop);
  if (const auto mean = add_use(state, attempt.use, told_s, span, *use))
    mark_idle(state, job, attempt, *mean, told_s);
  if (const auto mean = add_use(state, attempt.use_to_stop, stop.after_s, span, *use))
    stop_idle(state, job, *mean, stop);
}

}  // namespace

void look_at_use(State& state, const NodeEntry& node) {
  const std::vector<AttemptKey> keys(node.attempts.begin(), node.attempts.end());
  for (const AttemptKey& key : keys) {
    JobEntry* job = state.find_job(key.first);
    AttemptEntry* attempt = state.find_attempt(key.first, key.second);
    if (job == nullptr || attempt == nullptr) continue;
    // One that must leave, or saves for it, is not asked what else it does.
    if (attempt->row.attempt.state == AttemptState::kRunning)
      look_at_use_of(state, node, *job, *attempt);
  }
}

IdleStop idle_stop_of(const State& state, const Job& job) {
  if (job.spec.idle_stop_s > 0) return {.after_s = job.spec.idle_stop_s, .whose = {}};
  const std::pair<std::string, const char*> subjects[] = {
      {quota_subject(job.owner), "user:*"}, {quota_subject(job.lab), "lab:*"}};
  for (const auto& [subject, everybody] : subjects) {
    auto quota = state.quotas.find({subject, std::string()});
    if (quota == state.quotas.end()) quota = state.quotas.find({everybody, std::string()});
    if (quota == state.quotas.end() || !quota->second.idle_stop_s) continue;
    return {.after_s = *quota->second.idle_stop_s, .whose = sched::quota_subject_words(subject)};
  }
  return {};
}

std::string idle_stop_words(const State& state, const Job& job) {
  const IdleStop stop = idle_stop_of(state, job);
  if (stop.after_s == 0 || stop.whose.empty()) return {};
  return std::string("it is stopped when it uses next to nothing of its ") + things_of(job) +
         " for " + short_duration(std::int64_t{stop.after_s} * 1000) + ", by the quota of " +
         stop.whose;
}

std::string idle_words(const State& state, const JobEntry& job) {
  const Job& j = job.row.job;
  if (j.idle_since_wall_ms == 0) return idle_stop_words(state, j);
  std::string text = std::string("it has used next to nothing of its ") + things_of(j) + " for " +
                     short_duration(state.wall_ms() - j.idle_since_wall_ms);
  const IdleStop stop = idle_stop_of(state, j);
  if (stop.after_s > 0)
    text += ", and is stopped after " + short_duration(std::int64_t{stop.after_s} * 1000) +
            " of that" + (stop.whose.empty() ? "" : " (by the quota of " + stop.whose + ")");
  return text;
}

}  // namespace rn::coordinator
