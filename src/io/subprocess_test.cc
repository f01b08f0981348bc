// SPDX-License-Identifier: Apache-2.0
#include "io/subprocess.h"

#include <csignal>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "io/fd.h"
#include "io/loop_fixture.h"

namespace rn::io {
namespace {

SpawnOptions command(std::vector<std::string> argv) {
  SpawnOptions options;
  options.argv = std::move(argv);
  return options;
}

TEST(Subprocess, gives_arguments_unchanged_and_collects_both_outputs) {
  const auto output = run_process(
      command({"sh", "-c", "printf '%s|' \"$@\"; echo oops >&2; exit 3", "x", "a b", "$(id)", ""}),
      kLimit
  );

  ASSERT_TRUE(output) << output.error().describe();
  EXPECT_EQ(output->out, "a b|$(id)||");
  EXPECT_EQ(output->err, "oops\n");
  EXPECT_EQ(output->status.code, 3);
  EXPECT_FALSE(output->status.is_success());
}

TEST(Subprocess, feeds_input_larger_than_a_pipe) {
  const std::string input(1'000'000, 'y');

  const auto output = run_process(command({"cat"}), kLimit, input, 2 << 20);

  ASSERT_TRUE(output);
  EXPECT_EQ(output->out, input);
  EXPECT_FALSE(output->is_truncated);
}

TEST(Subprocess, drops_output_over_the_bound_and_says_so) {
  const auto output = run_process(command({"head", "-c", "300000", "/dev/zero"}), kLimit, "", 1000);

  ASSERT_TRUE(output);
  EXPECT_EQ(output->out.size(), 1000U);
  EXPECT_TRUE(output->is_truncated);
  EXPECT_TRUE(output->status.is_success());
}

TEST(Subprocess, kills_the_whole_group_at_the_deadline) {
  const auto output =
      run_process(command({"sh", "-c", "echo begun; sleep 1000 & wait"}), milliseconds(3000));

  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, ErrorCode::kTimeout);
  EXPECT_NE(output.error().message.find("begun"), std::string::npos);
}

TEST(Subprocess, tells_apart_missing_and_forbidden_programs) {
  EXPECT_EQ(
      run_process(command({"rn-no-such-program"}), kLimit).error().code, ErrorCode::kNotFound
  );
  EXPECT_EQ(run_process(command({"/dev/null"}), kLimit).error().code, ErrorCode::kDenied);
  EXPECT_EQ(run_process(command({}), kLimit).error().code, ErrorCode::kInvalid);
  SpawnOptions options = command({"true"});
  options.folder = "/no/such/folder";
  EXPECT_EQ(run_process(options, kLimit).error().code, ErrorCode::kNotFound);
}

TEST(Subprocess, has_only_the_environment_folder_and_descriptors_given) {
  const Fd leaked(open("/dev/null", O_RDONLY));  // not close-on-exec
  SpawnOptions options = command({"/bin/sh", "-c", "pwd; env | grep RN; ls /proc/self/fd | wc -l"});
  options.environment = {"RN_X=1", "PATH=/usr/bin:/bin"};
  options.folder = "/usr";

  const auto output = run_process(options, kLimit);

  ASSERT_TRUE(output);
  EXPECT_EQ(output->out, "/usr\nRN_X=1\n4\n");  // 0, 1, 2 and ls' own
}

TEST(Subprocess, swaps_descriptors_without_losing_one) {
  int ends[2] = {};
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  SpawnOptions options = command({"/bin/sh", "-c", "echo through >&3"});
  options.fds = {{write_end.get(), 3}, {read_end.get(), write_end.get()}};

  auto child = Subprocess::spawn(options);

  ASSERT_TRUE(child) << child.error().describe();
  ASSERT_TRUE(child->wait(kLimit)->is_success());
  write_end.reset();
  char text[32] = {};
  EXPECT_EQ(read(read_end.get(), text, sizeof(text)), 8);
  EXPECT_STREQ(text, "through\n");
}

TEST(Subprocess, waits_with_a_deadline_and_reports_the_signal) {
  auto child = Subprocess::spawn(command({"sleep", "1000"}));
  ASSERT_TRUE(child);

  EXPECT_EQ(child->wait(milliseconds(1)).error().code, ErrorCode::kTimeout);
  EXPECT_TRUE(child->signal(SIGTERM));
  const auto status = child->wait(kLimit);

  ASSERT_TRUE(status);
  EXPECT_EQ(status->signal, SIGTERM);
  EXPECT_EQ(child->wait(milliseconds(0))->signal, SIGTERM);
  EXPECT_EQ(child->signal(SIGTERM).error().code, ErrorCode::kNotFound);
}

TEST(Subprocess, is_killed_and_reaped_with_its_owner) {
  pid_t pid = -1;
  {
    auto child = Subprocess::spawn(command({"sleep", "1000"}));
    ASSERT_TRUE(child);
    pid = child->pid();
  }
  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(Subprocess, a_failing_command_is_an_error_with_its_words) {
  const auto output = run_for_output({"sh", "-c", "echo no such thing >&2; exit 4"}, kLimit);

  ASSERT_FALSE(output);
  EXPECT_NE(output.error().message.find("failed with 4: no such thing"), std::string::npos);
  EXPECT_EQ(*run_for_output({"echo", "fine"}, kLimit), "fine\n");
}

}  // namespace
}  // namespace rn::io
