// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/fs.h"

namespace rn::agent {

/// Which pieces an image is made of, as this node put its archive together: a ticket for an image
/// opens these, and nothing else of the store in which the pieces of all images lie. One file per
/// image beside the archives; it stays when the archive goes. Blocking.
class ImagePieces {
 public:
  /// `fs` outlives this. `folder` is that of the archives.
  ImagePieces(FileSystem& fs, std::string folder) : fs_(fs), folder_(std::move(folder)) {}

  /// Durable when it returns; nothing is written if it is known so. kInvalid for a name that is no
  /// digest ("sha256:…"); the disk's errors.
  Status remember(const std::string& image, const std::vector<Digest>& pieces);

  /// Empty for an image that was never put together here. kInvalid for a name that is no digest,
  /// kCorrupt for a file that is no list; the disk's errors.
  Result<std::set<Digest>> of(const std::string& image) const;

 private:
  Result<std::string> path_of(const std::string& image) const;

  FileSystem& fs_;
  std::string folder_;
};

/// PeerServerDeps::is_image_blob of one connection: reads the list of its image once. What cannot
/// be read is no piece. `pieces` is copied; its disk outlives the answer.
std::function<bool(const std::string& image, const Digest& blob)> opens_pieces_of_its_image(
    const ImagePieces& pieces
);

}  // namespace rn::agent
