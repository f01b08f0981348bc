// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"

// The order in which waiting jobs are tried. Pure.
namespace rn::sched {

enum class Strategy : std::uint8_t { kPriority, kRoundRobin, kFair };

struct QueuedJob {
  JobId id;
  UserId owner;
  std::uint32_t priority = 4;  ///< 0 highest
  double gpus = 0;             ///< GPU equivalents (gpu_equivalents) that it will use
  std::int64_t queued_wall_ms = 0;
  bool is_displaced = false;  ///< lost its node: head of its class
};

/// What the order needs to know of a user.
struct Standing {
  double charge_gpu_s = 0;  ///< sched::charge
  std::uint32_t running_jobs = 0;
  std::int64_t served_wall_ms = 0;  ///< when a job of theirs last went to a node; 0 = never
};

/// GPU-seconds that a fair turn is worth: the k-th waiting job of a user is ordered as if the k − 1
/// before it had already used so much per GPU.
inline constexpr double kTurnSeconds = 3600;

/// Indices into `jobs`, first to be tried first. Ties are broken by age, then by id, so the order
/// is total and the same on every machine.
///
///   priority    (priority, displaced first, age)
///   round-robin (displaced first, turn, owner served longest ago, age of the owner's next job)
///   fair        (displaced first, charge + kTurnSeconds · gpus of the own jobs before it,
///                priority, age)
///
/// A turn is the owner's running jobs + the own jobs before it in (displaced first, priority, age).
/// Nobody has a job running when there is room for one: then who was served last decides alone. In
/// later turns users follow in the order in which the turns before will have served them.
std::vector<std::size_t> order(
    const std::vector<QueuedJob>& jobs,
    const std::map<UserId, Standing>& standings,
    Strategy strategy
);

}  // namespace rn::sched
