// SPDX-License-Identifier: Apache-2.0
#include "base/fs_crash.h"

#include <utility>

#include <gtest/gtest.h>

#include "base/fenced_fs_fixture.h"

namespace rn {
namespace {

std::string read_text(FileSystem& fs, const std::string& path) {
  const auto bytes = read_all(fs, path, 1 << 20);
  return bytes ? std::string(as_text(*bytes))
               : "<" + std::string(to_string(bytes.error().code)) + ">";
}

TEST(CrashFs, a_synced_file_under_an_unsynced_name_can_be_lost_and_its_bytes_never_tear) {
  ManualClock clock;
  int lost = 0;
  int kept = 0;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    CrashFs fs(clock, seed);
    auto file = fs.create("/a", 0644).value();
    ASSERT_TRUE(file->append(as_bytes("hello")));
    ASSERT_TRUE(file->sync());

    fs.restart();

    const std::string text = read_text(fs, "/a");
    text == "hello" ? ++kept : ++lost;
    EXPECT_TRUE(text == "hello" || text == "<not_found>") << text;
  }
  EXPECT_GT(lost, 8);
  EXPECT_GT(kept, 8);
}

TEST(CrashFs, write_durably_survives_every_later_crash_and_never_shows_a_mixture) {
  ManualClock clock;
  const std::string before(3000, 'a');
  const std::string after(5000, 'b');
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (std::uint64_t at = 0;; ++at) {
      CrashFs fs(clock, seed);
      ASSERT_TRUE(write_durably(fs, "/f", as_bytes(before), 0644));
      fs.crash_at(at);
      const auto written = write_durably(fs, "/f", as_bytes(after), 0644);
      const bool was_acknowledged = written.has_value();
      fs.restart();

      const std::string text = read_text(fs, "/f");
      ASSERT_TRUE(text == before || text == after) << "seed " << seed << " crash at " << at;
      if (was_acknowledged) {
        ASSERT_EQ(text, after);
        break;
      }
    }
  }
}

TEST(CrashFs, unsynced_bytes_can_vanish_or_turn_to_zeros) {
  ManualClock clock;
  int torn = 0;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    CrashFs fs(clock, seed);
    auto file = fs.create("/a", 0644).value();
    ASSERT_TRUE(fs.sync_folder("/"));
    ASSERT_TRUE(file->append(as_bytes(std::string(4096, 'x'))));

    fs.restart();

    if (read_text(fs, "/a") != std::string(4096, 'x')) ++torn;
  }
  EXPECT_GT(torn, 32);
}

TEST(CrashFs, a_failed_sync_shows_the_bytes_until_the_cache_is_dropped_and_the_next_sync_lies) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  auto file = fs.create("/a", 0644).value();
  ASSERT_TRUE(fs.sync_folder("/"));
  ASSERT_TRUE(file->append(as_bytes("data")));
  fs.fail_once(CrashFs::Operation::kSync, 0, ErrorCode::kInternal);

  EXPECT_FALSE(file->sync());
  EXPECT_TRUE(file->sync());

  EXPECT_EQ(read_text(fs, "/a"), "data");
  fs.drop_cache("/a");
  EXPECT_EQ(read_text(fs, "/a"), std::string(4, '\0'));
}

TEST(CrashFs, a_handle_keeps_the_inode_that_was_renamed_over) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  fs.overwrite("/a", as_bytes("old"));
  const auto handle = fs.open("/a").value();
  fs.overwrite("/a.new", as_bytes("new"));

  ASSERT_TRUE(fs.rename("/a.new", "/a"));

  EXPECT_EQ(as_text(handle->read(0, 10).value()), "old");
  EXPECT_EQ(read_text(fs, "/a"), "new");
}

TEST(CrashFs, a_full_disk_says_so_after_a_partial_write) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  fs.set_capacity(10);
  auto file = fs.create("/a", 0644).value();

  const auto written = file->append(as_bytes("0123456789abcdef"));

  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(read_text(fs, "/a"), "0123456789");
  EXPECT_EQ(fs.free_bytes("/").value(), 0U);
}

TEST(Folder, never_follows_a_link_and_never_leaves) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  ASSERT_TRUE(fs.make_folder("/guest", 0755));
  ASSERT_TRUE(fs.make_folder("/etc", 0755));
  fs.overwrite("/etc/shadow", as_bytes("secret"));
  ASSERT_TRUE(fs.make_symlink("/etc", "/guest/inside"));
  const auto folder = fs.open_folder("/guest").value();

  EXPECT_EQ(folder->open("inside/shadow").error().code, ErrorCode::kDenied);
  EXPECT_EQ(folder->list("inside").error().code, ErrorCode::kDenied);
  EXPECT_EQ(folder->open("../etc/shadow").error().code, ErrorCode::kDenied);
  EXPECT_EQ(folder->read_symlink("inside").value(), "/etc");
}

/// A disk on which one folder is a mount of its own, as a guest's view of its owner's files is.
class MountedFs final : public FencedFileSystem {
 public:
  MountedFs(FileSystem& disk, std::string root, std::string point)
      : FencedFileSystem(disk, std::move(root)), point_(std::move(point)) {}

  Result<std::uint64_t> mount_of(const std::string& path) override {
    return std::uint64_t{path == point_ || path.starts_with(point_ + "/") ? 2U : 1U};
  }

 private:
  std::string point_;
};

TEST(RemoveTree, nothing_is_deleted_through_a_mount) {
  ManualClock clock;
  CrashFs disk(clock, 1);
  MountedFs fs(disk, "/attempt", "/attempt/data/photos");
  ASSERT_TRUE(make_folders(disk, "/attempt/data/photos/2026", 0755));
  ASSERT_TRUE(write_durably(disk, "/attempt/data/photos/2026/one", as_bytes("kept"), 0644));

  const Status removed = remove_tree(fs, "/attempt");

  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().code, ErrorCode::kConflict);
  EXPECT_EQ(read_text(disk, "/attempt/data/photos/2026/one"), "kept");
  EXPECT_TRUE(fs.refused().empty());
}

TEST(RemoveTree, a_folder_that_is_a_mount_itself_is_emptied) {
  ManualClock clock;
  CrashFs disk(clock, 1);
  MountedFs fs(disk, "/state", "/state");
  ASSERT_TRUE(make_folders(disk, "/state/sub", 0755));
  ASSERT_TRUE(write_durably(disk, "/state/sub/one", as_bytes("ours"), 0644));

  ASSERT_TRUE(remove_tree(fs, "/state"));

  EXPECT_EQ(read_text(disk, "/state/sub/one"), "<not_found>");
}

}  // namespace
}  // namespace rn
