// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli_client.h"
#include "cli_input_file.h"

#include "base/error.h"
#include "model/job.h"

namespace rn::cli {

struct RunOptions {
  JobSpec spec;
  std::string folder = ".";       ///< uploaded, and where results come to
  std::vector<InputFile> inputs;  ///< what is uploaded in place of the folder; empty: all of it
  bool uploads = true;
  bool is_detached = false;
  std::vector<std::string> notify;       ///< addresses and URLs that are told of it
  bool is_json = false;                  ///< the submit's answer on stdout
  bool warns = true;                     ///< of what a reclaim would cost
  std::uint64_t upload_limit_bytes = 0;  ///< 0 = kDefaultUploadLimit
};

/// Uploads and submits, and says so on standard error.
Result<api::SubmitAnswer> submit_job(const Client& client, RunOptions& options);

/// Uploads, submits, and unless detached streams the log, brings outputs and logs home, and answers
/// the job's own exit code. Errors were printed: the answer is then their exit code.
int run_job(const Client& client, RunOptions options);

/// Follows a job that is not over, from its newest attempt on and through all moves, until it has
/// ended or Ctrl-C, which leaves it running. Answers as run_job().
int attach(const Client& client, const std::string& job);

/// The tasks of an array.
struct ArrayTasks {
  std::vector<std::uint32_t> indices;  ///< ascending; empty = no array
  std::uint32_t at_most = 0;           ///< so many run at once; 0: no bound
};

/// Uploads once and submits one job for each task, or none; prints the array's id, or with is_json
/// the answer. Answers the exit code.
int submit_array(const Client& client, RunOptions options, const ArrayTasks& tasks);

/// The same for jobs that differ in more than a number: what two that follow each other have in
/// common is uploaded once. From the second one on the variable has the number of the first job.
int submit_series(const Client& client, std::vector<RunOptions> jobs, const std::string& variable);

/// 0 if it succeeded, its own code (128+n for signals) otherwise, never 0 for a job that did not
/// succeed.
int exit_code_of_job(const Job& job);

}  // namespace rn::cli
