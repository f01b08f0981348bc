// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

// The lines of an HTCondor submit file, as condor_submit(1) reads them. What they mean for a job of
// ours is cli_condor_file.h's. Pure.
namespace rn::cli {

/// "NAME = VALUE", or "queue …".
struct CondorStatement {
  std::size_t line = 0;  ///< its first one, from 1
  bool is_queue = false;
  std::string name;   ///< in small letters; of an attribute "my.name"
  std::string value;  ///< of queue what follows the word
  std::string written;
  /// Of a queue whose list in parentheses goes on over lines: these, without the parentheses.
  std::vector<std::string> items;
  bool has_items = false;
};

/// True if its first statement is NAME = VALUE, or a word of such files with a `queue` anywhere: no
/// job file in YAML or JSON begins so.
bool is_condor_file(std::string_view text);

/// kInvalid with the line in front ("line 3: …") for what condor_submit refuses, too, and for what
/// is not read here: conditions, templates, includes and values of several lines.
Result<std::vector<CondorStatement>> read_condor_lines(std::string_view text);

std::string condor_trimmed(std::string_view text);
std::string condor_lower(std::string_view text);
/// At most 60 bytes of it, on one line.
std::string condor_excerpt(std::string_view text);

}  // namespace rn::cli
