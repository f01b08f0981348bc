// SPDX-License-Identifier: Apache-2.0
#include "coordinator/blobs.h"

#include <utility>

#include "base/crypto.h"

namespace rn::coordinator {

namespace {

constexpr std::uint32_t kFolderMode = 0700;
constexpr std::uint32_t kFileMode = 0600;

}  // namespace

BlobStore::BlobStore(FileSystem& fs, std::string root) : fs_(&fs), root_(std::move(root)) {}

BlobStore::BlobStore(BlobStore&& other) noexcept
    : fs_(other.fs_),
      root_(std::move(other.root_)),
      reserve_bytes_(other.reserve_bytes_),
      puts_(other.puts_.load()) {}

Result<BlobStore> BlobStore::open(FileSystem& fs, const std::string& root) {
  const std::string incoming = join_path(root, "incoming");
  RN_CHECK(remove_tree(fs, incoming));
  RN_CHECK(make_folders(fs, incoming, kFolderMode));
  for (unsigned first = 0; first < 256; ++first) {
    const auto byte = static_cast<std::uint8_t>(first);
    const auto made = fs.make_folder(join_path(root, to_hex(BlobView(&byte, 1))), kFolderMode);
    if (!made && made.error().code != ErrorCode::kConflict) return fail(made.error());
  }
  RN_CHECK(fs.sync_folder(root));
  return BlobStore(fs, root);
}

std::string BlobStore::path_of(const Digest& name) const {
  const std::string hex = to_hex(name);
  return root_ + "/" + hex.substr(0, 2) + "/" + hex.substr(2);
}

bool BlobStore::has(const Digest& name) const {
  return fs_->stat(path_of(name)).has_value();
}

Result<std::uint64_t> BlobStore::size(const Digest& name) const {
  const auto there = fs_->stat(path_of(name));
  if (!there) return fail(ErrorCode::kNotFound, "no blob " + to_hex(name));
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
  const std::string path = path_of(name);
  if (fs_->stat(path)) return {};
  const auto free = fs_->free_bytes(root_);
  if (free && *free < bytes.size() + reserve_bytes_) {
    return fail(
        ErrorCode::kExhausted,
        "the coordinator's disk is full: " + std::to_string(*free >> 20) + " MiB are free, " +
            std::to_string(reserve_bytes_ >> 20) + " MiB are reserved",
        "ask the operator to make room in the coordinator's state folder"
    );
  }
  const std::string temporary = join_path(root_, "incoming/" + std::to_string(puts_++));
  const auto written = [&]() -> Status {
    RN_TRY(const auto file, fs_->create(temporary, kFileMode));
    RN_CHECK(file->append(bytes));
    RN_CHECK(file->sync());
    return fs_->rename(temporary, path);
  }();
  if (!written) {
    (void)fs_->remove(temporary);
    return written;
  }
  return fs_->sync_folder(parent_folder(path));
}

Result<Blob> BlobStore::get(const Digest& name) const {
  auto bytes = read_all(*fs_, path_of(name), kMaxBlobBytes);
  if (!bytes) {
    if (bytes.error().code == ErrorCode::kNotFound)
      return fail(ErrorCode::kNotFound, "no blob " + to_hex(name));
    return bytes;
  }
  if (crypto::sha256(*bytes) != name)
    return fail(ErrorCode::kCorrupt, "blob " + to_hex(name) + " is damaged on the disk");
  return bytes;
}

}  // namespace rn::coordinator
