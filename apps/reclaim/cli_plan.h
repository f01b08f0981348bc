// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli_client.h"

#include "base/error.h"
#include "model/job.h"
#include "model/plan.h"

namespace rn::cli {

// Exit statuses of `plan`, which are an answer: no error has one of the first three.
inline constexpr int kPlanNow = 0;
inline constexpr int kPlanWaits = 1;
inline constexpr int kPlanNever = 2;
inline constexpr int kPlanFailed = 255;

int exit_code_of_plan(PlanVerdict verdict);

/// As complain() of cli_print.h, but answers kPlanFailed whatever the error is.
int complain_of_plan(const Error& error);

/// The verdict, and the figures that it comes with; lines, each with its end.
std::string words_of_plan(const api::Plan& plan);
/// Each node with its reason.
std::string table_of_plan(const api::Plan& plan);
/// What to do next, after `file` was planned (empty: flags).
std::string next_after_plan(const api::Plan& plan, const std::string& file);

struct PlanOptions {
  JobSpec spec;
  std::string file;  ///< whose job it is; empty: of flags
  bool is_json = false;
};

/// Asks what would become of the job, prints it, and answers the exit status.
int plan(const Client& client, const PlanOptions& options);

}  // namespace rn::cli
