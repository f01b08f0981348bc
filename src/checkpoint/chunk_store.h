// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/fs.h"
#include "base/ids.h"
#include "base/time.h"
#include "model/checkpoint.h"

namespace rn::checkpoint {

inline constexpr std::uint64_t kBlobBytesMax =
    (8ULL << 20) - 64;  ///< fits one frame of the wire with its hash

inline constexpr std::size_t kFinishedJobs = 4096;  ///< whose ends a store remembers

struct StoreOptions {
  std::string root;                               ///< made if it is missing
  std::uint64_t quota_bytes = ~std::uint64_t{0};  ///< of chunks and manifests together
  std::uint64_t reserve_free_bytes = 1ULL << 30;  ///< of the owner's disk, never touched
  seconds unreferenced_min_age =
      seconds(3600);  ///< a chunk that no manifest names stays so long: transfers resume
};

struct StoreUsage {
  std::uint64_t chunks = 0;
  std::uint64_t bytes = 0;  ///< chunks and manifests
  std::uint64_t quota_bytes = 0;
  std::uint64_t condemned =
      0;  ///< copies given up since the start: failed syncs, failed verifications
};

/// What garbage collection must keep of a job, as the coordinator's rows say. Only the number says
/// it: numbers grow with what became durable, while a later epoch may begin below an earlier one's,
/// and a generation that is here may never have become durable.
struct Retention {
  JobId job;
  std::uint32_t keep_from = 0;                ///< this number, or a higher one, is durable
  std::vector<std::uint32_t> also_keep = {};  ///< lower ones that are needed
};

/// What lies in a store's folder. Generations of one job share what did not change.
struct StoredOnDisk {
  std::uint64_t jobs = 0;
  std::uint64_t generations = 0;
  std::uint64_t bytes = 0;  ///< of all files
};

/// Counted from the files, for who does not open the store because somebody else has. Without a
/// folder nothing is stored. Reads only. Errors: the disk's. Blocking.
Result<StoredOnDisk> measure_store(FileSystem& fs, const std::string& root);

struct GarbageStats {
  std::uint64_t generations = 0;
  std::uint64_t chunks = 0;
  std::uint64_t bytes = 0;
};

/// Chunks and manifests on one disk. A chunk's file is named by the SHA-256 of its stored bytes, so
/// a peer that has no key can verify what it keeps; the same holds for any other blob (images).
/// Needs no key.
///
/// Order of every write: bytes, fsync, rename, fsync of the folder; a manifest only when its chunks
/// are durable. What has(), list() and latest_valid() show is durable. Blobs have at most
/// kBlobBytesMax bytes. A sync that fails condemns that copy: it is removed, the call answers
/// kUnavailable ("condemned"), and nothing is ever synced again through the same file; putting it
/// again writes a new one. That is no word about the bytes: they may be right wherever they came
/// from.
///
/// Errors beside the disk's own: kExhausted (quota or the owner's reserve), kNotFound, kCorrupt
/// (bytes that do not fit their hash; such a copy is condemned when it is found), kConflict (a
/// manifest whose chunks are not all here). Blocking. Thread-safe: `mutex_` guards the index; the
/// only I/O under it is a chunk's unlink, so that nobody can be writing the same name.
/// `collecting_` is taken before it, by garbage collection and put_manifest: what is about to be
/// referenced is not collected.
class ChunkStore {
 public:
  /// Recovers: leftovers of interrupted writes are removed, the index is read from the folders.
  /// `fs` and `clock` outlive it.
  static Result<std::unique_ptr<ChunkStore>> open(
      FileSystem& fs, const Clock& clock, StoreOptions options
  );

  /// A group of writes that shares its syncs, and protects what it touched from garbage collection
  /// until it ends. One thread. The store outlives it.
  class Session {
   public:
    explicit Session(ChunkStore& store) : store_(&store) {}

    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// True if the store has the chunk; then it stays at least as long as this session.
    bool keep(const Digest& cipher);
    /// Writes a chunk. It counts only after flush(), which syncs it at the latest: many syncs one
    /// after another share what one alone would wait for. kCorrupt if `stored` does not hash to
    /// `cipher`. kUnavailable for a failed sync of any chunk so far, as flush().
    Status put(const Digest& cipher, BlobView stored);
    /// The same where the caller has just computed `cipher` from these bytes: hashes them no second
    /// time.
    Status put_hashed(const Digest& cipher, BlobView stored);
    /// The same for bytes that nobody has compared with `cipher`: once they are synced they are
    /// read back from the medium and compared, before they get their name.
    Status put_unverified(const Digest& cipher, BlobView stored);
    /// Makes all puts so far and their names durable and the chunks visible. On error the puts
    /// since the last flush are gone; if it was kCorrupt in what was read back, only those chunks.
    Status flush();

    /// What flush() has read back from the medium so far.
    const std::set<Digest>& read_back() const { return read_back_; }

   private:
    friend class ChunkStore;

    /// A put that was not flushed. `file` is open until the bytes are synced and have their name.
    struct Waiting {
      std::uint64_t bytes = 0;
      std::unique_ptr<File> file;
      std::string temporary;
      bool is_unverified = false;
    };

    using Waitings = std::map<Digest, Waiting>;

    Status put(const Digest& cipher, BlobView stored, bool is_unverified);
    Status sync_and_name();
    Status sync_folders();
    Status compare();
    Waitings::iterator abandon(Waitings::iterator at);
    void abandon_all();

    ChunkStore* store_;
    Waitings waiting_;
    std::size_t unsynced_ = 0;  ///< of them, those with a file
    std::uint64_t unsynced_bytes_ = 0;
    std::vector<Digest> pinned_;
    std::set<Digest> read_back_;
  };

  bool has(const Digest& cipher) const;
  std::optional<std::uint64_t> stored_bytes(const Digest& cipher) const;
  /// The stored bytes, verified against the hash.
  Result<Blob> get(const Digest& cipher);
  /// The stored bytes as they are: for a caller that verifies a whole of several blobs by its own
  /// hash.
  Result<Blob> get_unverified(const Digest& cipher);
  /// The same from the medium, not from the page cache.
  Result<Blob> get_from_medium(const Digest& cipher);

  /// Stores a manifest whose chunks are all here. Idempotent; one that is damaged here is written
  /// anew. The signature is the caller's to check (manifest.h).
  Result<GenerationRef> put_manifest(const SignedManifest& manifest);
  Result<SignedManifest> load_manifest(const JobId& job, const Digest& manifest);
  /// Generations of a job here, oldest first (by epoch, then number). kNotFound never: an unknown
  /// job has none.
  std::vector<GenerationRef> list(const JobId& job) const;
  std::vector<JobId> jobs() const;
  /// The newest generation whose manifest is whole and whose chunks are all here; older ones if it
  /// is not. kNotFound if none.
  Result<GenerationRef> latest_valid(const JobId& job);
  /// Reads manifest and chunks back from the medium and compares every hash. kCorrupt names the
  /// first that is not right; the bad copies are condemned. Chunks in `read_back` were read from
  /// the medium by the caller since they became durable, and are not read again.
  Status verify(const JobId& job, const Digest& manifest, const std::set<Digest>& read_back = {});

  /// Drops generations of lower numbers than `keep_from`, whatever their epoch, but for those of
  /// `also_keep`, and for the newest whole ones where fewer than two numbers are whole here without
  /// them. Chunks go when no manifest, session or age protects them. Manifests go first, durably,
  /// so no manifest ever lacks a chunk.
  Result<GarbageStats> collect(const Retention& retention);
  /// Drops one generation that nobody else was told of, because a newer one of this store took its
  /// place. Nothing if it is not here, or is the newest of the job that is whole.
  Result<GarbageStats> replace(const JobId& job, LeaseEpoch epoch, std::uint32_t generation);
  /// Removes chunks that nothing references and that are old enough.
  Result<GarbageStats> sweep();
  /// Drops all generations of a finished job.
  Result<GarbageStats> forget(const JobId& job);
  /// The same, and from now on put_manifest() answers kConflict to what was taken in `epoch` or
  /// before: an attempt that was cut off does not know that its job is over, and nobody would come
  /// again for what it stores. In memory, of the newest kFinishedJobs.
  Result<GarbageStats> finish(const JobId& job, LeaseEpoch epoch);
  /// Notes what a transfer for the job brought before it broke off. It stays for the next one to go
  /// on from, at most until drop_left(). In memory: after a restart sweep() finds it.
  void leave(const JobId& job, const std::set<Digest>& chunks);
  /// Removes what was left for the job and neither a manifest nor a session protects, whatever its
  /// age: a transfer of the job came to its end. What cannot be removed now is sweep()'s.
  void drop_left(const JobId& job);

  StoreUsage usage() const;
  /// From now on; what is there stays, also above a smaller quota.
  void set_limits(std::uint64_t quota_bytes, std::uint64_t reserve_free_bytes);

 private:
  struct Stored {
    GenerationRef ref;
    std::string path;
    std::uint64_t file_bytes = 0;
    std::shared_ptr<const std::vector<Digest>> chunks;  ///< ascending
  };

  using Order = std::pair<LeaseEpoch, std::uint32_t>;
  using Generations = std::map<std::pair<Order, Digest>, Stored>;

  ChunkStore(FileSystem& fs, const Clock& clock, StoreOptions options)
      : fs_(fs), clock_(clock), options_(std::move(options)) {}

  Status recover();
  Status recover_chunks();
  Status recover_job(const std::string& name);
  std::string chunk_folder(const Digest& cipher) const;
  std::string chunk_path(const Digest& cipher) const;
  std::string job_folder(const JobId& job) const;
  Status admit(std::uint64_t bytes);
  Result<Session::Waiting> write_chunk(const Digest& cipher, BlobView stored);
  /// A file that does not have the bytes of its hash is left as it is.
  Result<Blob> read_compared(const Digest& cipher, const std::string& path);
  Result<Blob> read_checked(const Digest& cipher);
  void condemn(const Digest& cipher);
  /// Unlinks a durable chunk unless `only_unpinned` and somebody holds it; its size, or 0.
  std::uint64_t unlink_chunk(const Digest& cipher, bool only_unpinned);
  Status check_chunks(const Manifest& manifest);
  Result<SignedManifest> load_from(const Stored& stored);
  Result<bool> is_whole(const Stored& stored);
  std::vector<Stored> generations_of(const JobId& job) const;
  GarbageStats unlink_unused(std::set<Digest> candidates);
  Result<std::vector<Stored>> unneeded(const Retention& retention);
  Result<GarbageStats> drop(const JobId& job, const std::vector<Stored>& generations);
  std::set<Digest> referenced() const;

  FileSystem& fs_;
  const Clock& clock_;
  StoreOptions options_;

  mutable std::mutex mutex_;
  std::map<Digest, std::uint64_t> chunks_;  ///< durable ones: stored size
  std::map<Digest, std::uint32_t> pins_;
  std::map<JobId, Generations> generations_;
  std::map<JobId, std::set<Digest>> left_;  ///< by transfers that broke off
  std::map<JobId, LeaseEpoch> finished_;
  std::deque<JobId> finished_order_;  ///< oldest first
  std::uint64_t bytes_ = 0;           ///< durable and being written
  std::uint64_t condemned_ = 0;
  std::uint64_t temporary_ = 0;  ///< makes temporary names unique

  std::mutex collecting_;  ///< one garbage collection at a time; taken before mutex_
};

}  // namespace rn::checkpoint
