// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/watch.h"

namespace rn::checkpoint {

/// Watches a folder and everything below it through inotify, from outside the container: sees the
/// guest's close-writes and renames. The loop polls fd() for reading and calls read_events();
/// nothing here blocks. One thread.
///
/// A guest may replace folders by links while they are added: each is opened component by component
/// without following links and watched through that handle, so nothing outside the folder is ever
/// watched.
class InotifyWatcher {
 public:
  struct Options {
    std::size_t folders_max =
        8192;  ///< watches; beyond it is_complete() turns false and a scan must help
    std::vector<std::string> skip;  ///< globs of folders that are not watched (temporary ones)
  };

  struct Batch {
    std::vector<FileEvent> events;  ///< in the kernel's order
    bool must_rescan = false;       ///< events were lost: compare_scans() finds what they were
  };

  /// kNotFound, kUnsupported (not a folder), kExhausted (the user's limit of inotify instances),
  /// kInternal.
  static Result<std::unique_ptr<InotifyWatcher>> open(const std::string& folder, Options options);
  ~InotifyWatcher();
  InotifyWatcher(const InotifyWatcher&) = delete;
  InotifyWatcher& operator=(const InotifyWatcher&) = delete;

  int fd() const { return fd_; }

  /// Everything that is waiting, at most 64 KiB of kernel events per call. Files that were in a new
  /// folder before it was watched are reported as kModified.
  Result<Batch> read_events();

  /// False once a folder could not be watched (limits): then scan from time to time as well.
  bool is_complete() const { return is_complete_; }

  std::size_t watched_folders() const { return folders_.size(); }

 private:
  InotifyWatcher(int fd, int root, Options options)
      : fd_(fd), root_(root), options_(std::move(options)) {}

  /// Adds a folder and what is below it; files found there go to `found` if it is given. `path` is
  /// relative, "" the root.
  void add_tree(const std::string& path, std::vector<FileEvent>* found);
  void drop_tree(const std::string& path);

  int fd_;
  int root_;  ///< the folder, held open
  Options options_;
  std::map<int, std::string> folders_;  ///< by watch descriptor
  std::map<std::string, int> watches_;  ///< the inverse
  bool is_complete_ = true;
};

}  // namespace rn::checkpoint
