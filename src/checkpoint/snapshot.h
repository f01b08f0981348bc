// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/crypto.h"
#include "base/fs.h"
#include "base/rng.h"
#include "base/time.h"
#include "checkpoint/chunk_codec.h"
#include "checkpoint/chunk_feed.h"
#include "checkpoint/chunk_store.h"
#include "checkpoint/snapshot_cache.h"
#include "checkpoint/watch.h"
#include "model/checkpoint.h"
#include "model/job.h"

namespace rn::checkpoint {

struct SnapshotRequest {
  JobId job;
  LeaseEpoch epoch;
  std::uint32_t generation = 0;
  Digest parent{};
  std::int64_t step = -1;
  Unit unit;  ///< the checkpoint: every file of it must be taken whole
  bool is_renamed =
      false;  ///< GenerationReady::is_renamed: the unit's files cannot change under an open handle
  /// GenerationReady::seen: these files, and no others of the unit, are taken only in these states.
  /// Empty: whatever holds still.
  SeenFiles seen;
  Listing base;                        ///< the submitted workspace
  std::vector<std::string> temporary;  ///< globs that are left out
  std::int64_t guest_since_ns = 0;     ///< SnapshotCache::unchanged()
  NodeId signer;
  /// Chunks that are encoded at once, beside the reading; more than kLanesMax count as that many.
  /// With more than one the Rng must be one that several threads may use.
  std::uint32_t lanes = 1;
  /// Asked before each chunk; true ends the snapshot with kTimeout (a deadline is near).
  std::function<bool()> should_stop;
  /// Called with each new chunk as soon as it is made, if it is set: for who sends it on before the
  /// manifest exists. The snapshot may still fail, and a file's second and third try are not
  /// offered: at most one reading's worth is in vain.
  std::function<void(const FreshChunk&)> offer;
};

struct SnapshotStats {
  std::uint64_t files = 0;  ///< entries of the manifest
  std::uint64_t read_files = 0;
  std::uint64_t reused_files = 0;  ///< unchanged since the cache: not read
  std::uint64_t read_bytes = 0;    ///< first reading
  std::uint64_t plain_bytes = 0;   ///< of the whole generation
  std::uint64_t new_chunks = 0;
  std::uint64_t new_bytes = 0;  ///< stored bytes that the store did not have
  std::uint64_t specials = 0;   ///< sockets, devices, FIFOs, names that are not text: refused
  std::int64_t elapsed_ms = 0;
  nanoseconds aside_cpu{0};  ///< processor time of threads beside the calling one
  std::vector<std::string>
      left_out;  ///< "path: why" of files beside the unit that could not be taken
};

struct Snapshot {
  GenerationRef ref;  ///< with new_bytes and snapshot_boot_ns
  Manifest manifest;
  SignedManifest sealed;
  SnapshotStats stats;
};

/// What a snapshot works with. All outlive the call.
struct SnapshotDeps {
  Folder& work;  ///< the job's work folder, which the guest may be changing
  ChunkStore& store;
  const Clock& clock;
  Rng& rng;
  const JobKeys& keys;
  const crypto::SigningKey& signer;
};

/// Takes one generation: every file that differs from the submitted workspace, without the
/// temporary ones, into the store; then its manifest: *safe* when this returns.
///
/// Files are read through open handles (ADR 0003): a handle on a file that was renamed into place
/// keeps the finished bytes whatever gets its name later. What the watch has seen whole is taken as
/// it was then or not at all: a writer that has begun anew, and is stopped by its share of the
/// processor, holds still as well. Every other file that is read is read
/// twice, and taken only if inode, size, mtime and content held still, in at most three tries; a
/// file beside the unit that only grew is taken up to its first length (logs), one that does not
/// hold still keeps its last generation's content or is left out, and is said in the stats.
/// Unchanged files (same inode, size and times as in the cache) keep their chunks without being
/// read. Symbolic links are kept as links; special files are refused.
///
/// Errors: kUnavailable (the unit did not hold still, is no longer as the watch saw it, or is gone:
/// try again later), kTimeout
/// (should_stop), kDenied (a file of the unit cannot be read), kExhausted, kCorrupt (a sync
/// failed), the disk's. On error the cache is untouched and no manifest exists. Blocking. Bounded
/// memory: two chunks, two more for each lane, and the lists of files.
Result<Snapshot> take_snapshot(
    const SnapshotDeps& deps, const SnapshotRequest& request, SnapshotCache& cache
);

/// Fills a cache after a folder was laid out from the workspace and a generation: nothing that
/// stayed is read again.
Result<SnapshotCache> prime_cache(
    Folder& work, const Listing& base, const Manifest* restored, const Clock& clock
);

}  // namespace rn::checkpoint
