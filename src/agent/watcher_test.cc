// SPDX-License-Identifier: Apache-2.0
#include "agent/watcher.h"

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <future>
#include <mutex>
#include <optional>
#include <vector>

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

class WatchedSaves : public testing::Test {
 protected:
  WatchedSaves() { rules_.paths = {"ckpt.bin"}; }

  void start(milliseconds quiet) {
    rules_.quiet = quiet;
    watcher_.start(guest_, scratch_.path(), rules_, wall_from_ms(0));
  }

  std::string path() const { return scratch_.path() + "/ckpt.bin"; }

  /// The next report, or none within the time.
  std::optional<checkpoint::GenerationReady> next(seconds within = seconds(20)) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, within, [&] { return !reports_.empty(); });
    if (reports_.empty()) return std::nullopt;
    auto first = std::move(reports_.front());
    reports_.erase(reports_.begin());
    return first;
  }

  const ScratchFolder scratch_;
  io::RealFileSystem disk_;
  FencedFileSystem fs_{disk_, scratch_.path()};
  const io::RealClock clock_;
  checkpoint::WatchRules rules_;
  const GuestName guest_{JobId("j-0123456789abcdef"), {1, 1}};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<checkpoint::GenerationReady> reports_;  ///< under mutex_
  Watcher watcher_{
      fs_,
      clock_,
      [this](const GuestName&, const checkpoint::GenerationReady& ready) {
        const std::lock_guard lock(mutex_);
        reports_.push_back(ready);
        wake_.notify_one();
      },
      [](const GuestName&, const checkpoint::GivenUp&) {}};
};

TEST_F(WatchedSaves, a_report_says_in_which_state_the_checkpoint_held_still) {
  std::ofstream(path()) << "all of it";
  start(milliseconds(100));

  const auto ready = next();

  ASSERT_TRUE(ready);
  const auto there = fs_.stat(path());
  ASSERT_TRUE(there);
  EXPECT_EQ(ready->seen, (checkpoint::SeenFiles{{"ckpt.bin", checkpoint::state_of(*there)}}));
}

TEST_F(WatchedSaves, a_long_write_that_no_event_tells_of_yet_is_one) {
  const milliseconds quiet(1000);
  std::ofstream(path()) << "all of it";
  start(quiet);
  std::this_thread::sleep_for(quiet / 2);   // the write begins before the file has held still
  ASSERT_TRUE(fs_.set_mode(path(), 0600));  // changed, without an event, as when a write begins

  const auto ready = next();

  ASSERT_TRUE(ready);
  const nanoseconds changed(ready->seen.at("ckpt.bin").changed_ns);
  EXPECT_GE(clock_.now().wall.time_since_epoch() - changed, quiet * 9 / 10);
}

TEST_F(WatchedSaves, what_could_not_be_taken_is_reported_again_as_it_is_then_without_an_event) {
  std::ofstream(path()) << "all of it";
  start(milliseconds(100));
  const auto first = next();
  ASSERT_TRUE(first);
  std::this_thread::sleep_for(milliseconds(20));  // the kernel's tick
  ASSERT_TRUE(fs_.set_mode(path(), 0600));        // no event tells of it

  watcher_.look_again(guest_);

  const auto second = next();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->unit, first->unit);
  EXPECT_GT(second->seen.at("ckpt.bin").changed_ns, first->seen.at("ckpt.bin").changed_ns);
}

}  // namespace
}  // namespace rn::agent
