// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/chunker.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "base/crypto.h"
#include "base/fs_crash.h"
#include "base/rng.h"

namespace rn::checkpoint {
namespace {

Blob noise(std::size_t length, std::uint64_t seed) {
  Blob bytes(length);
  SeededRng rng(seed);
  rng.fill(bytes);
  return bytes;
}

class ChunkerTest : public ::testing::Test {
 protected:
  ChunkerTest() : fs_(clock_, 1) {}

  std::vector<Blob> cut(const Blob& bytes, CutMode mode) {
    fs_.overwrite("/f", bytes);
    const auto file = fs_.open("/f").value();
    std::vector<Blob> chunks;
    std::uint64_t expected = 0;
    EXPECT_TRUE(for_each_chunk(
        *file,
        bytes.size(),
        mode,
        [&](std::uint64_t offset, BlobView chunk) -> Status {
          EXPECT_EQ(offset, expected);
          expected += chunk.size();
          chunks.emplace_back(chunk.begin(), chunk.end());
          return {};
        }
    ));
    EXPECT_EQ(expected, bytes.size());
    return chunks;
  }

  ManualClock clock_;
  CrashFs fs_;
};

TEST_F(ChunkerTest, fixed_cuts_fall_on_multiples_of_one_length) {
  const auto chunks = cut(noise((9 << 20) + 5, 1), CutMode::kFixed);

  ASSERT_EQ(chunks.size(), 37U);
  for (std::size_t i = 0; i < 36; ++i) EXPECT_EQ(chunks[i].size(), 256U << 10);
  EXPECT_EQ(chunks[36].size(), 5U);
}

TEST_F(ChunkerTest, a_change_in_one_piece_of_a_small_state_is_sent_nearly_as_it_is) {
  const Blob before = noise(16 << 20, 7);
  Blob after = before;
  constexpr std::size_t kChanged = 7'750'000;
  const Blob changed = noise(kChanged, 8);
  std::copy(changed.begin(), changed.end(), after.begin() + 3'333'333);
  std::set<Digest> known;
  for (const Blob& chunk : cut(before, CutMode::kFixed)) known.insert(crypto::sha256(chunk));

  std::size_t sent = 0;
  for (const Blob& chunk : cut(after, CutMode::kFixed))
    sent += known.contains(crypto::sha256(chunk)) ? 0 : chunk.size();

  EXPECT_LE(static_cast<double>(sent), 1.05 * kChanged);
}

TEST_F(ChunkerTest, a_larger_file_has_longer_fixed_chunks) {
  EXPECT_EQ(fixed_chunk_bytes(1), 256U << 10);
  EXPECT_EQ(fixed_chunk_bytes((64 << 20) - 1), 256U << 10);
  EXPECT_EQ(fixed_chunk_bytes(64 << 20), 1U << 20);
  EXPECT_EQ(fixed_chunk_bytes((1 << 30) - 1), 1U << 20);
  EXPECT_EQ(fixed_chunk_bytes(1 << 30), kChunkBytesMax);
  EXPECT_EQ(fixed_chunk_bytes(1ULL << 45), kChunkBytesMax);
}

TEST_F(ChunkerTest, content_cuts_stay_in_bounds_and_near_the_average) {
  const auto chunks = cut(noise(32 << 20, 2), CutMode::kContent);

  for (std::size_t i = 0; i + 1 < chunks.size(); ++i) {
    EXPECT_GE(chunks[i].size(), kContentMinBytes);
    EXPECT_LE(chunks[i].size(), kContentMaxBytes);
  }
  const double average = static_cast<double>(32 << 20) / static_cast<double>(chunks.size());
  EXPECT_GT(average, 150'000);
  EXPECT_LT(average, 450'000);
}

TEST_F(ChunkerTest, an_inserted_byte_changes_few_content_chunks) {
  const Blob before = noise(16 << 20, 3);
  Blob after = before;
  after.insert(after.begin() + (5 << 20), 0x55);
  std::set<Digest> known;
  for (const Blob& chunk : cut(before, CutMode::kContent)) known.insert(crypto::sha256(chunk));

  std::size_t fresh = 0;
  for (const Blob& chunk : cut(after, CutMode::kContent))
    fresh += known.contains(crypto::sha256(chunk)) ? 0 : 1;

  EXPECT_LE(fresh, 3U);
}

TEST_F(ChunkerTest, the_gear_table_and_masks_have_not_moved) {
  // A change here costs every running job its deduplication: make it on purpose.
  // The expected cut was computed by an independent program from the contract in chunker.h.
  Blob bytes(1 << 20);
  std::uint32_t x = 1;
  for (auto& byte : bytes) {
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    byte = static_cast<std::uint8_t>(x);
  }
  EXPECT_EQ(content_cut(bytes), 318311U);
  EXPECT_EQ(content_cut(Blob(1 << 20, 0)), kContentMaxBytes);
  EXPECT_EQ(content_cut(Blob(100, 0)), 100U);
  EXPECT_EQ(content_cut(Blob{}), 0U);
}

TEST_F(ChunkerTest, tensors_and_large_files_are_cut_by_position) {
  EXPECT_EQ(cut_mode_for("a/Model.PT", 10), CutMode::kFixed);
  EXPECT_EQ(cut_mode_for("a.pt/log.txt", 10), CutMode::kContent);
  EXPECT_EQ(cut_mode_for("log.txt", kLargeFileBytes), CutMode::kFixed);
}

TEST_F(ChunkerTest, a_file_that_became_shorter_is_an_error_and_an_empty_one_has_no_chunks) {
  fs_.overwrite("/f", Blob(100, 1));
  const auto file = fs_.open("/f").value();
  const auto ignore = [](std::uint64_t, BlobView) -> Status { return {}; };

  EXPECT_EQ(
      for_each_chunk(*file, 101, CutMode::kFixed, ignore).error().code, ErrorCode::kUnavailable
  );
  EXPECT_TRUE(cut(Blob{}, CutMode::kContent).empty());
}

}  // namespace
}  // namespace rn::checkpoint
