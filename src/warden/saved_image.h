// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/crypto.h"
#include "base/error.h"

namespace rn::warden {

/// At most `max` bytes of a file from `offset` on; empty at its end.
using ReadAt = std::function<Result<Blob>(std::uint64_t offset, std::size_t max)>;

/// Where an image's own bytes lie in the archive that a user saved.
struct SavedImage {
  struct Part {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::string name;  ///< in our own archive: "config.json", "layer-1.tar"
  };

  std::vector<Part> parts;          ///< one after the other as they lie there, never overlapping
  std::vector<std::string> layers;  ///< names of parts, bottom first; one may come several times
};

/// Finds configuration and layers in a `docker save` archive: an uncompressed tar with one
/// manifest.json that names one image. Reads headers and that document alone. kInvalid, with what
/// is wrong, unless each of them is one plain file there, or a layer a link to one; kExhausted:
/// more entries or longer names than any real image has; `read`'s errors.
///
/// What it takes for an entry need not be what the engine would: the engine never sees this
/// archive, only the one that RepackedImage makes.
Result<SavedImage> find_saved_image(const ReadAt& read);

/// The archive that the engine gets instead of the user's: configuration, layers and a
/// manifest.json of our own that names no tag. Whatever else the user's archive holds (names for
/// the engine's images, or what some reader might take for one) is left behind, so that no `docker
/// load` can move a name of the owner's.
class RepackedImage {
 public:
  RepackedImage(SavedImage image, ReadAt read) : image_(std::move(image)), read_(std::move(read)) {}

  /// The next bytes of the new archive, at most `max`; empty at its end, when all of the user's was
  /// read. kCorrupt: that one ends early; `read`'s errors.
  Result<Blob> next(std::size_t max);

  /// SHA-256 of the user's archive. Meaningful once, after next() has answered its end.
  Digest source_digest() { return hash_.finish(); }

 private:
  Status advance(std::size_t max);
  Result<Blob> read_source(std::size_t max);
  Blob trailer() const;

  SavedImage image_;
  ReadAt read_;
  crypto::Sha256 hash_;
  std::uint64_t offset_ = 0;  ///< in the user's archive
  std::size_t part_ = 0;      ///< the one that `offset_` is in or before
  bool is_in_part_ = false;   ///< its header is written
  bool is_trailer_made_ = false;
  bool is_read_ = false;  ///< the user's archive, to its end
  Blob made_;             ///< of the new archive, not given out yet
};

/// One header block of a tar (POSIX ustar) for a plain file. `name` is at most 99 bytes. Pure.
Blob tar_header(const std::string& name, std::uint64_t bytes);

}  // namespace rn::warden
