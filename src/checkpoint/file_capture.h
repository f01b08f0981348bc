// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "base/fs.h"
#include "checkpoint/chunk_codec.h"
#include "checkpoint/chunk_feed.h"
#include "checkpoint/chunk_store.h"
#include "checkpoint/snapshot_cache.h"

namespace rn::checkpoint {

inline constexpr std::uint32_t kLanesMax = 8;  ///< reading and naming are slower than more

/// Turns files into chunks in a store. One snapshot's worth; used by one thread. Large chunks are
/// encoded on threads of their own while the next are read and named, because that is what takes
/// the time: at most `lanes` at once, each of which holds two chunks more. They are stored and
/// offered in the order in which they were read.
class FileCapture {
 public:
  struct Totals {
    std::uint64_t read_bytes = 0;
    std::uint64_t new_chunks = 0;
    std::uint64_t new_bytes = 0;
    nanoseconds aside_cpu{0};  ///< that the threads beside the capture's own have had
  };

  /// How sure one must be of a file.
  enum class Care : std::uint8_t {
    kImmutable,  ///< renamed into place: one reading, and its handle's stat must not change
    kStill,      ///< read twice; must hold still
    kGrowing,    ///< read twice; may grow meanwhile, then its first length is taken
  };

  struct Captured {
    FileStat stat;  ///< as taken; `size` is the length taken
    std::vector<ChunkRef> chunks;
    std::vector<std::uint64_t> checksums;  ///< as in CachedFile
  };

  using Offer = std::function<void(const FreshChunk&)>;

  /// All outlive the capture. `known` finds chunks of earlier generations by name. With more than
  /// one lane (0 counts as one) `rng` is used by several threads at once.
  FileCapture(
      ChunkStore::Session& session,
      const SnapshotCache& known,
      const JobKeys& keys,
      Rng& rng,
      std::uint32_t lanes,
      std::function<bool()> should_stop
  );

  /// Called from now on with each new chunk, whatever becomes of its file; empty: nobody is.
  void set_offer(Offer offer) { offer_ = std::move(offer); }

  /// Chunks of an open file, in the session (not flushed). kUnavailable if it did not hold still as
  /// `care` asks; kTimeout if told to stop; the store's and the file's errors.
  Result<Captured> capture(File& file, const std::string& path, Care care);
  /// True if the file's bytes have this SHA-256 now and held still while they were read.
  Result<bool> has_content(Folder& folder, const std::string& path, const Digest& sha256);

  const Totals& totals() const { return totals_; }

 private:
  struct Reading {
    std::vector<ChunkRef> chunks;
    std::vector<std::uint64_t> checksums;
    Checksum128 whole{};
  };

  struct Encoded {
    EncodedChunk chunk;
    nanoseconds cpu{0};  ///< of another thread
  };

  struct Lane {
    ChunkEncoder encoder;
    Digest name{};
    std::future<Encoded> encoded;  ///< uses `encoder`: ends before it
  };

  Result<Reading> read_chunks(File& file, const std::string& path, std::uint64_t size);
  /// A reference with a name only, while the chunk is being encoded.
  Result<ChunkRef> take_chunk(BlobView plaintext, const Checksum128& checksum);
  Status encode(BlobView plaintext, const Digest& name);
  bool is_being_encoded(const Digest& name) const;
  /// Waits for the chunk whose encoding began first, and puts it.
  Status finish_first();
  /// The same of all that are being encoded.
  Status finish_encoding();
  Status put(EncodedChunk chunk);
  /// `known` if it fits and the store still has it, for as long as this session lasts; else
  /// nullptr.
  const ChunkRef* keep_known(const ChunkRef* known, std::size_t plain_bytes);
  Result<bool> reads_the_same(File& file, std::uint64_t size, const Reading& first);

  ChunkStore::Session& session_;
  const SnapshotCache& known_;
  const JobKeys& keys_;
  ChunkEncoder encoder_;  ///< of this thread
  std::function<bool()> should_stop_;
  Offer offer_;
  std::map<Digest, ChunkRef> fresh_;  ///< made by this capture, by name
  std::vector<Lane> lanes_;
  std::size_t begun_ = 0;  ///< encodings aside so far; each has the lane of its number, in turn
  std::size_t finished_ = 0;
  Totals totals_;
};

}  // namespace rn::checkpoint
