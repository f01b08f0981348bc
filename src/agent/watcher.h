// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/core_types.h"
#include "base/fs.h"
#include "base/time.h"
#include "checkpoint/watch.h"

namespace rn::agent {

/// Watches guests' work folders by inotify, one thread each (a guest that makes many files delays
/// nobody else), and reports complete generations. Where inotify is not to be had, by scans.
class Watcher {
 public:
  using Found = std::function<void(const GuestName&, const checkpoint::GenerationReady&)>;
  using GaveUp = std::function<void(const GuestName&, const checkpoint::GivenUp&)>;

  /// Both are called on a watch's thread. All outlive the watcher.
  Watcher(FileSystem& fs, const Clock& clock, Found found, GaveUp gave_up);
  ~Watcher();  ///< ends all watches and waits for them
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Does nothing if the guest is watched already. Files older than `news_since` are not reported.
  void start(
      const GuestName& guest,
      const std::string& folder,
      const checkpoint::WatchRules& rules,
      WallTime news_since
  );
  /// The guest itself said that what is there is complete: soon reported as the whole folder.
  void declare(const GuestName& guest);
  /// What it reported last was no longer so when it was to be taken: it is looked at again.
  void look_again(const GuestName& guest);
  /// Soon nothing of ours is open in the folder any more. Does not wait.
  void stop(const GuestName& guest);

  struct Watch;

 private:
  void reap();

  FileSystem& fs_;
  const Clock& clock_;
  Found found_;
  GaveUp gave_up_;
  std::map<GuestName, std::shared_ptr<Watch>> watches_;
  std::vector<std::shared_ptr<Watch>> ending_;
};

}  // namespace rn::agent
