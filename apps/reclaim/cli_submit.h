// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli_run.h"
#include "cli_upload.h"

#include "base/error.h"

namespace rn::cli {

/// The options of `submit` as they were typed.
struct SubmitFlags {
  std::string file;   ///< "-" = standard input
  std::string image;  ///< in place of the file's; empty = as it says
  std::vector<std::string> data;
  std::uint64_t upload_mib = kDefaultUploadLimit >> 20;
  bool is_json = false;
  bool is_dry = false;  ///< only show it
  bool waits = false;
};

/// What a file asks for.
struct Submission {
  RunOptions options;
  std::vector<std::uint32_t> tasks;   ///< one job for each; empty = one job
  std::vector<RunOptions> jobs;       ///< all, where they differ in more; `options` is the first
  std::vector<std::string> warnings;  ///< each with the file's name in front
};

/// Reads a job file, a script with lines #SBATCH, or an HTCondor submit file; blocks on standard
/// input. Every error has the file's name and what to do.
Result<Submission> read_submission(const SubmitFlags& flags);

/// Prints the job, or the first of many, as the API takes it; answers the exit code.
int show_submission(const Submission& submission);

}  // namespace rn::cli
