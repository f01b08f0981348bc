// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli_client.h"

#include "base/bytes.h"
#include "base/error.h"

namespace rn::cli {

/// Exit status of `reclaim exec` when it is not the command's own, as ssh has it.
inline constexpr int kExecFailed = 255;

struct ExecOptions {
  std::string job;  ///< task_word()
  std::vector<std::string> command;
  bool passes_input = false;
  bool wants_terminal = false;
  bool refuses_terminal = false;
  /// Called when the command is asked for, with what Ctrl-C does; for tests.
  std::function<void(std::function<void(int signal)>)> began;
};

/// Runs a command inside the job's running guest, with its output here, until it has ended; answers
/// its exit code. Everything else is kExecFailed, with words on standard error; 141 when nobody
/// reads the output any more.
int exec_command(const Client& client, const ExecOptions& options);

struct ExecTerminal {
  bool is_there = false;
  std::uint16_t rows = 24;
  std::uint16_t columns = 80;
  std::string type;  ///< TERM
};

/// The body of visit::Frame::kRun. kInvalid: the command is empty or too long.
Result<Blob> run_frame(
    const std::vector<std::string>& command, const ExecTerminal& terminal, bool passes_input
);

/// Keys of a terminal on their way into a guest: "~." at the beginning of a line leaves, and "~~"
/// is one "~" there.
class TerminalKeys {
 public:
  /// What of it is passed on.
  std::string take(std::string_view keys);

  bool leaves() const { return leaves_; }

 private:
  bool is_at_line_start_ = true;
  bool has_tilde_ = false;
  bool leaves_ = false;
};

}  // namespace rn::cli
