// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cli_client.h"
#include "cli_folder.h"
#include "cli_input_file.h"

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

/// Where the files of a listing lie here.
struct FileSource {
  std::string folder;
  std::map<std::string, std::string> elsewhere;  ///< those that are not at their own path below it

  std::string path_of(const std::string& listed) const;
};

/// What a folder holds for upload, without what the ignore files, .git and .reclaim leave out.
struct FolderScan {
  Listing listing;  ///< blobs are filled in by hash_files
  FileSource source;
  std::uint64_t bytes = 0;
  std::vector<std::string> left_out;  ///< by the ignore files; a folder ends with '/'
  LeftOutSize left_out_size;
  std::set<std::string>
      ignore_files;  ///< names of those with rules: ".gitignore", ".reclaimignore"
};

/// kExhausted above `limit` bytes, naming the biggest files and what to do, and as soon as there
/// are more than `entries_max` files and folders; sockets and devices are left out, symbolic links
/// are taken as links.
Result<FolderScan> scan_folder(
    const std::string& folder, std::uint64_t limit, std::size_t entries_max = kUploadEntriesMax
);

/// The same for files and folders that are named one by one, whatever ignore files say; a link is
/// taken as what it leads to. Of two with one name the later one counts. kNotFound names what is
/// not there.
Result<FolderScan> scan_inputs(const std::vector<InputFile>& inputs, std::uint64_t limit);

/// A line for the submitter about what the ignore files leave out, and how much that is; empty if
/// nothing.
std::string words_of_left_out(const FolderScan& scan);

/// Fills in the blobs' names. kConflict if a file changed its size meanwhile.
Status hash_files(const FileSource& source, Listing& listing);

/// Uploads what the coordinator lacks, then the listing; answers the listing's digest. Progress
/// goes to stderr.
Result<Digest> upload_folder(
    const Client& client, const FileSource& source, const Listing& listing
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
    const FileSource& source, const Listing& listing, const std::vector<std::string>& command
);

/// The same for reading a saved state back; one that saves and never reads starts over all the
/// same.
bool seems_to_resume(
    const FileSource& source, const Listing& listing, const std::vector<std::string>& command
);

}  // namespace rn::cli
