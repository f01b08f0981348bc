// SPDX-License-Identifier: Apache-2.0
#include "agent/image_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/hands.h"
#include "base/crypto.h"
#include "base/fs_crash.h"
#include "base/rng.h"

namespace rn::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string image(char digit) {
  return "sha256:" + std::string(64, digit);
}

Digest piece(std::string_view text) {
  return crypto::sha256(as_bytes(text));
}

class ImagePiecesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(fs_.make_folder("/images", 0755));
    ASSERT_TRUE(fs_.sync_folder("/"));
    ASSERT_TRUE(pieces_.remember(image('a'), {piece("one"), piece("two"), piece("one")}));
    ASSERT_TRUE(pieces_.remember(image('b'), {piece("three")}));
  }

  ManualClock clock_;
  CrashFs fs_{clock_, 1};
  ImagePieces pieces_{fs_, "/images"};
};

TEST_F(ImagePiecesTest, a_ticket_for_one_image_opens_its_pieces_and_no_others) {
  const auto opens = opens_pieces_of_its_image(pieces_);

  EXPECT_TRUE(opens(image('a'), piece("one")));
  EXPECT_TRUE(opens(image('a'), piece("two")));
  EXPECT_FALSE(opens(image('a'), piece("three")));
  EXPECT_TRUE(opens(image('b'), piece("three")));
  EXPECT_FALSE(opens(image('b'), piece("one")));
}

TEST_F(ImagePiecesTest, what_is_no_image_of_this_node_opens_nothing) {
  fs_.overwrite("/secret.pieces", Blob(32, 1));
  fs_.overwrite("/images/" + std::string(64, 'c') + ".pieces", as_bytes("cut off"));
  const auto opens = opens_pieces_of_its_image(pieces_);

  for (const std::string& name :
       {std::string(), image('d'), image('c'), std::string("sha256:../secret"), std::string("a")})
    EXPECT_FALSE(opens(name, piece("one"))) << name;
  EXPECT_EQ(pieces_.of(image('c')).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(pieces_.of("sha256:../secret").error().code, ErrorCode::kInvalid);
  EXPECT_THAT(*pieces_.of(image('d')), IsEmpty());
}

TEST(HandsImagePieces, peers_may_ask_for_the_pieces_of_an_image_once_its_archive_is_here) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  SeededRng rng(1);
  const CurrentIdentity identity((Identity()));
  checkpoint::StoreOptions options;
  options.root = "/store";
  options.reserve_free_bytes = 0;
  const auto store = *checkpoint::ChunkStore::open(fs, clock, options);
  GuestBook guests(fs, "/guests");
  Hands hands(HandsDeps{fs, clock, rng, identity, *store, *store, guests, "/images"});
  const ImagePieces pieces(fs, "/images");
  const Blob bytes(1000, 7);
  const Digest blob = crypto::sha256(bytes);
  {
    checkpoint::ChunkStore::Session session(*store);
    ASSERT_TRUE(session.put(blob, bytes));
    ASSERT_TRUE(session.flush());
  }
  const FetchImage image{"sha256:" + to_hex(blob), bytes.size(), {blob}, {}};
  const auto fetch = [&] {
    const std::atomic<bool> is_cancelled = false;
    const Work work{1, {JobId("j-0123456789abcdef"), {1, 1}}, image};
    return std::holds_alternative<ImageFetched>(hands.run(work, is_cancelled));
  };
  EXPECT_THAT(*pieces.of(image.digest), IsEmpty());

  ASSERT_TRUE(fetch());
  EXPECT_THAT(*pieces.of(image.digest), ElementsAre(blob));

  ASSERT_TRUE(fs.remove("/images/" + to_hex(blob) + ".pieces"));
  ASSERT_TRUE(fetch());
  EXPECT_THAT(*pieces.of(image.digest), ElementsAre(blob)) << "an archive of before such lists";
}

TEST_F(
    ImagePiecesTest, the_list_outlives_a_power_loss_and_an_image_that_is_cut_otherwise_replaces_it
) {
  fs_.restart();
  EXPECT_THAT(*pieces_.of(image('b')), ElementsAre(piece("three")));

  ASSERT_TRUE(pieces_.remember(image('b'), {piece("four")}));

  EXPECT_THAT(*pieces_.of(image('b')), ElementsAre(piece("four")));
}

}  // namespace
}  // namespace rn::agent
