// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace rn {

/// So many bytes of a file show whether it may be an image's archive: the header of a tar.
inline constexpr std::size_t kArchiveBegin = 512;

/// What to do about one that is not.
inline constexpr const char* kWhatIsAnArchive =
    "give one of 'docker save', or a tar of a root file system";

/// Whether a file that begins so can be what an engine imports: a tar (POSIX, or of before it), or
/// one compressed by what engines know (gzip, bzip2, xz, zstd). `begin` is its first kArchiveBegin
/// bytes, or the whole of a shorter one.
bool may_be_archive(BlobView begin);

}  // namespace rn
