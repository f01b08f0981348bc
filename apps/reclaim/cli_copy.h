// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli_client.h"

#include "base/error.h"

namespace rn::cli {

/// One side of a copy: "JOB:PATH", or a file or folder here.
struct CopySide {
  std::string job;  ///< task_word(); empty: here
  std::string path;
};

/// What begins with "/" or ".", or has no colon, is here. kInvalid: there is no such job.
Result<CopySide> copy_side(const std::string& text);

/// Copies a file or a folder out of a job's running guest or into it; of a job that does not run
/// its outputs, as they were brought home. Answers the exit code.
int copy_command(const Client& client, const std::string& from, const std::string& to);

}  // namespace rn::cli
