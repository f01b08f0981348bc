// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_home.h"

#include <algorithm>

#include "coordinator/core_evacuation.h"
#include "coordinator/core_job_ends.h"
#include "coordinator/core_job_life.h"
#include "reclaim/migrate_back.h"

namespace rn::coordinator {

namespace {

double speed(const Resources& wanted, std::uint64_t cpu_milli) {
  if (wanted.gpus > 0 || wanted.cpu_milli == 0) return 1;
  return std::min(1.0, static_cast<double>(cpu_milli) / wanted.cpu_milli);
}

double seconds_of(nanoseconds value) {
  return std::chrono::duration<double>(value).count();
}

bool has_generation(const State& state, const JobEntry& job, const NodeId& node) {
  const auto of_job = state.generations.find(job.row.job.id);
  if (of_job == state.generations.end()) return false;
  const auto found = of_job->second.find(job.row.job.durable.generation);
  if (found == of_job->second.end()) return false;
  return std::any_of(
      found->second.receipts.begin(),
      found->second.receipts.end(),
      [&](const Receipt& receipt) { return receipt.holder == node; }
  );
}

reclaim::MigrateBackInput weigh(
    const State& state,
    const JobEntry& job,
    const AttemptEntry& attempt,
    const NodeEntry& here,
    const NodeEntry& home,
    std::uint32_t cpu_at_home,
    const reclaim::MigrateBackPolicy& policy
) {
  const Job& j = job.row.job;
  reclaim::MigrateBackInput input;
  input.speed_home = speed(j.spec.resources, cpu_at_home);
  input.speed_here = speed(j.spec.resources, attempt.row.granted_cpu_milli);
  if (j.spec.max_duration_s > 0) {
    const double ran =
        static_cast<double>(state.wall_ms() - attempt.row.attempt.started_wall_ms) / 1e3;
    input.remaining_s = std::max(1.0, j.spec.max_duration_s - ran);
  }
  const double horizon_s = reclaim::horizon_of(input.remaining_s, policy);
  input.presence_home = sched::cautious_mean_survival(home.outlook, horizon_s);
  input.presence_here = sched::mean_survival(here.outlook, horizon_s);
  input.bytes_missing = has_generation(state, job, home.row.node)
                            ? static_cast<double>(j.durable.new_bytes)
                            : static_cast<double>(j.durable.bytes);
  input.bytes_per_s = sure_rate(state, here, home);
  // It is stopped at its next complete generation: what it computes meanwhile is not lost. A job
  // that has never saved would lose everything.
  input.unsaved_s = attempt.row.safe_generation > 0 || j.spec.checkpoint.is_stateless
                        ? 5.0
                        : seconds_of(state.now.boot - attempt.state_since);
  input.residence_s = seconds_of(state.now.boot - attempt.state_since);
  input.home_open_s = seconds_of(state.now.boot - home.open_since);
  return input;
}

void go_home(
    State& state, JobEntry& job, const NodeEntry& home, const reclaim::MigrateBackDecision& d
) {
  state.note(
      job,
      "job.goes_home",
      "to " + state.name_of(home.row.node) + ": " + d.sentence,
      {{"home", home.row.node.str()},
       {"gain_s", decimal(d.gain_s, 1)},
       {"cost_s", decimal(d.cost_s, 1)},
       {"horizon_s", decimal(d.horizon_s, 0)},
       {"value_home", decimal(d.value_home, 4)},
       {"value_here", decimal(d.value_here, 4)}}
  );
  job.row.is_going_home = true;
  // It failed there once, and has run elsewhere since; else its placement would turn it back.
  if (job.row.avoid == home.row.node) job.row.avoid = NodeId();
  stop_job(state, job, AttemptEnd::kMigrated, true, state.config.stop_deadline_ms, d.sentence);
}

void look_at(State& state, JobEntry& job) {
  const Job& j = job.row.job;
  const AttemptEntry* attempt = state.newest_attempt(job);
  const NodeEntry* home = state.find_node(job.row.home);
  const NodeEntry* here = state.find_node(j.node);
  const bool is_away = j.state == JobState::kRunning && attempt != nullptr && home != nullptr &&
                       here != nullptr && home != here && job.row.stop_end == AttemptEnd::kNone;
  job.home_sentence.clear();
  if (!is_away || home->lending != LendingState::kOpen || !state.is_up(*home)) return;
  if (is_taken_back(state, home->row.node)) return;  // its heartbeat has not said so yet
  sched::Demand demand = demand_of(job);
  const sched::Judgement judgement = sched::judge(demand, candidate_of(state, *home));
  if (judgement.fit != sched::Fit::kFits) return;
  const reclaim::MigrateBackPolicy policy{
      .min_residence_s = static_cast<double>(state.config.min_residence_s),
      .home_settle_s = static_cast<double>(state.config.home_settle_s)};
  const reclaim::MigrateBackDecision d = reclaim::decide_migrate_back(
      weigh(state, job, *attempt, *here, *home, judgement.cpu_milli, policy), policy
  );
  job.home_sentence = d.sentence;
  if (d.moves) go_home(state, job, *home, d);
}

}  // namespace

void look_for_homecomers(State& state) {
  state.homes_judged_at = state.now.boot;
  if (!state.config.migrates_back) return;
  const std::set<JobId> all = state.unfinished;
  for (const JobId& id : all) {
    JobEntry& job = *state.find_job(id);
    if (!job.row.home.empty() && !job.row.job.gang) look_at(state, job);
  }
}

}  // namespace rn::coordinator
