// SPDX-License-Identifier: Apache-2.0
// Garbage collection of the chunk store, and what it has. Nothing here may remove the last good
// generation (I8).

#include <algorithm>

#include "base/log.h"
#include "base/planted.h"
#include "checkpoint/chunk_store.h"

namespace rn::checkpoint {

namespace {

struct FilesBelow {
  std::uint64_t folders = 0;  ///< that have any
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

/// What is not there, or goes while it is looked at, counts as nothing.
Result<std::vector<std::string>> names_in(FileSystem& fs, const std::string& folder) {
  auto names = fs.list(folder);
  if (!names && names.error().code == ErrorCode::kNotFound) return std::vector<std::string>();
  return names;
}

/// Of the folders in `top`.
Result<FilesBelow> files_below(FileSystem& fs, const std::string& top) {
  FilesBelow below;
  RN_TRY(const auto folders, names_in(fs, top));
  for (const std::string& folder : folders) {
    const std::string inside = join_path(top, folder);
    RN_TRY(const auto names, names_in(fs, inside));
    for (const std::string& name : names) {
      const auto stat = fs.stat(join_path(inside, name));
      if (!stat && stat.error().code != ErrorCode::kNotFound) return fail(stat.error());
      below.bytes += stat ? stat->size : 0;
    }
    below.files += names.size();
    below.folders += names.empty() ? 0 : 1;
  }
  return below;
}

}  // namespace

Result<StoredOnDisk> measure_store(FileSystem& fs, const std::string& root) {
  RN_TRY(const FilesBelow manifests, files_below(fs, join_path(root, "manifests")));
  RN_TRY(const FilesBelow chunks, files_below(fs, join_path(root, "chunks")));
  return StoredOnDisk{manifests.folders, manifests.files, manifests.bytes + chunks.bytes};
}

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

/// By the number alone (I8). The copies from `keep_from` on may be damaged here, so the two newest
/// whole ones stay whatever their numbers.
Result<std::vector<ChunkStore::Stored>> ChunkStore::unneeded(const Retention& retention) {
  constexpr std::size_t kWholeKept = 2;
  auto generations = generations_of(retention.job);
  std::stable_sort(generations.begin(), generations.end(), [](const Stored& a, const Stored& b) {
    return a.ref.generation > b.ref.generation;
  });
  std::set<std::uint32_t> whole_kept;
  std::vector<Stored> out;
  for (const Stored& stored : generations) {
    const std::uint32_t number = stored.ref.generation;
    const auto& also = retention.also_keep;
    bool is_kept =
        number >= retention.keep_from || std::find(also.begin(), also.end(), number) != also.end();
    if (whole_kept.size() < kWholeKept || whole_kept.contains(number)) {
      RN_TRY(const bool whole, is_whole(stored));
      if (whole) whole_kept.insert(number);
      is_kept = is_kept || whole;
    }
    if (!is_kept || planted("store.collects_too_much")) out.push_back(stored);
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

Result<GarbageStats> ChunkStore::replace(
    const JobId& job, LeaseEpoch epoch, std::uint32_t generation
) {
  const std::lock_guard collecting(collecting_);
  std::vector<Stored> replaced;
  bool is_newer_whole = false;
  for (const Stored& stored : generations_of(job)) {
    if (stored.ref.epoch != epoch) continue;
    if (stored.ref.generation == generation) replaced.push_back(stored);
    if (stored.ref.generation <= generation || is_newer_whole) continue;
    RN_TRY(is_newer_whole, is_whole(stored));
  }
  return is_newer_whole ? drop(job, replaced) : GarbageStats{};
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

Result<GarbageStats> ChunkStore::finish(const JobId& job, LeaseEpoch epoch) {
  {
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = finished_.try_emplace(job, epoch);
    known->second = std::max(known->second, epoch);
    if (is_new) finished_order_.push_back(job);
    if (finished_order_.size() > kFinishedJobs) {
      finished_.erase(finished_order_.front());
      finished_order_.pop_front();
    }
  }
  return forget(job);
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
