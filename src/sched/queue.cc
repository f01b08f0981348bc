// SPDX-License-Identifier: Apache-2.0
#include "sched/queue.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace rn::sched {

namespace {

/// Owner's own order: what a user wants first among the own jobs.
bool is_before_for_owner(const QueuedJob& a, const QueuedJob& b) {
  return std::tie(b.is_displaced, a.priority, a.queued_wall_ms, a.id) <
         std::tie(a.is_displaced, b.priority, b.queued_wall_ms, b.id);
}

std::vector<double> turns(
    const std::vector<QueuedJob>& jobs,
    const std::map<UserId, Standing>& standings,
    Strategy strategy
) {
  std::vector<std::size_t> own(jobs.size());
  std::iota(own.begin(), own.end(), 0);
  std::sort(own.begin(), own.end(), [&](std::size_t a, std::size_t b) {
    return is_before_for_owner(jobs[a], jobs[b]);
  });
  std::vector<double> result(jobs.size());
  std::map<UserId, double> next;
  for (const std::size_t i : own) {
    const auto [at, is_first] = next.try_emplace(jobs[i].owner, 0.0);
    if (const auto found = standings.find(jobs[i].owner); is_first && found != standings.end()) {
      at->second = strategy == Strategy::kFair ? found->second.charge_gpu_s
                                               : static_cast<double>(found->second.running_jobs);
    }
    result[i] = at->second;
    at->second += strategy == Strategy::kFair ? kTurnSeconds * jobs[i].gpus : 1.0;
  }
  return result;
}

}  // namespace

std::vector<std::size_t> order(
    const std::vector<QueuedJob>& jobs,
    const std::map<UserId, Standing>& standings,
    Strategy strategy
) {
  std::vector<double> turn(jobs.size(), 0.0);
  if (strategy != Strategy::kPriority) turn = turns(jobs, standings, strategy);
  std::vector<std::size_t> result(jobs.size());
  std::iota(result.begin(), result.end(), 0);
  std::sort(result.begin(), result.end(), [&](std::size_t a, std::size_t b) {
    const QueuedJob& x = jobs[a];
    const QueuedJob& y = jobs[b];
    if (strategy == Strategy::kPriority && x.priority != y.priority) return x.priority < y.priority;
    if (x.is_displaced != y.is_displaced) return x.is_displaced;
    if (turn[a] != turn[b]) return turn[a] < turn[b];
    return std::tie(x.priority, x.queued_wall_ms, x.id) <
           std::tie(y.priority, y.queued_wall_ms, y.id);
  });
  return result;
}

}  // namespace rn::sched
