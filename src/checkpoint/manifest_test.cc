// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include "checkpoint/generation_fake.h"
#include "checkpoint/golden_fake.h"
#include "model/codec.h"

namespace rn::checkpoint {
namespace {

Manifest small() {
  GenerationMaker maker;
  return maker.make(1, {{"a.pt", "alpha"}, {"dir/b.txt", "beta"}, {"empty", ""}}).manifest;
}

TEST(Manifest, signed_and_verified_it_is_the_same) {
  GenerationMaker maker;
  const auto made = maker.make(3, {{"a.pt", "alpha"}});

  EXPECT_EQ(verify_manifest(made.sealed, maker.signer.public_key).value(), made.manifest);
  SeededRng rng(9);
  const auto stranger = crypto::make_signing_key(rng);
  EXPECT_EQ(verify_manifest(made.sealed, stranger.public_key).error().code, ErrorCode::kDenied);
}

TEST(Manifest, a_flipped_bit_in_any_byte_is_found) {
  GenerationMaker maker;
  const auto made = maker.make(1, {{"a.pt", "alpha"}, {"dir/b.txt", "beta"}});
  const Blob whole = to_cbor(made.sealed);
  std::size_t undetected = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      Blob bytes = whole;
      bytes[at] ^= static_cast<std::uint8_t>(1 << bit);
      const auto read = from_cbor<SignedManifest>(bytes);
      if (!read) continue;
      if (!verify_manifest(*read, maker.signer.public_key)) continue;
      // What still verifies may differ only in the signer's name, which is a hint for finding the
      // key.
      EXPECT_EQ(read->body, made.sealed.body);
      EXPECT_EQ(read->signature, made.sealed.signature);
      ++undetected;
    }
  }
  EXPECT_LT(undetected, (made.sealed.signer.str().size() + std::string("signer").size() + 4) * 8);
}

TEST(Manifest, paths_that_escape_or_lie_below_a_file_are_refused) {
  for (const std::string path :
       {"/etc/passwd", "../x", "a/../../x", "a//b", "", "a/./b", "\xff\xfe"}) {
    Manifest m = small();
    m.files[0].path = path;
    EXPECT_EQ(validate_manifest(m).error().code, ErrorCode::kInvalid) << path;
    m = small();
    m.removed = {path};
    EXPECT_EQ(validate_manifest(m).error().code, ErrorCode::kInvalid) << path;
  }
  Manifest m = small();
  m.files[0].path = "dir";
  m.files[0].kind = FileKind::kSymlink;
  m.files[0].bytes = 0;
  m.files[0].chunks.clear();
  m.files[0].target = "/etc";
  m.chunks.erase(m.chunks.begin());
  m.files[1].chunks = {0};
  EXPECT_EQ(
      validate_manifest(m).error().code, ErrorCode::kInvalid
  );  // dir/b.txt would be written through the link
}

TEST(Manifest, every_rule_of_its_shape_is_checked) {
  const auto refuses = [](auto change) {
    Manifest m = small();
    change(m);
    const auto valid = validate_manifest(m);
    return !valid && valid.error().code == ErrorCode::kInvalid;
  };
  EXPECT_TRUE(validate_manifest(small()));
  EXPECT_TRUE(refuses([](Manifest& m) { m.version = 0; }));
  EXPECT_TRUE(refuses([](Manifest& m) { m.job = JobId("../j"); }));
  EXPECT_TRUE(refuses([](Manifest& m) { m.generation = 0; }));
  EXPECT_TRUE(refuses([](Manifest& m) { m.epoch = {}; }));
  EXPECT_TRUE(refuses([](Manifest& m) { std::swap(m.files[0], m.files[1]); }));
  EXPECT_TRUE(refuses([](Manifest& m) { m.files[1].path = m.files[0].path; }));
  EXPECT_TRUE(refuses([](Manifest& m) { m.files[0].mode = 04755; }));
  EXPECT_TRUE(refuses([](Manifest& m) { m.files[0].bytes += 1; }));
  EXPECT_TRUE(refuses([](Manifest& m) { m.files[0].chunks = {77}; }));
  EXPECT_TRUE(refuses([](Manifest& m) { m.files[0].kind = FileKind::kFolder; }));
  EXPECT_TRUE(refuses([](Manifest& m) { m.files[2].target = "x"; }));
  EXPECT_TRUE(refuses([](Manifest& m) { m.chunks[0].plain_bytes = kChunkBytesMax + 1; }));
  EXPECT_TRUE(refuses([](Manifest& m) { m.chunks[0].cipher_bytes = 0; }));
  EXPECT_TRUE(refuses([](Manifest& m) { m.chunks[1].cipher = m.chunks[0].cipher; }));
  EXPECT_TRUE(refuses([](Manifest& m) { m.chunks.push_back({Digest{9}, Digest{9}, 1, 1}); }));
  Manifest later = small();
  later.version = 2;
  EXPECT_EQ(validate_manifest(later).error().code, ErrorCode::kUnsupported);
}

TEST(Manifest, a_chain_grows_in_one_job_and_never_goes_back_in_epoch) {
  GenerationMaker maker;
  const auto first = maker.make(1, {{"a", "1"}});
  const auto second = maker.make(2, {{"a", "2"}});

  EXPECT_TRUE(check_chain(second.manifest, first.manifest, first.hash));
  EXPECT_FALSE(check_chain(first.manifest, second.manifest, second.hash));
  Manifest other = second.manifest;
  other.parent = Digest{};
  EXPECT_FALSE(check_chain(other, first.manifest, first.hash));
  other = second.manifest;
  other.epoch = {0, 9};
  EXPECT_FALSE(check_chain(other, first.manifest, first.hash));
}

TEST(Manifest, receipts_and_tickets_verify_only_unchanged_and_only_as_what_they_are) {
  GenerationMaker maker;
  Receipt receipt;
  receipt.job = maker.job;
  receipt.generation = 4;
  receipt = sign_receipt(receipt, maker.signer);
  EXPECT_TRUE(is_signed_by(receipt, maker.signer.public_key));
  receipt.generation = 5;
  EXPECT_FALSE(is_signed_by(receipt, maker.signer.public_key));

  Ticket ticket;
  ticket.job = maker.job;
  ticket.max_bytes = 100;
  ticket = sign_ticket(ticket, maker.signer);
  EXPECT_TRUE(is_signed_by(ticket, maker.signer.public_key));
  ticket.max_bytes = 1'000'000;
  EXPECT_FALSE(is_signed_by(ticket, maker.signer.public_key));
  ticket.signature.clear();
  EXPECT_FALSE(is_signed_by(ticket, maker.signer.public_key));
}

TEST(Manifest, the_golden_file_of_version_1_reads_back) {
  GenerationMaker maker;
  auto made = maker.make(1, {{"checkpoint.pt", "weights"}, {"dir/log.txt", "line"}, {"empty", ""}});
  made.manifest.removed = {"old.txt"};
  const Blob stored =
      golden("manifest_v1.cbor", to_cbor(sign_manifest(made.manifest, maker.node, maker.signer)));
  ASSERT_FALSE(stored.empty()) << "tests/golden/manifest_v1.cbor is missing";

  const auto read = from_cbor<SignedManifest>(stored);
  ASSERT_TRUE(read);
  const auto manifest = verify_manifest(*read, maker.signer.public_key);

  ASSERT_TRUE(manifest) << manifest.error().describe();
  EXPECT_EQ(manifest->files.size(), 3U);
  EXPECT_EQ(manifest->files[0].path, "checkpoint.pt");
  EXPECT_EQ(manifest->removed, std::vector<std::string>{"old.txt"});
  EXPECT_EQ(manifest->step, 10);
  EXPECT_EQ(to_cbor(*manifest), read->body);  // the writer still writes the same bytes
}

}  // namespace
}  // namespace rn::checkpoint
