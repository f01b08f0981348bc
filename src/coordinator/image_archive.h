// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

namespace rn::coordinator {

/// Entries that an archive may have; a root file system with every file of three distributions has
/// fewer.
inline constexpr std::uint64_t kArchiveEntriesMax = 4'000'000;

/// Whether an archive is a saved image (`docker save`, docker and OCI layout) or the root file
/// system alone, and what the saved one is made of: its layers, bottom first, each named by the
/// SHA-256 of its uncompressed tar ("diff ID" in the OCI image specification). Empty: a root file
/// system. `next` gives the archive piece by piece, empty at its end; blocking as `next` is.
/// kInvalid: what no engine imports (model/archive_begin.h), several images in one archive, a
/// volume (it would lie outside the guest's disk), a name that is the platform's own, or a saved
/// image whose parts do not fit; kExhausted: more than any real image has, also of entries;
/// `next`'s errors. The layers are the archive's claim: whoever loads it looks.
Result<std::vector<Digest>> layers_of_archive(
    const std::function<Result<Blob>()>& next, std::uint64_t entries_max = kArchiveEntriesMax
);

}  // namespace rn::coordinator
