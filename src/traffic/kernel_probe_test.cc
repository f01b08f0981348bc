// SPDX-License-Identifier: Apache-2.0
#include "traffic/kernel_probe.h"

#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rn::traffic {
namespace {

class KernelProbe : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() == 0) return;
    std::cerr << "\n*** NOT RUN: the questions to the kernel need root (CAP_SYS_ADMIN) ***\n\n";
    GTEST_SKIP() << "not root";
  }

  /// Whether tc can make such a queue, in a network namespace that goes with it.
  static bool has_queue(const std::string& kind) {
    const std::string command = "unshare -n tc qdisc add dev lo root " + kind + " >/dev/null 2>&1";
    return std::system(command.c_str()) == 0;
  }
};

ino_t own_network() {
  struct stat info {};

  return stat("/proc/thread-self/ns/net", &info) == 0 ? info.st_ino : 0;
}

TEST_F(KernelProbe, says_of_each_queue_what_tc_finds) {
  const KernelAnswers answers = ask_kernel();

  EXPECT_EQ(answers[KernelPiece::kApart], 0);
  EXPECT_EQ(answers[KernelPiece::kFq], has_queue("fq") ? 0 : -ENOENT);
  EXPECT_EQ(answers[KernelPiece::kHtb], has_queue("htb") ? 0 : -ENOENT);
  EXPECT_EQ(
      answers[KernelPiece::kTbf], has_queue("tbf rate 1mbit burst 32k limit 64k") ? 0 : -ENOENT
  );
}

TEST_F(KernelProbe, finds_what_the_tests_of_both_programs_stand_on) {
  const KernelAnswers answers = ask_kernel();

  EXPECT_EQ(answers[KernelPiece::kClsact], 0);
  EXPECT_EQ(answers[KernelPiece::kGuestProgram], 0);
  EXPECT_EQ(answers[KernelPiece::kTransferProgram], 0);
  EXPECT_EQ(answers[KernelPiece::kPacedSocket], 0);
}

TEST_F(KernelProbe, leaves_neither_a_process_nor_the_own_namespace_changed) {
  const ino_t before = own_network();

  (void)ask_kernel();

  EXPECT_EQ(own_network(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(KernelProbe, what_is_not_answered_in_time_is_not_answered) {
  const KernelAnswers answers = ask_kernel(milliseconds(0));

  for (const int answer : answers.all) EXPECT_EQ(answer, kNotAnswered);
}

}  // namespace
}  // namespace rn::traffic
