// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

// The lines `#SBATCH …` of a script, as sbatch(1) reads them. What they mean for a job of ours is
// cli_slurm_script.h's. Pure.
namespace rn::cli {

enum class SlurmValue : std::uint8_t {
  kNone,
  kNeeded,      ///< behind '=' or as the next word
  kAfterEquals  ///< behind '=', or none
};

/// An option of sbatch.
struct SlurmKind {
  std::string_view name;  ///< without its dashes
  char letter;            ///< of its short form; 0 = none
  SlurmValue value;
  /// What happens in its place, for a warning. Empty: cli_slurm_script.cc takes it or refuses it.
  std::string_view instead;
};

/// Null if sbatch has none of this name.
const SlurmKind* slurm_kind(std::string_view name);
std::vector<std::string> slurm_option_names();

struct SlurmOption {
  std::size_t line = 0;             ///< of the script, from 1
  const SlurmKind* kind = nullptr;  ///< null: sbatch has no such option
  std::string name;                 ///< long, without its dashes; of an unknown one as written
  std::string value;
  std::string written;  ///< for messages
};

struct SlurmScript {
  /// Of the first line: the program, and all that follows it as one word, as the kernel takes it.
  std::vector<std::string> interpreter;
  std::vector<SlurmOption> options;   ///< in order
  std::vector<std::size_t> too_late;  ///< lines `#SBATCH` after the first command
  std::vector<std::string> lines;     ///< all of it, without line ends; the first is "#!…"
};

/// What sbatch takes for a batch script: its first line names an interpreter.
bool is_slurm_script(std::string_view text);

/// True if a line begins with #SBATCH.
bool has_slurm_lines(std::string_view text);

/// kInvalid with the line in front ("line 3: …") for what sbatch refuses, too: a quote that is not
/// closed, a word that is no option, a value that is missing or not taken; for line ends of DOS, a
/// zero byte, bytes that are no UTF-8, and a script without a command.
Result<SlurmScript> read_slurm_script(std::string_view text);

/// At most 60 bytes of it.
std::string slurm_excerpt(const std::string& text);

}  // namespace rn::cli
