// SPDX-License-Identifier: Apache-2.0
#include "agent/image_pieces.h"

#include <algorithm>
#include <optional>

#include "base/log.h"

namespace rn::agent {

namespace {

constexpr std::uint64_t kPieceListBytesMax = 16u << 20;
constexpr std::string_view kImagePrefix = "sha256:";

}  // namespace

Result<std::string> ImagePieces::path_of(const std::string& image) const {
  if (!image.starts_with(kImagePrefix))
    return fail(ErrorCode::kInvalid, "\"" + image + "\" is no image digest");
  RN_TRY(const Digest digest, digest_from_hex(std::string_view(image).substr(kImagePrefix.size())));
  return join_path(folder_, to_hex(digest) + ".pieces");
}

Status ImagePieces::remember(const std::string& image, const std::vector<Digest>& pieces) {
  RN_TRY(const std::string path, path_of(image));
  Blob bytes;
  bytes.reserve(pieces.size() * sizeof(Digest));
  for (const Digest& piece : pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
  const auto known = read_all(fs_, path, kPieceListBytesMax);
  if (known && *known == bytes) return {};
  return write_durably(fs_, path, bytes, 0600);
}

Result<std::set<Digest>> ImagePieces::of(const std::string& image) const {
  RN_TRY(const std::string path, path_of(image));
  const auto bytes = read_all(fs_, path, kPieceListBytesMax);
  if (!bytes && bytes.error().code == ErrorCode::kNotFound) return std::set<Digest>();
  if (!bytes) return fail(bytes.error());
  if (bytes->size() % sizeof(Digest) != 0)
    return fail(ErrorCode::kCorrupt, path + " is no list of pieces", "delete it");
  std::set<Digest> out;
  for (std::size_t at = 0; at < bytes->size(); at += sizeof(Digest)) {
    Digest piece{};
    std::copy_n(bytes->begin() + static_cast<std::ptrdiff_t>(at), piece.size(), piece.begin());
    out.insert(piece);
  }
  return out;
}

std::function<bool(const std::string& image, const Digest& blob)> opens_pieces_of_its_image(
    const ImagePieces& pieces
) {
  struct Known {
    std::string image;
    std::set<Digest> pieces;
  };

  return [pieces,
          known = std::optional<Known>()](const std::string& image, const Digest& blob) mutable {
    if (!known || known->image != image) {
      auto read = pieces.of(image);
      if (!read) log::warning("image.no_pieces", {{"image", image}, {"why", read.error().message}});
      known = Known{image, read ? *std::move(read) : std::set<Digest>()};
    }
    return known->pieces.contains(blob);
  };
}

}  // namespace rn::agent
