// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fs.h"

namespace rn::agent {

/// A file that is no longer read once `is_cancelled` is true: kTimeout. A read under way ends
/// within kStepBytes. Both outlive it.
class StoppableFile final : public File {
 public:
  static constexpr std::uint64_t kStepBytes = 1u << 20;

  StoppableFile(std::unique_ptr<File> file, const std::atomic<bool>& is_cancelled)
      : file_(std::move(file)), is_cancelled_(is_cancelled) {}

  Result<Blob> read(std::uint64_t offset, std::uint64_t max) override {
    Blob all;
    while (all.size() < max) {
      if (is_cancelled_) return fail(ErrorCode::kTimeout, "cancelled");
      const std::uint64_t step = std::min<std::uint64_t>(kStepBytes, max - all.size());
      RN_TRY(const Blob piece, file_->read(offset + all.size(), step));
      all.insert(all.end(), piece.begin(), piece.end());
      if (piece.size() < step) break;
    }
    return all;
  }

  Status append(BlobView bytes) override { return file_->append(bytes); }

  Status sync() override { return file_->sync(); }

  Result<FileStat> stat() override { return file_->stat(); }

 private:
  std::unique_ptr<File> file_;
  const std::atomic<bool>& is_cancelled_;
};

/// A guest's folder for work that must let go of the guest's disk as soon as `is_cancelled` is
/// true: whatever loop reads through it gets kTimeout from its next look at the disk. Both outlive
/// it.
class StoppableFolder final : public Folder {
 public:
  StoppableFolder(Folder& folder, const std::atomic<bool>& is_cancelled)
      : folder_(folder), is_cancelled_(is_cancelled) {}

  Result<std::unique_ptr<File>> open(const std::string& relative) override {
    if (is_cancelled_) return fail(ErrorCode::kTimeout, "cancelled");
    RN_TRY(auto file, folder_.open(relative));
    return std::unique_ptr<File>(std::make_unique<StoppableFile>(std::move(file), is_cancelled_));
  }

  Result<FileStat> stat(const std::string& relative) override {
    if (is_cancelled_) return fail(ErrorCode::kTimeout, "cancelled");
    return folder_.stat(relative);
  }

  Result<std::vector<std::string>> list(const std::string& relative) override {
    if (is_cancelled_) return fail(ErrorCode::kTimeout, "cancelled");
    return folder_.list(relative);
  }

  Result<std::string> read_symlink(const std::string& relative) override {
    if (is_cancelled_) return fail(ErrorCode::kTimeout, "cancelled");
    return folder_.read_symlink(relative);
  }

 private:
  Folder& folder_;
  const std::atomic<bool>& is_cancelled_;
};

}  // namespace rn::agent
