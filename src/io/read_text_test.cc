// SPDX-License-Identifier: Apache-2.0
#include "io/read_text.h"

#include <algorithm>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rn::io {
namespace {

TEST(ReadText, a_file_of_proc_is_read_whole) {
  const std::string stat = read_text("/proc/self/stat");
  EXPECT_TRUE(stat.starts_with(std::to_string(getpid()) + " ("));
  EXPECT_EQ(stat.back(), '\n');
}

TEST(ReadText, what_is_missing_or_fails_while_it_is_read_is_empty) {
  EXPECT_EQ(read_text("/proc/self/no-such-file"), "");
  EXPECT_EQ(read_text("/proc/self"), "") << "a folder opens, and read(2) fails";
  const pid_t child = fork();
  if (child == 0) pause();
  // A descriptor of a process that has ended: the read fails with ESRCH.
  const std::string path = "/proc/" + std::to_string(child) + "/status";
  const int fd = open(path.c_str(), O_RDONLY);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(read_text("/proc/self/fd/" + std::to_string(fd)), "");
  close(fd);
}

TEST(ReadText, all_pids_has_this_process_and_no_other_words) {
  const std::vector<pid_t> pids = all_pids();
  EXPECT_NE(std::find(pids.begin(), pids.end(), getpid()), pids.end());
  EXPECT_EQ(std::count(pids.begin(), pids.end(), 0), 0);
}

}  // namespace
}  // namespace rn::io
