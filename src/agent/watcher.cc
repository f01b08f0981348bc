// SPDX-License-Identifier: Apache-2.0
#include "agent/watcher.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include "agent/stoppable_folder.h"
#include "base/log.h"
#include "checkpoint/inotify_watcher.h"
#include "checkpoint/scan.h"
#include "checkpoint/unit_check.h"

namespace rn::agent {

namespace {

using checkpoint::FileEvent;

constexpr milliseconds kTurn{100};  // how long a watch sleeps at most
constexpr seconds kScanEvery{2};    // without inotify

}  // namespace

struct Watcher::Watch {
  FileSystem& fs;
  const Clock& clock;
  const Found& found;
  const GaveUp& gave_up;
  GuestName guest;
  std::string folder;
  checkpoint::WatchRules rules;
  WallTime news_since;

  std::atomic<bool> is_stopping = false;
  std::atomic<bool> is_declared = false;
  std::atomic<bool> is_unsettled = false;
  std::atomic<bool> is_over = false;
  std::thread thread;

  // Of the watch's thread:
  std::unique_ptr<checkpoint::InotifyWatcher> inotify;
  checkpoint::Scan seen;
  bool is_scanned = false;
  Instant scanned_at{};
  checkpoint::Unit reported;  ///< last, and not by the guest's own word

  Watch(FileSystem& f, const Clock& c, const Found& n, const GaveUp& g)
      : fs(f), clock(c), found(n), gave_up(g) {}

  void expect_what_was_there(
      const checkpoint::Scan& there, checkpoint::GenerationDetector& detector
  ) const {
    std::vector<std::pair<std::string, WallTime>> files;
    for (const auto& [path, stat] : there) {
      const std::int64_t changed_ms = stat.mtime_ns / 1'000'000;
      if (stat.kind == FileStat::Kind::kRegular && changed_ms < to_ms(news_since))
        files.emplace_back(path, wall_from_ms(changed_ms));
    }
    detector.expect(files);
  }

  /// Everything new since the last scan, as events.
  void scan(Folder& work, checkpoint::GenerationDetector& detector) {
    auto now_there = checkpoint::scan_folder(work);
    scanned_at = clock.now().boot;
    if (!now_there) return;
    if (!is_scanned) expect_what_was_there(*now_there, detector);
    for (const FileEvent& event : checkpoint::compare_scans(seen, *now_there)) {
      const auto stat = now_there->find(event.path);
      if (!is_scanned && stat != now_there->end() &&
          stat->second.mtime_ns < to_ms(news_since) * 1'000'000)
        continue;
      detector.on_event(event, scanned_at);
    }
    seen = *std::move(now_there);
    is_scanned = true;
  }

  void wait(Folder& work, checkpoint::GenerationDetector& detector, milliseconds turn) {
    if (inotify == nullptr) {
      std::this_thread::sleep_for(turn);
    } else {
      pollfd descriptor{inotify->fd(), POLLIN, 0};
      if (poll(&descriptor, 1, static_cast<int>(turn.count())) > 0) {
        const auto batch = inotify->read_events();
        if (!batch || batch->must_rescan) scan(work, detector);
        if (batch) {
          for (const FileEvent& event : batch->events) detector.on_event(event, clock.now().boot);
        }
      }
    }
    const bool is_blind = inotify == nullptr || !inotify->is_complete();
    if (is_blind && clock.now().boot - scanned_at >= kScanEvery) scan(work, detector);
  }

  /// What was renamed into place was begun when its file was made, under another name.
  Instant birth_of(const checkpoint::Unit& unit) const {
    struct statx about {};

    const std::string path = join_path(folder, unit.path);
    const Now now = clock.now();
    const bool is_known =
        statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BTIME, &about) == 0 &&
        (about.stx_mask & STATX_BTIME) != 0;
    if (!is_known) return now.boot;
    const nanoseconds born = seconds(about.stx_btime.tv_sec) + nanoseconds(about.stx_btime.tv_nsec);
    return now.boot - std::max(now.wall.time_since_epoch() - born, nanoseconds(0));
  }

  void run() {
    {
      const auto disk = fs.open_folder(folder);
      if (!disk) {
        log::warning("watch.failed", {{"folder", folder}, {"error", disk.error().describe()}});
      } else {
        StoppableFolder work(**disk, is_stopping);
        checkpoint::GenerationDetector detector(rules);
        auto opened = checkpoint::InotifyWatcher::open(folder, {});
        if (opened) {
          inotify = *std::move(opened);
        } else {
          log::warning(
              "watch.by_scans", {{"folder", folder}, {"error", opened.error().describe()}}
          );
        }
        scan(work, detector);
        log::info(
            "watch.started",
            {{"guest", guest.job.str()},
             {"by", inotify != nullptr && inotify->is_complete() ? "inotify" : "scans"}}
        );
        while (!is_stopping) turn(work, detector);
      }
    }
    inotify.reset();
    is_over = true;
  }

  void check_one(
      Folder& work, checkpoint::GenerationDetector& detector, const checkpoint::DueCheck& check
  ) {
    // First, so that whatever changes during or after the check is no longer as it was seen.
    auto seen = checkpoint::look_at(work, check.unit, rules);
    const WallTime seen_at = clock.now().wall;
    const auto verdict = seen ? checkpoint::check_unit(work, check.unit, rules)
                              : Result<checkpoint::StructuralVerdict>(fail(seen.error()));
    if (is_stopping) return;
    if (!verdict) {
      log::warning(
          "watch.check_failed",
          {{"guest", guest.job.str()},
           {"unit", check.unit.path},
           {"error", verdict.error().describe()}}
      );
      detector.on_unstable(check.unit, clock.now().boot);
      return;
    }
    const bool is_writing = verdict->completeness == checkpoint::Completeness::kUnknownKind &&
                            checkpoint::is_settling(*seen, seen_at, rules.quiet);
    wait(work, detector, milliseconds(0));  // what came before the look voids it
    auto ready = detector.on_checked(check, *verdict, clock.now().boot, *std::move(seen));
    if (!ready) return;
    if (is_writing && !ready->is_renamed && !ready->is_declared)
      return detector.on_unstable(check.unit, clock.now().boot);
    if (ready->is_renamed) ready->began_at = std::min(ready->began_at, birth_of(ready->unit));
    reported = ready->unit;
    found(guest, *ready);
  }

  void turn(Folder& work, checkpoint::GenerationDetector& detector) {
    wait(work, detector, kTurn);
    if (is_unsettled.exchange(false) && !reported.path.empty())
      detector.on_unstable(reported, clock.now().boot);
    if (is_declared.exchange(false)) found(guest, detector.on_declared(clock.now().boot));
    for (const checkpoint::DueCheck& check : detector.due(clock.now().boot)) {
      if (is_stopping) return;
      check_one(work, detector, check);
    }
    for (const checkpoint::GivenUp& one : detector.take_given_up()) {
      log::warning(
          "watch.gave_up",
          {{"guest", guest.job.str()}, {"unit", one.unit.path}, {"why", one.reason}}
      );
      gave_up(guest, one);
    }
  }
};

Watcher::Watcher(FileSystem& fs, const Clock& clock, Found found, GaveUp gave_up)
    : fs_(fs), clock_(clock), found_(std::move(found)), gave_up_(std::move(gave_up)) {}

Watcher::~Watcher() {
  for (auto& [guest, watch] : watches_) ending_.push_back(std::move(watch));
  for (const auto& watch : ending_) watch->is_stopping = true;
  for (const auto& watch : ending_) watch->thread.join();
}

void Watcher::reap() {
  std::erase_if(ending_, [](const std::shared_ptr<Watch>& watch) {
    if (!watch->is_over) return false;
    watch->thread.join();
    return true;
  });
}

void Watcher::start(
    const GuestName& guest,
    const std::string& folder,
    const checkpoint::WatchRules& rules,
    WallTime news_since
) {
  reap();
  if (watches_.contains(guest)) return;
  auto watch = std::make_shared<Watch>(fs_, clock_, found_, gave_up_);
  watch->guest = guest;
  watch->folder = folder;
  watch->rules = rules;
  watch->news_since = news_since;
  watches_[guest] = watch;
  watch->thread = std::thread([raw = watch.get()] { raw->run(); });
}

void Watcher::declare(const GuestName& guest) {
  const auto found = watches_.find(guest);
  if (found != watches_.end()) found->second->is_declared = true;
}

void Watcher::look_again(const GuestName& guest) {
  const auto found = watches_.find(guest);
  if (found != watches_.end()) found->second->is_unsettled = true;
}

void Watcher::stop(const GuestName& guest) {
  reap();
  const auto found = watches_.find(guest);
  if (found == watches_.end()) return;
  found->second->is_stopping = true;
  ending_.push_back(std::move(found->second));
  watches_.erase(found);
}

}  // namespace rn::agent
