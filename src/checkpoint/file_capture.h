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

/// Turns files into chunks in a store. One snapshot's worth; used by one thread. A large chunk is
/// encoded on a second one while the next is read and named, because hashing is what takes the
/// time; at most one at once, so a capture holds two chunks more.
class FileCapture {
 public:
  struct Totals {
    std::uint64_t read_bytes = 0;
    std::uint64_t new_chunks = 0;
    std::uint64_t new_bytes = 0;
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

  /// All outlive the capture. `known` finds chunks of earlier generations by name.
  FileCapture(
      ChunkStore::Session& session,
      const SnapshotCache& known,
      const JobKeys& keys,
      Rng& rng,
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

  struct Encoding {
    Digest name;
    std::future<EncodedChunk> chunk;
  };

  Result<Reading> read_chunks(File& file, const std::string& path, std::uint64_t size);
  /// A reference with a name only, while the chunk is being encoded.
  Result<ChunkRef> take_chunk(BlobView plaintext, const Checksum128& checksum);
  Status encode(BlobView plaintext, const Digest& name);
  /// Waits for the chunk that is being encoded, if there is one, and puts it.
  Status finish_encoding();
  Status put(EncodedChunk chunk);
  /// `known` if it fits and the store still has it, for as long as this session lasts; else
  /// nullptr.
  const ChunkRef* keep_known(const ChunkRef* known, std::size_t plain_bytes);
  Result<bool> reads_the_same(File& file, std::uint64_t size, const Reading& first);

  ChunkStore::Session& session_;
  const SnapshotCache& known_;
  const JobKeys& keys_;
  ChunkEncoder encoder_;
  std::function<bool()> should_stop_;
  Offer offer_;
  std::map<Digest, ChunkRef> fresh_;  ///< made by this capture, by name
  std::optional<Encoding> encoding_;  ///< uses `encoder_`: ends before it
  Totals totals_;
};

}  // namespace rn::checkpoint
