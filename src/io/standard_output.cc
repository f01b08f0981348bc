// SPDX-License-Identifier: Apache-2.0
#include "io/standard_output.h"

#include <cerrno>
#include <csignal>
#include <cstdio>

#include <fcntl.h>
#include <poll.h>
#include <stdio_ext.h>
#include <unistd.h>

#include "io/errno_error.h"

namespace rn::io {

void take_standard_files() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest number that is free is this one. Opened the wrong way round, so that using it
    // fails.
    (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
  (void)std::signal(SIGPIPE, SIG_IGN);
}

bool has_output_lost_its_reader() {
  pollfd output{STDOUT_FILENO, 0, 0};
  return poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

Status flush_output() {
  const bool has_failed = std::ferror(stdout) != 0;
  errno = 0;
  const bool is_written = std::fflush(stdout) == 0;
  const int why = errno;
  if (is_written && !has_failed) return {};
  if (why == EPIPE || has_output_lost_its_reader())
    return fail(ErrorCode::kUnavailable, "nobody reads standard output any more");
  Error error = is_written ? Error{ErrorCode::kInternal, "an earlier write failed", ""}
                           : error_from_errno(why, "writing");
  error.code = ErrorCode::kInternal;
  return fail(error.with("standard output")
                  .hinting("what was printed is not complete: send it to where there is room"));
}

bool flush_output_or_drop() {
  if (flush_output()) return true;
  __fpurge(stdout);
  std::clearerr(stdout);
  return false;
}

int finish_output(const char* program, int code) {
  const Status written = flush_output();
  if (written || code != 0) return code;
  if (written.error().code == ErrorCode::kUnavailable) return kReaderGone;
  std::fprintf(
      stderr,
      "%s: %s\n  next: %s\n",
      program,
      written.error().message.c_str(),
      written.error().hint.c_str()
  );
  return 1;
}

}  // namespace rn::io
