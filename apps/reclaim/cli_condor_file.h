// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli_input_file.h"

#include "base/error.h"
#include "model/job.h"

namespace rn::cli {

/// Where a submit file is submitted.
struct CondorPlace {
  std::string folder;  ///< absolute: where the command was given
  /// The submitter's variables, for $ENV and getenv; nothing for one that is not set.
  std::function<std::optional<std::string>(const std::string& name)> variable;
  /// A file with a list of items, by its absolute path; empty: none can be read.
  std::function<Result<std::string>(const std::string& path)> read;
};

/// One job of a submit file.
struct CondorJob {
  JobSpec spec;
  std::vector<InputFile> inputs;  ///< all that is uploaded
  std::string folder;             ///< absolute: what its paths are relative to
};

struct CondorFile {
  std::vector<CondorJob> jobs;        ///< in the order of $(Process)
  std::vector<std::string> warnings;  ///< "line 3: rank = Memory: machines cannot be …"
};

/// More are refused: each is a job of its own.
inline constexpr std::size_t kCondorJobsMax = 1000;

/// What is the same for all jobs of a file, from the second one on: the number of the first one's
/// job, which is what $(Cluster) stands for.
inline constexpr const char* kCondorClusterVariable = "_CONDOR_CLUSTER_ID";

/// What a submit file asks condor_submit for, as far as jobs of ours can give it:
/// docs/htcondor-files.md. A line that cannot be honoured is a warning that says what happens in
/// its place; kInvalid, with the line, where a job would be another one than the file means. Reads
/// nothing but what `place` gives.
Result<CondorFile> parse_condor_file(std::string_view text, const CondorPlace& place);

}  // namespace rn::cli
