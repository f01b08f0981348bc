// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/fs.h"
#include "base/time.h"
#include "model/checkpoint.h"
#include "model/job.h"

namespace rn::checkpoint {

using Checksum128 = std::array<std::uint64_t, 2>;  ///< XXH3-128: low word, high word

/// What a file was when it was last read, and which chunks it became.
struct CachedFile {
  std::string path;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t changed_ns = 0;  ///< FileStat::changed_ns; 0 = of before the guest began
  bool is_base =
      false;  ///< equal to the submitted workspace's, or laid beside it: no part of the delta
  bool is_settled = false;  ///< its times were old enough when it was looked at: a later write must
                            ///< change them
  std::vector<ChunkRef> chunks;
  std::vector<std::uint64_t> checksums;  ///< XXH3-128 of each chunk's plaintext, two words each

  RN_FIELDS(
      CachedFile, path, inode, bytes, mtime_ns, changed_ns, is_base, is_settled, chunks, checksums
  )
};

/// Lets the next snapshot skip what did not change, and finds known chunks by name. Losing it costs
/// reading, never correctness. Pure; to_cbor and from_cbor make it survive a restart of the agent.
class SnapshotCache {
 public:
  /// The entry if the file still has the same inode, size and times and the entry is settled; else
  /// nullptr. `guest_since_ns`: before it no guest has changed anything, so what the platform did
  /// to a file that it laid out (its owner, its mode) is no change; 0 = not known. Until the next
  /// change of the cache.
  const CachedFile* unchanged(
      const std::string& path, const FileStat& there, std::int64_t guest_since_ns
  ) const;
  /// What the path was, changed or not.
  const CachedFile* find(const std::string& path) const;
  const ChunkRef* chunk_named(const Digest& name) const;
  /// The same by the plaintext's checksum: many times cheaper than its name. Not cryptographic,
  /// which is enough here: whoever could make two chunks collide is the guest itself, spoiling its
  /// own checkpoint.
  const ChunkRef* chunk_with(const Checksum128& checksum) const;

  void put(CachedFile file);
  /// Makes a generation's chunks known without claiming that its files are unchanged.
  void add_chunks(const Manifest& manifest);

  std::size_t size() const { return files_.size(); }

  Blob to_bytes() const;
  /// kInvalid or kCorrupt if the bytes are none: then start with an empty cache.
  static Result<SnapshotCache> from_bytes(BlobView bytes);

  /// Times have the kernel's tick; a file changed so shortly before it was looked at may change
  /// again without a new one.
  static constexpr milliseconds kSettleTime{2000};
  static bool is_settled(const FileStat& there, WallTime now);

 private:
  std::map<std::string, CachedFile> files_;
  std::map<Digest, ChunkRef> known_;
  std::map<Checksum128, ChunkRef> by_checksum_;
};

}  // namespace rn::checkpoint
