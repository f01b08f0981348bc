// SPDX-License-Identifier: Apache-2.0
#include "evaluate/record.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "base/assert.h"

namespace rn::evaluate {

namespace {

constexpr double kSameWork_s = 1e-6;

bool is_taken_back(RunEnd end) {
  return end != RunEnd::kFinished && end != RunEnd::kMoved;
}

void add_loss(LossFigures& figures, double lost_gpu_s) {
  ++figures.resumed;
  figures.lost_gpu_s += lost_gpu_s;
  figures.losses.push_back(lost_gpu_s);
}

void add_downtime(LossFigures& figures, double downtime_s) {
  ++figures.caught_up;
  figures.downtime_s += downtime_s;
  figures.downtimes.push_back(downtime_s);
}

}  // namespace

std::string_view to_string(RunEnd end) {
  switch (end) {
    case RunEnd::kFinished:
      return "finished";
    case RunEnd::kAnnounced:
      return "announced";
    case RunEnd::kNotice:
      return "notice";
    case RunEnd::kEmergency:
      return "emergency";
    case RunEnd::kLost:
      return "lost";
    case RunEnd::kMoved:
      return "moved";
  }
  return "?";
}

RunEnd run_end_of(ReclaimKind kind) {
  switch (kind) {
    case ReclaimKind::kAnnounced:
      return RunEnd::kAnnounced;
    case ReclaimKind::kNotice:
      return RunEnd::kNotice;
    case ReclaimKind::kEmergency:
      return RunEnd::kEmergency;
    case ReclaimKind::kLost:
      return RunEnd::kLost;
  }
  return RunEnd::kLost;
}

Record::Record(std::function<void(const std::string&)> out) : out_(std::move(out)) {
  if (out_) out_("ns,event,job,run,node,gpus,number,note");
}

void Record::row(Moment at, std::string_view event, const Fields& f) {
  if (!out_) return;
  out_(fmt::format(
      "{},{},{},{},{},{},{},{}", at.count(), event, f.job, f.run, f.node, f.gpus, f.number, f.note
  ));
}

Record::Fields Record::fields_of(const RunState& run, RunNumber number) {
  return {
      .job = std::to_string(run.job),
      .run = std::to_string(number),
      .node = std::to_string(run.node)};
}

void Record::submitted(
    Moment at, JobNumber job, std::uint32_t gpus, double work_s, std::string_view kind
) {
  jobs_[job].gpus = gpus;
  jobs_[job].work_s = work_s;
  ++figures_.submitted;
  row(at,
      "submitted",
      {.job = std::to_string(job),
       .gpus = std::to_string(gpus),
       .number = fmt::format("{:.9f}", work_s),
       .note = kind});
}

void Record::lent(Moment at, NodeNumber node, std::uint32_t gpus) {
  NodeState& state = nodes_[node];
  state.is_lent = true;
  state.has_notice = false;
  state.gpus = gpus;
  state.since = at;
  row(at, "lent", {.node = std::to_string(node), .gpus = std::to_string(gpus)});
}

void Record::declared(Moment at, NodeNumber node, ReclaimKind kind, Moment deadline) {
  nodes_[node].has_notice = deadline > at;
  row(at,
      "declared",
      {.node = std::to_string(node),
       .number = std::to_string(deadline.count()),
       .note = to_string(kind)});
}

void Record::taken(Moment at, NodeNumber node, ReclaimKind kind) {
  NodeState& state = nodes_[node];
  figures_.lent_gpu_s += state.gpus * seconds_of(at - state.since);
  state.is_lent = false;
  ++figures_.reclaims;
  row(at, "taken", {.node = std::to_string(node), .note = to_string(kind)});
}

void Record::started(Moment at, RunNumber run, JobNumber job, NodeNumber node, double progress_s) {
  JobState& state = jobs_.at(job);
  RunState& made = runs_[run];
  made = {job, node, progress_s, 0, at, std::max(state.reached_s, progress_s), at};
  ++nodes_[node].runs;
  if (state.is_displaced && !state.has_resumed) resume(state, progress_s);
  Fields fields = fields_of(made, run);
  fields.number = fmt::format("{:.9f}", progress_s);
  row(at, "started", fields);
}

void Record::resume(JobState& job, double progress_s) {
  job.has_resumed = true;
  // Work that was done again by that run is not lost a second time.
  const double lost_s = std::max(0.0, job.useful_until_s - std::max(job.useful_from_s, progress_s));
  LossFigures& of_end = figures_.by_end[std::string(to_string(job.last_end))];
  add_loss(of_end, lost_s * job.gpus);
  if (job.last_end == RunEnd::kMoved) return;
  add_loss(figures_.all, lost_s * job.gpus);
  if (!job.had_notice) return;
  ++figures_.scheduled_departures;
  if (job.useful_until_s - progress_s <= kCleanLoss_s) ++figures_.clean_departures;
}

/// Its first new useful step after it was displaced.
void Record::catch_up(JobState& job, Moment at) {
  job.is_displaced = false;
  const double downtime_s = seconds_of(at - job.last_useful);
  add_downtime(figures_.by_end[std::string(to_string(job.end))], downtime_s);
  if (job.end != RunEnd::kMoved) add_downtime(figures_.all, downtime_s);
}

/// Work done since the run was looked at last, and what it was worth.
void Record::advance(RunState& run, Moment at) {
  JobState& job = jobs_.at(run.job);
  const double passed_s = seconds_of(at - run.since);
  const double done_s = passed_s * run.speed;
  const double before_s = run.progress_s;
  run.progress_s += done_s;
  const double new_s = std::clamp(run.progress_s - run.new_from_s, 0.0, done_s);
  figures_.useful_gpu_s += new_s * job.gpus;
  figures_.redone_gpu_s += (done_s - new_s) * job.gpus;
  if (run.speed <= 0) {
    figures_.paused_gpu_s += passed_s * job.gpus;
  } else {
    figures_.slowed_gpu_s += passed_s * (1 - run.speed) * job.gpus;
    if (passed_s > 0) run.last_useful = at;
  }
  if (job.is_displaced && new_s > kSameWork_s) {
    const double until_new_s = std::max(0.0, run.new_from_s - before_s) / run.speed;
    catch_up(job, run.since + moment_of(until_new_s));
  }
  job.reached_s = std::max(job.reached_s, run.progress_s);
  run.since = at;
  figures_.used_gpu_s += passed_s * job.gpus;
}

void Record::goes_at(Moment at, RunNumber number, double speed) {
  RunState& run = runs_.at(number);
  advance(run, at);
  run.speed = speed;
  Fields fields = fields_of(run, number);
  fields.number = fmt::format("{:.12g}", speed);
  row(at, "speed", fields);
}

void Record::ended(Moment at, RunNumber number, RunEnd end, std::optional<NodeNumber> node) {
  const auto found = runs_.find(number);
  RN_ASSERT(found != runs_.end(), "a run ends once");
  RunState& run = found->second;
  JobState& job = jobs_.at(run.job);
  advance(run, at);
  Fields fields = fields_of(run, number);
  if (node) fields.node = std::to_string(*node);
  fields.number = fmt::format("{:.9f}", run.progress_s);
  fields.note = to_string(end);
  row(at, "ended", fields);
  --nodes_[run.node].runs;
  LossFigures& of_end = figures_.by_end[std::string(to_string(end))];
  ++of_end.displaced;
  if (end == RunEnd::kFinished) {
    ++figures_.finished;
    job.is_displaced = false;
  } else {
    if (is_taken_back(end)) ++figures_.all.displaced;
    // Who was displaced before it had done anything new has been down since the first time.
    const bool is_still_down = job.is_displaced;
    job.end = is_still_down && !is_taken_back(end) ? job.end : end;
    if (!is_still_down) job.last_useful = run.last_useful;
    job.last_end = end;
    job.is_displaced = true;
    job.has_resumed = false;
    job.useful_until_s = run.progress_s;
    job.useful_from_s = run.new_from_s;
    job.had_notice = is_taken_back(end) && nodes_[node.value_or(run.node)].has_notice;
  }
  runs_.erase(found);
}

void Record::overstayed(Moment at, RunNumber run) {
  ++figures_.overstays;
  row(at, "overstayed", fields_of(runs_.at(run), run));
}

double Record::progress_s(Moment at, RunNumber number) const {
  const RunState& run = runs_.at(number);
  return run.progress_s + run.speed * seconds_of(at - run.since);
}

Figures Record::figures(Moment at) const {
  Record copy = *this;
  copy.out_ = nullptr;
  for (auto& [number, run] : copy.runs_) copy.advance(run, at);
  for (const auto& [number, node] : copy.nodes_) {
    if (node.is_lent) copy.figures_.lent_gpu_s += node.gpus * seconds_of(at - node.since);
  }
  copy.figures_.simulated_s = seconds_of(at);
  return std::move(copy.figures_);
}

void Record::carried(Moment at, double bytes) {
  row(at, "carried", {.number = fmt::format("{:.3f}", bytes)});
}

void Record::over(Moment at) {
  row(at, "over", {});
}

}  // namespace rn::evaluate
