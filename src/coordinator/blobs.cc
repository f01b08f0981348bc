// SPDX-License-Identifier: Apache-2.0
#include "coordinator/blobs.h"

#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/crypto.h"

namespace rn::coordinator {

namespace {

constexpr std::uint32_t kFolderMode = 0700;
constexpr std::uint32_t kFileMode = 0600;

}  // namespace

struct BlobStore::State {
  FileSystem& fs;
  std::string root;
  std::uint64_t reserve_bytes = 256u << 20;

  std::mutex mutex{};                ///< guards the three below
  std::multiset<Digest> arriving{};  ///< perhaps named already, not yet durable
  std::set<Digest> suspects{};       ///< the newest round found nobody who refers to them
  std::uint64_t puts = 0;            ///< names temporary files; no two puts share one

  std::string path_of(const Digest& name) const {
    const std::string hex = to_hex(name);
    return root + "/" + hex.substr(0, 2) + "/" + hex.substr(2);
  }

  std::string begin_put(const Digest& name) {
    const std::lock_guard lock(mutex);
    arriving.insert(name);
    return join_path(root, "incoming/" + std::to_string(puts++));
  }

  void end_put(const Digest& name) {
    const std::lock_guard lock(mutex);
    arriving.erase(arriving.find(name));
  }

  /// Whoever asks is going to rely on the answer: it is no suspect any more.
  bool is_arriving(const Digest& name) {
    const std::lock_guard lock(mutex);
    suspects.erase(name);
    return arriving.contains(name);
  }

  /// All whose file is there.
  Result<std::vector<Digest>> list() const {
    std::vector<Digest> names;
    RN_TRY(const auto folders, fs.list(root));
    for (const std::string& folder : folders) {
      if (folder.size() != 2) continue;
      RN_TRY(const auto files, fs.list(join_path(root, folder)));
      for (const std::string& file : files) {
        if (const auto name = digest_from_hex(folder + file)) names.push_back(*name);
      }
    }
    return names;
  }

  /// The size of what was removed; nullopt if somebody asked for it meanwhile. Under the lock, so
  /// that who asks now is told either that it is there, and then it stays, or that it is gone.
  std::optional<std::uint64_t> remove_suspect(const Digest& name) {
    const std::lock_guard lock(mutex);
    if (suspects.erase(name) == 0 || arriving.contains(name)) return std::nullopt;
    const auto there = fs.stat(path_of(name));
    if (!there || !fs.remove(path_of(name))) return std::nullopt;
    return there->size;
  }

  Status write(const std::string& temporary, const std::string& path, BlobView bytes) {
    const auto written = [&]() -> Status {
      RN_TRY(const auto file, fs.create(temporary, kFileMode));
      RN_CHECK(file->append(bytes));
      RN_CHECK(file->sync());
      return fs.rename(temporary, path);
    }();
    if (!written) {
      (void)fs.remove(temporary);
      return written;
    }
    return fs.sync_folder(parent_folder(path));
  }
};

BlobStore::BlobStore(std::unique_ptr<State> state) : state_(std::move(state)) {}

BlobStore::BlobStore(BlobStore&& other) noexcept = default;
BlobStore::~BlobStore() = default;

void BlobStore::set_reserve(std::uint64_t reserve_bytes) {
  state_->reserve_bytes = reserve_bytes;
}

Result<BlobStore> BlobStore::open(FileSystem& fs, const std::string& root) {
  const std::string incoming = join_path(root, "incoming");
  RN_CHECK(remove_tree(fs, incoming));
  RN_CHECK(make_folders(fs, incoming, kFolderMode));
  for (unsigned first = 0; first < 256; ++first) {
    const auto byte = static_cast<std::uint8_t>(first);
    const std::string folder = join_path(root, to_hex(BlobView(&byte, 1)));
    const auto made = fs.make_folder(folder, kFolderMode);
    if (!made && made.error().code != ErrorCode::kConflict) return fail(made.error());
    // What a killed process had renamed and not yet synced is durable from here on.
    if (!made) RN_CHECK(fs.sync_folder(folder));
  }
  RN_CHECK(fs.sync_folder(root));
  RN_CHECK(fs.sync_folder(parent_folder(root)));
  return BlobStore(std::unique_ptr<State>(new State{fs, root}));
}

Result<BlobStore::Collected> BlobStore::collect(const std::set<Digest>& live) {
  RN_TRY(const std::vector<Digest> names, state_->list());
  Collected collected;
  std::set<Digest> found;
  for (const Digest& name : names) {
    if (live.contains(name)) continue;
    if (const auto bytes = state_->remove_suspect(name)) {
      ++collected.blobs;
      collected.bytes += *bytes;
    } else {
      found.insert(name);
    }
  }
  collected.suspects = found.size();
  const std::lock_guard lock(state_->mutex);
  state_->suspects = std::move(found);
  return collected;
}

bool BlobStore::has(const Digest& name) const {
  return !state_->is_arriving(name) && state_->fs.stat(state_->path_of(name)).has_value();
}

Result<std::uint64_t> BlobStore::size(const Digest& name) const {
  const bool is_arriving = state_->is_arriving(name);
  const auto there = state_->fs.stat(state_->path_of(name));
  if (!there || is_arriving) return fail(ErrorCode::kNotFound, "no blob " + to_hex(name));
  return there->size;
}

Status BlobStore::put(const Digest& name, BlobView bytes) {
  if (bytes.size() > kMaxBlobBytes)
    return fail(ErrorCode::kExhausted, "a blob has at most 4 MiB", "upload the file in pieces");
  const Digest actual = crypto::sha256(bytes);
  if (actual != name) {
    return fail(
        ErrorCode::kCorrupt,
        "the bytes have SHA-256 " + to_hex(actual) + ", not " + to_hex(name),
        "nothing was kept; upload the file again, it may have changed meanwhile"
    );
  }
  if (has(name)) return {};
  const auto free = state_->fs.free_bytes(state_->root);
  if (free && *free < bytes.size() + state_->reserve_bytes) {
    return fail(
        ErrorCode::kExhausted,
        "the coordinator's disk is full: " + std::to_string(*free >> 20) + " MiB are free, " +
            std::to_string(state_->reserve_bytes >> 20) + " MiB are reserved",
        "ask the operator to make room in the coordinator's state folder"
    );
  }
  const std::string temporary = state_->begin_put(name);
  const Status written = state_->write(temporary, state_->path_of(name), bytes);
  state_->end_put(name);
  return written;
}

Result<Blob> BlobStore::read(const Digest& name) const {
  (void)state_->is_arriving(name);  // no suspect any more: who reads one piece reads the next
  auto bytes = read_all(state_->fs, state_->path_of(name), kMaxBlobBytes);
  if (!bytes && bytes.error().code == ErrorCode::kNotFound)
    return fail(ErrorCode::kNotFound, "no blob " + to_hex(name));
  return bytes;
}

Result<Blob> BlobStore::get(const Digest& name) const {
  auto bytes = read(name);
  if (!bytes) return bytes;
  if (crypto::sha256(*bytes) != name)
    return fail(ErrorCode::kCorrupt, "blob " + to_hex(name) + " is damaged on the disk");
  return bytes;
}

}  // namespace rn::coordinator
