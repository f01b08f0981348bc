// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_arrays.h"

#include <algorithm>
#include <utility>

#include "base/crypto.h"
#include "coordinator/core_commands.h"
#include "coordinator/core_job_life.h"
#include "coordinator/core_quota.h"
#include "model/codec.h"

namespace rn::coordinator {

namespace {

api::ArrayAnswer answer_of(const State& state, const std::string& id) {
  api::ArrayAnswer answer{.array = id};
  for (const auto& [number, job] : state.arrays.at(id).tasks)
    answer.tasks.push_back({job, number, state.jobs.at(job).row.job.array->index});
  return answer;
}

/// As scripts for Slurm read it, whatever was in their place.
void set_variables(
    std::map<std::string, std::string>& env, const ArrayTask& task, const api::ArrayRequest& request
) {
  env["SLURM_ARRAY_JOB_ID"] = std::to_string(task.first_number);
  env["SLURM_ARRAY_TASK_ID"] = std::to_string(task.index);
  env["SLURM_ARRAY_TASK_COUNT"] = std::to_string(task.tasks);
  env["SLURM_ARRAY_TASK_MIN"] = std::to_string(request.indices.front());
  env["SLURM_ARRAY_TASK_MAX"] = std::to_string(request.indices.back());
}

Result<Answer> array_again(
    State& state, const Caller& caller, const SubmitArray& command, const Digest& asked
) {
  const JobEntry& job =
      *state.find_job(state.jobs_by_key.at({caller.user, command.idempotency_key}));
  if (!job.row.job.array || job.row.request != asked) return fail(key_used_for(job));
  api::ArrayAnswer answer = answer_of(state, job.row.job.array->array);
  answer.is_repeat = true;
  answer.warnings = warnings_for(state, job);
  return answer;
}

}  // namespace

Result<Answer> submit_array(State& state, const Caller& caller, const SubmitArray& command) {
  const api::ArrayRequest& request = command.request;
  RN_CHECK(check_submitter(caller, command.idempotency_key));
  RN_CHECK(check_indices(request.indices));
  const Digest asked = crypto::sha256(to_cbor(request));
  if (is_key_known(state, caller, command.idempotency_key))
    return array_again(state, caller, command, asked);
  RN_TRY(const JobRow base, new_row(state, caller, request.spec, request.indices.size()));
  RN_CHECK(check_quotas(state, caller, request.spec, request.indices.size()));
  ArrayTask task{
      .array = "a-" + state.rng.hex(8),
      .tasks = static_cast<std::uint32_t>(request.indices.size()),
      .at_most = request.at_most < request.indices.size() ? request.at_most : 0,
      .first_number = state.next_job_number};
  std::vector<std::string> warnings;
  for (std::size_t i = 0; i < request.indices.size(); ++i) {
    JobRow row = base;
    task.index = request.indices[i];
    row.job.array = task;
    set_variables(row.job.spec.env, task, request);
    row.is_held = row.is_held || (task.at_most != 0 && i >= task.at_most);
    if (i == 0) row.idempotency_key = command.idempotency_key;
    if (i == 0) row.request = asked;
    const JobEntry& job = take_job(state, caller, std::move(row));
    if (i == 0) warnings = warnings_for(state, job);
  }
  state.write(SetMeta{"next_job_number", std::to_string(state.next_job_number)});
  api::ArrayAnswer answer = answer_of(state, task.array);
  answer.warnings = std::move(warnings);
  return answer;
}

Result<Answer> stop_array(State& state, const Caller& caller, const StopArray& command) {
  const auto found = state.arrays.find(command.array);
  const bool may = found != state.arrays.end() &&
                   may_stop(caller, state.jobs.at(found->second.tasks.begin()->second).row.job);
  if (!may)
    return fail(
        ErrorCode::kNotFound,
        "no array " + command.array,
        "`reclaim show JOB` names the array of a job"
    );
  api::ArrayStopped answer{.array = command.array};
  const std::map<std::uint64_t, JobId> tasks = found->second.tasks;
  for (const auto& [number, id] : tasks) {
    JobEntry& job = *state.find_job(id);
    ++(is_terminal(job.row.job.state) ? answer.over : answer.stopping);
    if (job.row.stop_end == AttemptEnd::kCancelled) continue;
    stop_job(
        state,
        job,
        AttemptEnd::kCancelled,
        command.saves_first,
        std::min(command.deadline_ms, 900'000u),
        stop_words(caller, command.reason)
    );
  }
  return answer;
}

}  // namespace rn::coordinator
