// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cli_client.h"

#include "base/error.h"
#include "model/job.h"

namespace rn::cli {

inline constexpr std::uint64_t kDefaultUploadLimit = 1ull << 30;
inline constexpr std::size_t kPieceBytes = 4u << 20;

/// What ignore files leave out: files and links in it, and their bytes.
struct LeftOutSize {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  bool is_at_least = false;  ///< there is more than anyone would count, or a folder is closed
};

/// What a folder holds for upload, without what the ignore files, .git and .reclaim leave out.
struct FolderScan {
  Listing listing;  ///< blobs are filled in by hash_files
  std::uint64_t bytes = 0;
  std::vector<std::string> left_out;  ///< by the ignore files; a folder ends with '/'
  LeftOutSize left_out_size;
  std::set<std::string>
      ignore_files;  ///< names of those with rules: ".gitignore", ".reclaimignore"
};

/// kExhausted above `limit` bytes, naming the biggest files and what to do; sockets and devices are
/// left out, symbolic links are taken as links.
Result<FolderScan> scan_folder(const std::string& folder, std::uint64_t limit);

/// A line for the submitter about what the ignore files leave out, and how much that is; empty if
/// nothing.
std::string words_of_left_out(const FolderScan& scan);

/// Fills in the blobs' names. kConflict if a file changed its size meanwhile.
Status hash_files(const std::string& folder, Listing& listing);

/// Uploads what the coordinator lacks, then the listing; answers the listing's digest. Progress
/// goes to stderr.
Result<Digest> upload_folder(
    const Client& client, const std::string& folder, const Listing& listing
);

/// Uploads an image's archive in pieces and lists it.
Result<Image> add_image(
    const Client& client,
    const std::string& name,
    const std::string& archive,
    const std::string& base
);

/// True if a Python file of the folder shows a sign of saving its state, or if there is none that
/// the command runs.
bool seems_to_save(
    const std::string& folder, const Listing& listing, const std::vector<std::string>& command
);

/// The same for reading a saved state back; one that saves and never reads starts over all the
/// same.
bool seems_to_resume(
    const std::string& folder, const Listing& listing, const std::vector<std::string>& command
);

}  // namespace rn::cli
