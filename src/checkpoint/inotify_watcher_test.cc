// SPDX-License-Identifier: Apache-2.0
// On a real folder: what the kernel reports for the ways in which training scripts save. No
// waiting: inotify events of our own calls are queued when the calls return.
#include "checkpoint/inotify_watcher.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/scratch_folder.h"

namespace rn::checkpoint {
namespace {

namespace stdfs = std::filesystem;

class InotifyTest : public ::testing::Test {
 protected:
  InotifyTest() { stdfs::create_directories(root_ / "work/old"); }

  void watch(InotifyWatcher::Options options = {}) {
    auto opened = InotifyWatcher::open((root_ / "work").string(), std::move(options));
    ASSERT_TRUE(opened) << opened.error().describe();
    watcher_ = std::move(*opened);
  }

  void write(const std::string& path) { std::ofstream(root_ / "work" / path) << "content"; }

  bool saw(const std::vector<FileEvent>& events, const std::string& path, FileEventKind kind) {
    return std::any_of(events.begin(), events.end(), [&](const FileEvent& e) {
      return e.path == path && e.kind == kind;
    });
  }

  ScratchFolder scratch_;
  const stdfs::path root_ = scratch_.path();
  std::unique_ptr<InotifyWatcher> watcher_;
};

TEST_F(InotifyTest, close_writes_and_renames_are_seen_in_old_and_new_folders) {
  watch();
  write("a.pt");
  write("old/b.pt.tmp");
  stdfs::rename(root_ / "work/old/b.pt.tmp", root_ / "work/old/b.pt");
  stdfs::create_directory(root_ / "work/new");
  auto events = watcher_->read_events().value().events;  // adds the watch on the new folder
  write("new/c.pt");
  const auto later = watcher_->read_events().value().events;
  events.insert(events.end(), later.begin(), later.end());

  EXPECT_TRUE(saw(events, "a.pt", FileEventKind::kCloseWrite));
  EXPECT_TRUE(saw(events, "old/b.pt", FileEventKind::kMovedTo));
  EXPECT_TRUE(saw(events, "old/b.pt.tmp", FileEventKind::kDeleted));
  EXPECT_TRUE(saw(events, "new/c.pt", FileEventKind::kCloseWrite));
  EXPECT_TRUE(watcher_->is_complete());
}

TEST_F(InotifyTest, files_written_before_a_new_folder_was_watched_are_reported) {
  watch();
  stdfs::create_directories(root_ / "work/run/deep");
  write("run/deep/a.pt");

  EXPECT_TRUE(saw(watcher_->read_events().value().events, "run/deep/a.pt", FileEventKind::kModified)
  );
}

TEST_F(InotifyTest, a_renamed_folder_is_reported_and_watched_under_its_new_name) {
  stdfs::create_directory(root_ / "work/tmp-5");
  write("tmp-5/weights");
  watch();
  stdfs::rename(root_ / "work/tmp-5", root_ / "work/checkpoint-5");

  const auto events = watcher_->read_events().value().events;
  EXPECT_TRUE(saw(events, "tmp-5", FileEventKind::kDeleted));
  EXPECT_TRUE(saw(events, "checkpoint-5", FileEventKind::kMovedTo));

  write("checkpoint-5/more");
  EXPECT_TRUE(
      saw(watcher_->read_events().value().events, "checkpoint-5/more", FileEventKind::kCloseWrite)
  );
}

TEST_F(InotifyTest, nothing_outside_is_watched_through_a_link) {
  stdfs::create_directory(root_ / "outside");
  stdfs::create_directory_symlink(root_ / "outside", root_ / "work/link");
  watch();
  EXPECT_EQ(watcher_->watched_folders(), 2U);

  std::ofstream(root_ / "outside/secret") << "x";
  EXPECT_TRUE(watcher_->read_events().value().events.empty());
}

TEST_F(InotifyTest, temporary_folders_are_not_watched_and_the_number_of_watches_is_bounded) {
  stdfs::create_directories(root_ / "work/cache/a/b");
  InotifyWatcher::Options options;
  options.skip = {"cache"};
  watch(options);
  EXPECT_EQ(watcher_->watched_folders(), 2U);

  options.skip.clear();
  options.folders_max = 2;
  watch(options);
  EXPECT_EQ(watcher_->watched_folders(), 2U);
  EXPECT_FALSE(watcher_->is_complete());
}

TEST_F(InotifyTest, a_folder_that_is_not_there_cannot_be_watched) {
  EXPECT_EQ(InotifyWatcher::open((root_ / "gone").string(), {}).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace rn::checkpoint
