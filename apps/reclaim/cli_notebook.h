// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "cli_client.h"
#include "cli_run_flags.h"
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "model/job.h"

namespace rn::cli {

/// The options of `notebook` as they were typed.
struct NotebookFlags {
  NotebookFlags() { run.image = "notebook"; }

  std::string job;  ///< one that there is; empty: a new one
  RunFlags run;
  std::string idle;
  std::uint32_t wait_s = 900;
  bool is_json = false;
};

void add_notebook_flags(CLI::App& app, NotebookFlags& flags);

/// The job that they ask for. kInvalid names the flag.
Result<JobSpec> notebook_spec(const NotebookFlags& flags);

/// kInvalid when a job that there is and what a new one would get are both said.
Status check_notebook_flags(const CLI::App& app, const NotebookFlags& flags);

/// Starts a notebook, or takes one that there is, waits until it answers, and prints its address.
/// Answers the exit code.
int notebook(const Client& client, const NotebookFlags& flags);

}  // namespace rn::cli
