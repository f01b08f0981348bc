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

/// Where a job stands among everybody's.
struct Place {
  double turn = 0;
  Standing owner;
  std::size_t next = 0;  ///< its owner's first waiting job
};

std::vector<Place> places(
    const std::vector<QueuedJob>& jobs,
    const std::map<UserId, Standing>& standings,
    Strategy strategy
) {
  std::vector<std::size_t> own(jobs.size());
  std::iota(own.begin(), own.end(), 0);
  std::sort(own.begin(), own.end(), [&](std::size_t a, std::size_t b) {
    return is_before_for_owner(jobs[a], jobs[b]);
  });
  std::vector<Place> result(jobs.size());
  std::map<UserId, Place> of_next;
  for (const std::size_t i : own) {
    const auto [at, is_first] = of_next.try_emplace(jobs[i].owner, Place{.next = i});
    Place& place = at->second;
    if (const auto found = standings.find(jobs[i].owner); is_first && found != standings.end()) {
      place.owner = found->second;
      place.turn = strategy == Strategy::kFair ? place.owner.charge_gpu_s
                                               : static_cast<double>(place.owner.running_jobs);
    }
    result[i] = place;
    place.turn += strategy == Strategy::kFair ? kTurnSeconds * jobs[i].gpus : 1.0;
  }
  return result;
}

/// Whether x's owner is served before y's in a turn that both have: who will have been served
/// longer ago by then, when every turn before has been taken.
bool is_served_before(const Place& x, const Place& y, const std::vector<QueuedJob>& jobs) {
  // The turns begin with as many as run: with more of them, it is in fewer turns before this one.
  if (x.owner.running_jobs != y.owner.running_jobs)
    return x.owner.running_jobs > y.owner.running_jobs;
  const QueuedJob& a = jobs[x.next];
  const QueuedJob& b = jobs[y.next];
  return std::tie(x.owner.served_wall_ms, a.queued_wall_ms, a.id) <
         std::tie(y.owner.served_wall_ms, b.queued_wall_ms, b.id);
}

}  // namespace

std::vector<std::size_t> order(
    const std::vector<QueuedJob>& jobs,
    const std::map<UserId, Standing>& standings,
    Strategy strategy
) {
  std::vector<Place> place(jobs.size());
  if (strategy != Strategy::kPriority) place = places(jobs, standings, strategy);
  std::vector<std::size_t> result(jobs.size());
  std::iota(result.begin(), result.end(), 0);
  std::sort(result.begin(), result.end(), [&](std::size_t a, std::size_t b) {
    const QueuedJob& x = jobs[a];
    const QueuedJob& y = jobs[b];
    if (strategy == Strategy::kPriority && x.priority != y.priority) return x.priority < y.priority;
    if (x.is_displaced != y.is_displaced) return x.is_displaced;
    if (place[a].turn != place[b].turn) return place[a].turn < place[b].turn;
    if (strategy == Strategy::kRoundRobin && x.owner != y.owner)
      return is_served_before(place[a], place[b], jobs);
    return std::tie(x.priority, x.queued_wall_ms, x.id) <
           std::tie(y.priority, y.queued_wall_ms, y.id);
  });
  return result;
}

}  // namespace rn::sched
