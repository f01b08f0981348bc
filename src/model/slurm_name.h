// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rn {

/// A guest with this variable is told of Slurm: it finds Slurm's commands, its PID 1 under their
/// names, in front of its PATH (apps/reclaim-init/slurm.h), and its job's number in SLURM_JOB_ID.
/// `reclaim submit` sets it for scripts for sbatch.
inline constexpr const char* kSlurmJobName = "SLURM_JOB_NAME";

}  // namespace rn
