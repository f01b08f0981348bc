// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/fs.h"
#include "base/time.h"
#include "checkpoint/chunk_codec.h"
#include "model/checkpoint.h"
#include "model/job.h"

namespace rn::checkpoint {

/// Answers a blob's bytes by their SHA-256. Need not verify: the restorer does. Where several are
/// fetched at once it is called by several threads.
using BlobSource = std::function<Result<Blob>(const Digest& sha256)>;

struct RestoreStats {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

/// Lays a submitted workspace out in an empty folder that nobody else writes to. Files get a
/// modification time ten seconds before `now`, so that the first snapshot can tell a guest's write
/// from ours. kInvalid for a listing that would leave the folder or overlaps itself, kCorrupt for a
/// blob with other bytes or lengths that do not add up, and the source's and disk's errors. On
/// error the folder holds a part of it: remove it. Not synced: a node that crashes starts the
/// attempt afresh. Blocking.
Result<RestoreStats> lay_workspace(
    FileSystem& fs,
    const std::string& folder,
    const Listing& listing,
    const BlobSource& source,
    WallTime now
);

/// Turns the workspace in `folder` into the generation: removes what the generation had removed,
/// writes its files with modes and modification times, verifies every chunk (ciphertext hash, tag,
/// name) and every file's content hash. Never writes or removes outside `folder`, whatever the
/// manifest and the workspace say (kCorrupt: something on a path is not a folder). The same
/// conditions and rules on error as above. The manifest must have been verified (verify_manifest).
/// `lanes` chunks of a file are fetched and decoded at once, each of which holds up to three
/// chunks; with one (or 0) all is done on the calling thread.
Result<RestoreStats> restore_generation(
    FileSystem& fs,
    const std::string& folder,
    const Manifest& manifest,
    const JobKeys& keys,
    const BlobSource& source,
    std::uint32_t lanes = 1
);

}  // namespace rn::checkpoint
