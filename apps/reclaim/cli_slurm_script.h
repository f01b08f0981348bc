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
  std::uint32_t at_most = 0;          ///< of them, so many run at once; 0: no bound
  std::vector<std::string> warnings;  ///< "line 3: --mail-type=END: no mail is sent for it; …"
};

/// What a script asks sbatch for, as far as a job of ours can give it: docs/slurm-scripts.md. A
/// line that cannot be honoured is a warning that says what happens in its place; kInvalid, with
/// the line, where the job would be another one than the script means. Pure.
Result<SlurmJob> parse_slurm_script(std::string_view text, const SlurmPlace& place);

/// Shell commands on one line for sh, bash, dash, ash and ksh: variables that are known where the
/// job runs alone, srun, scontrol and module.
std::string slurm_prelude();

}  // namespace rn::cli
