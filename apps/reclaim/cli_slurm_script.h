// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/job.h"

namespace rn::cli {

/// Where a script is submitted.
struct SlurmPlace {
  std::string script;  ///< its file's name; empty = standard input
  std::string folder;  ///< absolute: where the command was given
  /// The submitter's variables, for --export=NAME; nothing for one that is not set.
  std::function<std::optional<std::string>(const std::string& name)> variable;
};

/// A script with lines #SBATCH as a job.
struct SlurmJob {
  /// Runs the script's text by its own shell, with SLURM_ variables and stand-ins for srun and
  /// scontrol on the script's first line (slurm_prelude()), so that lines keep their numbers.
  JobSpec spec;
  std::string folder;                 ///< absolute; uploaded
  std::vector<std::uint32_t> tasks;   ///< of --array, ascending; empty = no array
  std::vector<std::string> warnings;  ///< "line 3: --mail-type=END: no mail is sent for it; …"
};

/// More are refused: each is a job of its own.
inline constexpr std::size_t kSlurmTasksMax = 1000;

/// What a script asks sbatch for, as far as a job of ours can give it: docs/slurm-scripts.md. A
/// line that cannot be honoured is a warning that says what happens in its place; kInvalid, with
/// the line, where the job would be another one than the script means. Pure.
Result<SlurmJob> parse_slurm_script(std::string_view text, const SlurmPlace& place);

/// The job of one task of its array. `first_number` is the number of the first task's job, 0 for
/// the first task itself.
JobSpec slurm_task(
    const JobSpec& spec,
    const std::vector<std::uint32_t>& tasks,
    std::size_t index,
    std::uint64_t first_number
);

/// As --array takes them, from this index on: "4-6,9".
std::string slurm_tasks_from(const std::vector<std::uint32_t>& tasks, std::size_t index);

/// Shell commands on one line for sh, bash, dash, ash and ksh: variables that are known where the
/// job runs alone, srun, scontrol and module.
std::string slurm_prelude();

}  // namespace rn::cli
