// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "base/error.h"
#include "base/time.h"

namespace rn::io {

struct SpawnOptions {
  std::vector<std::string>
      argv;  ///< argv[0] is looked up in PATH when it has no '/'; never a shell
  std::optional<std::vector<std::string>> environment;  ///< "NAME=value"; none: inherited
  std::string folder;                                   ///< working folder; empty: inherited
  std::vector<std::pair<int, int>>
      fds;  ///< {ours, number in the child}; standard ones not named here are /dev/null
  bool new_session = true;        ///< setsid, so that signal_group reaches the descendants
  bool dies_with_parent = false;  ///< SIGKILL when the spawning *thread* ends
};

struct ExitStatus {
  int code = 0;    ///< exit code when signal is 0
  int signal = 0;  ///< the signal that killed it

  bool is_success() const { return code == 0 && signal == 0; }
};

/// A child process held by a pidfd: no pid can be confused with a reused one. Movable. Destroying
/// one that has not been waited for kills it (its group when new_session) and reaps it.
class Subprocess {
 public:
  /// kNotFound: no such program or folder; kDenied: not executable; kInvalid: empty argv. The child
  /// gets default signal dispositions, an empty mask and no other descriptor of ours. Any thread.
  static Result<Subprocess> spawn(const SpawnOptions& options);
  Subprocess(Subprocess&& other) noexcept;
  Subprocess& operator=(Subprocess&& other) noexcept;
  ~Subprocess();

  pid_t pid() const { return pid_; }

  int pidfd() const {
    return pidfd_;
  }  ///< readable once it has ended; for watch_readable. Owned here.

  /// kNotFound when it has been reaped.
  Status signal(int number) const;
  Status signal_group(int number) const;  ///< needs new_session
  /// Waits for the end and reaps. kTimeout: still running. Repeatable afterwards. `timeout` 0
  /// polls.
  Result<ExitStatus> wait(milliseconds timeout);

 private:
  Subprocess() = default;
  void destroy();
  pid_t pid_ = -1;
  int pidfd_ = -1;
  bool own_session_ = false;
  std::optional<ExitStatus> status_;
};

struct RunOutput {
  ExitStatus status;
  std::string out;
  std::string err;
  bool is_truncated =
      false;  ///< more than max_output_bytes of one of them; the rest was read and dropped
};

/// Spawns, feeds `input`, collects the output, waits. Blocking. After `timeout` the group is
/// killed: kTimeout with the last of its output in the message. A non-zero exit is a value.
Result<RunOutput> run_process(
    SpawnOptions options,
    milliseconds timeout,
    const std::string& input = {},
    std::size_t max_output_bytes = 1 << 20
);

/// run_process whose non-zero exit is kInternal, with the command and the end of its error output
/// in the message.
Result<std::string> run_for_output(const std::vector<std::string>& argv, milliseconds timeout);

}  // namespace rn::io
