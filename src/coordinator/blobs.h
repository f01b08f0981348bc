// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <set>
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
  ~BlobStore();

  /// Idempotent. kCorrupt if the bytes are not those of `name`, kExhausted above kMaxBlobBytes or
  /// when less than `reserve_bytes` of the disk would stay free; then nothing is kept.
  Status put(const Digest& name, BlobView bytes);
  /// kNotFound; kCorrupt if the medium returned other bytes.
  Result<Blob> get(const Digest& name) const;
  /// The same without looking whether the medium returned the right bytes: for a reader that hashes
  /// them itself.
  Result<Blob> read(const Digest& name) const;
  /// True only if it is durable; the bytes are not read.
  bool has(const Digest& name) const;
  Result<std::uint64_t> size(const Digest& name) const;  ///< kNotFound

  struct Collected {
    std::uint64_t blobs = 0;
    std::uint64_t bytes = 0;
    std::uint64_t suspects = 0;  ///< unreferenced now; the next round removes them
  };

  /// Removes the blobs that neither this round nor the one before found in `live`, and that nobody
  /// put, read or asked for in between. So a blob has the time of a whole round to become
  /// referenced after its upload, or after somebody was told that it need not be uploaded again. A
  /// restart forgets the suspects: collection only comes later. Removal is not synced: a blob that
  /// a power loss brings back is found again. Errors: those of listing the folders.
  Result<Collected> collect(const std::set<Digest>& live);

  /// Bytes that stay free for the database and the logs. Default 256 MiB.
  void set_reserve(std::uint64_t reserve_bytes);

 private:
  struct State;
  explicit BlobStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace rn::coordinator
