// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/chunk_codec.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "checkpoint/golden_fake.h"

namespace rn::checkpoint {
namespace {

crypto::Key256 fixed_key(std::uint8_t byte) {
  crypto::Key256 key;
  key.fill(byte);
  return key;
}

Blob floats(std::size_t count, std::uint64_t seed) {
  SeededRng rng(seed);
  Blob bytes(count * 4);
  for (std::size_t i = 0; i < count; ++i) {
    const double normal =
        std::sqrt(-2 * std::log(rng.unit() + 1e-12)) * std::cos(6.2831853 * rng.unit());
    const float value = static_cast<float>(normal * 0.02);
    std::memcpy(bytes.data() + i * 4, &value, 4);
  }
  return bytes;
}

class ChunkCodecTest : public ::testing::Test {
 protected:
  EncodedChunk encode(BlobView plain) { return encoder_.encode(plain, chunk_name(keys_, plain)); }

  ChunkEncoding encoding_of(const EncodedChunk& chunk) {
    return read_chunk_header(chunk.stored).value().encoding;
  }

  SeededRng rng_{1};
  JobKeys keys_ = derive_job_keys(fixed_key(7));
  ChunkEncoder encoder_{keys_, rng_};
};

TEST_F(ChunkCodecTest, every_encoding_reads_back_what_was_written) {
  SeededRng noise(5);
  Blob random(100'003);
  noise.fill(random);
  const std::string zeros(200'001, '\0');
  Blob halves(100'001);
  noise.fill(halves);
  for (std::size_t i = 1; i < halves.size(); i += 2)
    halves[i] = static_cast<std::uint8_t>(0x3c + (i & 2));
  Blob weights = floats(60'000, 9);
  weights.push_back(1);

  EXPECT_EQ(encoding_of(encode(random)), ChunkEncoding::kRaw);
  EXPECT_EQ(encoding_of(encode(as_bytes(zeros))), ChunkEncoding::kZstd);
  EXPECT_EQ(encoding_of(encode(weights)), ChunkEncoding::kPlane4);
  EXPECT_EQ(encoding_of(encode(halves)), ChunkEncoding::kPlane2);
  for (const BlobView plain :
       {BlobView(random), as_bytes(zeros), BlobView(halves), BlobView(weights)}) {
    const EncodedChunk chunk = encode(plain);
    const auto back = decode_chunk(keys_, chunk.ref, chunk.stored);
    ASSERT_TRUE(back) << back.error().describe();
    EXPECT_TRUE(std::equal(back->begin(), back->end(), plain.begin(), plain.end()));
    EXPECT_LE(chunk.stored.size(), plain.size() + kChunkOverheadMax);
  }
}

TEST_F(ChunkCodecTest, every_small_length_reads_back) {
  SeededRng noise(6);
  for (std::size_t length = 1; length < 300; ++length) {
    Blob plain(length, static_cast<std::uint8_t>(length));
    if (length % 2 == 0) noise.fill(plain);
    const EncodedChunk chunk = encode(plain);
    ASSERT_EQ(decode_chunk(keys_, chunk.ref, chunk.stored).value(), plain) << length;
  }
}

TEST_F(ChunkCodecTest, float_weights_shrink_more_than_by_plain_compression) {
  const Blob weights = floats(1 << 20, 3);
  const EncodedChunk chunk = encode(weights);
  EXPECT_LT(static_cast<double>(chunk.stored.size()) / static_cast<double>(weights.size()), 0.90);
}

TEST_F(ChunkCodecTest, equal_plaintexts_have_equal_names_in_one_job_and_different_ones_in_another) {
  const Blob plain(1000, 3);
  const JobKeys other = derive_job_keys(fixed_key(8));

  const EncodedChunk first = encode(plain);
  const EncodedChunk second = encode(plain);

  EXPECT_EQ(first.ref.name, second.ref.name);
  EXPECT_NE(first.ref.cipher, second.ref.cipher);  // random nonce
  EXPECT_NE(first.ref.name, chunk_name(other, plain));
  EXPECT_EQ(decode_chunk(other, first.ref, first.stored).error().code, ErrorCode::kCorrupt);
}

TEST_F(ChunkCodecTest, any_flipped_bit_is_found_even_when_the_hash_was_forged_to_fit) {
  const EncodedChunk chunk = encode(floats(100, 1));
  for (std::size_t at = 0; at < chunk.stored.size(); ++at) {
    Blob stored = chunk.stored;
    stored[at] ^= 1;
    EXPECT_EQ(decode_chunk(keys_, chunk.ref, stored).error().code, ErrorCode::kCorrupt) << at;
    ChunkRef forged = chunk.ref;
    forged.cipher = crypto::sha256(stored);
    EXPECT_FALSE(decode_chunk(keys_, forged, stored)) << at;
  }
}

TEST_F(ChunkCodecTest, a_chunk_put_in_another_chunks_place_is_found) {
  const EncodedChunk one = encode(Blob(100, 1));
  const EncodedChunk two = encode(Blob(100, 2));
  ChunkRef mixed = two.ref;
  mixed.name = one.ref.name;

  EXPECT_EQ(decode_chunk(keys_, mixed, two.stored).error().code, ErrorCode::kCorrupt);
}

TEST_F(ChunkCodecTest, the_golden_file_of_version_1_reads_back) {
  const Blob plain = floats(64, 42);
  const Blob stored = golden("chunk_v1.bin", encode(plain).stored);
  ASSERT_FALSE(stored.empty()) << "tests/golden/chunk_v1.bin is missing";
  const ChunkRef ref{
      chunk_name(keys_, plain),
      crypto::sha256(stored),
      static_cast<std::uint32_t>(plain.size()),
      static_cast<std::uint32_t>(stored.size())};

  EXPECT_EQ(read_chunk_header(stored).value().encoding, ChunkEncoding::kPlane4);
  EXPECT_EQ(decode_chunk(keys_, ref, stored).value(), plain);
}

}  // namespace
}  // namespace rn::checkpoint
