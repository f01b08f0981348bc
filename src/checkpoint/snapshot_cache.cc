// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/snapshot_cache.h"

#include <algorithm>

#include "model/codec_detail.h"

namespace rn::checkpoint {

/// The cache's stored form.
struct CacheFile {
  std::uint32_t version = 1;
  std::vector<CachedFile> files;

  RN_FIELDS(CacheFile, version, files)
};

}  // namespace rn::checkpoint

namespace rn {

RN_INSTANTIATE_CODEC(checkpoint::CacheFile)

namespace checkpoint {

const CachedFile* SnapshotCache::find(const std::string& path) const {
  const auto found = files_.find(path);
  return found == files_.end() ? nullptr : &found->second;
}

const CachedFile* SnapshotCache::unchanged(
    const std::string& path, const FileStat& there, std::int64_t guest_since_ns
) const {
  const CachedFile* file = find(path);
  const bool is_same = file != nullptr && file->is_settled && file->inode == there.inode &&
                       file->bytes == there.size && file->mtime_ns == there.mtime_ns;
  if (!is_same) return nullptr;
  const bool is_untouched = file->changed_ns == 0
                                ? guest_since_ns == 0 || there.changed_ns < guest_since_ns
                                : file->changed_ns == there.changed_ns;
  return is_untouched ? file : nullptr;
}

const ChunkRef* SnapshotCache::chunk_named(const Digest& name) const {
  const auto found = known_.find(name);
  return found == known_.end() ? nullptr : &found->second;
}

const ChunkRef* SnapshotCache::chunk_with(const Checksum128& checksum) const {
  const auto found = by_checksum_.find(checksum);
  return found == by_checksum_.end() ? nullptr : &found->second;
}

void SnapshotCache::put(CachedFile file) {
  const bool has_checksums = file.checksums.size() == 2 * file.chunks.size();
  for (std::size_t i = 0; i < file.chunks.size(); ++i) {
    known_.insert_or_assign(file.chunks[i].name, file.chunks[i]);
    if (!has_checksums) continue;
    const Checksum128 checksum{file.checksums[2 * i], file.checksums[2 * i + 1]};
    by_checksum_.insert_or_assign(checksum, file.chunks[i]);
  }
  std::string path = file.path;
  files_.insert_or_assign(std::move(path), std::move(file));
}

void SnapshotCache::add_chunks(const Manifest& manifest) {
  for (const ChunkRef& chunk : manifest.chunks) known_.insert_or_assign(chunk.name, chunk);
}

Blob SnapshotCache::to_bytes() const {
  CacheFile out;
  for (const auto& [path, file] : files_) out.files.push_back(file);
  return to_cbor(out);
}

Result<SnapshotCache> SnapshotCache::from_bytes(BlobView bytes) {
  RN_TRY(CacheFile in, from_cbor<CacheFile>(bytes));
  if (in.version != 1) return fail(ErrorCode::kUnsupported, "a snapshot cache of another version");
  SnapshotCache cache;
  for (CachedFile& file : in.files) cache.put(std::move(file));
  return cache;
}

bool SnapshotCache::is_settled(const FileStat& there, WallTime now) {
  return std::max(there.mtime_ns, there.changed_ns) <=
         (to_ms(now) - kSettleTime.count()) * 1'000'000;
}

}  // namespace checkpoint
}  // namespace rn
