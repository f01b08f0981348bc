// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace rn::init {

/// Slurm's commands inside a guest (docs/slurm-scripts.md), so that programs which call them by
/// themselves find them: this program is also mounted under their names, in kSlurmFolder. They know
/// their own job, from its variables, and nothing else; what cannot be done from inside a job they
/// refuse, with what to do.
inline constexpr const char* kSlurmFolder = "/reclaim-slurm";

/// What a guest knows of its own job.
struct OwnJob {
  const char* number;  ///< "" outside of a job
  char id[64];         ///< as Slurm shows it: "17", and of an array "17_3"
  const char* name;
  const char* restarts;
  const char* state;   ///< RUNNING or COMPLETING
  std::int64_t run_s;  ///< since its first process began; -1 = not known

  static OwnJob read();

  bool is_named_by(const char* id_text) const;
  /// In a list with commas.
  bool is_one_of(const char* list) const;
};

/// The variable, or `otherwise` where it is not set.
const char* variable(const char* name, const char* otherwise);

/// "1-02:03:04", "2:03:04" or "3:04", as squeue shows times; with `is_long` all of "00:03:04".
void print_time(char* out, std::size_t size, std::int64_t seconds, bool is_long);

int run_srun(int argc, char** argv);
int run_squeue(int argc, char** argv);
int run_sacct(int argc, char** argv);
int show_job(const OwnJob& job);

/// Runs the command of Slurm by whose name we were called, with its exit code in `code`. False if
/// the name is none of theirs.
bool run_slurm(int argc, char** argv, int& code);

}  // namespace rn::init
