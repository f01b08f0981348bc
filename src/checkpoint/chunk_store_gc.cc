// SPDX-License-Identifier: Apache-2.0
// Garbage collection of the chunk store. Nothing here may remove the last good generation (I8).

#include <algorithm>

#include "base/log.h"
#include "base/planted.h"
#include "checkpoint/chunk_store.h"

namespace rn::checkpoint {

/// Chunks of every manifest, as each was when it was stored or the store was opened: a disk that
/// fails to read one meanwhile costs no chunk.
std::set<Digest> ChunkStore::referenced() const {
  const std::lock_guard lock(mutex_);
  std::set<Digest> out;
  for (const auto& [job, generations] : generations_) {
    for (const auto& [key, stored] : generations)
      out.insert(stored.chunks->begin(), stored.chunks->end());
  }
  return out;
}

Result<std::vector<ChunkStore::Stored>> ChunkStore::unneeded(const Retention& retention) {
  const auto generations = generations_of(retention.job);  // oldest first
  std::size_t anchor =
      generations.size();  // everything from here on is newer than what is acknowledged
  int wanted = 2;          // whole generations still to keep, going back from the anchor
  std::set<Digest> kept = {retention.previous};
  for (std::size_t i = 0; i < generations.size(); ++i) {
    if (generations[i].ref.manifest != retention.acknowledged) continue;
    kept.insert(retention.acknowledged);
    RN_TRY(const bool whole, is_whole(generations[i]));
    wanted = whole ? 1 : 2;
    anchor = i;
  }
  for (std::size_t i = anchor; i-- > 0 && wanted > 0;) {
    RN_TRY(const bool whole, is_whole(generations[i]));
    if (!whole) continue;
    kept.insert(generations[i].ref.manifest);
    --wanted;
  }
  // Without an acknowledgement that is known here, whatever the current epoch made may become the
  // acknowledged one.
  const bool has_anchor = anchor < generations.size();
  std::vector<Stored> out;
  for (std::size_t i = 0; i < generations.size(); ++i) {
    const bool is_newer = !has_anchor || i > anchor;
    const bool is_current = generations[i].ref.epoch >= retention.epoch;
    const bool is_kept =
        kept.contains(generations[i].ref.manifest) && !planted("store.collects_too_much");
    if (!is_kept && !(is_newer && is_current)) out.push_back(generations[i]);
  }
  return out;
}

Result<GarbageStats> ChunkStore::drop(const JobId& job, const std::vector<Stored>& generations) {
  GarbageStats stats;
  if (generations.empty()) return stats;
  std::set<Digest> candidates;
  for (const Stored& stored : generations) {
    candidates.insert(stored.chunks->begin(), stored.chunks->end());
    const auto removed = fs_.remove(stored.path);
    if (!removed && removed.error().code != ErrorCode::kNotFound) return fail(removed.error());
    const std::lock_guard lock(mutex_);
    generations_[job].erase({{stored.ref.epoch, stored.ref.generation}, stored.ref.manifest});
    bytes_ -= std::min(bytes_, stored.file_bytes);
    stats.bytes += stored.file_bytes;
    ++stats.generations;
  }
  // Durably gone before the first chunk goes, or a crash could bring back a manifest without its
  // chunks.
  RN_CHECK(fs_.sync_folder(job_folder(job)));
  const GarbageStats unlinked = unlink_unused(std::move(candidates));
  stats.bytes += unlinked.bytes;
  stats.chunks += unlinked.chunks;
  return stats;
}

/// Under collecting_.
GarbageStats ChunkStore::unlink_unused(std::set<Digest> candidates) {
  GarbageStats stats;
  for (const Digest& cipher : referenced()) candidates.erase(cipher);
  for (const Digest& cipher : candidates) {
    const std::uint64_t bytes = unlink_chunk(cipher, true);
    stats.bytes += bytes;
    stats.chunks += bytes > 0 ? 1 : 0;
  }
  return stats;
}

void ChunkStore::leave(const JobId& job, const std::set<Digest>& chunks) {
  const std::lock_guard lock(mutex_);
  left_[job].insert(chunks.begin(), chunks.end());
}

void ChunkStore::drop_left(const JobId& job) {
  const std::lock_guard collecting(collecting_);
  std::set<Digest> left;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = left_.extract(job)) left = std::move(found.mapped());
  }
  if (left.empty()) return;
  const GarbageStats stats = unlink_unused(std::move(left));
  if (stats.chunks == 0) return;
  log::info(
      "store.dropped_left", {{"job", job.str()}, {"chunks", stats.chunks}, {"bytes", stats.bytes}}
  );
}

Result<GarbageStats> ChunkStore::collect(const Retention& retention) {
  const std::lock_guard collecting(collecting_);
  RN_TRY(const auto generations, unneeded(retention));
  return drop(retention.job, generations);
}

Result<GarbageStats> ChunkStore::forget(const JobId& job) {
  const std::lock_guard collecting(collecting_);
  RN_TRY(GarbageStats stats, drop(job, generations_of(job)));
  (void)fs_.remove(job_folder(job));
  std::set<Digest> left;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = left_.extract(job)) left = std::move(found.mapped());
  }
  if (!left.empty()) {
    const GarbageStats unlinked = unlink_unused(std::move(left));
    stats.bytes += unlinked.bytes;
    stats.chunks += unlinked.chunks;
  }
  const std::lock_guard lock(mutex_);
  generations_.erase(job);
  return stats;
}

Result<GarbageStats> ChunkStore::sweep() {
  const std::lock_guard collecting(collecting_);
  std::vector<Digest> candidates;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [cipher, size] : chunks_) {
      if (!pins_.contains(cipher)) candidates.push_back(cipher);
    }
  }
  const auto used = referenced();
  const std::int64_t newest_ns =
      (to_ms(clock_.now().wall) -
       std::chrono::duration_cast<milliseconds>(options_.unreferenced_min_age).count()) *
      1'000'000;
  GarbageStats stats;
  for (const Digest& cipher : candidates) {
    if (used.contains(cipher)) continue;
    const auto there = fs_.stat(chunk_path(cipher));
    if (there && there->mtime_ns > newest_ns) continue;
    const std::uint64_t bytes = unlink_chunk(cipher, true);
    stats.bytes += bytes;
    stats.chunks += bytes > 0 ? 1 : 0;
  }
  return stats;
}

}  // namespace rn::checkpoint
