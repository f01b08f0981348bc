// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_usage.h"

#include <algorithm>

#include "base/planted.h"
#include "coordinator/core_quota.h"

namespace rn::coordinator {

namespace {

double half_life(const State& state) {
  return state.config.fair_half_life_s;
}

std::int64_t bucket_of(const State& state) {
  const std::int64_t width = static_cast<std::int64_t>(state.config.rollup_s) * 1000;
  return state.wall_ms() / width * width;
}

GpuRollup& gpu_sums(RollupRow& row, std::uint32_t index) {
  for (GpuRollup& gpu : row.gpus) {
    if (gpu.index == index) return gpu;
  }
  row.gpus.push_back({.index = index});
  return row.gpus.back();
}

void close_rollup(State& state, NodeEntry& node) {
  RollupRow row = std::move(node.rollup.row);
  const double n = row.samples;
  const std::uint32_t lending = node.rollup.lending;
  node.rollup = RollupSums();
  if (n == 0) return;
  row.cpu_percent /= n;
  row.memory_used_mib /= n;
  row.guests /= n;
  row.lending_share = lending / n;
  for (GpuRollup& gpu : row.gpus) {
    gpu.utilisation_percent /= gpu.samples;
    gpu.memory_used_mib /= gpu.samples;
    gpu.power_mw /= gpu.samples;
  }
  state.write(PutRollup{std::move(row)});
}

void charge(State& state, const AttemptEntry& attempt, const JobEntry& job, double elapsed_s) {
  const Job& j = job.row.job;
  const double amount = sched::gpu_equivalents(j.spec.resources) * elapsed_s;
  const std::int64_t wall = state.wall_ms();
  auto& [lab, sum] = state.used[j.owner];
  lab = j.lab;
  sum.add(amount, wall, half_life(state));
  if (planted("coordinator.charges_twice")) sum.add(amount, wall, half_life(state));
  state.used_by_lab[j.lab].add(amount, wall, half_life(state));
  charge_gpu_hours(state, attempt, j, elapsed_s);
  state.is_usage_new = true;
  const NodeEntry* node = state.find_node(attempt.row.attempt.node);
  if (node != nullptr && node->row.lab != j.lab)
    state.lent_by_lab[node->row.lab].add(amount, wall, half_life(state));
}

}  // namespace

void account_exposure(State& state, NodeEntry& node) {
  const nanoseconds elapsed = state.now.boot - node.accounted;
  if (node.lending == LendingState::kOpen && elapsed.count() > 0) {
    node.unsaved_exposure += elapsed;
    const auto whole = std::chrono::floor<seconds>(node.unsaved_exposure);
    node.row.history.exposure_s += static_cast<std::uint64_t>(whole.count());
    node.unsaved_exposure -= whole;
  }
  node.accounted = state.now.boot;
}

void account_usage(State& state) {
  const nanoseconds elapsed =
      std::min<nanoseconds>(state.now.boot - state.usage_accounted_at, 2 * state.heartbeat());
  state.usage_accounted_at = state.now.boot;
  if (planted("coordinator.charges_half") && to_ns(state.now.boot) / 1'000'000'000 % 2 == 0) return;
  const double elapsed_s = std::chrono::duration<double>(elapsed).count();
  for (const auto& [id, node] : state.nodes) {
    if (node.connection == 0) continue;
    for (const AttemptKey& key : node.attempts) {
      const AttemptEntry* attempt = state.find_attempt(key.first, key.second);
      const JobEntry* job = state.find_job(key.first);
      if (attempt == nullptr || job == nullptr) continue;
      const AttemptState phase = attempt->row.attempt.state;
      if (phase >= AttemptState::kRunning && phase <= AttemptState::kSaving)
        charge(state, *attempt, *job, elapsed_s);
    }
  }
}

void save_usage(State& state) {
  if (!state.is_usage_new) return;
  const std::int64_t wall = state.wall_ms();
  for (const auto& [user, entry] : state.used)
    state.write(PutUsage{
        {.user = user,
         .lab = entry.first,
         .used_gpu_s = entry.second.at(wall, half_life(state)),
         .as_of_wall_ms = wall}});
  std::set<LabId> labs;
  for (const auto& [lab, sum] : state.used_by_lab) labs.insert(lab);
  for (const auto& [lab, sum] : state.lent_by_lab) labs.insert(lab);
  for (const LabId& lab : labs)
    state.write(PutUsage{
        {.lab = lab,
         .used_gpu_s = state.used_by_lab[lab].at(wall, half_life(state)),
         .lent_gpu_s = state.lent_by_lab[lab].at(wall, half_life(state)),
         .as_of_wall_ms = wall}});
  save_gpu_hours(state);
  state.is_usage_new = false;
  state.usage_saved_at = state.now.boot;
}

void save_lent(State& state) {
  for (auto& [id, node] : state.nodes) {
    const std::uint64_t before = node.row.history.exposure_s;
    account_exposure(state, node);
    if (node.row.history.exposure_s != before) state.save(node);
  }
  state.lent_saved_at = state.now.boot;
}

void add_to_rollup(State& state, NodeEntry& node) {
  const std::int64_t bucket = bucket_of(state);
  if (node.rollup.row.samples > 0 && node.rollup.row.bucket_wall_ms != bucket)
    close_rollup(state, node);
  RollupRow& row = node.rollup.row;
  const NodeTelemetry& t = node.telemetry;
  row.node = node.row.node;
  row.bucket_wall_ms = bucket;
  row.bucket_s = state.config.rollup_s;
  row.disk_free_mib_min =
      row.samples == 0 ? t.disk_free_mib : std::min(row.disk_free_mib_min, t.disk_free_mib);
  ++row.samples;
  row.cpu_percent += t.cpu_percent;
  row.memory_used_mib += static_cast<double>(t.memory_used_mib);
  row.memory_used_mib_max = std::max(row.memory_used_mib_max, t.memory_used_mib);
  row.guests += t.guests;
  if (node.lending == LendingState::kOpen) ++node.rollup.lending;
  for (const GpuTelemetry& live : t.gpus) {
    if (live.is_unseen) continue;
    GpuRollup& gpu = gpu_sums(row, live.index);
    gpu.utilisation_percent += live.utilisation_percent;
    gpu.memory_used_mib += static_cast<double>(live.memory_used_mib);
    gpu.memory_used_mib_max = std::max(gpu.memory_used_mib_max, live.memory_used_mib);
    gpu.temperature_c_max =
        gpu.samples == 0 ? live.temperature_c : std::max(gpu.temperature_c_max, live.temperature_c);
    ++gpu.samples;
    gpu.power_mw += static_cast<double>(live.power_mw);
  }
}

void close_rollups(State& state) {
  const std::int64_t bucket = bucket_of(state);
  for (auto& [id, node] : state.nodes) {
    if (node.rollup.row.samples > 0 && node.rollup.row.bucket_wall_ms != bucket)
      close_rollup(state, node);
  }
}

std::map<UserId, sched::Standing> standings(const State& state) {
  std::map<UserId, sched::Standing> result;
  const std::int64_t wall = state.wall_ms();
  const auto of_lab = [&](const std::map<LabId, sched::DecayedSum>& sums, const LabId& lab) {
    const auto found = sums.find(lab);
    return found == sums.end() ? 0.0 : found->second.at(wall, half_life(state));
  };
  for (const auto& [user, entry] : state.used)
    result[user].charge_gpu_s = sched::charge(
        entry.second.at(wall, half_life(state)),
        of_lab(state.used_by_lab, entry.first),
        of_lab(state.lent_by_lab, entry.first)
    );
  for (const auto& [user, served] : state.served_wall_ms) result[user].served_wall_ms = served;
  for (const JobId& id : state.unfinished) {
    const JobEntry& job = state.jobs.at(id);
    if (!state.is_waiting(job) && !state.held.contains(id))
      ++result[job.row.job.owner].running_jobs;
  }
  return result;
}

}  // namespace rn::coordinator
