// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "init_log.h"
#include "word.h"
#include <signal.h>
#include <sys/types.h>

namespace rn::init {

/// Runs `command` in the place of this process, in a session of its own.
[[noreturn]] void become(
    char* const* command, char* const* environment, int output, const sigset_t& mask
);

/// A guest's own lines for /bin/sh, run as one of its processes while a word stands, one run at a
/// time. The word is taken away when a run has ended, so the guest counts as told meanwhile. A run
/// is ended after the grace of its word, or after ten minutes where there is none.
class Hook {
 public:
  /// `output` and `mask`: what its processes get.
  void set(const char* script, int output, const sigset_t& mask);

  bool is_set() const { return script_ != nullptr; }

  /// Starts it if a word stands, ends it if its time is over.
  void step(std::int64_t now, bool is_time_to_look, Word& word, Log& log);
  /// What became of a process; another's is nobody's business here.
  void on_ended(pid_t pid, int status, std::int64_t now, Log& log);
  /// When step() has something to do by itself; -1 = no such time.
  std::int64_t wakes_at() const;

 private:
  void start(std::int64_t now, const Word& word, Log& log);
  void write_end(const char* how) const;

  const char* script_ = nullptr;
  int output_ = -1;
  sigset_t mask_{};
  pid_t pid_ = 0;  ///< 0 = it does not run
  std::int64_t end_by_ = 0;
  std::int64_t rest_until_ = 0;
  bool is_late_ = false;
  bool has_failed_to_start_ = false;  ///< and that was said
  std::uint32_t runs_ = 0;
};

}  // namespace rn::init
