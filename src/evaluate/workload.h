// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "evaluate/job_trace.h"

// What guests are: their states, how they dirty them, and when they are submitted.
namespace rn::evaluate {

/// A kind of training, by what its checkpoints are.
struct StateKind {
  const char* name;
  double share;                ///< of the jobs
  double bytes;                ///< S: of a whole checkpoint
  double hot_bytes;            ///< written in every step: all of it is dirty at any time
  double touched_bytes_per_s;  ///< of the rest, evenly and without repetition until all is dirty
  double pause_bytes_per_s;    ///< the guest stands still while its state leaves the GPU
  std::uint64_t gpu_memory_mib;
  /// Above 0: seconds of work in a step. Its file begins with the number of the step, so that all
  /// of it moves along when that has one digit more; and what no step has touched is empty.
  double numbered_step_s = 0;
};

/// The table that stands beside every result (docs/evaluation.md). Traces of jobs say nothing of
/// states, so these are assumptions: 1 to 40 GB, dense and sparse.
std::span<const StateKind> state_kinds();

/// The same table with states of so many times the bytes.
std::vector<StateKind> state_kinds_times(double factor);

/// Bytes of a checkpoint that differ from one made `work_s` seconds of work earlier or later: at
/// least the hot ones if there was any work.
double differing_bytes(const StateKind& kind, double work_s);

/// The same of two checkpoints by the work in them, also of a kind whose file is numbered. That of
/// no work stands for having nothing.
double differing_bytes(const StateKind& kind, double from_s, double to_s);

/// Bytes of it that somebody needs who has nothing.
double whole_bytes(const StateKind& kind, double progress_s);

struct SubmittedJob {
  double at_s = 0;
  double work_s = 0;  ///< on its GPUs, undisturbed and without any save
  std::uint32_t gpus = 1;
  std::size_t kind = 0;  ///< of state_kinds()
  std::string user;
  std::string lab;

  friend bool operator==(const SubmittedJob&, const SubmittedJob&) = default;
};

struct WorkloadOptions {
  double days = 56;
  std::uint32_t users = 60;
  std::uint32_t labs = 12;      ///< users are spread over them
  std::uint32_t most_gpus = 4;  ///< of one job
  double jobs_a_day = 2.0;      ///< of a user on a day on which they submit
};

/// Users with a kind of state that is theirs, who submit in office hours, single runs, sweeps, and
/// more before the deadlines of their courses. By time. The same for the same seed. Pure.
std::vector<SubmittedJob> make_jobs(const WorkloadOptions& options, std::uint64_t seed);

/// Recorded jobs from their first midnight on, over and over again; kinds and users are drawn.
/// GPUs above `most_gpus` become that. Pure.
std::vector<SubmittedJob> jobs_of(
    const std::vector<RecordedJob>& recorded, const WorkloadOptions& options, std::uint64_t seed
);

}  // namespace rn::evaluate
