// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/fs.h"
#include "checkpoint/watch.h"

namespace rn::checkpoint {

/// Every path below a folder with what it is, sorted by path. Folders are included.
using Scan = std::map<std::string, FileStat>;

struct ScanLimits {
  std::size_t paths_max = 1'000'000;
  std::size_t depth_max = 128;
  std::vector<std::string> skip;  ///< globs; a folder that matches is not entered
  /// Told each path that is left out, as its bytes are, and why. Where it is set, what is beyond
  /// the limits is left out, too, and no error.
  std::function<void(const std::string& path, const char* why)> left_out;
};

/// Walks the folder without following links. Paths that vanish meanwhile are left out; names that
/// are not safe relative paths or are not UTF-8 are left out and counted in `skipped` if it is
/// given. kExhausted beyond the limits, unless `left_out` is set. Blocking.
Result<Scan> scan_folder(
    Folder& folder, const ScanLimits& limits = {}, std::uint64_t* skipped = nullptr
);

/// What happened between two scans, as events: new and changed files are kModified (a scan cannot
/// tell a rename), gone ones kDeleted. The fallback where inotify is not to be had, after an
/// overflow, and after a restart: then `before` is what the last snapshot saw, and generations that
/// appeared while nobody watched turn up. Pure.
std::vector<FileEvent> compare_scans(const Scan& before, const Scan& after);

}  // namespace rn::checkpoint
