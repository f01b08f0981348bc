// SPDX-License-Identifier: Apache-2.0
#include "base/sha256_lanes.h"

#include <gtest/gtest.h>

#include "base/crypto.h"
#include "base/rng.h"

namespace rn::crypto {
namespace {

class Sha256Lanes : public ::testing::TestWithParam<LaneWay> {
 protected:
  void SetUp() override {
    if (!has_way(GetParam())) GTEST_SKIP() << "this processor has no such instructions";
  }

  Blob random(std::size_t bytes) {
    Blob out(bytes);
    rng_.fill(out);
    return out;
  }

  SeededRng rng_{1};
};

INSTANTIATE_TEST_SUITE_P(
    Ways, Sha256Lanes, ::testing::Values(LaneWay::kOneByOne, LaneWay::kAvx2, LaneWay::kAvx512)
);

TEST_P(Sha256Lanes, the_standards_example_comes_out) {
  const Blob abc = {'a', 'b', 'c'};
  const std::vector<BlobView> messages(3, abc);

  for (const Digest& digest : sha256_each(messages, GetParam()))
    EXPECT_EQ(to_hex(digest), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_P(Sha256Lanes, every_length_around_the_padding_is_hashed_as_one_message_is) {
  std::vector<Blob> owned;
  for (std::size_t bytes = 0; bytes < 200; ++bytes) owned.push_back(random(bytes));
  const std::vector<BlobView> messages(owned.begin(), owned.end());

  const auto digests = sha256_each(messages, GetParam());

  ASSERT_EQ(digests.size(), messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) EXPECT_EQ(digests[i], sha256(messages[i])) << i;
}

TEST_P(Sha256Lanes, lanes_of_very_different_lengths_do_not_disturb_each_other) {
  std::vector<Blob> owned;
  for (const std::size_t bytes : {0, 1'000'000, 64, 65'536, 3, 300'001, 55, 56, 4096, 17})
    owned.push_back(random(bytes));
  const std::vector<BlobView> messages(owned.begin(), owned.end());

  const auto digests = sha256_each(messages, GetParam());

  for (std::size_t i = 0; i < messages.size(); ++i) EXPECT_EQ(digests[i], sha256(messages[i])) << i;
}

TEST(Sha256LanesHmac, names_are_those_of_one_by_one) {
  SeededRng rng{2};
  const Key256 key = random_key(rng);
  std::vector<Blob> owned;
  for (const std::size_t bytes : {100'000, 100'000, 5, 0, 64, 12'345, 1, 2, 3}) {
    owned.emplace_back(bytes);
    rng.fill(owned.back());
  }
  const std::vector<BlobView> messages(owned.begin(), owned.end());

  const auto names = hmac_sha256_each(key, messages);

  ASSERT_EQ(names.size(), messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i)
    EXPECT_EQ(names[i], hmac_sha256(key, messages[i])) << i;
  EXPECT_EQ(hmac_sha256_each(key, std::span(messages).first(1)).front(), names.front());
}

}  // namespace
}  // namespace rn::crypto
