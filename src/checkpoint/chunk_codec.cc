// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/chunk_codec.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <zstd.h>

#include "base/assert.h"

namespace rn::checkpoint {

namespace {

constexpr std::array<std::uint8_t, 4> kMagic = {'R', 'N', 'C', 'H'};
constexpr std::uint8_t kVersion = 1;
constexpr int kLevel = 1;
/// Encodings are tried on so many bytes from the chunk's middle; one that saves less than a 32nd of
/// it is not worth it.
constexpr std::size_t kSampleBytes = 32U << 10;

std::uint32_t little32(BlobView bytes, std::size_t at) {
  return bytes[at] | std::uint32_t{bytes[at + 1]} << 8 | std::uint32_t{bytes[at + 2]} << 16 |
         std::uint32_t{bytes[at + 3]} << 24;
}

void put_little32(std::uint8_t* at, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) at[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

std::array<std::uint8_t, kChunkHeaderBytes> make_header(
    ChunkEncoding encoding, std::size_t plain_bytes
) {
  std::array<std::uint8_t, kChunkHeaderBytes> header{};
  std::copy(kMagic.begin(), kMagic.end(), header.begin());
  header[4] = kVersion;
  header[5] = static_cast<std::uint8_t>(encoding);
  put_little32(header.data() + 8, static_cast<std::uint32_t>(plain_bytes));
  return header;
}

std::size_t stride_of(ChunkEncoding encoding) {
  return encoding == ChunkEncoding::kPlane4 ? 4 : 2;
}

/// The last byte of every group of `stride` (little-endian: sign and exponent); bytes after the
/// last whole group stay out.
void gather_plane(BlobView bytes, std::size_t stride, Blob& plane) {
  plane.resize(bytes.size() / stride);
  for (std::size_t i = 0; i < plane.size(); ++i) plane[i] = bytes[i * stride + stride - 1];
}

/// Everything that gather_plane left, in order.
void gather_rest(BlobView bytes, std::size_t stride, std::uint8_t* out) {
  const std::size_t groups = bytes.size() / stride;
  std::size_t i = 0;
  // A group is copied whole, and the next one over its last byte.
  for (; stride == 4 && i + 1 < groups; ++i, out += 3) std::memcpy(out, bytes.data() + i * 4, 4);
  for (; i < groups; ++i) {
    for (std::size_t j = 0; j + 1 < stride; ++j) *out++ = bytes[i * stride + j];
  }
  std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(groups * stride), bytes.end(), out);
}

void scatter(BlobView plane, BlobView rest, std::size_t stride, Blob& bytes) {
  std::size_t from = 0;
  for (std::size_t i = 0; i < plane.size(); ++i) {
    for (std::size_t j = 0; j + 1 < stride; ++j) bytes[i * stride + j] = rest[from++];
    bytes[i * stride + stride - 1] = plane[i];
  }
  std::copy(
      rest.begin() + static_cast<std::ptrdiff_t>(from),
      rest.end(),
      bytes.begin() + static_cast<std::ptrdiff_t>(plane.size() * stride)
  );
}

Result<Blob> decompress_exactly(BlobView compressed, std::size_t plain_bytes) {
  Blob plain(plain_bytes);
  const std::size_t got =
      ZSTD_decompress(plain.data(), plain.size(), compressed.data(), compressed.size());
  if (ZSTD_isError(got) != 0 || got != plain_bytes)
    return fail(ErrorCode::kCorrupt, "a chunk does not decompress to its length");
  return plain;
}

Result<Blob> unpack(ChunkEncoding encoding, Blob body, std::size_t plain_bytes) {
  switch (encoding) {
    case ChunkEncoding::kRaw:
      if (body.size() != plain_bytes)
        return fail(ErrorCode::kCorrupt, "a raw chunk has another length than its header says");
      return body;
    case ChunkEncoding::kZstd:
      return decompress_exactly(body, plain_bytes);
    case ChunkEncoding::kPlane4:
    case ChunkEncoding::kPlane2:
      break;
  }
  const std::size_t stride = stride_of(encoding);
  const std::size_t plane_bytes = plain_bytes / stride;
  const std::size_t rest_bytes = plain_bytes - plane_bytes;
  if (body.size() < 4 + rest_bytes || little32(body, 0) != body.size() - 4 - rest_bytes) {
    return fail(ErrorCode::kCorrupt, "the planes of a chunk do not fit its length");
  }
  const BlobView compressed = BlobView(body).subspan(4, little32(body, 0));
  RN_TRY(const Blob plane, decompress_exactly(compressed, plane_bytes));
  Blob plain(plain_bytes);
  scatter(plane, BlobView(body).last(rest_bytes), stride, plain);
  return plain;
}

}  // namespace

JobKeys derive_job_keys(const crypto::Key256& job_key) {
  return {
      crypto::derive_key(job_key, "reclaimnet chunk name v1"),
      crypto::derive_key(job_key, "reclaimnet chunk data v1")};
}

Digest chunk_name(const JobKeys& keys, BlobView plaintext) {
  return crypto::hmac_sha256(keys.name, plaintext);
}

Result<ChunkHeader> read_chunk_header(BlobView stored) {
  if (stored.size() < kChunkHeaderBytes + crypto::kNonceBytes + crypto::kTagBytes) {
    return fail(ErrorCode::kCorrupt, "a chunk is too short");
  }
  if (stored.size() > kStoredChunkMax) return fail(ErrorCode::kCorrupt, "a chunk is too long");
  if (!std::equal(kMagic.begin(), kMagic.end(), stored.begin()))
    return fail(ErrorCode::kCorrupt, "not a chunk");
  if (stored[4] != kVersion)
    return fail(ErrorCode::kUnsupported, "a chunk of version " + std::to_string(stored[4]));
  if (stored[5] > static_cast<std::uint8_t>(ChunkEncoding::kPlane2) || stored[6] != 0 ||
      stored[7] != 0) {
    return fail(ErrorCode::kCorrupt, "a chunk has an unknown encoding");
  }
  const ChunkHeader header{static_cast<ChunkEncoding>(stored[5]), little32(stored, 8)};
  if (header.plain_bytes == 0 || header.plain_bytes > kChunkBytesMax) {
    return fail(ErrorCode::kCorrupt, "a chunk's length is out of bounds");
  }
  return header;
}

namespace {

/// Bytes of whoever asked last; unlike a vector's, what it grows by is not zeroed.
class Scratch {
 public:
  /// Keeps what is below `keep`, at most the size of before.
  std::uint8_t* of(std::size_t bytes, std::size_t keep = 0) {
    if (bytes > capacity_) {
      auto more = std::make_unique_for_overwrite<std::uint8_t[]>(bytes);
      std::copy_n(bytes_.get(), keep, more.get());
      bytes_ = std::move(more);
      capacity_ = bytes;
    }
    return bytes_.get();
  }

 private:
  std::unique_ptr<std::uint8_t[]> bytes_;
  std::size_t capacity_ = 0;
};

}  // namespace

struct ChunkEncoder::State {
  JobKeys keys;
  Rng& rng;
  ZSTD_CCtx* zstd = ZSTD_createCCtx();
  Scratch packed;
  Blob plane;

  State(const JobKeys& k, Rng& r) : keys(k), rng(r) {
    RN_ASSERT(zstd != nullptr, "a compression context is a small allocation");
  }

  ~State() { ZSTD_freeCCtx(zstd); }

  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Compressed size of `in`, appended to `packed` from `at`; 0 if it does not get shorter than
  /// `max`.
  std::size_t compress(BlobView in, std::size_t at, std::size_t max) {
    const std::size_t got =
        ZSTD_compressCCtx(zstd, packed.of(at + max) + at, max, in.data(), in.size(), kLevel);
    return ZSTD_isError(got) != 0 ? 0 : got;
  }

  /// Estimated bytes after encoding `sample`.
  std::size_t try_encoding(ChunkEncoding encoding, BlobView sample) {
    if (encoding == ChunkEncoding::kZstd) {
      const std::size_t got = compress(sample, 0, sample.size());
      return got == 0 ? sample.size() : got;
    }
    gather_plane(sample, stride_of(encoding), plane);
    const std::size_t got = compress(plane, 0, plane.size());
    return sample.size() - plane.size() + (got == 0 ? plane.size() : got);
  }

  ChunkEncoding choose(BlobView plaintext) {
    if (plaintext.size() < 64) return ChunkEncoding::kRaw;
    const std::size_t length = std::min(plaintext.size(), kSampleBytes);
    // Groups of a plane must begin where they begin in the chunk.
    const std::size_t start = (plaintext.size() - length) / 2 / 4 * 4;
    const BlobView sample = plaintext.subspan(start, length);
    ChunkEncoding best = ChunkEncoding::kRaw;
    std::size_t best_bytes = length - length / 32;
    for (const auto encoding :
         {ChunkEncoding::kZstd, ChunkEncoding::kPlane4, ChunkEncoding::kPlane2}) {
      const std::size_t bytes = try_encoding(encoding, sample);
      if (bytes >= best_bytes) continue;
      best = encoding;
      best_bytes = bytes;
    }
    return best;
  }

  /// The body to encrypt; falls back to raw where the whole chunk does not shrink as its sample
  /// did.
  BlobView pack(BlobView plaintext, ChunkEncoding& encoding) {
    if (encoding == ChunkEncoding::kZstd) {
      const std::size_t got = compress(plaintext, 0, plaintext.size() - 1);
      if (got != 0) return {packed.of(got), got};
    } else if (encoding != ChunkEncoding::kRaw) {
      const std::size_t stride = stride_of(encoding);
      gather_plane(plaintext, stride, plane);
      const std::size_t rest_bytes = plaintext.size() - plane.size();
      const std::size_t got = compress(plane, 4, plane.size() - 5);
      if (got != 0) {
        std::uint8_t* body = packed.of(4 + got + rest_bytes, 4 + got);
        put_little32(body, static_cast<std::uint32_t>(got));
        gather_rest(plaintext, stride, body + 4 + got);
        return {body, 4 + got + rest_bytes};
      }
    }
    encoding = ChunkEncoding::kRaw;
    return plaintext;
  }
};

ChunkEncoder::ChunkEncoder(const JobKeys& keys, Rng& rng)
    : state_(std::make_unique<State>(keys, rng)) {}

ChunkEncoder::~ChunkEncoder() = default;
ChunkEncoder::ChunkEncoder(ChunkEncoder&&) noexcept = default;
ChunkEncoder& ChunkEncoder::operator=(ChunkEncoder&&) noexcept = default;

EncodedChunk ChunkEncoder::encode(BlobView plaintext, const Digest& name) {
  RN_ASSERT(!plaintext.empty() && plaintext.size() <= kChunkBytesMax, "the chunker bounds chunks");
  ChunkEncoding encoding = state_->choose(plaintext);
  const BlobView body = state_->pack(plaintext, encoding);
  const auto header = make_header(encoding, plaintext.size());
  EncodedChunk out;
  out.stored.reserve(header.size() + body.size() + crypto::kNonceBytes + crypto::kTagBytes);
  out.stored.assign(header.begin(), header.end());
  crypto::seal_onto(out.stored, state_->keys.data, body, header, state_->rng);
  out.ref = {
      name,
      crypto::sha256(out.stored),
      static_cast<std::uint32_t>(plaintext.size()),
      static_cast<std::uint32_t>(out.stored.size())};
  return out;
}

Result<Blob> decode_chunk(const JobKeys& keys, const ChunkRef& ref, BlobView stored) {
  if (stored.size() != ref.cipher_bytes || crypto::sha256(stored) != ref.cipher) {
    return fail(
        ErrorCode::kCorrupt,
        "chunk " + to_hex(ref.cipher).substr(0, 16) + " does not have the bytes of its hash"
    );
  }
  RN_TRY(const ChunkHeader header, read_chunk_header(stored));
  if (header.plain_bytes != ref.plain_bytes)
    return fail(ErrorCode::kCorrupt, "a chunk has another length than its manifest says");
  RN_TRY(
      Blob body,
      crypto::unseal(keys.data, stored.subspan(kChunkHeaderBytes), stored.first(kChunkHeaderBytes))
  );
  RN_TRY(Blob plain, unpack(header.encoding, std::move(body), header.plain_bytes));
  if (chunk_name(keys, plain) != ref.name)
    return fail(ErrorCode::kCorrupt, "a chunk has another name than its manifest says");
  return plain;
}

}  // namespace rn::checkpoint
