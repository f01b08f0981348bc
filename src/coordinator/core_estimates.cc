// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_estimates.h"

#include <array>
#include <iterator>
#include <utility>

#include "sched/estimate.h"

namespace rn::coordinator {

namespace {

constexpr double kBytesOfMib = 1 << 20;
constexpr std::size_t kEstimates = std::size(EnumWords<Estimated>::kWords);

sched::JobKind job_kind(const Job& job) {
  return {job.owner, job.image_digest, sched::command_shape(job.spec.command)};
}

/// From its first start to its end, with what lay in between. Both by the nodes' clocks, which
/// are the same one where it was not displaced. 0: not known.
double ran_s(const State& state, const Job& job) {
  const auto last = state.attempts.find({job.id, job.epoch});
  if (job.started_wall_ms == 0 || last == state.attempts.end()) return 0;
  const std::int64_t ended_ms = last->second.row.attempt.ended_wall_ms;
  return static_cast<double>(ended_ms - job.started_wall_ms) / 1e3;
}

/// Of its last attempt, which ended well: those before it may have been taken back in the middle.
/// 0: not known.
double held_mib(const State& state, const Job& job, Estimated what) {
  const auto last = state.attempts.find({job.id, job.epoch});
  if (last == state.attempts.end()) return 0;
  const Attempt& a = last->second.row.attempt;
  return static_cast<double>(
      what == Estimated::kMemory ? a.memory_peak_mib : a.gpu_memory_peak_mib
  );
}

double amount_of(const State& state, const Job& job, Estimated what) {
  switch (what) {
    case Estimated::kDuration:
      return ran_s(state, job);
    case Estimated::kCheckpoint:
      return static_cast<double>(job.durable.bytes) / kBytesOfMib;
    case Estimated::kMemory:
    case Estimated::kGpuMemory:
      return held_mib(state, job, what);
  }
  return 0;
}

using Pasts = std::array<std::vector<sched::PastUse>, kEstimates>;

Pasts pasts_of(const State& state) {
  Pasts pasts;
  std::size_t ended_well = 0;
  for (auto at = state.jobs_by_number.rbegin(); at != state.jobs_by_number.rend(); ++at) {
    const Job& job = state.jobs.at(at->second).row.job;
    if (job.state != JobState::kSucceeded) continue;
    if (++ended_well > kEstimatedFrom) break;
    const sched::JobKind kind = job_kind(job);
    for (std::size_t i = 0; i < kEstimates; ++i) {
      const double used = amount_of(state, job, static_cast<Estimated>(i));
      if (used > 0) pasts[i].push_back({kind, used});
    }
  }
  return pasts;
}

}  // namespace

std::vector<api::PlanEstimate> estimates_for(const State& state, const JobEntry& job) {
  const sched::JobKind wanted = job_kind(job.row.job);
  const Pasts pasts = pasts_of(state);
  std::vector<api::PlanEstimate> out;
  for (std::size_t i = 0; i < kEstimates; ++i) {
    const sched::Estimate seen = sched::estimate(wanted, pasts[i], kEstimatedShare);
    api::PlanEstimate one;
    one.of = static_cast<Estimated>(i);
    one.likeness = seen.likeness;
    one.jobs = seen.jobs;
    one.jobs_needed = sched::jobs_needed(kEstimatedShare);
    one.share = kEstimatedShare;
    if (seen.is_known) {
      one.low = seen.low;
      one.typical = seen.typical;
      one.high = seen.high;
    }
    out.push_back(one);
  }
  return out;
}

}  // namespace rn::coordinator
