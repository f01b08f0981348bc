// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fs.h"

namespace rn::io {

/// The machine's disk. Every descriptor is O_CLOEXEC, and the last component of a path is never
/// followed when it is a symbolic link (kDenied). Blocking; thread-safe except that one File must
/// not be used by two threads at once. Errors by errno: see error_from_errno.
class RealFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path) override;
  Result<std::unique_ptr<File>> create(const std::string& path, std::uint32_t mode) override;
  Result<std::unique_ptr<File>> open_append(const std::string& path, std::uint32_t mode) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status make_folder(const std::string& path, std::uint32_t mode) override;
  Status make_symlink(const std::string& target, const std::string& path) override;
  Result<std::string> read_symlink(const std::string& path) override;
  Status set_mode(const std::string& path, std::uint32_t mode) override;
  Status set_mtime(const std::string& path, std::int64_t mtime_ns) override;
  Status sync_folder(const std::string& path) override;
  Result<FileStat> stat(const std::string& path) override;
  Result<std::uint64_t> mount_of(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  Result<std::uint64_t> free_bytes(const std::string& path) override;
  void drop_cache(const std::string& path) override;
  /// Resolved by openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS (Linux ≥ 5.6, otherwise
  /// kUnsupported).
  Result<std::unique_ptr<Folder>> open_folder(const std::string& path) override;
};

}  // namespace rn::io
