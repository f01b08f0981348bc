// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/fs.h"

namespace rn::coordinator {

/// No blob is larger: bigger files are cut into pieces of this size by whoever uploads them.
inline constexpr std::size_t kMaxBlobBytes = 4u << 20;

/// Content-addressed files ROOT/ab/cdef…, named by their SHA-256. Blocking; thread-safe. A blob is
/// there only when it is durable: content, fsync, rename, fsync of the folder. Borrows `fs`.
class BlobStore {
 public:
  /// Makes the folders that are missing and removes what an interrupted put left behind.
  static Result<BlobStore> open(FileSystem& fs, const std::string& root);
  BlobStore(BlobStore&& other) noexcept;

  /// Idempotent. kCorrupt if the bytes are not those of `name`, kExhausted above kMaxBlobBytes or
  /// when less than `reserve_bytes` of the disk would stay free; then nothing is kept.
  Status put(const Digest& name, BlobView bytes);
  /// kNotFound; kCorrupt if the medium returned other bytes.
  Result<Blob> get(const Digest& name) const;
  bool has(const Digest& name) const;
  Result<std::uint64_t> size(const Digest& name) const;  ///< kNotFound

  /// Bytes that stay free for the database and the logs. Default 256 MiB.
  void set_reserve(std::uint64_t reserve_bytes) { reserve_bytes_ = reserve_bytes; }

 private:
  BlobStore(FileSystem& fs, std::string root);
  std::string path_of(const Digest& name) const;

  FileSystem* fs_;
  std::string root_;
  std::uint64_t reserve_bytes_ = 256u << 20;
  std::atomic<std::uint64_t> puts_{0};  ///< names temporary files; no two puts share one
};

}  // namespace rn::coordinator
