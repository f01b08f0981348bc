// SPDX-License-Identifier: Apache-2.0
#include "agent/watcher.h"

#include <atomic>
#include <fstream>
#include <future>

#include <gtest/gtest.h>

#include "base/fenced_fs_fixture.h"
#include "base/scratch_folder.h"
#include "io/real_clock.h"
#include "io/real_fs.h"

namespace rn::agent {
namespace {

/// A disk on which somebody comes in the middle of the first look at it.
class MetOnTheWay final : public FencedFileSystem {
 public:
  using FencedFileSystem::FencedFileSystem;

  Result<std::unique_ptr<Folder>> open_folder(const std::string& path) override {
    RN_TRY(auto folder, FencedFileSystem::open_folder(path));
    return std::unique_ptr<Folder>(std::make_unique<Slow>(std::move(folder), *this));
  }

  std::promise<void> began;
  std::promise<void> may_go_on;
  std::atomic<int> looks = 0;

 private:
  class Slow final : public Folder {
   public:
    Slow(std::unique_ptr<Folder> folder, MetOnTheWay& all)
        : folder_(std::move(folder)), all_(all) {}

    Result<FileStat> stat(const std::string& relative) override {
      if (++all_.looks == 1) {
        all_.began.set_value();
        all_.may_go_on.get_future().wait();
      }
      return folder_->stat(relative);
    }

    Result<std::unique_ptr<File>> open(const std::string& relative) override {
      return folder_->open(relative);
    }

    Result<std::vector<std::string>> list(const std::string& relative) override {
      return folder_->list(relative);
    }

    Result<std::string> read_symlink(const std::string& relative) override {
      return folder_->read_symlink(relative);
    }

   private:
    std::unique_ptr<Folder> folder_;
    MetOnTheWay& all_;
  };
};

TEST(Watcher, a_stopped_watch_lets_go_of_the_disk_in_the_middle_of_a_scan) {
  const ScratchFolder scratch;
  for (int i = 0; i < 50; ++i) std::ofstream(scratch.path() + "/" + std::to_string(i)) << "x";
  io::RealFileSystem disk;
  MetOnTheWay fs(disk, scratch.path());
  const io::RealClock clock;
  {
    Watcher watcher(
        fs,
        clock,
        [](const GuestName&, const checkpoint::GenerationReady&) {},
        [](const GuestName&, const checkpoint::GivenUp&) {}
    );
    const GuestName guest{JobId("j-0123456789abcdef"), {1, 1}};
    watcher.start(guest, scratch.path(), {}, wall_from_ms(0));
    fs.began.get_future().wait();

    watcher.stop(guest);

    fs.may_go_on.set_value();
  }
  EXPECT_EQ(fs.looks, 1) << "looked at the disk after it was stopped";
}

}  // namespace
}  // namespace rn::agent
