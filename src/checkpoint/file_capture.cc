// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file_capture.h"

#include <algorithm>
#include <memory>
#include <thread>

#include <xxhash.h>

#include "base/crypto.h"
#include "checkpoint/chunker.h"
#include "io/real_clock.h"

namespace rn::checkpoint {

namespace {

constexpr std::uint64_t kReadBytes = 4ULL << 20;
/// A chunk from this size on is worth a thread: hashing it takes a millisecond and more.
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
    std::uint32_t lanes,
    std::function<bool()> should_stop
)
    : session_(session),
      known_(known),
      keys_(keys),
      encoder_(keys, rng),
      should_stop_(std::move(should_stop)) {
  const std::uint32_t count = std::clamp(lanes, 1U, kLanesMax);
  lanes_.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) lanes_.push_back({ChunkEncoder(keys, rng), {}, {}});
}

const ChunkRef* FileCapture::keep_known(const ChunkRef* known, std::size_t plain_bytes) {
  if (known == nullptr || known->plain_bytes != plain_bytes) return nullptr;
  return session_.keep(known->cipher) ? known : nullptr;
}

/// Cheapest question first: the checksum alone finds what did not change.
Result<ChunkRef> FileCapture::take_chunk(BlobView plaintext, const Checksum128& checksum) {
  if (should_stop_ && should_stop_())
    return fail(ErrorCode::kTimeout, "the snapshot was told to stop");
  const auto* same = keep_known(known_.chunk_with(checksum), plaintext.size());
  if (same != nullptr) return *same;
  const Digest name = chunk_name(keys_, plaintext);
  if (const auto fresh = fresh_.find(name); fresh != fresh_.end()) return fresh->second;
  same = keep_known(known_.chunk_named(name), plaintext.size());
  if (same != nullptr) return *same;
  if (!is_being_encoded(name)) RN_CHECK(encode(plaintext, name));
  ChunkRef named;
  named.name = name;
  return named;
}

bool FileCapture::is_being_encoded(const Digest& name) const {
  for (std::size_t i = finished_; i < begun_; ++i)
    if (lanes_[i % lanes_.size()].name == name) return true;
  return false;
}

Status FileCapture::encode(BlobView plaintext, const Digest& name) {
  if (plaintext.size() < kAsideBytes) {
    RN_CHECK(finish_encoding());
    return put(encoder_.encode(plaintext, name));
  }
  if (begun_ - finished_ == lanes_.size()) RN_CHECK(finish_first());
  Lane& lane = lanes_[begun_++ % lanes_.size()];
  lane.name = name;
  const auto asking = std::this_thread::get_id();
  auto work = [&lane, asking, own = Blob(plaintext.begin(), plaintext.end())] {
    const nanoseconds before = io::thread_cpu_time();
    Encoded out{lane.encoder.encode(own, lane.name)};
    if (std::this_thread::get_id() != asking) out.cpu = io::thread_cpu_time() - before;
    return out;
  };
  lane.encoded = std::async(kAside, std::move(work));
  return {};
}

Status FileCapture::finish_first() {
  Encoded first = lanes_[finished_++ % lanes_.size()].encoded.get();
  totals_.aside_cpu += first.cpu;
  return put(std::move(first.chunk));
}

Status FileCapture::finish_encoding() {
  while (finished_ < begun_) RN_CHECK(finish_first());
  return {};
}

Status FileCapture::put(EncodedChunk chunk) {
  RN_CHECK(session_.put_hashed(chunk.ref.cipher, chunk.stored));
  totals_.new_bytes += chunk.stored.size();
  ++totals_.new_chunks;
  fresh_[chunk.ref.name] = chunk.ref;
  if (offer_) offer_({chunk.ref.cipher, std::make_shared<const Blob>(std::move(chunk.stored))});
  return {};
}

Result<FileCapture::Reading> FileCapture::read_chunks(
    File& file, const std::string& path, std::uint64_t size
) {
  Reading reading;
  Checksum checksum;
  RN_CHECK(for_each_chunk(
      file,
      size,
      cut_mode_for(path, size),
      [&](std::uint64_t, BlobView bytes) -> Status {
        checksum.update(bytes);
        const Checksum128 own = checksum_of(bytes);
        RN_TRY(const ChunkRef chunk, take_chunk(bytes, own));
        reading.chunks.push_back(chunk);
        reading.checksums.insert(reading.checksums.end(), own.begin(), own.end());
        totals_.read_bytes += bytes.size();
        return {};
      }
  ));
  RN_CHECK(finish_encoding());
  for (ChunkRef& chunk : reading.chunks) {
    if (chunk.cipher == Digest{}) chunk = fresh_.at(chunk.name);
  }
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
