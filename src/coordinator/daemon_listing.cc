// SPDX-License-Identifier: Apache-2.0
#include "coordinator/daemon_listing.h"

#include "base/fs.h"
#include "model/codec.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kMaxFiles = 100'000;

}  // namespace

Status check_listing(const Listing& listing) {
  if (listing.files.size() > kMaxFiles) {
    return fail(
        ErrorCode::kExhausted,
        "a folder has at most " + std::to_string(kMaxFiles) + " files, this one has " +
            std::to_string(listing.files.size()),
        "leave folders out with a .reclaimignore file"
    );
  }
  const std::string* previous = nullptr;
  for (const ListedFile& file : listing.files) {
    if (!is_safe_relative_path(file.path)) {
      return fail(
          ErrorCode::kInvalid,
          "not a path inside the folder: '" + file.path + "'",
          "list relative paths without '..'"
      );
    }
    if (previous != nullptr && !(*previous < file.path))
      return fail(
          ErrorCode::kInvalid,
          "the listing is not sorted, or names a path twice: " + file.path,
          "sort the files by path"
      );
    previous = &file.path;
    if (file.kind != FileKind::kRegular && !file.blobs.empty())
      return fail(
          ErrorCode::kInvalid,
          file.path + " is no file, but has contents",
          "only regular files have blobs"
      );
  }
  return {};
}

Result<Listing> read_listing(const BlobStore& blobs, const Digest& name) {
  const auto bytes = blobs.get(name);
  if (!bytes) {
    return fail(
        bytes.error()
            .with("reading the listing")
            .hinting("upload the folder's files and its listing first: PUT /v1/blobs/{sha256}")
    );
  }
  auto listing = from_cbor<Listing>(*bytes);
  if (!listing) {
    return fail(
        ErrorCode::kInvalid,
        "blob " + to_hex(name) + " is not a listing: " + listing.error().message,
        "upload the listing as CBOR"
    );
  }
  RN_CHECK(check_listing(*listing));
  for (const ListedFile& file : listing->files) {
    std::uint64_t bytes_there = 0;
    for (const Digest& blob : file.blobs) {
      const auto size = blobs.size(blob);
      if (!size) {
        return fail(
            ErrorCode::kNotFound,
            file.path + " needs blob " + to_hex(blob) + ", which was not uploaded",
            "upload it with PUT /v1/blobs/{sha256}, then submit again"
        );
      }
      bytes_there += *size;
    }
    if (file.kind == FileKind::kRegular && bytes_there != file.bytes) {
      return fail(
          ErrorCode::kInvalid,
          file.path + " has " + std::to_string(file.bytes) +
              " bytes in the listing, its blobs have " + std::to_string(bytes_there)
      );
    }
  }
  return listing;
}

}  // namespace rn::coordinator
