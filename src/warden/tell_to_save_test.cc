// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "io/read_text.h"
#include "warden/cgroup.h"
#include "warden/herd_fixture.h"

namespace rn::warden {
namespace {

using test::Herd;
using test::sleep_forever;

void take_notice(int) {}

void catch_and_sleep(int number) {
  signal(number, take_notice);
  sleep_forever();
}

/// As the runtimes of MPI and Go do; SIGSYS is the last.
void catch_everything() {
  for (int number = SIGHUP; number < SIGSYS; ++number) signal(number, take_notice);
  catch_and_sleep(SIGSYS);
}

void catch_usr1() {
  catch_and_sleep(SIGUSR1);
}

void catch_term() {
  catch_and_sleep(SIGTERM);
}

/// What MPI starts beside a program, and which passes signals on to it.
void launch_as_orted() {
  execl("/bin/sh", "orted", "-c", "trap : USR1; kill -STOP $$", nullptr);
  _exit(127);
}

/// Handlers are installed on their processes' own time; the deadline is the test's.
void wait_until_caught(const Herd& herd, int number) {
  for (const pid_t pid : herd.pids()) {
    const std::string status = "/proc/" + std::to_string(pid) + "/status";
    while (((caught_signals(io::read_text(status)).value_or(0) >> (number - 1)) & 1) == 0)
      sched_yield();
  }
}

/// A guest with a real cgroup.
class TellToSave : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) {
      std::cerr << "\n*** NOT RUN: cgroups need root ***\n\n";
      GTEST_SKIP() << "not root";
    }
    roots_ = probe_cgroups().value();
    ASSERT_TRUE(make_cgroup(roots_, guest_));
  }

  void TearDown() override {
    if (geteuid() != 0) return;
    EXPECT_TRUE(remove_cgroup(roots_, guest_)) << "processes were left";
  }

  ToldToSave tell() const { return tell_to_save(roots_, guest_).value(); }

  const std::string guest_ = "rn-test-tell-" + std::to_string(getpid());
  CgroupRoots roots_;
};

TEST_F(TellToSave, the_first_signal_that_somebody_catches_by_himself_is_sent) {
  const Herd others(roots_, guest_, 1, sleep_forever);
  const Herd ending(roots_, guest_, 1, catch_term);
  wait_until_caught(ending, SIGTERM);
  const ToldToSave by_term = tell();
  const Herd saving(roots_, guest_, 1, catch_usr1);
  wait_until_caught(saving, SIGUSR1);
  const ToldToSave by_usr1 = tell();

  EXPECT_EQ(by_term.signal, SIGTERM);
  EXPECT_EQ(by_term.pids, ending.pids());
  EXPECT_EQ(by_usr1.signal, SIGUSR1);
  EXPECT_EQ(by_usr1.pids, saving.pids());
  EXPECT_TRUE(others.is_alive(0));
}

TEST_F(TellToSave, who_catches_everything_hears_sigterm_and_only_where_nobody_else_can_be_told) {
  const Herd all(roots_, guest_, 1, catch_everything);
  const Herd launcher(roots_, guest_, 1, launch_as_orted);
  wait_until_caught(all, SIGSYS);
  wait_until_caught(launcher, SIGUSR1);
  {
    const Herd ending(roots_, guest_, 1, catch_term);
    wait_until_caught(ending, SIGTERM);
    EXPECT_EQ(tell().pids, ending.pids());
  }

  const ToldToSave told = tell();

  EXPECT_EQ(told.signal, SIGTERM);
  EXPECT_EQ(told.pids, all.pids());
  EXPECT_EQ(signal_catchers(roots_, guest_, SIGUSR1).value(), all.pids()) << "if its job says so";
}

TEST_F(TellToSave, where_nobody_can_be_told_nobody_is) {
  const Herd others(roots_, guest_, 2, sleep_forever);

  const ToldToSave told = tell();

  EXPECT_EQ(told.signal, 0);
  EXPECT_TRUE(told.pids.empty());
  EXPECT_TRUE(others.is_alive(0));
}

}  // namespace
}  // namespace rn::warden
