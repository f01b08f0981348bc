// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"
#include "model/job.h"

// Which folders are uploaded at all: one project's, and not by mistake everything that somebody
// has.
namespace rn::cli {

/// Of one upload, folders counted. A list of more names than this does not go anyway
/// (kPieceBytes).
inline constexpr std::size_t kUploadEntriesMax = 60'000;

/// kInvalid for "/", the home folder `home` and what is above it, unless a .reclaimignore in the
/// folder shows that somebody has thought of what goes. Links are followed; a folder that is not
/// there is somebody else's error.
Status check_upload_folder(const std::string& folder, const std::string& home);

/// kExhausted: the folder has more than `limit` entries, of which `begun` was read; names the
/// folders in it that have the most.
Error too_many_files(const Listing& begun, std::size_t limit);

/// "12345 files, 1.2 GiB": of regular files and links.
std::string words_of_size(const Listing& listing);

}  // namespace rn::cli
