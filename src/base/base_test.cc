// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/error_words.h"
#include "base/fs.h"
#include "base/ids.h"
#include "base/rng.h"

namespace rn {
namespace {

TEST(Error, context_goes_in_front_and_the_hint_stays) {
  const Error error{ErrorCode::kCorrupt, "chunk 3 is missing", "run verify"};

  EXPECT_EQ(
      error.with("restoring j-1").describe(),
      "corrupt: restoring j-1: chunk 3 is missing (run verify)"
  );
  EXPECT_EQ(error.hinting("something else").hint, "run verify");
}

TEST(Error, try_passes_the_first_error_up) {
  const auto inner = []() -> Result<int> { return fail(ErrorCode::kTimeout, "late"); };
  const auto outer = [&]() -> Result<int> {
    RN_TRY(const int value, inner());
    return value + 1;
  };

  ASSERT_FALSE(outer());
  EXPECT_EQ(outer().error().code, ErrorCode::kTimeout);
}

TEST(Error, every_code_comes_back_from_its_word_and_unknown_words_are_none) {
  for (const ErrorCode code : kErrorCodes) EXPECT_EQ(error_code_of(to_string(code)), code);
  EXPECT_EQ(error_code_of("kGone"), std::nullopt);
  EXPECT_EQ(error_code_of(""), std::nullopt);
}

TEST(Epoch, orders_by_generation_first) {
  EXPECT_LT((LeaseEpoch{1, 9}), (LeaseEpoch{2, 1}));
  EXPECT_EQ(parse_epoch("3.7"), (LeaseEpoch{3, 7}));
  EXPECT_TRUE(parse_epoch("3.").is_none());
  EXPECT_TRUE(parse_epoch("3.7x").is_none());
}

TEST(Bytes, base64_and_hex_read_back_what_they_wrote) {
  for (std::size_t length = 0; length < 40; ++length) {
    SeededRng rng(length);
    Blob bytes(length);
    rng.fill(bytes);

    EXPECT_EQ(from_base64(to_base64(bytes)).value(), bytes);
    EXPECT_EQ(from_hex(to_hex(bytes)).value(), bytes);
  }
  EXPECT_EQ(to_base64(as_bytes("Man")), "TWFu");
  EXPECT_EQ(to_base64(as_bytes("Ma")), "TWE=");
  EXPECT_FALSE(from_base64("TW=u"));
  EXPECT_FALSE(from_hex("0g"));
}

TEST(Rng, same_seed_gives_the_same_sequence) {
  SeededRng a(7);
  SeededRng b(7);
  SeededRng c(8);

  const auto first = a.next();
  EXPECT_EQ(first, b.next());
  EXPECT_NE(first, c.next());
  for (int i = 0; i < 1000; ++i) EXPECT_LT(a.below(10), 10U);
}

TEST(Crypto, sha256_matches_the_published_vector) {
  EXPECT_EQ(
      to_hex(crypto::sha256(as_bytes("abc"))),
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
  );
}

TEST(Crypto, hmac_matches_rfc_4231_case_2) {
  EXPECT_EQ(
      to_hex(crypto::hmac_sha256(as_bytes("Jefe"), as_bytes("what do ya want for nothing?"))),
      "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
  );
}

TEST(Crypto, every_changed_byte_of_a_sealed_message_is_noticed) {
  SeededRng rng(1);
  const auto key = crypto::random_key(rng);
  const Blob sealed = crypto::seal(key, as_bytes("secret"), as_bytes("context"), rng);

  EXPECT_EQ(as_text(crypto::unseal(key, sealed, as_bytes("context")).value()), "secret");
  EXPECT_FALSE(crypto::unseal(key, sealed, as_bytes("other")));
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    Blob changed = sealed;
    changed[i] ^= 1;
    EXPECT_FALSE(crypto::unseal(key, changed, as_bytes("context"))) << i;
  }
}

TEST(Crypto, a_signature_holds_for_its_message_and_key_only) {
  SeededRng rng(2);
  const auto key = crypto::make_signing_key(rng);
  const auto other = crypto::make_signing_key(rng);
  const auto signature = crypto::sign(key, as_bytes("m"));

  EXPECT_TRUE(crypto::verify(key.public_key, as_bytes("m"), signature));
  EXPECT_FALSE(crypto::verify(key.public_key, as_bytes("n"), signature));
  EXPECT_FALSE(crypto::verify(other.public_key, as_bytes("m"), signature));
}

TEST(Crypto, signatures_of_many_keys_in_turn_hold) {
  SeededRng rng(4);
  std::vector<crypto::SigningKey> keys;
  for (int i = 0; i < 300; ++i) keys.push_back(crypto::make_signing_key(rng));
  const auto first = crypto::sign(keys[0], as_bytes("m"));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto signature = crypto::sign(keys[i], as_bytes("m"));
    EXPECT_TRUE(crypto::verify(keys[i].public_key, as_bytes("m"), signature)) << i;
    EXPECT_FALSE(crypto::verify(keys[299 - i].public_key, as_bytes("m"), signature)) << i;
  }

  EXPECT_EQ(crypto::sign(keys[0], as_bytes("m")), first);
}

TEST(Crypto, only_the_recipient_opens_a_sealed_box) {
  SeededRng rng(3);
  const auto recipient = crypto::make_box_key(rng);
  const auto other = crypto::make_box_key(rng);
  const Blob sealed = crypto::seal_for(recipient.public_key, as_bytes("job key"), {}, rng);

  EXPECT_EQ(as_text(crypto::open_sealed(recipient, sealed, {}).value()), "job key");
  EXPECT_FALSE(crypto::open_sealed(other, sealed, {}));
}

TEST(Path, escapes_are_not_safe) {
  EXPECT_TRUE(is_safe_relative_path("a/b.pt"));
  EXPECT_FALSE(is_safe_relative_path("/a"));
  EXPECT_FALSE(is_safe_relative_path("a/../b"));
  EXPECT_FALSE(is_safe_relative_path("a//b"));
  EXPECT_FALSE(is_safe_relative_path(""));
  EXPECT_FALSE(is_safe_relative_path("a/"));
}

}  // namespace
}  // namespace rn
