// SPDX-License-Identifier: Apache-2.0
#include "io/standard_output.h"

#include <cstdio>
#include <functional>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/fd.h"

namespace rn::io {
namespace {

/// Exit status of a process whose standard output is `output` (-1: closed) after `command`.
int status_with(int output, const std::function<int()>& command) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (output < 0) {
      close(STDOUT_FILENO);
    } else {
      dup2(output, STDOUT_FILENO);
    }
    take_standard_files();
    _exit(command());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int say_hello() {
  std::printf("hello\n");
  return finish_output("test", 0);
}

TEST(StandardOutput, what_was_written_is_a_success) {
  const Fd null(open("/dev/null", O_WRONLY | O_CLOEXEC));

  EXPECT_EQ(status_with(null.get(), say_hello), 0);
}

TEST(StandardOutput, what_a_daemon_says_to_nobody_changes_nothing_of_its_end) {
  const auto serve_for_a_moment = [] {
    std::printf("listening\n");
    if (flush_output_or_drop()) return 99;
    return finish_output("test", 0);
  };
  const auto and_say_more = [] {
    std::printf("listening\n");
    (void)flush_output_or_drop();
    return say_hello();
  };
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  close(ends[0]);
  const Fd gone(ends[1]);
  const Fd full(open("/dev/full", O_WRONLY | O_CLOEXEC));

  EXPECT_EQ(status_with(gone.get(), serve_for_a_moment), 0);
  EXPECT_EQ(status_with(full.get(), serve_for_a_moment), 0);
  EXPECT_EQ(status_with(-1, serve_for_a_moment), 0);
  EXPECT_EQ(status_with(gone.get(), and_say_more), kReaderGone) << "a later word counts again";
}

TEST(StandardOutput, a_full_device_fails_the_command) {
  const Fd full(open("/dev/full", O_WRONLY | O_CLOEXEC));

  EXPECT_EQ(status_with(full.get(), say_hello), 1);
  EXPECT_EQ(status_with(full.get(), [] { return finish_output("test", 0); }), 0)
      << "nothing was said";
  EXPECT_EQ(
      status_with(
          full.get(),
          [] {
            std::printf("hello\n");
            (void)std::fflush(stdout);  // somebody flushed and did not look
            return finish_output("test", 0);
          }
      ),
      1
  );
}

TEST(StandardOutput, a_failure_of_the_command_itself_is_not_covered) {
  const Fd full(open("/dev/full", O_WRONLY | O_CLOEXEC));

  const int status = status_with(full.get(), [] {
    std::printf("hello\n");
    return finish_output("test", 6);
  });

  EXPECT_EQ(status, 6);
}

TEST(StandardOutput, a_reader_that_has_gone_is_noticed_also_before_anything_is_written) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Fd reader(ends[0]);
  const Fd writer(ends[1]);
  const auto looks = [] { return has_output_lost_its_reader() ? 1 : 0; };
  EXPECT_EQ(status_with(writer.get(), looks), 0);

  reader = Fd();

  EXPECT_EQ(status_with(writer.get(), looks), 1);
  EXPECT_EQ(status_with(writer.get(), say_hello), kReaderGone);
}

TEST(StandardOutput, a_closed_one_fails_and_lends_its_number_to_no_other_file) {
  EXPECT_EQ(status_with(-1, say_hello), 1);
  EXPECT_EQ(
      status_with(
          -1,
          [] {
            const Fd other(open("/dev/null", O_WRONLY | O_CLOEXEC));
            return other.get() > STDERR_FILENO ? 0 : 1;
          }
      ),
      0
  );
}

}  // namespace
}  // namespace rn::io
