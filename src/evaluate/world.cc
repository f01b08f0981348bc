// SPDX-License-Identifier: Apache-2.0
#include "evaluate/world.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace rn::evaluate {

namespace {

/// Between the moment when the machine is its owner's and the look whether somebody is still there.
constexpr Moment kOverstay = milliseconds(500);

Status check(const Setting& setting) {
  double last_s = 0;
  const std::size_t kinds = setting.kinds.empty() ? state_kinds().size() : setting.kinds.size();
  for (const SubmittedJob& job : setting.jobs) {
    if (job.at_s < last_s || !(job.work_s > 0) || job.gpus == 0 || job.kind >= kinds)
      return fail(ErrorCode::kInvalid, "jobs must come in order of time, with work, GPUs and kind");
    last_s = job.at_s;
  }
  std::map<std::size_t, double> lent_from;
  std::vector<Interruption> sorted = by_time(setting.interruptions);
  for (const Interruption& one : sorted) {
    const bool is_one = one.node < setting.campus.nodes.size() &&
                        one.declared_s <= one.deadline_s && one.deadline_s < one.returns_s &&
                        one.declared_s >= lent_from[one.node];
    if (!is_one)
      return fail(
          ErrorCode::kInvalid,
          "an interruption of node " + std::to_string(one.node) + " at " +
              std::to_string(one.declared_s) +
              " s cannot be: it is declared before it comes, ends "
              "after it begins, and follows the one before it"
      );
    lent_from[one.node] = one.returns_s;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<World>> World::make(
    Setting setting, std::function<void(const std::string&)> rows
) {
  RN_CHECK(check(setting));
  RN_TRY(reclaim::Topology topology, reclaim::Topology::make(setting.campus.topology));
  return std::unique_ptr<World>(new World(std::move(setting), std::move(topology), std::move(rows))
  );
}

World::World(
    Setting setting, reclaim::Topology topology, std::function<void(const std::string&)> rows
)
    : setting_(std::move(setting)),
      kinds_(setting_.kinds.empty() ? state_kinds_times(setting_.state_factor) : setting_.kinds),
      topology_(std::move(topology)),
      flows_(agenda_, topology_),
      record_(std::move(rows)),
      store_(topology_.find(setting_.campus.store, "")),
      nodes_(setting_.campus.nodes.size()),
      takes_(setting_.campus.nodes.size(), 0) {
  for (const CampusNode& node : setting_.campus.nodes)
    places_.push_back(topology_.find(node.name, ""));
  for (std::uint32_t i = 0; i < topology_.links().size(); ++i) {
    const auto found = setting_.carries.find(topology_.links()[i].name);
    if (found != setting_.carries.end()) flows_.set_line(i, found->second);
  }
  flows_.on_carried([this](double bytes) { record_.carried(now(), bytes); });
}

void World::arrange() {
  for (std::size_t i = 0; i < setting_.jobs.size(); ++i) {
    agenda_.at(moment_of(setting_.jobs[i].at_s), [this, i] {
      const SubmittedJob& job = setting_.jobs[i];
      submitted_ = i + 1;
      record_.submitted(now(), i, job.gpus, job.work_s, kind(i).name);
      policy_->on_submit(i);
    });
  }
  for (const Interruption& one : setting_.interruptions) {
    const bool is_told = one.kind == ReclaimKind::kAnnounced || one.kind == ReclaimKind::kNotice;
    if (is_told) agenda_.at(moment_of(one.declared_s), [this, one] { declare(one); });
    agenda_.at(moment_of(one.deadline_s), [this, one] { take(one); });
    agenda_.at(moment_of(one.returns_s), [this, node = one.node] { lend(node); });
  }
  for (const LineChange& change : setting_.campus.changes) {
    agenda_.at(moment_of(change.at_s), [this, change] {
      const std::string& name = setting_.campus.nodes[change.node].name;
      for (std::uint32_t i = 0; i < topology_.links().size(); ++i) {
        const std::string& link = topology_.links()[i].name;
        if (link == name + " up" || link == name + " down") flows_.set_line(i, change.rate);
      }
    });
  }
}

void World::run(Policy& policy) {
  RN_ASSERT(policy_ == nullptr, "a world is run once");
  policy_ = &policy;
  policy.begin(*this);
  std::set<std::size_t> taken_at_once;
  for (const Interruption& one : setting_.interruptions) {
    if (one.deadline_s <= 0) taken_at_once.insert(one.node);
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].free_gpus = setting_.campus.nodes[i].gpus;
    if (!taken_at_once.contains(i)) lend(i);
  }
  arrange();
  const Moment end = moment_of(setting_.days * 86'400);
  while (agenda_.step(end)) {
  }
  flows_.close();
  record_.over(now());
}

Figures World::figures() const {
  Figures figures = record_.figures(now());
  figures.moved_bytes = flows_.bytes();
  return figures;
}

const SubmittedJob& World::job(JobNumber job) const {
  RN_ASSERT(job < submitted_, "nobody knows of a job before it is submitted");
  return setting_.jobs[job];
}

void World::lend(NodeNumber node) {
  nodes_[node].is_lent = true;
  record_.lent(now(), node, setting_.campus.nodes[node].gpus);
  policy_->on_lent(node);
}

void World::declare(const Interruption& one) {
  record_.declared(now(), one.node, one.kind, moment_of(one.deadline_s));
  policy_->on_declared(one.node, one.kind, moment_of(one.deadline_s));
}

void World::take(const Interruption& one) {
  Node& node = nodes_[one.node];
  const bool is_at_once = one.kind == ReclaimKind::kEmergency || one.kind == ReclaimKind::kLost;
  if (is_at_once) {
    const std::set<RunNumber> runs = node.runs;
    for (const RunNumber run : runs) stop(run, run_end_of(one.kind), one.node);
  }
  if (node.is_lent) record_.taken(now(), one.node, one.kind);
  node.is_lent = false;
  const std::uint64_t take = ++takes_[one.node];
  if (one.kind == ReclaimKind::kLost) return policy_->on_gone(one.node);
  policy_->on_taken(one.node, one.kind);
  if (is_at_once) return;
  agenda_.after(kOverstay, [this, node = one.node, take] { look_for_overstayers(node, take); });
}

/// What was not ended is the policy's fault: it shows, and ends now.
void World::look_for_overstayers(NodeNumber node, std::uint64_t take) {
  if (takes_[node] != take) return;
  const std::set<RunNumber> runs = nodes_[node].runs;
  for (const RunNumber run : runs) {
    record_.overstayed(now(), run);
    stop(run, RunEnd::kEmergency, node);
  }
}

RunNumber World::start(JobNumber job_number, NodeNumber node, double progress_s) {
  return start_spread(job_number, {node}, job(job_number).gpus, progress_s);
}

RunNumber World::start_spread(
    JobNumber job_number, std::vector<NodeNumber> nodes, std::uint32_t gpus_each, double progress_s
) {
  RN_ASSERT(!nodes.empty(), "a job computes somewhere");
  RN_ASSERT(running_.insert(job_number).second, "a job computes once at a time");
  const RunNumber number = next_run_++;
  for (const NodeNumber at : nodes) {
    Node& node = nodes_[at];
    RN_ASSERT(node.is_lent, "nobody computes on a machine that is its owner's");
    RN_ASSERT(node.free_gpus >= gpus_each, "a GPU has one guest");
    node.free_gpus -= gpus_each;
    node.runs.insert(number);
  }
  record_.started(now(), number, job_number, nodes.front(), progress_s);
  runs_[number] = {.job = job_number, .nodes = std::move(nodes), .gpus_each = gpus_each};
  set_speed(number);
  return number;
}

std::optional<RunNumber> World::run_of(JobNumber job) const {
  for (const auto& [number, run] : runs_)
    if (run.job == job) return number;
  return std::nullopt;
}

double World::left_at_s(JobNumber job) const {
  const auto found = left_at_s_.find(job);
  return found == left_at_s_.end() ? 0 : found->second;
}

void World::stop(RunNumber number, RunEnd end, std::optional<NodeNumber> at) {
  const auto found = runs_.find(number);
  RN_ASSERT(found != runs_.end(), "a run is ended once");
  Run& run = found->second;
  if (run.end) agenda_.cancel(*run.end);
  left_at_s_[run.job] = progress_s(number);
  record_.ended(now(), number, end, at);
  for (const NodeNumber one : run.nodes) {
    nodes_[one].free_gpus += run.gpus_each;
    nodes_[one].runs.erase(number);
  }
  running_.erase(run.job);
  runs_.erase(found);
}

void World::save(RunNumber number, std::function<void(double)> on_saved) {
  Run& run = runs_.at(number);
  run.waiting.push_back(std::move(on_saved));
  if (run.is_paused) return;
  const double progress = progress_s(number);
  run.is_paused = true;
  set_speed(number);
  const StateKind& what = kind(run.job);
  agenda_.after(moment_of(what.bytes / what.pause_bytes_per_s), [this, number, progress] {
    const auto found = runs_.find(number);
    if (found == runs_.end()) return;
    found->second.is_paused = false;
    set_speed(number);
    const auto waiting = std::exchange(found->second.waiting, {});
    for (const auto& on_saved_one : waiting) on_saved_one(progress);
  });
}

void World::slow(RunNumber number, double share) {
  Run& run = runs_.at(number);
  if (run.slowed == share) return;
  run.slowed = share;
  set_speed(number);
}

void World::set_speed(RunNumber number) {
  Run& run = runs_.at(number);
  const double speed = run.is_paused ? 0 : 1 - run.slowed;
  record_.goes_at(now(), number, speed);
  if (run.end) agenda_.cancel(*run.end);
  run.end.reset();
  if (speed <= 0) return;
  const double left_s = std::max(0.0, job(run.job).work_s - progress_s(number));
  run.end =
      agenda_.after(moment_of(left_s / speed) + Moment(1), [this, number] { finish(number); });
}

void World::finish(RunNumber number) {
  Run& run = runs_.at(number);
  if (run.end) agenda_.cancel(*run.end);
  run.end.reset();
  stop(number, RunEnd::kFinished);
  policy_->on_finished(number);
}

}  // namespace rn::evaluate
