// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "checkpoint/transfer_fixture.h"
#include "model/codec.h"

namespace rn::checkpoint {
namespace {

class FetchTest : public TransferTest {
 protected:
  FetchTest() { ticket_.action = TicketAction::kFetch; }
};

TEST_F(FetchTest, a_generation_is_fetched_by_the_hash_that_the_coordinator_named) {
  const auto made = make_there(1, 100);

  const auto fetched = fetch_here({signed_ticket(), made.hash, {}});

  ASSERT_TRUE(fetched) << fetched.error().describe();
  ASSERT_TRUE(fetched->generation);
  EXPECT_EQ(fetched->generation->manifest, made.hash);
  EXPECT_EQ(sent_.chunks, 100U);
  EXPECT_TRUE(here_->verify(maker_.job, made.hash));

  const auto second = make_there(2, 100);
  ASSERT_TRUE(fetch_here({signed_ticket(), second.hash, {}}));
  EXPECT_EQ(sent_.chunks, 50U);
}

TEST_F(FetchTest, a_broken_fetch_goes_on_where_it_was) {
  const auto made = make_there(1, 20);
  ASSERT_FALSE(fetch_here({signed_ticket(), made.hash, {}}, 15));
  const auto before = sent_.chunks;
  EXPECT_GT(before, 5U);

  ASSERT_TRUE(fetch_here({signed_ticket(), made.hash, {}}));

  EXPECT_EQ(sent_.chunks + before, 20U);
}

TEST_F(FetchTest, what_one_peer_lacks_is_named_and_another_peer_can_give_it) {
  const auto made = make_there(1, 5);
  const std::string hex = to_hex(made.chunks[2].ref.cipher);
  ASSERT_TRUE(there_fs_.flip("/store/chunks/" + hex.substr(0, 2) + "/" + hex, 3, 1));

  const auto fetched = fetch_here({signed_ticket(), made.hash, {}});

  ASSERT_TRUE(fetched);
  EXPECT_FALSE(fetched->generation);
  EXPECT_EQ(fetched->missing, std::vector<Digest>{made.chunks[2].ref.cipher});
  ChunkStore::Session repair(*there_);
  ASSERT_TRUE(repair.put(made.chunks[2].ref.cipher, made.chunks[2].stored));
  ASSERT_TRUE(repair.flush());
  ASSERT_TRUE(fetch_here({signed_ticket(), made.hash, {}})->generation);
  EXPECT_EQ(sent_.chunks, 1U);
}

TEST_F(FetchTest, a_ticket_opens_one_jobs_chunks_and_nothing_else) {
  const auto made = make_there(1, 2);
  GenerationMaker other(77);
  other.job = JobId("j-other");
  const auto secret = other.make(1, {{"a", "another job's"}});
  ASSERT_TRUE(GenerationMaker::store(*there_, secret));

  EXPECT_EQ(fetch_here({signed_ticket(), secret.hash, {}}).error().code, ErrorCode::kNotFound);
  const auto fetched =
      fetch_here({signed_ticket(), {}, {secret.chunks[0].ref.cipher, made.chunks[0].ref.cipher}});

  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->missing, std::vector<Digest>{secret.chunks[0].ref.cipher});
}

TEST_F(FetchTest, a_peer_that_sends_another_manifest_or_other_bytes_is_not_believed) {
  const auto made = make_there(1, 3);
  const auto other = make_there(2, 3);
  tamper_ = [&](PeerFrame& frame) {
    if (frame.type == PeerFrameType::kManifest)
      frame = encode_manifest_piece(to_cbor(other.sealed), true);
  };
  EXPECT_EQ(fetch_here({signed_ticket(), made.hash, {}}).error().code, ErrorCode::kCorrupt);
  tamper_ = [&](PeerFrame& frame) {
    if (frame.type == PeerFrameType::kChunk) frame.body[50] ^= 1;
  };
  EXPECT_EQ(fetch_here({signed_ticket(), made.hash, {}}).error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(here_->list(maker_.job).empty());
}

TEST_F(FetchTest, whatever_fails_on_the_own_disk_is_never_taken_for_the_peers_damage) {
  using Operation = CrashFs::Operation;
  const auto made = make_there(1, 70);  // more than are synced at once
  std::size_t failures = 0;
  for (const ErrorCode code : {ErrorCode::kInternal, ErrorCode::kNotFound, ErrorCode::kCorrupt}) {
    const std::uint64_t stride = code == ErrorCode::kInternal ? 59 : 149;  // of many calls alike
    for (const Operation kind :
         {Operation::kSync,
          Operation::kSyncFolder,
          Operation::kAppend,
          Operation::kCreate,
          Operation::kRename,
          Operation::kStat}) {
      for (std::uint64_t nth = 0; nth < 300; nth += nth < 5 ? 1 : stride) {
        SCOPED_TRACE(testing::Message() << to_string(code) << " of " << int(kind) << ", " << nth);
        here_.reset();
        here_fs_.restart();
        ASSERT_TRUE(remove_tree(here_fs_, "/store"));
        here_ = open(here_fs_);
        here_fs_.fail_once(kind, nth, code);

        const auto fetched = fetch_here({signed_ticket(), made.hash, {}});

        if (fetched) EXPECT_TRUE(fetched->generation);
        if (here_fs_.forget_failures()) break;  // it makes fewer calls
        ++failures;
        if (fetched) continue;
        EXPECT_EQ(fetched.error().code, ErrorCode::kUnavailable) << fetched.error().describe();
        EXPECT_TRUE(fetch_here({signed_ticket(), made.hash, {}})) << "another try";
      }
    }
  }
  EXPECT_GT(failures, 60u);
}

/// Who says that it lacks a chunk lets an older generation be taken (I7).
TEST_F(
    FetchTest, a_holder_whose_disk_cannot_be_read_just_now_does_not_say_that_it_lacks_the_chunk
) {
  const auto made = make_there(1, 3);
  std::size_t failures = 0;
  for (const auto kind : {CrashFs::Operation::kRead, CrashFs::Operation::kOpen}) {
    for (std::uint64_t nth = 0; nth < 12; ++nth) {
      here_.reset();
      here_fs_.restart();
      ASSERT_TRUE(remove_tree(here_fs_, "/store"));
      here_ = open(here_fs_);
      there_.reset();
      there_fs_.restart();
      there_ = open(there_fs_);
      there_fs_.fail_once(kind, nth, ErrorCode::kInternal);

      const auto fetched = fetch_here({signed_ticket(), made.hash, {}});

      if (fetched) EXPECT_TRUE(fetched->missing.empty()) << nth;
      if (fetched) continue;
      ++failures;
      EXPECT_NE(fetched.error().code, ErrorCode::kNotFound) << fetched.error().describe();
      EXPECT_NE(fetched.error().code, ErrorCode::kCorrupt) << fetched.error().describe();
    }
  }
  EXPECT_GT(failures, 3U);
}

TEST_F(FetchTest, a_chunk_that_was_not_asked_for_is_not_kept) {
  const auto made = make_there(1, 3);
  const std::string junk = "junk that fills somebody's disk";
  tamper_ = [&](PeerFrame& frame) {
    if (frame.type == PeerFrameType::kChunk)
      frame = encode_chunk(crypto::sha256(as_bytes(junk)), as_bytes(junk));
  };

  EXPECT_EQ(fetch_here({signed_ticket(), made.hash, {}}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(here_->usage().chunks, 0U);
}

TEST_F(FetchTest, an_image_is_fetched_as_plain_blobs_under_an_image_ticket) {
  StoreOptions options;
  options.root = "/images";
  options.reserve_free_bytes = 0;
  images_ = ChunkStore::open(there_fs_, clock_, options).value();
  const std::string layer(5000, 'L');
  const Digest blob = crypto::sha256(as_bytes(layer));
  {
    ChunkStore::Session session(*images_);
    ASSERT_TRUE(session.put(blob, as_bytes(layer)));
    ASSERT_TRUE(session.flush());
  }
  ticket_.action = TicketAction::kFetchImage;
  ticket_.image = "sha256:base";

  const auto fetched = fetch_here({signed_ticket(), {}, {blob}});
  ASSERT_TRUE(fetched) << fetched.error().describe();
  EXPECT_TRUE(fetched->missing.empty());
  EXPECT_EQ(as_text(here_->get(blob).value()), layer);

  ticket_.image = "sha256:secret";
  here_ = open(here_fs_);
  ASSERT_TRUE(remove_tree(here_fs_, "/store"));
  here_ = open(here_fs_);
  EXPECT_EQ(fetch_here({signed_ticket(), {}, {blob}})->missing.size(), 1U);
}

TEST_F(FetchTest, serving_stops_at_the_tickets_bytes) {
  const auto made = make_there(1, 10);
  ticket_.max_bytes = to_cbor(made.sealed).size() + 3 * made.chunks[0].stored.size();

  const auto fetched = fetch_here({signed_ticket(), made.hash, {}});

  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().code, ErrorCode::kExhausted);
  EXPECT_GE(sent_.chunks, 1U);
}

// --- peers that break the protocol, frame by frame
// ----------------------------------------------------------------------------------------------------

PeerFrame welcome_of(std::uint32_t protocol) {
  PeerWelcome welcome;
  welcome.protocol = protocol;
  return encode_welcome(welcome);
}

class LyingPeer : public FetchTest {
 protected:
  static void give(PeerEnd& end, const PeerFrame& frame) { end.on_frame(frame.type, frame.body); }

  /// A fetcher that has asked for the manifest of `hash`.
  std::unique_ptr<Fetcher> asking(const Digest& hash) {
    auto fetcher = std::make_unique<Fetcher>(*here_, FetchRequest{signed_ticket(), hash, {}});
    EXPECT_EQ(fetcher->next()->type, PeerFrameType::kHello);
    give(*fetcher, welcome_of(kPeerProtocol));
    EXPECT_EQ(fetcher->next()->type, PeerFrameType::kWantManifest);
    return fetcher;
  }

  /// One that has got the manifest and has asked for its chunks.
  std::unique_ptr<Fetcher> wanting(const GenerationMaker::Made& made) {
    auto fetcher = asking(made.hash);
    give(*fetcher, encode_manifest_piece(to_cbor(made.sealed), true));
    EXPECT_EQ(fetcher->next()->type, PeerFrameType::kWantChunks);
    return fetcher;
  }

  /// What the fetcher says of a peer that sent this. Nothing of it may be in the store.
  ErrorCode verdict(Fetcher& fetcher, const PeerFrame& frame) {
    give(fetcher, frame);
    EXPECT_TRUE(fetcher.is_finished());
    EXPECT_FALSE(fetcher.next());
    EXPECT_TRUE(here_->list(maker_.job).empty());
    return fetcher.outcome() ? ErrorCode::kInternal : fetcher.outcome().error().code;
  }
};

TEST_F(LyingPeer, a_manifest_without_an_end_is_read_to_a_bound) {
  const auto fetcher = asking(make_there(1, 1).hash);
  const PeerFrame piece = encode_manifest_piece(Blob(kManifestPieceBytes, 'x'), false);
  std::size_t pieces = 0;
  while (!fetcher->is_finished() && pieces < 1000) {
    give(*fetcher, piece);
    ++pieces;
  }

  ASSERT_FALSE(fetcher->outcome());
  EXPECT_EQ(fetcher->outcome().error().code, ErrorCode::kExhausted);
  EXPECT_LE((pieces - 1) * kManifestPieceBytes, kManifestBytesMax + 4096);
}

TEST_F(LyingPeer, a_manifest_that_is_none_or_another_jobs_is_refused) {
  EXPECT_EQ(
      verdict(*asking(make_there(1, 1).hash), encode_manifest_piece(as_bytes("no manifest"), true)),
      ErrorCode::kInvalid
  );
  GenerationMaker other(77);
  other.job = JobId("j-other");
  const auto foreign = other.make(1, {{"a", "another job's"}});
  EXPECT_EQ(
      verdict(*asking(foreign.hash), encode_manifest_piece(to_cbor(foreign.sealed), true)),
      ErrorCode::kCorrupt
  );
}

TEST_F(LyingPeer, only_what_was_asked_for_can_be_absent) {
  const auto made = make_there(1, 3);
  const Digest first = made.chunks[0].ref.cipher;
  const Digest second = made.chunks[1].ref.cipher;
  const auto absent = [](std::vector<Digest> digests) {
    return encode_digests(PeerFrameType::kAbsent, digests);
  };
  EXPECT_EQ(verdict(*wanting(made), absent({second})), ErrorCode::kInvalid) << "out of turn";
  EXPECT_EQ(verdict(*wanting(made), absent({first, second})), ErrorCode::kInvalid) << "two at once";
  EXPECT_EQ(verdict(*wanting(made), {PeerFrameType::kAbsent, {}}), ErrorCode::kInvalid);

  const auto fetcher = wanting(made);
  give(*fetcher, absent({first}));
  EXPECT_FALSE(fetcher->is_finished()) << "that is no lie";
}

TEST_F(LyingPeer, a_chunk_that_comes_twice_was_asked_for_once) {
  const auto made = make_there(1, 3);
  const PeerFrame chunk = encode_chunk(made.chunks[0].ref.cipher, made.chunks[0].stored);
  const auto fetcher = wanting(made);
  give(*fetcher, chunk);
  ASSERT_FALSE(fetcher->is_finished());

  EXPECT_EQ(verdict(*fetcher, chunk), ErrorCode::kInvalid);
}

TEST_F(LyingPeer, a_peer_of_another_protocol_and_frames_out_of_turn_end_a_fetch) {
  const auto made = make_there(1, 1);
  for (const std::uint32_t protocol : {kPeerProtocolOldest - 1, kPeerProtocol + 1}) {
    Fetcher fetcher(*here_, {signed_ticket(), made.hash, {}});
    (void)fetcher.next();
    EXPECT_EQ(verdict(fetcher, welcome_of(protocol)), ErrorCode::kUnsupported) << protocol;
  }
  EXPECT_EQ(verdict(*asking(made.hash), welcome_of(kPeerProtocol)), ErrorCode::kInvalid);
  EXPECT_EQ(
      verdict(*asking(made.hash), encode_chunk(made.chunks[0].ref.cipher, made.chunks[0].stored)),
      ErrorCode::kInvalid
  );
  EXPECT_EQ(
      verdict(*wanting(made), encode_manifest_piece(to_cbor(made.sealed), true)),
      ErrorCode::kInvalid
  );
}

TEST_F(LyingPeer, a_refusal_ends_a_fetch_with_its_own_code) {
  const auto made = make_there(1, 1);
  EXPECT_EQ(
      verdict(*asking(made.hash), encode_refusal({ErrorCode::kDenied, "not yours", ""})),
      ErrorCode::kDenied
  );
}

TEST_F(LyingPeer, no_more_than_64_chunks_are_asked_for_at_a_time) {
  const auto made = make_there(1, 150);
  const auto fetcher = asking(made.hash);
  give(*fetcher, encode_manifest_piece(to_cbor(made.sealed), true));

  EXPECT_EQ(decode_digests(fetcher->next()->body)->size(), 64U);
  EXPECT_FALSE(fetcher->next()) << "not before these are answered";
}

// The same of a peer that is to hold a generation.

class LyingHolder : public LyingPeer {
 protected:
  LyingHolder() { ticket_.action = TicketAction::kStore; }

  /// A sender that has asked which of the three chunks are there.
  std::unique_ptr<StoreSender> asking_holder(const GenerationMaker::Made& made) {
    auto sender =
        std::make_unique<StoreSender>(*here_, signed_ticket(), made.sealed, made.manifest);
    EXPECT_EQ(sender->next()->type, PeerFrameType::kHello);
    give(*sender, welcome_of(kPeerProtocol));
    EXPECT_EQ(sender->next()->type, PeerFrameType::kAsk);
    return sender;
  }

  /// One that has sent everything and waits for the receipt.
  std::unique_ptr<StoreSender> waiting(const GenerationMaker::Made& made) {
    auto sender = asking_holder(made);
    give(*sender, encode_have(std::vector<bool>(made.chunks.size(), true)));
    while (sender->next()) {
    }
    EXPECT_FALSE(sender->is_finished());
    return sender;
  }

  static ErrorCode verdict_of(StoreSender& sender, const PeerFrame& frame) {
    give(sender, frame);
    EXPECT_TRUE(sender.is_finished());
    EXPECT_FALSE(sender.next());
    return sender.outcome() ? ErrorCode::kInternal : sender.outcome().error().code;
  }
};

TEST_F(LyingHolder, an_answer_about_more_or_fewer_chunks_than_were_asked_about_is_none) {
  const auto made = make_here(1, 3);
  for (const std::size_t count : {std::size_t{0}, std::size_t{9}, std::size_t{64}})
    EXPECT_EQ(
        verdict_of(*asking_holder(made), encode_have(std::vector<bool>(count, true))),
        ErrorCode::kInvalid
    ) << count;
}

TEST_F(LyingHolder, a_receipt_counts_for_exactly_what_was_sent) {
  const auto made = make_here(1, 3);
  Receipt right;
  right.job = made.manifest.job;
  right.epoch = made.manifest.epoch;
  right.generation = made.manifest.generation;
  right.manifest = made.hash;
  right.holder = ticket_.to;
  const auto said = [&](const std::function<void(Receipt&)>& change) {
    Receipt receipt = right;
    change(receipt);
    return encode_receipt(sign_receipt(receipt, holder_));
  };
  const std::vector<std::function<void(Receipt&)>> lies = {
      [](Receipt& r) { r.job = JobId("j-other"); },
      [](Receipt& r) {
        r.epoch = {1, 2};
      },
      [](Receipt& r) { ++r.generation; },
      [](Receipt& r) { r.manifest[0] ^= 1; },
      [](Receipt& r) { r.holder = NodeId("n-elsewhere"); },
  };
  for (std::size_t i = 0; i < lies.size(); ++i)
    EXPECT_EQ(verdict_of(*waiting(made), said(lies[i])), ErrorCode::kInvalid) << i;
  EXPECT_EQ(
      verdict_of(*waiting(made), {PeerFrameType::kReceipt, Blob(3, 0xff)}), ErrorCode::kInvalid
  );

  const auto honest = waiting(made);
  give(*honest, said([](Receipt&) {}));
  EXPECT_TRUE(honest->outcome());
}

TEST_F(LyingHolder, a_receipt_before_everything_was_sent_is_no_receipt) {
  const auto made = make_here(1, 3);
  Receipt early;
  early.job = made.manifest.job;
  early.epoch = made.manifest.epoch;
  early.generation = made.manifest.generation;
  early.manifest = made.hash;
  early.holder = ticket_.to;

  EXPECT_EQ(
      verdict_of(*asking_holder(made), encode_receipt(sign_receipt(early, holder_))),
      ErrorCode::kInvalid
  );
}

TEST_F(LyingHolder, a_holder_that_calls_whole_chunks_damaged_is_told_by_its_own_word) {
  const auto made = make_here(1, 3);
  const auto sender = asking_holder(made);
  give(*sender, encode_have(std::vector<bool>(made.chunks.size(), false)));
  while (sender->next()) {
  }

  EXPECT_EQ(
      verdict_of(*sender, encode_refusal({ErrorCode::kCorrupt, "other bytes", ""})),
      ErrorCode::kCorrupt
  );
  EXPECT_TRUE(here_->get(made.chunks[0].ref.cipher)) << "the own copy is whole and stays";
}

TEST_F(LyingHolder, a_holder_of_another_protocol_gets_nothing) {
  const auto made = make_here(1, 1);
  for (const std::uint32_t protocol : {kPeerProtocolOldest - 1, kPeerProtocol + 1}) {
    StoreSender sender(*here_, signed_ticket(), made.sealed, made.manifest);
    (void)sender.next();
    EXPECT_EQ(verdict_of(sender, welcome_of(protocol)), ErrorCode::kUnsupported) << protocol;
  }
}

}  // namespace
}  // namespace rn::checkpoint
