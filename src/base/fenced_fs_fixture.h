// SPDX-License-Identifier: Apache-2.0
#pragma once

// A disk of which only one folder can be reached. For tests of what deletes or overwrites: whatever
// path a mistake comes up with, nothing of the machine is touched.

#include <string>
#include <utility>
#include <vector>

#include "base/fs.h"

namespace rn {

/// Passes on what lies below `root` (absolute); refuses everything else with kDenied and remembers
/// it. `disk` outlives this. Not thread-safe where it refuses.
class FencedFileSystem : public FileSystem {
 public:
  FencedFileSystem(FileSystem& disk, std::string root) : disk_(disk), root_(std::move(root)) {}

  /// Paths outside that somebody asked for.
  const std::vector<std::string>& refused() const { return refused_; }

  Result<std::unique_ptr<File>> open(const std::string& path) override {
    RN_CHECK(check(path));
    return disk_.open(path);
  }

  Result<std::unique_ptr<File>> create(const std::string& path, std::uint32_t mode) override {
    RN_CHECK(check(path));
    return disk_.create(path, mode);
  }

  Result<std::unique_ptr<File>> open_append(const std::string& path, std::uint32_t mode) override {
    RN_CHECK(check(path));
    return disk_.open_append(path, mode);
  }

  Status rename(const std::string& from, const std::string& to) override {
    RN_CHECK(check(from));
    RN_CHECK(check(to));
    return disk_.rename(from, to);
  }

  Status remove(const std::string& path) override {
    RN_CHECK(check(path));
    return disk_.remove(path);
  }

  Status make_folder(const std::string& path, std::uint32_t mode) override {
    RN_CHECK(check(path));
    return disk_.make_folder(path, mode);
  }

  Status make_symlink(const std::string& target, const std::string& path) override {
    RN_CHECK(check(path));
    return disk_.make_symlink(target, path);
  }

  Result<std::string> read_symlink(const std::string& path) override {
    RN_CHECK(check(path));
    return disk_.read_symlink(path);
  }

  Status set_mode(const std::string& path, std::uint32_t mode) override {
    RN_CHECK(check(path));
    return disk_.set_mode(path, mode);
  }

  Status set_mtime(const std::string& path, std::int64_t mtime_ns) override {
    RN_CHECK(check(path));
    return disk_.set_mtime(path, mtime_ns);
  }

  Status sync_folder(const std::string& path) override {
    RN_CHECK(check(path));
    return disk_.sync_folder(path);
  }

  Result<FileStat> stat(const std::string& path) override {
    RN_CHECK(check(path));
    return disk_.stat(path);
  }

  Result<std::uint64_t> mount_of(const std::string& path) override {
    RN_CHECK(check(path));
    return disk_.mount_of(path);
  }

  Result<std::vector<std::string>> list(const std::string& path) override {
    RN_CHECK(check(path));
    return disk_.list(path);
  }

  Result<std::uint64_t> free_bytes(const std::string& path) override {
    RN_CHECK(check(path));
    return disk_.free_bytes(path);
  }

  void drop_cache(const std::string& path) override {
    if (check(path)) disk_.drop_cache(path);
  }

  Result<std::unique_ptr<Folder>> open_folder(const std::string& path) override {
    RN_CHECK(check(path));
    return disk_.open_folder(path);
  }

 private:
  Status check(const std::string& path) {
    const bool is_inside = path == root_ || path.starts_with(root_ + "/");
    if (is_inside && (path + "/").find("/../") == std::string::npos) return {};
    refused_.push_back(path);
    return fail(ErrorCode::kDenied, "\"" + path + "\" is outside the test's folder");
  }

  FileSystem& disk_;
  std::string root_;
  std::vector<std::string> refused_;
};

}  // namespace rn
