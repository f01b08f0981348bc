// SPDX-License-Identifier: Apache-2.0
#include "warden/disk.h"

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/fd.h"
#include "warden/apart_fixture.h"
#include "warden/cgroup_fixture.h"
#include "warden/loop_mount.h"

// What a SIGKILL of the warden leaves of an attempt's disk at each step of its making, and what the
// next warden makes of it.
namespace rn::warden {
namespace {

using Texts = std::vector<std::string>;

constexpr std::uint32_t kAgent = 64'991;
constexpr std::uint32_t kGuest = 1'010'001;
const warden_wire::GuestName kName{JobId("j-1"), {1, 1}};

class Disks : public testing::Test {
 protected:
  DiskConfig config() const {
    DiskConfig disks;
    disks.folder = folder.path() + "/attempts";
    disks.agent_uid = disks.agent_gid = kAgent;
    disks.guest_uid = kGuest;
    disks.reserve_mib = 1;
    return disks;
  }

  static std::uint32_t owner_of(const std::string& path) {
    struct stat about {};

    return lstat(path.c_str(), &about) == 0 ? about.st_uid : ~0U;
  }

  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  static std::size_t mounts_on(const std::string& path) {
    std::ifstream table("/proc/thread-self/mountinfo");
    std::size_t count = 0;
    for (std::string line; std::getline(table, line);)
      if (line.find(" " + path + " ") != std::string::npos) ++count;
    return count;
  }

  /// A disk is made, `undo` takes back what the killed process had not reached, and the next
  /// process looks for disks. Answers false where such mounts cannot be made.
  bool killed(const std::function<void(const std::string& disk)>& undo) {
    bool is_made = false;
    const bool is_apart = test::run_apart([&] {
      const auto before = AttemptDisks::open(config());
      ASSERT_TRUE(before) << before.error().describe();
      const auto disk = before->prepare(kName, 16);
      if (!disk) return;
      is_made = true;
      undo(*disk);
      const auto after = AttemptDisks::open(config());
      ASSERT_TRUE(after) << after.error().describe();
      const auto found = after->find();
      ASSERT_TRUE(found) << found.error().describe();
      ASSERT_EQ(found->size(), 1U);
      EXPECT_EQ(mounts_on(*disk), 1U);
      work_owner = owner_of(*disk + "/work");
      reclaim_owner = owner_of(*disk + "/reclaim");
      EXPECT_TRUE(after->release(kName));
      EXPECT_EQ(after->leave(milliseconds(0)).stays, Texts{});
    });
    return is_apart && is_made;
  }

  const test::Folder folder{test::Tree{}};
  std::uint32_t work_owner = 0;
  std::uint32_t reclaim_owner = 0;
};

TEST_F(Disks, a_disk_whose_maker_died_before_the_mount_gets_its_folders) {
  if (!killed([](const std::string& disk) {
        std::filesystem::remove(disk + "/work");
        std::filesystem::remove(disk + "/reclaim");
        ASSERT_TRUE(unmount(disk));
      }))
    GTEST_SKIP() << "needs the right to mount loop devices";
  EXPECT_EQ(work_owner, kAgent) << "else the agent's restore ends with 'permission denied'";
  EXPECT_EQ(reclaim_owner, kGuest);
}

TEST_F(Disks, a_folder_whose_maker_died_before_giving_it_away_is_given_away) {
  if (!killed([](const std::string& disk) {
        ASSERT_EQ(lchown((disk + "/work").c_str(), 0, 0), 0);
        std::filesystem::remove(disk + "/reclaim");
      }))
    GTEST_SKIP() << "needs the right to mount loop devices";
  EXPECT_EQ(work_owner, kAgent);
  EXPECT_EQ(reclaim_owner, kGuest);
}

TEST_F(Disks, an_adopted_disk_stays_the_guests) {
  if (!killed([](const std::string& disk) {
        ASSERT_EQ(lchown((disk + "/work").c_str(), kGuest, kGuest), 0);
        ASSERT_TRUE(unmount(disk));
      }))
    GTEST_SKIP() << "needs the right to mount loop devices";
  EXPECT_EQ(work_owner, kGuest);
}

TEST_F(Disks, a_search_beside_the_making_of_a_disk_mounts_it_once) {
  bool is_made = false;
  const bool is_apart = test::run_apart([&] {
    const auto disks = AttemptDisks::open(config());
    ASSERT_TRUE(disks) << disks.error().describe();
    // The image without its mount, as between the two steps of prepare().
    const auto first = disks->prepare(kName, 16);
    if (!first) return;
    is_made = true;
    for (int round = 0; round < 20; ++round) {
      ASSERT_TRUE(unmount(*first));
      std::thread search([&] { EXPECT_TRUE(disks->find()); });  // in the same mount namespace
      EXPECT_TRUE(disks->prepare(kName, 16));
      search.join();
      ASSERT_EQ(mounts_on(*first), 1U) << "two file systems on one image";
    }
    EXPECT_TRUE(disks->release(kName));
    EXPECT_EQ(disks->leave(milliseconds(0)).stays, Texts{});
  });
  if (!is_apart || !is_made) GTEST_SKIP() << "needs the right to mount loop devices";
}

TEST_F(Disks, a_new_file_is_whole_the_guests_and_replaces_and_follows_nothing) {
  bool is_made = false;
  const bool is_apart = test::run_apart([&] {
    const auto disks = AttemptDisks::open(config());
    ASSERT_TRUE(disks) << disks.error().describe();
    const auto disk = disks->prepare(kName, 16);
    if (!disk) return;
    is_made = true;
    const std::string work = *disk + "/work";
    const auto made = disks->write_new(kName, "SAVE", "now\n");
    ASSERT_TRUE(made) << made.error().describe();
    EXPECT_TRUE(*made);
    EXPECT_EQ(text_of(work + "/SAVE"), "now\n");
    EXPECT_EQ(owner_of(work + "/SAVE"), kGuest);

    EXPECT_FALSE(disks->write_new(kName, "SAVE", "again\n").value());
    EXPECT_EQ(text_of(work + "/SAVE"), "now\n") << "it was not read yet";
    const std::string outside = folder.path() + "/owners";
    std::filesystem::create_directory(outside);
    std::filesystem::create_symlink(outside + "/new", work + "/LINK");
    EXPECT_FALSE(disks->write_new(kName, "LINK", "x").value());
    std::filesystem::create_symlink(outside, work + "/way");
    EXPECT_EQ(disks->write_new(kName, "way/SAVE", "x").error().code, ErrorCode::kDenied);
    EXPECT_EQ(disks->write_new(kName, "../SAVE", "x").error().code, ErrorCode::kInvalid);
    EXPECT_EQ(disks->write_new(kName, "none/SAVE", "x").error().code, ErrorCode::kNotFound);
    std::filesystem::create_directory(work + "/ctl");
    EXPECT_EQ(disks->write_new(kName, "ctl", "x").error().code, ErrorCode::kUnsupported);
    EXPECT_TRUE(disks->write_new(kName, "ctl/SAVE", "x").value());

    const std::string word = *disk + "/reclaim/told";
    EXPECT_TRUE(disks->write_new_beside(kName, "told", "word").value());
    EXPECT_EQ(text_of(word), "word");
    EXPECT_EQ(owner_of(word), kGuest);
    EXPECT_FALSE(disks->write_new_beside(kName, "told", "another").value());
    std::filesystem::remove(word);
    std::filesystem::create_symlink(outside + "/new", word);
    EXPECT_FALSE(disks->write_new_beside(kName, "told", "x").value());
    std::filesystem::remove(word);
    std::filesystem::create_directory(word);
    EXPECT_EQ(disks->write_new_beside(kName, "told", "x").error().code, ErrorCode::kUnsupported);
    EXPECT_TRUE(std::filesystem::is_empty(outside));
    EXPECT_TRUE(disks->release(kName));
    EXPECT_EQ(disks->leave(milliseconds(0)).stays, Texts{});
  });
  if (!is_apart || !is_made) GTEST_SKIP() << "needs the right to mount loop devices";
}

TEST_F(Disks, one_in_use_stays_and_is_named_with_its_user_and_the_others_go) {
  bool is_made = false;
  const warden_wire::GuestName other{JobId("j-2"), {1, 1}};
  const bool is_apart = test::run_apart([&] {
    const auto disks = AttemptDisks::open(config());
    ASSERT_TRUE(disks) << disks.error().describe();
    const auto busy = disks->prepare(kName, 16);
    if (!busy || !disks->prepare(other, 16)) return;
    is_made = true;
    const io::Fd file(open((*busy + "/work").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(file);

    const LeaveReport report = disks->leave(milliseconds(0));
    EXPECT_EQ(report.removed, Texts{"disk of j-2-1.1"});
    ASSERT_EQ(report.stays.size(), 1U);
    EXPECT_EQ(
        report.stays[0],
        "disk of j-1-1.1: " + *busy + " is still in use; in use by process " +
            std::to_string(getpid()) + " (warden_test)"
    );
  });
  if (!is_apart || !is_made) GTEST_SKIP() << "needs the right to mount loop devices";
  const bool is_free = test::run_apart([&] {
    const auto disks = AttemptDisks::open(config());
    ASSERT_TRUE(disks) << disks.error().describe();
    EXPECT_EQ(disks->leave(seconds(30)).stays, Texts{});
  });
  EXPECT_TRUE(is_free);
}

}  // namespace
}  // namespace rn::warden
