// SPDX-License-Identifier: Apache-2.0
#include "warden/mount_point.h"

#include <array>
#include <csignal>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/scratch_folder.h"

namespace rn::warden {
namespace {

bool is_there(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

struct MountPointTest : testing::Test {
  ScratchFolder scratch;
  const std::string folder = scratch.path() + "/containerd", marker = scratch.path() + "/made";
};

TEST_F(MountPointTest, one_that_was_missing_goes_again) {
  ASSERT_TRUE(make_mount_point(folder, marker));
  EXPECT_TRUE(is_there(folder));
  ASSERT_TRUE(make_mount_point(folder, marker)) << "the engine was started anew";

  remove_mount_point(folder, marker);

  EXPECT_FALSE(is_there(folder));
  EXPECT_FALSE(is_there(marker));
}

TEST_F(MountPointTest, the_owners_stays) {
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  ASSERT_TRUE(make_mount_point(folder, marker));

  remove_mount_point(folder, marker);

  EXPECT_TRUE(is_there(folder));
}

TEST_F(MountPointTest, one_in_which_something_lies_stays) {
  ASSERT_TRUE(make_mount_point(folder, marker));
  ASSERT_EQ(mkdir((folder + "/s").c_str(), 0700), 0);

  remove_mount_point(folder, marker);

  EXPECT_TRUE(is_there(folder));
}

TEST_F(MountPointTest, one_that_another_engine_has_mounted_stays) {
  ASSERT_TRUE(make_mount_point(folder, marker));
  std::array<int, 2> news{};
  ASSERT_EQ(pipe(news.data()), 0);
  const pid_t other = fork();
  if (other == 0) {
    const bool is_mounted = unshare(CLONE_NEWNS) == 0 &&
                            mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                            mount("/proc", folder.c_str(), nullptr, MS_BIND, nullptr) == 0;
    [[maybe_unused]] const auto told = write(news[1], is_mounted ? "y" : "n", 1);
    alarm(60);
    pause();
    _exit(1);
  }
  char answer = 0;
  ASSERT_EQ(read(news[0], &answer, 1), 1);
  const bool may_mount = answer == 'y';

  remove_mount_point(folder, marker);

  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  close(news[0]);
  close(news[1]);
  if (!may_mount) GTEST_SKIP() << "no right to mount";
  EXPECT_TRUE(is_there(folder));
}

}  // namespace
}  // namespace rn::warden
