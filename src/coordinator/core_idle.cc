// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_idle.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/counted.h"
#include "coordinator/core_gang_life.h"
#include "coordinator/core_job_life.h"

namespace rn::coordinator {

namespace {

/// A system that runs nothing still does a little on each of its cores.
constexpr std::uint32_t kBusyCpuPercent = 5;
constexpr std::uint64_t kBusyCpuMilli = 500;

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

/// The mean over the window, once it was looked at for so long.
std::optional<double> add_use(
    const State& state,
    std::optional<sched::UseWindow>& window,
    std::uint32_t window_s,
    nanoseconds span,
    double use
) {
  if (window_s == 0) return std::nullopt;
  if (!window) window.emplace(std::chrono::seconds(window_s));
  window->add(state.now.boot, span, use);
  return window->mean(state.now.boot);
}

std::string stop_command(const Job& job) {
  return "`reclaim stop " + std::to_string(job.number) + "`";
}

void mark_idle(State& state, JobEntry& job, double use) {
  Job& j = job.row.job;
  const std::uint32_t after_s = state.config.idle_after_s;
  const bool is_idle = use < state.config.idle_below_percent;
  if (is_idle == (j.idle_since_wall_ms != 0)) return;
  j.idle_since_wall_ms =
      is_idle ? std::max<std::int64_t>(1, state.wall_ms() - std::int64_t{after_s} * 1000) : 0;
  state.save(job);
  if (!is_idle) return;
  state.note(
      job,
      "job.idle",
      "used " + decimal(use, 1) + " % of " + counted(j.spec.resources.gpus, "GPU") + " of " +
          state.name_of(j.node) + " in the last " + short_duration(std::int64_t{after_s} * 1000) +
          ": " + stop_command(j) + " leaves them to others",
      {{"use_percent", decimal(use, 1)}, {"over_s", std::to_string(after_s)}}
  );
}

void stop_idle(State& state, JobEntry& job, double use) {
  const Job& j = job.row.job;
  if (use >= state.config.idle_below_percent || job.row.stop_end != AttemptEnd::kNone) return;
  if (!are_others_idle(state, job, state.config.idle_below_percent)) return;
  const std::string why = "used " + decimal(use, 1) + " % of its GPUs for " +
                          short_duration(std::int64_t{j.spec.idle_stop_s} * 1000) + " (idle_stop)";
  state.note(job, "job.idle_stop", why);
  stop_job(state, job, AttemptEnd::kCancelled, true, state.config.stop_deadline_ms, why);
}

void look_at_use_of(State& state, const NodeEntry& node, JobEntry& job, AttemptEntry& attempt) {
  const nanoseconds span =
      std::min<nanoseconds>(state.now.boot - attempt.use_seen, 2 * state.heartbeat());
  attempt.use_seen = state.now.boot;
  auto use = use_of_gpus(node, attempt.gpus);
  if (!use) return;
  if (are_cores_busy(node)) use = 100;
  const std::uint32_t stop_s = job.row.job.spec.idle_stop_s;
  if (const auto mean = add_use(state, attempt.use, state.config.idle_after_s, span, *use))
    mark_idle(state, job, *mean);
  if (const auto mean = add_use(state, attempt.use_to_stop, stop_s, span, *use))
    stop_idle(state, job, *mean);
}

}  // namespace

void look_at_use(State& state, const NodeEntry& node) {
  const std::vector<AttemptKey> keys(node.attempts.begin(), node.attempts.end());
  for (const AttemptKey& key : keys) {
    JobEntry* job = state.find_job(key.first);
    AttemptEntry* attempt = state.find_attempt(key.first, key.second);
    if (job == nullptr || attempt == nullptr) continue;
    // One that must leave, or saves for it, is not asked what else it does.
    if (attempt->row.attempt.state != AttemptState::kRunning) continue;
    if (job->row.job.spec.resources.gpus > 0) look_at_use_of(state, node, *job, *attempt);
  }
}

std::string idle_words(const State& state, const JobEntry& job) {
  const Job& j = job.row.job;
  if (j.idle_since_wall_ms == 0) return {};
  std::string text = "it has used next to nothing of its GPUs for " +
                     short_duration(state.wall_ms() - j.idle_since_wall_ms);
  if (j.spec.idle_stop_s > 0)
    text += ", and is stopped after " + short_duration(std::int64_t{j.spec.idle_stop_s} * 1000) +
            " of that";
  return text;
}

}  // namespace rn::coordinator
