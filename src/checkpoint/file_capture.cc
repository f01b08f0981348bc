// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file_capture.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <xxhash.h>

#include "base/crypto.h"
#include "base/sha256_lanes.h"
#include "checkpoint/chunker.h"

namespace rn::checkpoint {

namespace {

constexpr std::uint64_t kReadBytes = 4ULL << 20;
constexpr std::uint64_t kGroupBytesMax = 32ULL << 20;
/// A group from this size on is worth a thread: hashing it takes a millisecond and more.
constexpr std::size_t kAsideBytes = 256 << 10;
/// NOTE(libstdc++): a new thread; on the asking one, later, if none can be had.
constexpr auto kAside = std::launch::async | std::launch::deferred;

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

/// Compares two readings of one file. Not cryptographic: only the guest itself could profit from a
/// collision, by spoiling its own checkpoint.
class Checksum {
 public:
  Checksum() : state_(XXH3_createState()) { XXH3_128bits_reset(state_.get()); }

  void update(BlobView bytes) { XXH3_128bits_update(state_.get(), bytes.data(), bytes.size()); }

  Checksum128 finish() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return {hash.low64, hash.high64};
  }

 private:
  std::unique_ptr<XXH3_state_t, FreeState> state_;
};

Checksum128 checksum_of(BlobView bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

}  // namespace

FileCapture::FileCapture(
    ChunkStore::Session& session,
    const SnapshotCache& known,
    const JobKeys& keys,
    Rng& rng,
    std::function<bool()> should_stop
)
    : session_(session),
      known_(known),
      keys_(keys),
      encoder_(keys, rng),
      should_stop_(std::move(should_stop)) {}

const ChunkRef* FileCapture::keep_known(const ChunkRef* known, std::size_t plain_bytes) {
  if (known == nullptr || known->plain_bytes != plain_bytes) return nullptr;
  return session_.keep(known->cipher) ? known : nullptr;
}

/// Cheapest question first: the checksum alone finds what did not change.
Result<ChunkRef> FileCapture::take_chunk(
    BlobView plaintext, const Checksum128& checksum, std::size_t at
) {
  if (should_stop_ && should_stop_())
    return fail(ErrorCode::kTimeout, "the snapshot was told to stop");
  const auto* same = keep_known(known_.chunk_with(checksum), plaintext.size());
  if (same != nullptr) return *same;
  gathered_.plaintexts.emplace_back(plaintext.begin(), plaintext.end());
  gathered_.at.push_back(at);
  gathered_.bytes += plaintext.size();
  return ChunkRef{};
}

Status FileCapture::turn(Reading& reading) {
  std::optional<Made> before;
  if (making_.valid()) before = making_.get();
  if (before) {
    for (const EncodedChunk& chunk : before->chunks) fresh_[chunk.ref.name] = chunk.ref;
  }
  Group next = std::exchange(gathered_, {});
  if (!next.plaintexts.empty()) {
    const auto launch = next.bytes < kAsideBytes ? std::launch::deferred : kAside;
    making_ = std::async(launch, [this, group = std::move(next)]() mutable {
      return make(std::move(group));
    });
  }
  return before ? finish(*std::move(before), reading) : Status{};
}

/// On any thread. What it reads of the capture nobody changes meanwhile.
FileCapture::Made FileCapture::make(Group group) {
  const std::vector<BlobView> all(group.plaintexts.begin(), group.plaintexts.end());
  Made out;
  out.names = chunk_names(keys_, all);
  std::vector<BlobView> plaintexts;
  std::vector<Digest> names;
  std::vector<std::size_t> encoded;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Digest& name = out.names[i];
    const bool is_known = fresh_.contains(name) || known_.chunk_named(name) != nullptr ||
                          std::find(names.begin(), names.end(), name) != names.end();
    if (is_known) continue;
    plaintexts.push_back(all[i]);
    names.push_back(name);
    encoded.push_back(i);
  }
  out.chunks = encoder_.encode_each(plaintexts, names);
  for (const std::size_t i : encoded) group.plaintexts[i] = Blob();
  out.group = std::move(group);
  return out;
}

Status FileCapture::finish(Made made, Reading& reading) {
  for (const EncodedChunk& chunk : made.chunks) RN_CHECK(put(chunk));
  for (std::size_t i = 0; i < made.names.size(); ++i) {
    const Digest& name = made.names[i];
    ChunkRef& ref = reading.chunks[made.group.at[i]];
    if (const auto fresh = fresh_.find(name); fresh != fresh_.end()) {
      ref = fresh->second;
      continue;
    }
    const Blob& plaintext = made.group.plaintexts[i];
    const auto* same = keep_known(known_.chunk_named(name), plaintext.size());
    if (same == nullptr) {
      // An earlier generation had it, but the store has lost it.
      if (making_.valid()) making_.wait();
      const EncodedChunk chunk = encoder_.encode(plaintext, name);
      fresh_[name] = chunk.ref;
      ref = chunk.ref;
      RN_CHECK(put(chunk));
      continue;
    }
    ref = *same;
  }
  return {};
}

Status FileCapture::put(const EncodedChunk& chunk) {
  RN_CHECK(session_.put_hashed(chunk.ref.cipher, chunk.stored));
  totals_.new_bytes += chunk.stored.size();
  ++totals_.new_chunks;
  return {};
}

Result<FileCapture::Reading> FileCapture::read_chunks(
    File& file, const std::string& path, std::uint64_t size
) {
  Reading reading;
  Checksum checksum;
  gathered_ = {};
  if (making_.valid()) (void)making_.get();  // of a reading that was given up
  RN_CHECK(for_each_chunk(
      file,
      size,
      cut_mode_for(path, size),
      [&](std::uint64_t, BlobView bytes) -> Status {
        checksum.update(bytes);
        const Checksum128 own = checksum_of(bytes);
        RN_TRY(const ChunkRef chunk, take_chunk(bytes, own, reading.chunks.size()));
        reading.chunks.push_back(chunk);
        reading.checksums.insert(reading.checksums.end(), own.begin(), own.end());
        totals_.read_bytes += bytes.size();
        const bool is_full = gathered_.plaintexts.size() >= crypto::sha256_lanes() ||
                             gathered_.bytes >= kGroupBytesMax;
        return is_full ? turn(reading) : Status{};
      }
  ));
  RN_CHECK(turn(reading));
  RN_CHECK(turn(reading));
  reading.whole = checksum.finish();
  return reading;
}

Result<bool> FileCapture::reads_the_same(File& file, std::uint64_t size, const Reading& first) {
  Checksum checksum;
  for (std::uint64_t offset = 0; offset < size;) {
    if (should_stop_ && should_stop_())
      return fail(ErrorCode::kTimeout, "the snapshot was told to stop");
    RN_TRY(const Blob bytes, file.read(offset, std::min(kReadBytes, size - offset)));
    if (bytes.empty()) return false;
    checksum.update(bytes);
    offset += bytes.size();
  }
  return checksum.finish() == first.whole;
}

Result<FileCapture::Captured> FileCapture::capture(File& file, const std::string& path, Care care) {
  RN_TRY(const FileStat before, file.stat());
  RN_TRY(Reading reading, read_chunks(file, path, before.size));
  if (care != Care::kImmutable) {
    RN_TRY(const bool is_same, reads_the_same(file, before.size, reading));
    if (!is_same) return fail(ErrorCode::kUnavailable, "it changed while it was read");
  }
  RN_TRY(const FileStat after, file.stat());
  const bool held_still = after.size == before.size && after.mtime_ns == before.mtime_ns;
  const bool only_grew = care == Care::kGrowing && after.size >= before.size;
  if (!held_still && !only_grew)
    return fail(ErrorCode::kUnavailable, "it did not hold still while it was read");
  return Captured{before, std::move(reading.chunks), std::move(reading.checksums)};
}

Result<bool> FileCapture::has_content(
    Folder& folder, const std::string& path, const Digest& sha256
) {
  RN_TRY(const auto file, folder.open(path));
  RN_TRY(const FileStat before, file->stat());
  crypto::Sha256 hash;
  for (std::uint64_t offset = 0; offset < before.size;) {
    RN_TRY(const Blob bytes, file->read(offset, std::min(kReadBytes, before.size - offset)));
    if (bytes.empty()) return false;
    hash.update(bytes);
    offset += bytes.size();
  }
  RN_TRY(const FileStat after, file->stat());
  return hash.finish() == sha256 && after == before;
}

}  // namespace rn::checkpoint
