// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli_condor_file.h"

#include "base/error.h"

// The commands of an HTCondor submit file, and what one job has of them. Pure.
namespace rn::cli {

/// A command as it stands for one job.
struct CondorSetting {
  std::size_t line = 0;
  std::string value;    ///< its macros filled in, where takes_condor_command()
  std::string written;  ///< for messages
};

/// By their names; attributes as "my.name".
using CondorSettings = std::map<std::string, CondorSetting>;

/// condor_submit knows it, or it is an attribute; else it is a variable of the file's own.
bool is_condor_command(const std::string& name);
/// Its value becomes a part of the job.
bool takes_condor_command(std::string_view name);
std::vector<std::string> condor_command_names();

/// What happens in place of a command, for a warning; empty: it is taken, changes nothing, or is
/// refused.
std::string_view condor_instead(const std::string& name);

/// Why a command is refused, and what to do; `what` is empty if it is not.
struct CondorRefusal {
  std::string_view what;
  std::string_view next;
};

/// Of a command whose value is no plain "false" or "0".
CondorRefusal condor_refusal(const std::string& name);

using CondorWarn = std::function<void(const std::string& warning)>;

/// kInvalid with the line.
Result<CondorJob> condor_job(
    const CondorSettings& settings, const CondorPlace& place, const CondorWarn& warn
);

}  // namespace rn::cli
