// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace rn::cli {

struct CompletedFlag {
  std::vector<std::string> names;  ///< with their dashes
  std::string what;
  std::string kind;  ///< of its value, as below; empty = it takes none
};

/// A command as a shell completes it. A kind is what cli_complete.h asks the coordinator for, or
/// "file", "folder", "value" (nothing is known of it), or "=one two": one of these words.
struct CompletedCommand {
  std::string path;  ///< words behind the program; "" is the program itself
  std::string what;
  std::vector<std::string> below;  ///< names of commands
  std::vector<CompletedFlag> flags;
  std::vector<std::string> places;  ///< kinds of its arguments
  bool repeats = false;             ///< the last one
};

/// All commands that --help shows, each before those below it. What a value is says the option's
/// type: JOB, JOB:PATH, NODE, IMAGE, DATA, LAB, FILE, FOLDER.
std::vector<CompletedCommand> completed_commands(const CLI::App& app);

/// The script for "bash", "zsh" or "fish" that completes `program`.
std::string completion_script(
    const std::vector<CompletedCommand>& commands,
    const std::string& program,
    const std::string& shell
);

}  // namespace rn::cli
