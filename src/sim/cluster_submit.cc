// SPDX-License-Identifier: Apache-2.0
// What users do: they submit jobs and arrays until somebody has acknowledged it, and stop them.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sim/cluster.h"

namespace rn::sim {

namespace {

/// What is waited for could happen no more when the submit came: its user leaves it at that.
bool is_too_late(const Error& error, const std::vector<std::pair<std::string, AfterWhen>>& after) {
  return error.code == ErrorCode::kConflict && !after.empty();
}

}  // namespace

void Cluster::submit(
    const std::string& key,
    const Training& training,
    std::vector<std::pair<std::string, AfterWhen>> after
) {
  const JobState ends_as = end_of(training, {}, after);
  jobs_[key] = {key, training, {}, 0, std::move(after), ends_as};
  try_submit(key);
}

bool Cluster::is_refused(const std::string& name) const {
  const auto array = arrays_.find(name);
  if (array != arrays_.end()) return array->second.is_refused;
  const auto job = jobs_.find(name);
  return job != jobs_.end() && job->second.is_refused;
}

bool Cluster::waits_for_nothing_that_comes(
    const std::vector<std::pair<std::string, AfterWhen>>& after
) const {
  return std::any_of(after.begin(), after.end(), [this](const auto& one) {
    return one.second == AfterWhen::kOk && is_refused(one.first);
  });
}

std::optional<JobSpec> Cluster::spec_of(
    const Training& training, const std::vector<std::pair<std::string, AfterWhen>>& after
) const {
  JobSpec spec = training.spec();
  for (const auto& [name, when] : after) {
    if (is_refused(name)) continue;  // it has ended, and not succeeded
    const auto array = arrays_.find(name);
    const auto job = jobs_.find(name);
    const std::string id = array != arrays_.end() ? array->second.id
                           : job != jobs_.end()   ? job->second.id.str()
                                                  : "";
    if (id.empty()) return std::nullopt;
    spec.after.push_back({.job = id, .when = when});
  }
  return spec;
}

void Cluster::submit_array(const std::string& key, SubmittedArray array) {
  for (std::uint32_t i = 0; i < array.tasks; ++i) {
    const std::string task = key + "." + std::to_string(i);
    jobs_[task] = {task, array.training, {}, 0};
    jobs_[task].ends_as = end_of(array.training, i, array.after);
    jobs_[task].is_task = true;
  }
  arrays_[key] = std::move(array);
  try_submit_array(key);
}

void Cluster::try_submit_array(const std::string& key) {
  const SubmittedArray& array = arrays_[key];
  if (!array.id.empty() || array.is_refused) return;
  if (waits_for_nothing_that_comes(array.after)) return refuse_array(key);
  world_.queue().after(seconds(5), [this, key] { try_submit_array(key); });
  const auto spec = spec_of(array.training, array.after);
  if (!spec) return;
  coordinator::SubmitArray command{key, {.spec = *spec, .at_most = array.at_most}};
  for (std::uint32_t i = 0; i < array.tasks; ++i) command.request.indices.push_back(i);
  coordinator_->command(
      {UserId("student"), LabId("lab0"), coordinator::Role::kUser},
      std::move(command),
      [this, key](Result<coordinator::Answer> answer) {
        const auto* submitted = answer ? std::get_if<api::ArrayAnswer>(&*answer) : nullptr;
        if (submitted != nullptr) on_array_submitted(key, *submitted);
        if (!answer && is_too_late(answer.error(), arrays_[key].after)) refuse_array(key);
      }
  );
}

void Cluster::refuse_array(const std::string& key) {
  SubmittedArray& array = arrays_[key];
  world_.trace("user", "array " + key + " is refused: it could never begin");
  array.is_refused = true;
  for (std::uint32_t i = 0; i < array.tasks; ++i)
    jobs_[key + "." + std::to_string(i)].is_refused = true;
}

void Cluster::stop_array(const std::string& key) {
  SubmittedArray& array = arrays_[key];
  if (array.is_stopped || array.is_refused) return;
  for (std::uint32_t i = 0; i < array.tasks; ++i)
    jobs_[key + "." + std::to_string(i)].may_be_stopped = true;
  world_.queue().after(seconds(5), [this, key] { stop_array(key); });
  if (array.id.empty()) return;
  coordinator_->command(
      {UserId("student"), LabId("lab0"), coordinator::Role::kUser},
      coordinator::StopArray{.array = array.id, .reason = "seen enough"},
      [this, key](const Result<coordinator::Answer>& answer) {
        world_.trace(
            "user",
            answer ? "array " + key + " is stopped"
                   : "array " + key + " is not stopped: " + answer.error().describe()
        );
        arrays_[key].is_stopped = answer.has_value();
      }
  );
}

bool Cluster::will_happen(const std::string& name, AfterWhen when) const {
  if (when == AfterWhen::kAny || when == AfterWhen::kStarted) return true;
  bool has_failed = false;
  const auto look_at = [&](const SubmittedJob& job) {
    has_failed = has_failed || job.ends_as != JobState::kSucceeded;
  };
  if (const auto job = jobs_.find(name); job != jobs_.end()) look_at(job->second);
  const auto array = arrays_.find(name);
  for (std::uint32_t i = 0; array != arrays_.end() && i < array->second.tasks; ++i)
    look_at(jobs_.at(name + "." + std::to_string(i)));
  return has_failed == (when == AfterWhen::kFail);
}

JobState Cluster::end_of(
    const Training& training,
    std::optional<std::uint32_t> task,
    const std::vector<std::pair<std::string, AfterWhen>>& after
) const {
  for (const auto& [name, when] : after) {
    if (!will_happen(name, when)) return JobState::kCancelled;
  }
  return training.fails(task) ? JobState::kFailed : JobState::kSucceeded;
}

void Cluster::on_array_submitted(const std::string& key, const api::ArrayAnswer& answer) {
  SubmittedArray& array = arrays_[key];
  array.id = answer.array;
  if (answer.tasks.size() != array.tasks) return world_.violate("I1", key + " lacks tasks");
  for (const api::ArrayJob& task : answer.tasks) {
    SubmittedJob& mine = jobs_[key + "." + std::to_string(task.index)];
    mine.id = task.job;
    JobSpec spec = mine.training.spec();
    spec.env["SLURM_ARRAY_JOB_ID"] = std::to_string(answer.tasks.front().number);
    spec.env["SLURM_ARRAY_TASK_ID"] = std::to_string(task.index);
    spec.env["SLURM_ARRAY_TASK_COUNT"] = std::to_string(array.tasks);
    spec.env["SLURM_ARRAY_TASK_MIN"] = "0";
    spec.env["SLURM_ARRAY_TASK_MAX"] = std::to_string(array.tasks - 1);
    checkers_.on_submit_acknowledged(mine.key, mine.id, spec);
  }
  checkers_.check_acknowledged(coordinator_->store().jobs());
}

void Cluster::try_submit(const std::string& key) {
  SubmittedJob& job = jobs_[key];
  if (!job.id.empty() || job.is_refused) return;
  job.is_refused = waits_for_nothing_that_comes(job.after);
  if (job.is_refused) return;
  ++job.tries;
  const auto spec = spec_of(job.training, job.after);
  if (!spec) {
    world_.queue().after(seconds(5), [this, key] { try_submit(key); });
    return;
  }
  coordinator_->command(
      {UserId("student"), LabId("lab0"), coordinator::Role::kUser},
      coordinator::SubmitJob{key, *spec},
      [this, key](Result<coordinator::Answer> answer) {
        SubmittedJob& mine = jobs_[key];
        if (!answer) {
          world_.trace("user", "submit of " + key + " refused: " + answer.error().describe());
          mine.is_refused = mine.is_refused || is_too_late(answer.error(), mine.after);
          return;
        }
        const auto* submitted = std::get_if<coordinator::JobSubmitted>(&*answer);
        if (submitted == nullptr) return;
        mine.id = submitted->job.id;
        checkers_.on_submit_acknowledged(key, mine.id, mine.training.spec());
        checkers_.check_acknowledged(coordinator_->store().jobs());
      }
  );
  world_.queue().after(seconds(5), [this, key] { try_submit(key); });
}

}  // namespace rn::sim
