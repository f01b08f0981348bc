// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/scan.h"

#include "base/error.h"
#include "base/utf8.h"
#include "checkpoint/glob.h"

namespace rn::checkpoint {

namespace {

bool has_vanished(const Error& error) {
  // kDenied and kUnsupported: a folder was replaced by a link or a file between the two looks.
  return error.code == ErrorCode::kNotFound || error.code == ErrorCode::kDenied ||
         error.code == ErrorCode::kUnsupported;
}

}  // namespace

Result<Scan> scan_folder(Folder& folder, const ScanLimits& limits, std::uint64_t* skipped) {
  Scan scan;

  struct Waiting {
    std::string path;
    std::size_t depth;
  };

  std::vector<Waiting> waiting = {{"", 0}};
  while (!waiting.empty()) {
    const Waiting at = std::move(waiting.back());
    waiting.pop_back();
    const auto names = folder.list(at.path);
    if (!names) {
      if (!at.path.empty() && has_vanished(names.error())) continue;
      return fail(names.error().with("scanning " + (at.path.empty() ? "the work folder" : at.path))
      );
    }
    for (const std::string& name : *names) {
      const std::string path = at.path.empty() ? name : at.path + "/" + name;
      if (!is_safe_relative_path(path) || !is_utf8(path)) {
        if (skipped != nullptr) ++*skipped;
        if (limits.left_out)
          limits.left_out(path, is_utf8(path) ? "its path is too long" : "its name is not UTF-8");
        continue;
      }
      if (matches_any(limits.skip, path)) continue;
      const auto there = folder.stat(path);
      if (!there) {
        if (has_vanished(there.error())) continue;
        return fail(there.error().with("scanning " + path));
      }
      if (scan.size() >= limits.paths_max && limits.left_out) {
        limits.left_out(path, "there are too many files");
        return scan;
      }
      if (scan.size() >= limits.paths_max) {
        return fail(
            ErrorCode::kExhausted,
            "more than " + std::to_string(limits.paths_max) + " files in the work folder"
        );
      }
      scan.emplace(path, *there);
      if (there->kind != FileStat::Kind::kDirectory) continue;
      if (at.depth + 1 > limits.depth_max && limits.left_out) {
        limits.left_out(path, "folders are nested too deeply");
        continue;
      }
      if (at.depth + 1 > limits.depth_max)
        return fail(ErrorCode::kExhausted, "folders are nested too deeply: " + path);
      waiting.push_back({path, at.depth + 1});
    }
  }
  return scan;
}

std::vector<FileEvent> compare_scans(const Scan& before, const Scan& after) {
  std::vector<FileEvent> events;
  for (const auto& [path, there] : after) {
    if (there.kind == FileStat::Kind::kDirectory) continue;
    const auto old = before.find(path);
    const bool is_same = old != before.end() && old->second.inode == there.inode &&
                         old->second.size == there.size && old->second.mtime_ns == there.mtime_ns &&
                         old->second.changed_ns == there.changed_ns &&
                         old->second.kind == there.kind;
    if (!is_same) events.push_back({path, FileEventKind::kModified, false});
  }
  for (const auto& [path, there] : before) {
    if (!after.contains(path)) {
      events.push_back({path, FileEventKind::kDeleted, there.kind == FileStat::Kind::kDirectory});
    }
  }
  return events;
}

}  // namespace rn::checkpoint
