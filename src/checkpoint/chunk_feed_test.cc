// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/chunk_feed.h"

#include <gtest/gtest.h>

namespace rn::checkpoint {
namespace {

constexpr milliseconds kNone{0};

FreshChunk a_chunk(std::uint8_t number, std::size_t bytes = 10) {
  FreshChunk chunk;
  chunk.cipher[0] = number;
  chunk.stored = std::make_shared<const Blob>(bytes, number);
  return chunk;
}

TEST(ChunkFeed, every_tap_gets_what_is_offered_after_it_was_connected) {
  ChunkFeed feed;
  const auto first = std::make_shared<ChunkTap>();
  const auto second = std::make_shared<ChunkTap>();
  feed.connect(first);
  feed.offer(a_chunk(1));
  feed.connect(second);
  feed.offer(a_chunk(2));

  EXPECT_EQ(first->take(kNone)->cipher, a_chunk(1).cipher);
  EXPECT_EQ(first->take(kNone)->cipher, a_chunk(2).cipher);
  EXPECT_FALSE(first->take(kNone));
  EXPECT_EQ(second->take(kNone)->cipher, a_chunk(2).cipher);
}

TEST(ChunkFeed, a_sender_that_is_slow_misses_chunks_and_bounds_the_memory) {
  ChunkFeed feed;
  const auto tap = std::make_shared<ChunkTap>();
  feed.connect(tap);
  for (std::uint8_t i = 0; i < 5; ++i) feed.offer(a_chunk(i, ChunkTap::kWaitingBytesMax / 4));

  for (std::uint8_t i = 0; i < 4; ++i) EXPECT_EQ(tap->take(kNone)->cipher, a_chunk(i).cipher);
  EXPECT_FALSE(tap->take(kNone));
  feed.offer(a_chunk(9, ChunkTap::kWaitingBytesMax));
  EXPECT_EQ(tap->take(kNone)->cipher, a_chunk(9).cipher);
}

TEST(ChunkFeed, what_waits_is_taken_before_the_release_is_looked_at_and_nothing_comes_after_it) {
  ChunkTap tap;
  EXPECT_FALSE(tap.wait(kNone));
  EXPECT_TRUE(tap.offer(a_chunk(1)));
  GenerationRef whole;
  whole.generation = 7;
  tap.release(whole);

  EXPECT_FALSE(tap.offer(a_chunk(2)));
  EXPECT_TRUE(tap.wait(kNone));
  EXPECT_TRUE(tap.take(kNone));
  EXPECT_FALSE(tap.take(kNone));
  EXPECT_EQ(tap.released()->generation, 7U);
}

TEST(ChunkFeed, a_closed_tap_keeps_nothing_but_still_learns_of_the_release) {
  ChunkTap tap;
  EXPECT_TRUE(tap.offer(a_chunk(1)));
  tap.close();
  EXPECT_FALSE(tap.offer(a_chunk(2)));
  EXPECT_FALSE(tap.take(kNone));
  tap.release({});
  EXPECT_TRUE(tap.released());
}

}  // namespace
}  // namespace rn::checkpoint
