// SPDX-License-Identifier: Apache-2.0
#include "warden/disk_view.h"

#include <cerrno>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/fd.h"
#include "warden/apart_fixture.h"
#include "warden/cgroup_fixture.h"

namespace rn::warden {
namespace {

constexpr uid_t kDiskOwner = 1'010'001;
constexpr uid_t kViewer = 64'991;
constexpr uid_t kNobody = 65'534;
constexpr OwnerMap kMapping{kDiskOwner, kViewer, kDiskOwner, kViewer};

class DiskView : public testing::Test {
 protected:
  DiskView() { chmod(folder.path().c_str(), 0755); }

  std::string disk() const { return folder.path() + "/disk"; }

  std::string view() const { return folder.path() + "/view"; }

  /// A guest's disk: a private file of its own, and one of root's.
  void fill() const {
    ASSERT_EQ(mount("none", disk().c_str(), "tmpfs", 0, "mode=755,size=1m"), 0);
    for (const auto& [name, uid] : {std::pair("own", kDiskOwner), std::pair("roots", uid_t{0})}) {
      const std::string path = disk() + "/" + name;
      std::ofstream(path) << name;
      ASSERT_EQ(chmod(path.c_str(), 0600), 0);
      ASSERT_EQ(chown(path.c_str(), uid, uid), 0);
    }
  }

  static uid_t owner_of(const std::string& path) {
    struct stat about {};

    return stat(path.c_str(), &about) == 0 ? about.st_uid : ~uid_t{0};
  }

  /// errno of opening it as that user, 0 when it opens. This thread only.
  static int opens_as(uid_t uid, const std::string& path, int flags) {
    setfsgid(uid);
    setfsuid(uid);  // takes the capabilities over files away as well
    const io::Fd file(open(path.c_str(), flags | O_CLOEXEC));
    const int error = file ? 0 : errno;
    setfsuid(0);
    setfsgid(0);
    return error;
  }

  const test::Folder folder{test::Tree{{"disk", test::Tree{}}, {"view", test::Tree{}}}};
};

TEST_F(DiskView, the_agent_reads_a_guests_private_files_and_nobody_elses_and_writes_nothing) {
  Status mounted;
  const bool is_apart = test::run_apart([&] {
    fill();
    mounted = mount_view(disk(), view(), kMapping);
    if (!mounted) return;
    EXPECT_EQ(owner_of(view() + "/own"), kViewer);
    EXPECT_EQ(owner_of(view() + "/roots"), kNobody);
    EXPECT_EQ(opens_as(kViewer, view() + "/own", O_RDONLY), 0);
    EXPECT_EQ(opens_as(kViewer, view() + "/roots", O_RDONLY), EACCES);
    EXPECT_EQ(opens_as(kViewer, view() + "/own", O_WRONLY), EROFS);
    EXPECT_EQ(opens_as(kViewer + 1, view() + "/own", O_RDONLY), EACCES);
    EXPECT_EQ(opens_as(kViewer, disk() + "/own", O_RDONLY), EACCES)
        << "the disk itself is as before";
    EXPECT_EQ(owner_of(disk() + "/own"), kDiskOwner);
  });
  if (!is_apart) GTEST_SKIP() << "needs the right to make a mount namespace";
  if (!mounted && mounted.error().code == ErrorCode::kUnsupported)
    GTEST_SKIP() << mounted.error().describe();
  EXPECT_TRUE(mounted) << mounted.error().describe();
  EXPECT_TRUE(std::filesystem::is_empty(view())) << "a mount was left";
}

TEST_F(DiskView, a_file_system_without_mapped_mounts_is_told_apart_from_a_failure) {
  Status of_proc;
  Status of_nothing;
  const bool is_apart = test::run_apart([&] {
    of_proc = mount_view("/proc", view(), kMapping);
    of_nothing = mount_view(folder.path() + "/absent", view(), kMapping);
  });
  if (!is_apart) GTEST_SKIP() << "needs the right to make a mount namespace";
  ASSERT_FALSE(of_proc);
  EXPECT_EQ(of_proc.error().code, ErrorCode::kUnsupported) << of_proc.error().describe();
  EXPECT_FALSE(of_proc.error().hint.empty());
  ASSERT_FALSE(of_nothing);
  EXPECT_EQ(of_nothing.error().code, ErrorCode::kNotFound) << of_nothing.error().describe();
}

}  // namespace
}  // namespace rn::warden
