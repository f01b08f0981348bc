// SPDX-License-Identifier: Apache-2.0
#include "io/real_fs.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fenced_fs_fixture.h"
#include "base/scratch_folder.h"
#include "io/errno_error.h"
#include "io/real_clock.h"
#include "io/real_rng.h"

namespace rn::io {
namespace {

class RealFs : public ::testing::Test {
 protected:
  ~RealFs() override { EXPECT_TRUE(remove_tree(fs_, root_)); }

  std::string path(const std::string& name) const { return join_path(root_, name); }

  ErrorCode code_of(const Status& status) const {
    EXPECT_FALSE(status);
    return status ? ErrorCode::kInternal : status.error().code;
  }

  RealFileSystem fs_;
  ScratchFolder scratch_;
  const std::string root_ = scratch_.path();
};

TEST_F(RealFs, writes_durably_and_reads_back) {
  ASSERT_TRUE(write_durably(fs_, path("a"), as_bytes("first"), 0600));
  ASSERT_TRUE(write_durably(fs_, path("a"), as_bytes("second"), 0640));

  EXPECT_EQ(as_text(*read_all(fs_, path("a"), 100)), "second");
  EXPECT_EQ(fs_.stat(path("a"))->mode, 0640U);
  EXPECT_EQ(*fs_.list(root_), std::vector<std::string>{"a"});
}

TEST_F(RealFs, an_open_file_keeps_its_inode_after_a_rename_over_it) {
  ASSERT_TRUE(write_durably(fs_, path("a"), as_bytes("old"), 0600));
  const auto file = fs_.open(path("a"));
  ASSERT_TRUE(file);

  ASSERT_TRUE(write_durably(fs_, path("a"), as_bytes("new"), 0600));

  EXPECT_EQ(as_text(*(*file)->read(0, 100)), "old");
  EXPECT_NE((*file)->stat()->inode, fs_.stat(path("a"))->inode);
}

TEST_F(RealFs, reads_pieces_and_stops_at_the_end) {
  const std::string text(200'000, 'x');
  ASSERT_TRUE(write_durably(fs_, path("a"), as_bytes(text + "end"), 0600));
  const auto file = fs_.open(path("a"));

  EXPECT_EQ(as_text(*(*file)->read(199'999, 3)), "xen");
  EXPECT_EQ((*file)->read(0, 1'000'000)->size(), 200'003U);
  EXPECT_TRUE((*file)->read(500'000, 10)->empty());
}

TEST_F(RealFs, never_follows_a_link_in_the_last_component) {
  ASSERT_TRUE(write_durably(fs_, path("target"), as_bytes("secret"), 0600));
  ASSERT_TRUE(fs_.make_symlink("target", path("link")));

  EXPECT_EQ(fs_.open(path("link")).error().code, ErrorCode::kDenied);
  EXPECT_EQ(fs_.open_append(path("link"), 0600).error().code, ErrorCode::kDenied);
  EXPECT_EQ(code_of(fs_.set_mode(path("link"), 0777)), ErrorCode::kDenied);
  EXPECT_EQ(fs_.stat(path("link"))->kind, FileStat::Kind::kSymlink);
  EXPECT_EQ(*fs_.read_symlink(path("link")), "target");
  EXPECT_EQ(fs_.stat(path("target"))->mode, 0600U);
}

TEST_F(RealFs, what_a_person_named_is_a_regular_file_or_a_link_to_one) {
  ASSERT_TRUE(write_durably(fs_, path("file"), as_bytes("text"), 0600));
  ASSERT_TRUE(fs_.make_folder(path("folder"), 0700));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  ASSERT_TRUE(fs_.make_symlink("file", path("link")));
  ASSERT_TRUE(fs_.make_symlink(path("link"), path("link-to-link")));
  ASSERT_TRUE(fs_.make_symlink("round", path("round")));
  ASSERT_TRUE(fs_.make_symlink("gone", path("dangling")));
  const auto error = [&](const char* name) { return read_named(fs_, path(name), 100).error(); };

  EXPECT_EQ(as_text(*read_named(fs_, path("file"), 100)), "text");
  EXPECT_EQ(as_text(*read_named(fs_, path("link-to-link"), 100)), "text");
  EXPECT_EQ(error("folder").describe(), "invalid: " + path("folder") + " is a folder");
  EXPECT_EQ(error("pipe").describe(), "invalid: " + path("pipe") + " is not a regular file");
  EXPECT_EQ(error("round").code, ErrorCode::kDenied);
  EXPECT_EQ(error("dangling").code, ErrorCode::kNotFound);
  EXPECT_EQ(error("none").code, ErrorCode::kNotFound);
  EXPECT_EQ(read_named(fs_, path("file"), 3).error().code, ErrorCode::kExhausted);
}

TEST_F(RealFs, says_what_is_wrong_by_canonical_codes) {
  ASSERT_TRUE(write_durably(fs_, path("a"), as_bytes("x"), 0600));
  ASSERT_TRUE(fs_.make_folder(path("folder"), 0700));
  ASSERT_TRUE(write_durably(fs_, path("folder/b"), as_bytes("x"), 0600));
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);

  EXPECT_EQ(fs_.open(path("missing")).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(fs_.create(path("a"), 0600).error().code, ErrorCode::kConflict);
  EXPECT_EQ(code_of(fs_.make_folder(path("folder"), 0700)), ErrorCode::kConflict);
  EXPECT_EQ(code_of(fs_.remove(path("folder"))), ErrorCode::kConflict);
  EXPECT_EQ(fs_.open(path("folder")).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(fs_.open(path("fifo")).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(fs_.open("relative").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(fs_.open(path(std::string("a\0b", 3))).error().code, ErrorCode::kInvalid);
}

TEST_F(RealFs, maps_errno_as_documented) {
  EXPECT_EQ(error_from_errno(ENOSPC, "x").code, ErrorCode::kExhausted);
  EXPECT_EQ(error_from_errno(EDQUOT, "x").code, ErrorCode::kExhausted);
  EXPECT_EQ(error_from_errno(EIO, "x").code, ErrorCode::kInternal);
  EXPECT_EQ(error_from_errno(EROFS, "x").code, ErrorCode::kDenied);
  EXPECT_EQ(error_from_errno(ECONNREFUSED, "x").code, ErrorCode::kUnavailable);
  EXPECT_EQ(
      error_from_errno(ENOENT, "opening /a").message, "opening /a: No such file or directory"
  );
}

TEST_F(RealFs, a_full_disk_is_exhausted_and_leaves_the_old_content) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting a tiny tmpfs needs root";
  const std::string tiny = path("tiny");
  ASSERT_TRUE(fs_.make_folder(tiny, 0700));
  if (mount("tmpfs", tiny.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "no right to mount here";
  EXPECT_TRUE(write_durably(fs_, tiny + "/a", as_bytes("old"), 0600));

  const Status written = write_durably(fs_, tiny + "/a", Blob(1 << 20, 7), 0600);

  EXPECT_EQ(code_of(written), ErrorCode::kExhausted);
  EXPECT_EQ(as_text(*read_all(fs_, tiny + "/a", 100)), "old");
  EXPECT_EQ(fs_.list(tiny)->size(), 1U);
  EXPECT_LE(*fs_.free_bytes(tiny), 64U << 10);
  EXPECT_EQ(umount(tiny.c_str()), 0);
}

/// A mistake of what deletes must not leave the scratch folder: hence the fence, and a mount of the
/// scratch folder's own.
TEST_F(RealFs, a_tree_is_removed_up_to_what_is_mounted_in_it) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting needs root";
  ASSERT_TRUE(make_folders(fs_, path("owner/data"), 0700));
  ASSERT_TRUE(write_durably(fs_, path("owner/data/photos"), as_bytes("kept"), 0600));
  ASSERT_TRUE(make_folders(fs_, path("tree/sub/data"), 0700));
  const std::string point = path("tree/sub/data");
  // The same disk: device numbers tell nothing.
  if (mount(path("owner/data").c_str(), point.c_str(), nullptr, MS_BIND, nullptr) != 0)
    GTEST_SKIP() << "no right to mount here";
  FencedFileSystem fenced(fs_, root_);

  const Status removed = remove_tree(fenced, path("tree"));

  EXPECT_EQ(code_of(removed), ErrorCode::kConflict);
  EXPECT_EQ(as_text(*read_all(fs_, path("owner/data/photos"), 100)), "kept");
  EXPECT_EQ(umount(point.c_str()), 0);
  EXPECT_TRUE(remove_tree(fenced, path("tree")));
  EXPECT_EQ(as_text(*read_all(fs_, path("owner/data/photos"), 100)), "kept");
  EXPECT_TRUE(fenced.refused().empty());
}

TEST_F(RealFs, sets_and_reads_modification_times_before_and_after_1970) {
  ASSERT_TRUE(write_durably(fs_, path("a"), as_bytes("x"), 0600));

  for (const std::int64_t ns : {1'234'567'890'123'456'789LL, -1'500'000'000LL}) {
    ASSERT_TRUE(fs_.set_mtime(path("a"), ns));
    EXPECT_EQ(fs_.stat(path("a"))->mtime_ns, ns);
  }
}

TEST_F(RealFs, a_held_folder_lets_nothing_outside_be_reached) {
  ASSERT_TRUE(fs_.make_folder(path("work"), 0700));
  ASSERT_TRUE(fs_.make_folder(path("work/sub"), 0700));
  ASSERT_TRUE(write_durably(fs_, path("secret"), as_bytes("secret"), 0600));
  ASSERT_TRUE(write_durably(fs_, path("work/sub/a"), as_bytes("inside"), 0600));
  ASSERT_TRUE(fs_.make_symlink("..", path("work/up")));
  ASSERT_TRUE(fs_.make_symlink("sub", path("work/alias")));
  ASSERT_EQ(mkfifo(path("work/fifo").c_str(), 0600), 0);
  const auto folder = fs_.open_folder(path("work"));
  ASSERT_TRUE(folder);

  EXPECT_EQ(as_text(*(*(*folder)->open("sub/a"))->read(0, 100)), "inside");
  EXPECT_EQ((*folder)->stat("up")->kind, FileStat::Kind::kSymlink);
  EXPECT_EQ((*folder)->stat("")->kind, FileStat::Kind::kDirectory);
  EXPECT_EQ(*(*folder)->read_symlink("up"), "..");
  EXPECT_EQ((*folder)->list("")->size(), 4U);
  EXPECT_EQ((*folder)->open("up/secret").error().code, ErrorCode::kDenied);
  EXPECT_EQ((*folder)->open("alias/a").error().code, ErrorCode::kDenied);
  EXPECT_EQ((*folder)->open("../secret").error().code, ErrorCode::kDenied);
  EXPECT_EQ((*folder)->open("fifo").error().code, ErrorCode::kUnsupported);
  EXPECT_EQ((*folder)->open("sub/none").error().code, ErrorCode::kNotFound);
}

TEST_F(RealFs, a_held_folder_is_the_same_after_its_name_became_a_link) {
  ASSERT_TRUE(fs_.make_folder(path("work"), 0700));
  ASSERT_TRUE(write_durably(fs_, path("work/a"), as_bytes("mine"), 0600));
  ASSERT_TRUE(fs_.make_folder(path("other"), 0700));
  ASSERT_TRUE(write_durably(fs_, path("other/a"), as_bytes("foreign"), 0600));
  const auto folder = fs_.open_folder(path("work"));
  ASSERT_TRUE(folder);

  ASSERT_TRUE(fs_.rename(path("work"), path("moved")));
  ASSERT_TRUE(fs_.make_symlink("other", path("work")));

  EXPECT_EQ(as_text(*(*(*folder)->open("a"))->read(0, 100)), "mine");
  EXPECT_EQ(fs_.open_folder(path("work")).error().code, ErrorCode::kNotFound);
}

TEST(RealClock, boot_time_never_goes_back) {
  const RealClock clock{};
  const Now first = clock.now();
  const Now second = clock.now();
  EXPECT_GE(second.boot, first.boot);
  EXPECT_GT(to_ms(second.wall), 1'600'000'000'000);
}

TEST(RealRng, fills_everything_and_does_not_repeat) {
  RealRng rng;
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) seen.insert(rng.hex(16));
  EXPECT_EQ(seen.size(), 100U);

  std::array<std::uint8_t, 1000> big{};
  rng.fill(big);
  EXPECT_LT(std::count(big.begin(), big.end(), 0), 50);
}

}  // namespace
}  // namespace rn::io
