// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/restore.h"

#include <algorithm>
#include <deque>
#include <future>
#include <optional>
#include <vector>

#include "base/crypto.h"
#include "base/utf8.h"

namespace rn::checkpoint {

namespace {

constexpr std::uint32_t kRestoredFolderMode = 0755;
constexpr std::uint32_t kRestoredModeMask = 0777;

/// Modes and times that must wait until everything inside is written.
struct Finish {
  std::string path;
  std::uint32_t mode;
  std::optional<std::int64_t> mtime_ns;
};

/// Writes below one folder and nowhere else. A generation comes from a node that may lie, and the
/// workspace may hold links to anywhere: every component above a path is looked at before it is
/// used. Nobody else changes the folder meanwhile.
class Placer {
 public:
  Placer(FileSystem& fs, std::string root) : fs_(fs), root_(std::move(root)) {}

  /// The absolute path, with real folders above it.
  Result<std::string> prepare(const std::string& relative) {
    if (!is_safe_relative_path(relative))
      return fail(ErrorCode::kInvalid, "unsafe path: " + relative);
    for (auto slash = relative.find('/'); slash != std::string::npos;
         slash = relative.find('/', slash + 1)) {
      const std::string above = join_path(root_, relative.substr(0, slash));
      const auto there = fs_.stat(above);
      if (!there && there.error().code == ErrorCode::kNotFound) {
        RN_CHECK(fs_.make_folder(above, kRestoredFolderMode));
        continue;
      }
      if (!there) return fail(there.error());
      if (there->kind != FileStat::Kind::kDirectory) {
        return fail(
            ErrorCode::kCorrupt, relative + " would be reached through something that is no folder"
        );
      }
    }
    return join_path(root_, relative);
  }

  Status remove(const std::string& relative) {
    if (!is_safe_relative_path(relative))
      return fail(ErrorCode::kInvalid, "unsafe path: " + relative);
    for (auto slash = relative.find('/'); slash != std::string::npos;
         slash = relative.find('/', slash + 1)) {
      const auto there = fs_.stat(join_path(root_, relative.substr(0, slash)));
      if (!there || there->kind != FileStat::Kind::kDirectory)
        return {};  // what lay below went with it
    }
    return remove_tree(fs_, join_path(root_, relative));
  }

  Status folder(
      const std::string& relative, std::uint32_t mode, std::optional<std::int64_t> mtime_ns
  ) {
    RN_TRY(const std::string path, prepare(relative));
    const auto there = fs_.stat(path);
    const bool is_folder = there && there->kind == FileStat::Kind::kDirectory;
    if (there && !is_folder) RN_CHECK(fs_.remove(path));
    if (!is_folder) RN_CHECK(fs_.make_folder(path, kRestoredFolderMode));
    finish_.push_back({path, mode & kRestoredModeMask, mtime_ns});
    return {};
  }

  Status link(const std::string& relative, const std::string& target) {
    RN_TRY(const std::string path, prepare(relative));
    RN_CHECK(remove_tree(fs_, path));
    return fs_.make_symlink(target, path);
  }

  /// An empty file in the place of whatever was there.
  Result<std::unique_ptr<File>> file(const std::string& relative) {
    RN_TRY(const std::string path, prepare(relative));
    RN_CHECK(remove_tree(fs_, path));
    return fs_.create(path, 0600);
  }

  Status set(const std::string& relative, std::uint32_t mode, std::int64_t mtime_ns) {
    const std::string path = join_path(root_, relative);
    RN_CHECK(fs_.set_mode(path, mode & kRestoredModeMask));
    return fs_.set_mtime(path, mtime_ns);
  }

  /// Folders last, the deepest first: writing inside changes their times and may need their
  /// permission.
  Status finish() {
    std::sort(finish_.begin(), finish_.end(), [](const Finish& a, const Finish& b) {
      return a.path > b.path;
    });
    for (const Finish& one : finish_) {
      RN_CHECK(fs_.set_mode(one.path, one.mode));
      if (one.mtime_ns) RN_CHECK(fs_.set_mtime(one.path, *one.mtime_ns));
    }
    return {};
  }

 private:
  FileSystem& fs_;
  std::string root_;
  std::vector<Finish> finish_;
};

/// The plaintexts of a file, one after the other; decodes some of them ahead.
class Plaintexts {
 public:
  /// All outlive it.
  Plaintexts(
      std::vector<const ChunkRef*> chunks,
      const JobKeys& keys,
      const BlobSource& source,
      std::uint32_t lanes
  )
      : chunks_(std::move(chunks)), keys_(keys), source_(source), lanes_(lanes) {}

  /// As often as there are chunks.
  Result<Blob> next() {
    if (lanes_ <= 1) return load(*chunks_[begun_++]);
    for (; begun_ < chunks_.size() && ahead_.size() < lanes_; ++begun_)
      ahead_.push_back(std::async(kAside, [this, chunk = chunks_[begun_]] { return load(*chunk); })
      );
    Result<Blob> first = ahead_.front().get();
    ahead_.pop_front();
    return first;
  }

 private:
  /// NOTE(libstdc++): a new thread; on the asking one, later, if none can be had.
  static constexpr auto kAside = std::launch::async | std::launch::deferred;

  Result<Blob> load(const ChunkRef& chunk) const {
    RN_TRY(const Blob stored, source_(chunk.cipher));
    return decode_chunk(keys_, chunk, stored);
  }

  std::vector<const ChunkRef*> chunks_;
  const JobKeys& keys_;
  const BlobSource& source_;
  std::uint32_t lanes_;
  std::size_t begun_ = 0;
  std::deque<std::future<Result<Blob>>> ahead_;  ///< they use the rest: first to go
};

Status write_entry(
    Placer& placer,
    const FileEntry& entry,
    const Manifest& manifest,
    const JobKeys& keys,
    const BlobSource& source,
    std::uint32_t lanes
) {
  RN_TRY(const auto file, placer.file(entry.path));
  std::vector<const ChunkRef*> chunks;
  Blob names;
  for (const std::uint32_t index : entry.chunks) {
    if (index >= manifest.chunks.size())
      return fail(ErrorCode::kInvalid, "the manifest names a chunk that it does not list");
    const ChunkRef& chunk = manifest.chunks[index];
    chunks.push_back(&chunk);
    names.insert(names.end(), chunk.name.begin(), chunk.name.end());
  }
  Plaintexts plaintexts(std::move(chunks), keys, source, lanes);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < entry.chunks.size(); ++i) {
    RN_TRY(const Blob plain, plaintexts.next());
    RN_CHECK(file->append(plain));
    bytes += plain.size();
  }
  if (bytes != entry.bytes || crypto::hmac_sha256(keys.name, names) != entry.content) {
    return fail(ErrorCode::kCorrupt, "its content is not what the manifest says");
  }
  return placer.set(entry.path, entry.mode, entry.mtime_ns);
}

Status write_listed(
    Placer& placer, const ListedFile& listed, const BlobSource& source, std::int64_t mtime_ns
) {
  RN_TRY(const auto file, placer.file(listed.path));
  std::uint64_t bytes = 0;
  for (const Digest& sha256 : listed.blobs) {
    RN_TRY(const Blob blob, source(sha256));
    if (crypto::sha256(blob) != sha256)
      return fail(ErrorCode::kCorrupt, "a blob does not have the bytes of its hash");
    RN_CHECK(file->append(blob));
    bytes += blob.size();
  }
  if (bytes != listed.bytes)
    return fail(ErrorCode::kCorrupt, "its blobs do not add up to its length");
  return placer.set(listed.path, listed.mode, mtime_ns);
}

bool is_usable_target(const std::string& target) {
  return !target.empty() && target.size() <= 4095 && target.find('\0') == std::string::npos &&
         is_utf8(target);
}

}  // namespace

Result<RestoreStats> lay_workspace(
    FileSystem& fs,
    const std::string& folder,
    const Listing& listing,
    const BlobSource& source,
    WallTime now
) {
  Placer placer(fs, folder);
  RestoreStats stats;
  const std::int64_t mtime_ns = (to_ms(now) - 10'000) * 1'000'000;
  for (const ListedFile& listed : listing.files) {
    if (!is_safe_relative_path(listed.path))
      return fail(ErrorCode::kInvalid, "the workspace lists an unsafe path: " + listed.path);
    const bool is_there = fs.stat(join_path(folder, listed.path)).has_value();
    if (is_there && listed.kind != FileKind::kFolder)
      return fail(ErrorCode::kInvalid, "the workspace lists " + listed.path + " twice");
    const auto written = [&]() -> Status {
      switch (listed.kind) {
        case FileKind::kRegular:
          return write_listed(placer, listed, source, mtime_ns);
        case FileKind::kFolder:
          return placer.folder(listed.path, listed.mode, std::nullopt);
        case FileKind::kSymlink:
          if (!is_usable_target(listed.target))
            return fail(ErrorCode::kInvalid, "the link has no usable target");
          return placer.link(listed.path, listed.target);
      }
      return fail(ErrorCode::kInvalid, "of unknown kind");
    }();
    if (!written) return fail(written.error().with("workspace file " + listed.path));
    ++stats.files;
    stats.bytes += listed.bytes;
  }
  RN_CHECK(placer.finish());
  return stats;
}

Result<RestoreStats> restore_generation(
    FileSystem& fs,
    const std::string& folder,
    const Manifest& manifest,
    const JobKeys& keys,
    const BlobSource& source,
    std::uint32_t lanes
) {
  Placer placer(fs, folder);
  RestoreStats stats;
  for (const std::string& path : manifest.removed) {
    const auto removed = placer.remove(path);
    if (!removed) return fail(removed.error().with("removing " + path));
  }
  for (const FileEntry& entry : manifest.files) {
    const auto written = [&]() -> Status {
      switch (entry.kind) {
        case FileKind::kRegular:
          return write_entry(placer, entry, manifest, keys, source, lanes);
        case FileKind::kFolder:
          return placer.folder(entry.path, entry.mode, entry.mtime_ns);
        case FileKind::kSymlink:
          if (!is_usable_target(entry.target))
            return fail(ErrorCode::kInvalid, "the link has no usable target");
          return placer.link(entry.path, entry.target);
      }
      return fail(ErrorCode::kInvalid, "of unknown kind");
    }();
    if (!written) return fail(written.error().with("restoring " + entry.path));
    ++stats.files;
    stats.bytes += entry.bytes;
  }
  RN_CHECK(placer.finish());
  return stats;
}

}  // namespace rn::checkpoint
