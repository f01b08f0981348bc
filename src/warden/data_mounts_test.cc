// SPDX-License-Identifier: Apache-2.0
#include "warden/data_mounts.h"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/fd.h"
#include "warden/apart_fixture.h"
#include "warden/cgroup_fixture.h"
#include "warden/loop_mount.h"

namespace rn::warden {
namespace {

using warden_wire::GuestName;

const GuestName kReader{JobId("j-1"), LeaseEpoch{3, 1}};
const GuestName kOtherReader{JobId("j-2"), LeaseEpoch{3, 1}};

/// NOTE: all that is mounted lies in the test's own folder, and in a mount namespace of its own: a
/// mistake of what is tested reaches nothing else.
class DataMountsTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder.path() + "/" + name; }

  DataConfig a_config() const {
    return {path("state/data"), {{"digits", path("owner/digits")}}, {path("state")}};
  }

  std::string view(const GuestName& guest = kReader, const std::string& name = "digits") const {
    return path("state/data/guests/" + guest.job.str() + "-3.1/" + name);
  }

  /// errno of writing a file there, 0 when it could be written.
  static int writes(const std::string& name) {
    const io::Fd file(open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    return file ? 0 : errno;
  }

  void apart(const std::function<void()>& body) const {
    if (!test::run_apart(body)) GTEST_SKIP() << "needs the right to make a mount namespace";
    EXPECT_EQ(folder.read("owner/digits/train"), "0123") << "the owner's files changed";
    EXPECT_EQ(folder.read("owner/digits/more/test"), "456") << "the owner's files changed";
  }

  /// Not where temporary files are in memory: that is below /dev, which is refused.
  const test::Folder folder{
      test::Tree{
          {"owner",
           test::Tree{
               {"digits", test::Tree{{"train", "0123"}, {"more", test::Tree{{"test", "456"}}}}}}},
          {"state", test::Tree{}}},
      "/var/tmp"};
};

TEST_F(DataMountsTest, a_view_shows_the_owners_files_and_can_neither_be_written_nor_raise_anybody) {
  apart([&] {
    auto data = DataMounts::open(a_config());
    ASSERT_TRUE(data) << data.error().describe();
    EXPECT_EQ(data->there(), std::vector<std::string>{"digits"});

    const Status mounted = data->mount(kReader, {"digits"});

    ASSERT_TRUE(mounted) << mounted.error().describe();
    EXPECT_TRUE(std::filesystem::exists(view() + "/more/test"));
    EXPECT_EQ(writes(view() + "/new"), EROFS);
    EXPECT_EQ(unlink((view() + "/train").c_str()), -1);
    EXPECT_EQ(errno, EROFS);
    EXPECT_EQ(writes(path("owner/digits/own")), 0) << "the owner writes as before";

    struct statvfs about {};

    ASSERT_EQ(statvfs(view().c_str(), &about), 0);
    EXPECT_TRUE((about.f_flag & ST_NOSUID) != 0 && (about.f_flag & ST_NODEV) != 0);

    EXPECT_TRUE(data->unmount(kReader));
    EXPECT_FALSE(std::filesystem::exists(path("state/data/guests/j-1-3.1")));
    EXPECT_TRUE(data->unmount(kReader)) << "again is fine";
  });
}

TEST_F(DataMountsTest, what_the_owner_mounts_below_is_not_shown_before_or_after) {
  apart([&] {
    const std::string more = path("owner/digits/more");
    ASSERT_EQ(mount("none", more.c_str(), "tmpfs", 0, "size=64k"), 0);
    ASSERT_EQ(writes(more + "/private"), 0);
    // As under an init that shares all mounts.
    ASSERT_TRUE(mount_shared(path("owner")));
    auto data = DataMounts::open(a_config());
    ASSERT_TRUE(data) << data.error().describe();
    ASSERT_TRUE(data->mount(kReader, {"digits"}));

    EXPECT_FALSE(std::filesystem::exists(view() + "/more/private"));
    const std::string later = path("owner/digits/later");
    std::filesystem::create_directory(later);
    ASSERT_EQ(mount("none", later.c_str(), "tmpfs", 0, "size=64k"), 0);
    ASSERT_EQ(writes(later + "/private"), 0);

    EXPECT_TRUE(std::filesystem::exists(view() + "/later"));
    EXPECT_FALSE(std::filesystem::exists(view() + "/later/private"));
    EXPECT_TRUE(data->unmount(kReader));
  });
}

TEST_F(DataMountsTest, a_folder_that_has_gone_is_not_offered_and_a_start_leaves_nothing) {
  apart([&] {
    DataConfig config = a_config();
    config.sets["usb"] = path("owner/usb");
    auto data = DataMounts::open(config);
    ASSERT_TRUE(data) << "a disk that is not mounted must not keep the warden from serving: "
                      << data.error().describe();
    EXPECT_EQ(data->there(), std::vector<std::string>{"digits"});

    const Status gone = data->mount(kReader, {"digits", "usb"});
    const Status unknown = data->mount(kReader, {"digits", "imagenet"});

    ASSERT_TRUE(!gone && !unknown);
    EXPECT_EQ(gone.error().code, ErrorCode::kNotFound);
    EXPECT_EQ(unknown.error().message, "this node's warden has no data set imagenet");
    EXPECT_FALSE(is_mounted(view()).value());
    EXPECT_FALSE(std::filesystem::exists(path("state/data/guests/j-1-3.1")));
    std::filesystem::create_directory(path("owner/usb"));
    EXPECT_EQ(data->there(), (std::vector<std::string>{"digits", "usb"}));
  });
}

TEST_F(DataMountsTest, what_a_killed_warden_left_is_undone_and_what_is_being_started_is_not) {
  apart([&] {
    auto killed = DataMounts::open(a_config());
    ASSERT_TRUE(killed);
    ASSERT_TRUE(killed->mount(kReader, {"digits"}));
    auto next = DataMounts::open(a_config());
    ASSERT_TRUE(next);
    ASSERT_TRUE(next->mount(kOtherReader, {"digits"}));

    EXPECT_TRUE(next->undo_strays());

    EXPECT_FALSE(is_mounted(view(kReader)).value());
    EXPECT_TRUE(is_mounted(view(kOtherReader)).value());
    EXPECT_TRUE(next->unmount(kOtherReader));
    EXPECT_FALSE(std::filesystem::exists(path("state/data/guests/j-2-3.1")));
  });
}

TEST_F(DataMountsTest, leaving_detaches_what_is_busy_and_removes_empty_folders_only) {
  apart([&] {
    auto data = DataMounts::open(a_config());
    ASSERT_TRUE(data);
    ASSERT_TRUE(data->mount(kReader, {"digits"}));
    const io::Fd busy(open((view() + "/train").c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(busy);
    folder.write("state/data/guests/somebodys", "kept");

    const LeaveReport first = data->leave(milliseconds(0));

    EXPECT_FALSE(is_mounted(view()).value());
    EXPECT_EQ(first.stays.size(), 1U) << "a file is nothing that is made here";
    EXPECT_EQ(folder.read("state/data/guests/somebodys"), "kept");
    ASSERT_EQ(unlink(path("state/data/guests/somebodys").c_str()), 0);
    EXPECT_TRUE(data->leave(milliseconds(0)).stays.empty());
    EXPECT_FALSE(std::filesystem::exists(path("state/data")));
  });
}

TEST_F(DataMountsTest, a_link_on_the_way_or_our_own_folder_by_another_name_is_refused) {
  apart([&] {
    std::filesystem::create_directory_symlink(path("owner"), path("link"));
    std::filesystem::create_directory(path("alias"));
    ASSERT_EQ(mount(folder.path().c_str(), path("alias").c_str(), nullptr, MS_BIND, nullptr), 0);
    DataConfig config = a_config();

    config.sets = {{"digits", path("link/digits")}};
    const auto by_link = DataMounts::open(config);
    config.sets = {{"digits", path("alias")}};
    const auto by_name = DataMounts::open(config);

    ASSERT_TRUE(!by_link && !by_name);
    EXPECT_NE(by_link.error().message.find("symbolic link"), std::string::npos);
    EXPECT_NE(by_name.error().message.find("by another name"), std::string::npos);
  });
}

TEST(DataPath, is_absolute_plain_and_neither_ours_nor_the_kernels) {
  const std::vector<std::string> ours = {"/var/lib/reclaimnet", "/run/reclaimnet"};

  EXPECT_TRUE(check_data_path("/srv/imagenet", ours));
  EXPECT_TRUE(check_data_path("/var/lib/reclaimnet-data", ours));
  for (const char* bad :
       {"",
        "/",
        "srv/imagenet",
        "/srv/../etc",
        "/srv//x",
        "/var",
        "/var/lib",
        "/run",
        "/var/lib/reclaimnet",
        "/var/lib/reclaimnet/agent",
        "/proc",
        "/sys/fs/cgroup",
        "/dev/shm"}) {
    const Status checked = check_data_path(bad, ours);
    ASSERT_FALSE(checked) << bad;
    EXPECT_EQ(checked.error().code, ErrorCode::kInvalid);
  }
}

/// A process with a root of its own, as a container's first one.
class Rooted {
 public:
  explicit Rooted(const std::string& root) : pid_(fork()) {
    if (pid_ != 0) return;
    if (chroot(root.c_str()) != 0) _exit(1);
    for (;;) pause();
  }

  Rooted(const Rooted&) = delete;
  Rooted& operator=(const Rooted&) = delete;

  ~Rooted() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }

  /// Until it has its root.
  bool is_ready(const std::string& root) const {
    for (int i = 0; i < 500; ++i) {
      std::error_code ignored;
      const std::string link = "/proc/" + std::to_string(pid_) + "/root";
      if (std::filesystem::read_symlink(link, ignored) == root) return true;
      usleep(10'000);
    }
    return false;
  }

 private:
  pid_t pid_;
};

TEST_F(DataMountsTest, a_container_must_see_the_view_itself_and_protected) {
  apart([&] {
    const std::string root = path("root");
    const std::string seen = root + "/data/digits";
    std::filesystem::create_directories(seen);
    auto data = DataMounts::open(a_config());
    ASSERT_TRUE(data && data->mount(kReader, {"digits"}));
    const Rooted guest(root);
    ASSERT_TRUE(guest.is_ready(root));
    const auto check = [&] { return data->check_seen(kReader, {"digits"}, guest.pid()); };
    const auto bind = [&](const std::string& what) {
      ASSERT_EQ(mount(what.c_str(), seen.c_str(), nullptr, MS_BIND, nullptr), 0);
    };

    EXPECT_FALSE(check()) << "an engine that does not see the view shows an empty folder";
    bind(path("owner/digits"));
    EXPECT_FALSE(check()) << "the right folder, and the guest could write in it";
    ASSERT_EQ(umount(seen.c_str()), 0);
    bind(view());
    const Status right = check();
    EXPECT_TRUE(right) << right.error().describe();
    ASSERT_EQ(umount(seen.c_str()), 0);
    std::filesystem::remove(seen);
    std::filesystem::create_directory_symlink(view(), seen);
    EXPECT_FALSE(check()) << "a link leads anywhere";
    EXPECT_TRUE(data->unmount(kReader));
  });
}

}  // namespace
}  // namespace rn::warden
