// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/snapshot.h"

#include <algorithm>
#include <map>

#include "base/log.h"
#include "base/planted.h"
#include "base/utf8.h"
#include "checkpoint/chunker.h"
#include "checkpoint/completeness.h"
#include "checkpoint/file_capture.h"
#include "checkpoint/glob.h"
#include "checkpoint/manifest.h"
#include "checkpoint/scan.h"

namespace rn::checkpoint {

namespace {

constexpr std::uint32_t kModeMask = 0777;
constexpr int kTries = 3;  // readings of a file that does not hold still

std::map<std::string, const ListedFile*> by_path(const Listing& listing) {
  std::map<std::string, const ListedFile*> out;
  for (const ListedFile& file : listing.files) out[file.path] = &file;
  return out;
}

/// One snapshot in the making.
class Taking {
 public:
  Taking(const SnapshotDeps& deps, const SnapshotRequest& request, const SnapshotCache& cache)
      : deps_(deps),
        request_(request),
        cache_(cache),
        base_(by_path(request.base)),
        session_(deps.store),
        capture_(session_, cache, deps.keys, deps.rng, request.lanes, request.should_stop),
        is_unit_seen_(std::any_of(request.seen.begin(), request.seen.end(), [&](const auto& file) {
          return is_in_unit(file.first);
        })) {}

  Result<Snapshot> run(SnapshotCache& cache_after) {
    started_ = deps_.clock.now();
    ScanLimits limits;
    limits.skip = request_.temporary;
    RN_TRY(const Scan scan, scan_folder(deps_.work, limits, &stats_.specials));
    // Several files of a unit are one state only if none of them changed between the first and the
    // last reading.
    RN_CHECK(check_all_there(scan));
    for (const auto& [path, there] : scan) RN_CHECK(take(path, there));
    RN_CHECK(check_unit_held_still(scan));
    note_removed(scan);
    RN_CHECK(session_.flush());
    return finish(cache_after);
  }

 private:
  bool is_in_unit(const std::string& path) const {
    if (request_.unit.path.empty())
      return false;  // the job declared all of it complete: nothing is singled out
    if (!request_.unit.is_folder) return path == request_.unit.path;
    return path.size() > request_.unit.path.size() && path.starts_with(request_.unit.path) &&
           path[request_.unit.path.size()] == '/';
  }

  /// To be taken whole or not at all.
  bool is_of_save(const std::string& path) const {
    return is_in_unit(path) || request_.seen.contains(path);
  }

  /// `is_read`: its handle has been read, on which a file that was renamed into place cannot have
  /// changed; that another one has taken its name since counts as a change of its inode only.
  Status check_as_seen(const std::string& path, const FileStat& there, bool is_read = false) const {
    const bool is_told = is_unit_seen_ ? is_of_save(path) : request_.seen.contains(path);
    if (!is_told) return {};
    const auto found = request_.seen.find(path);
    FileState now = state_of(there);
    if (is_read && is_immutable(path) && found != request_.seen.end())
      now.changed_ns = found->second.changed_ns;
    if (found != request_.seen.end() && now == found->second) return {};
    return fail(ErrorCode::kUnavailable, "it has changed since it was found whole");
  }

  bool is_immutable(const std::string& path) const {
    return request_.is_renamed && is_in_unit(path);
  }

  Status check_all_there(const Scan& scan) const {
    for (const auto& [path, state] : request_.seen) {
      const auto there = scan.find(path);
      if (there == scan.end() || there->second.kind != FileStat::Kind::kRegular)
        return fail(ErrorCode::kUnavailable, path + " is gone since it was found whole");
    }
    return {};
  }

  Status take(const std::string& path, const FileStat& there) {
    switch (there.kind) {
      case FileStat::Kind::kRegular:
        return take_file(path, there);
      case FileStat::Kind::kSymlink:
        return take_link(path, there);
      case FileStat::Kind::kDirectory: {
        const auto listed = base_.find(path);
        const bool is_same = listed != base_.end() && listed->second->kind == FileKind::kFolder &&
                             (listed->second->mode & kModeMask) == (there.mode & kModeMask);
        if (!is_same)
          entries_.push_back(
              {path, FileKind::kFolder, there.mode & kModeMask, 0, there.mtime_ns, {}, {}, ""}
          );
        return {};
      }
      case FileStat::Kind::kOther:
        ++stats_.specials;
        return {};
    }
    return {};
  }

  Status take_link(const std::string& path, const FileStat& there) {
    const auto target = deps_.work.read_symlink(path);
    if (!target || target->empty() || target->size() > 4095 || !is_utf8(*target)) {
      stats_.left_out.push_back(path + ": the link cannot be read or is not text");
      return {};
    }
    const auto listed = base_.find(path);
    if (listed != base_.end() && listed->second->kind == FileKind::kSymlink &&
        listed->second->target == *target)
      return {};
    entries_.push_back({path, FileKind::kSymlink, kModeMask, 0, there.mtime_ns, {}, {}, *target});
    return {};
  }

  Status take_file(const std::string& path, const FileStat& there) {
    const bool in_unit = is_in_unit(path);
    const Status as_seen = check_as_seen(path, there);
    if (!as_seen) return fail(as_seen.error().with("snapshot of " + path));
    const CachedFile* cached = cache_.unchanged(path, there, request_.guest_since_ns);
    const bool is_same_base = cached != nullptr && cached->is_base && !has_new_mode(path, there);
    const bool is_same_delta = cached != nullptr && !cached->is_base && keep_all(cached->chunks);
    if (is_same_base || is_same_delta) {
      ++stats_.reused_files;
      unit_files_ += in_unit ? 1 : 0;
      after_.push_back(*cached);
      if (is_same_delta) add_entry(path, there, cached->chunks);
      return {};
    }
    RN_TRY(const bool is_base, equals_base(path, there));
    if (!is_base) return read_file(path);
    unit_files_ += in_unit ? 1 : 0;
    remember(path, there, true, {}, {});
    return {};
  }

  /// A file that the kind of its name says is not whole is not taken, even if it holds still: its
  /// writer may have been killed. Logs and the like may grow while they are read; what has a
  /// structure may not.
  Result<FileCapture::Captured> read_whole(const std::string& path) {
    for (int attempt = 1;; ++attempt) {
      capture_.set_offer(attempt == 1 ? request_.offer : nullptr);
      auto captured = read_once(path);
      const bool may_help = !captured && captured.error().code == ErrorCode::kUnavailable;
      if (!may_help || attempt == kTries) return captured;
    }
  }

  Result<FileCapture::Captured> read_once(const std::string& path) {
    auto file = deps_.work.open(path);
    if (!file && file.error().code == ErrorCode::kNotFound)
      return fail(ErrorCode::kUnavailable, "it is gone");
    if (!file) return fail(file.error());
    RN_TRY(const FileStat seen, (*file)->stat());
    RN_CHECK(check_as_seen(path, seen));
    RN_TRY(const StructuralVerdict verdict, check_completeness(**file, path));
    if (verdict.completeness == Completeness::kIncomplete &&
        !planted("agent.takes_torn_checkpoints"))
      return fail(ErrorCode::kUnavailable, verdict.reason);
    const bool has_structure =
        verdict.completeness == Completeness::kComplete || is_tensor_file(path);
    const auto care = is_immutable(path)                  ? FileCapture::Care::kImmutable
                      : is_of_save(path) || has_structure ? FileCapture::Care::kStill
                                                          : FileCapture::Care::kGrowing;
    RN_TRY(FileCapture::Captured captured, capture_.capture(**file, path, care));
    RN_TRY(const FileStat after, (*file)->stat());
    RN_CHECK(check_as_seen(path, after, true));
    const bool is_as_checked =
        captured.stat.size == seen.size && captured.stat.mtime_ns == seen.mtime_ns;
    if (care == FileCapture::Care::kGrowing || is_as_checked) return captured;
    return fail(ErrorCode::kUnavailable, "it changed after its structure was checked");
  }

  Status read_file(const std::string& path) {
    const auto captured = read_whole(path);
    if (captured) {
      ++stats_.read_files;
      unit_files_ += is_in_unit(path) ? 1 : 0;
      add_entry(path, captured->stat, captured->chunks);
      remember(path, captured->stat, false, captured->chunks, captured->checksums);
      return {};
    }
    const ErrorCode code = captured.error().code;
    const bool is_files_own = code == ErrorCode::kUnavailable || code == ErrorCode::kDenied ||
                              code == ErrorCode::kUnsupported;
    if (is_of_save(path) || !is_files_own)
      return fail(captured.error().with("snapshot of " + path));
    stats_.left_out.push_back(path + ": " + captured.error().message);
    const CachedFile* last = cache_.find(path);
    if (last == nullptr || last->is_base || !keep_all(last->chunks)) return {};
    add_entry(
        path,
        FileStat{FileStat::Kind::kRegular, last->bytes, last->inode, last->mtime_ns, 0644, 1, 0},
        last->chunks
    );
    after_.push_back(*last);
    return {};
  }

  bool keep_all(const std::vector<ChunkRef>& chunks) {
    return std::all_of(chunks.begin(), chunks.end(), [&](const ChunkRef& chunk) {
      return session_.keep(chunk.cipher);
    });
  }

  bool has_new_mode(const std::string& path, const FileStat& there) const {
    const auto listed = base_.find(path);
    return listed != base_.end() && (listed->second->mode & kModeMask) != (there.mode & kModeMask);
  }

  /// By content; a listed file in several blobs counts as changed unless the cache knows it.
  Result<bool> equals_base(const std::string& path, const FileStat& there) {
    const auto listed = base_.find(path);
    if (listed == base_.end() || listed->second->kind != FileKind::kRegular ||
        listed->second->bytes != there.size)
      return false;
    if (has_new_mode(path, there) || listed->second->blobs.size() > 1) return false;
    if (there.size == 0) return true;
    if (listed->second->blobs.empty()) return false;
    const auto is_same = capture_.has_content(deps_.work, path, listed->second->blobs.front());
    return is_same && *is_same;
  }

  void remember(
      const std::string& path,
      const FileStat& there,
      bool is_base,
      std::vector<ChunkRef> chunks,
      std::vector<std::uint64_t> checksums
  ) {
    const bool is_settled = SnapshotCache::is_settled(there, started_.wall);
    after_.push_back(
        {path,
         there.inode,
         there.size,
         there.mtime_ns,
         there.changed_ns,
         is_base,
         is_settled,
         std::move(chunks),
         std::move(checksums)}
    );
  }

  void add_entry(
      const std::string& path, const FileStat& there, const std::vector<ChunkRef>& chunks
  ) {
    FileEntry entry{
        path, FileKind::kRegular, there.mode & kModeMask, there.size, there.mtime_ns, {}, {}, ""};
    Blob names;
    for (const ChunkRef& chunk : chunks) {
      const auto [at, is_new] =
          indices_.try_emplace(chunk.cipher, static_cast<std::uint32_t>(chunks_.size()));
      if (is_new) chunks_.push_back(chunk);
      entry.chunks.push_back(at->second);
      names.insert(names.end(), chunk.name.begin(), chunk.name.end());
    }
    entry.content = crypto::hmac_sha256(deps_.keys.name, names);
    entries_.push_back(std::move(entry));
  }

  /// Files of a folder unit that were read early may have changed while later ones were read.
  Status check_unit_held_still(const Scan& scan) {
    for (const auto& [path, before] : scan) {
      if (!is_in_unit(path) || before.kind != FileStat::Kind::kRegular || !request_.unit.is_folder)
        continue;
      const auto now = deps_.work.stat(path);
      const bool is_same = now && now->inode == before.inode && now->size == before.size &&
                           now->mtime_ns == before.mtime_ns && now->changed_ns == before.changed_ns;
      if (!is_same)
        return fail(ErrorCode::kUnavailable, path + " changed while its checkpoint was read");
    }
    if (unit_files_ > 0 || request_.unit.path.empty()) return {};
    return fail(ErrorCode::kUnavailable, "the checkpoint " + request_.unit.path + " is gone");
  }

  void note_removed(const Scan& scan) {
    for (const auto& [path, listed] : base_) {
      if (matches_any(request_.temporary, path)) continue;
      const auto there = scan.find(path);
      const bool is_there = there != scan.end() && kind_of(there->second) == listed->kind;
      if (!is_there) removed_.push_back(path);
    }
  }

  static std::optional<FileKind> kind_of(const FileStat& there) {
    switch (there.kind) {
      case FileStat::Kind::kRegular:
        return FileKind::kRegular;
      case FileStat::Kind::kDirectory:
        return FileKind::kFolder;
      case FileStat::Kind::kSymlink:
        return FileKind::kSymlink;
      case FileStat::Kind::kOther:
        return std::nullopt;
    }
    return std::nullopt;
  }

  Result<Snapshot> finish(SnapshotCache& cache_after) {
    Snapshot out;
    Manifest& m = out.manifest;
    m.job = request_.job;
    m.epoch = request_.epoch;
    m.generation = request_.generation;
    m.parent = request_.parent;
    m.step = request_.step;
    m.created_wall_ms = to_ms(started_.wall);
    m.files = std::move(entries_);
    m.removed = std::move(removed_);
    m.chunks = std::move(chunks_);
    const auto valid = validate_manifest(m);
    if (!valid)
      return fail(valid.error().with("taking generation " + std::to_string(m.generation)));
    out.sealed = sign_manifest(m, request_.signer, deps_.signer);
    RN_TRY(out.ref, deps_.store.put_manifest(out.sealed));
    stats_.files = m.files.size();
    stats_.plain_bytes = out.ref.bytes;
    stats_.read_bytes = capture_.totals().read_bytes;
    stats_.new_chunks = capture_.totals().new_chunks;
    stats_.new_bytes = capture_.totals().new_bytes;
    stats_.aside_cpu = capture_.totals().aside_cpu;
    const Now done = deps_.clock.now();
    stats_.elapsed_ms = std::chrono::duration_cast<milliseconds>(done.boot - started_.boot).count();
    out.ref.new_bytes = stats_.new_bytes;
    out.ref.snapshot_boot_ns = to_ns(started_.boot);
    SnapshotCache fresh;
    for (CachedFile& file : after_) fresh.put(std::move(file));
    fresh.add_chunks(m);
    cache_after = std::move(fresh);
    out.stats = std::move(stats_);
    return out;
  }

  const SnapshotDeps& deps_;
  const SnapshotRequest& request_;
  const SnapshotCache& cache_;
  std::map<std::string, const ListedFile*> base_;
  ChunkStore::Session session_;
  FileCapture capture_;
  bool is_unit_seen_;  ///< else only what is beside it may have been
  Now started_{};
  SnapshotStats stats_;
  std::uint64_t unit_files_ = 0;
  std::vector<FileEntry> entries_;  ///< in the order of the scan: sorted by path
  std::vector<std::string> removed_;
  std::vector<ChunkRef> chunks_;
  std::map<Digest, std::uint32_t> indices_;
  std::vector<CachedFile> after_;
};

}  // namespace

Result<Snapshot> take_snapshot(
    const SnapshotDeps& deps, const SnapshotRequest& request, SnapshotCache& cache
) {
  return Taking(deps, request, cache).run(cache);
}

Result<SnapshotCache> prime_cache(
    Folder& work, const Listing& base, const Manifest* restored, const Clock& clock
) {
  RN_TRY(const Scan scan, scan_folder(work));
  std::map<std::string, const FileEntry*> entries;
  if (restored != nullptr) {
    for (const FileEntry& entry : restored->files) entries[entry.path] = &entry;
  }
  const auto listed = by_path(base);
  const WallTime now = clock.now().wall;
  SnapshotCache cache;
  for (const auto& [path, there] : scan) {
    if (there.kind != FileStat::Kind::kRegular) continue;
    FileStat as_meant = there;  // it got its times, mode and owner by us, a moment ago
    as_meant.changed_ns = 0;
    CachedFile file{
        path,
        there.inode,
        there.size,
        there.mtime_ns,
        as_meant.changed_ns,
        false,
        SnapshotCache::is_settled(as_meant, now),
        {},
        {}};
    if (const auto entry = entries.find(path); entry != entries.end()) {
      if (entry->second->kind != FileKind::kRegular || entry->second->bytes != there.size) continue;
      for (const std::uint32_t index : entry->second->chunks)
        file.chunks.push_back(restored->chunks[index]);
    } else if (const auto in_base = listed.find(path);
               in_base != listed.end() && in_base->second->bytes == there.size) {
      file.is_base = true;
    } else {
      continue;
    }
    cache.put(std::move(file));
  }
  if (restored != nullptr) cache.add_chunks(*restored);
  return cache;
}

}  // namespace rn::checkpoint
