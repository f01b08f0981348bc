// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/transfer.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/scratch_folder.h"
#include "checkpoint/transfer_fixture.h"
#include "io/real_fs.h"
#include "model/codec.h"

namespace rn::checkpoint {
namespace {

TEST_F(TransferTest, a_generation_is_stored_and_the_receipt_is_the_holders_word) {
  const auto made = make_here(1, 10);

  const auto receipt = store_there(made);

  ASSERT_TRUE(receipt) << receipt.error().describe();
  EXPECT_TRUE(is_signed_by(*receipt, holder_.public_key));
  EXPECT_EQ(receipt->manifest, made.hash);
  EXPECT_EQ(receipt->holder, NodeId("n-there"));
  EXPECT_EQ(receipt->failure_domain, "room-2");
  EXPECT_EQ(sent_.chunks, 10U);
  there_fs_.restart();
  there_ = open(there_fs_);
  EXPECT_TRUE(there_->verify(maker_.job, made.hash));
}

TEST_F(TransferTest, the_next_generation_moves_only_what_changed) {
  ASSERT_TRUE(store_there(make_here(1, 10)));

  const auto second = make_here(2, 10);
  ASSERT_TRUE(store_there(second));

  EXPECT_EQ(sent_.chunks, 5U);
  EXPECT_EQ(sent_.skipped, 5U);
}

TEST_F(TransferTest, a_transfer_broken_after_any_frame_is_resumed_and_moves_each_chunk_once) {
  const auto made = make_here(1, 12);
  for (std::size_t frames = 0;; ++frames) {
    there_fs_.restart();
    ASSERT_TRUE(remove_tree(there_fs_, "/store"));
    there_ = open(there_fs_);
    const auto broken = store_there(made, frames);
    if (broken) {
      EXPECT_GT(frames, 14U);
      break;
    }
    EXPECT_EQ(broken.error().code, ErrorCode::kUnavailable);
    const std::uint64_t before = sent_.chunks;

    ASSERT_TRUE(store_there(made)) << "after " << frames << " frames";

    EXPECT_LE(sent_.chunks + before, 13U)
        << "after " << frames << " frames";  // the chunk in flight may move twice
  }
}

/// With one batch for all chunks, and with one for each.
class BatchTest : public TransferTest, public ::testing::WithParamInterface<std::uint64_t> {
 protected:
  BatchTest() { batch_bytes_ = GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Sizes, BatchTest, ::testing::Values(32 << 20, 1));

TEST_P(BatchTest, a_receivers_crash_at_any_operation_never_leaves_a_receipt_without_the_data) {
  const auto made = make_here(1, 4);
  for (std::uint64_t at = 0;; ++at) {
    there_.reset();
    ASSERT_TRUE(remove_tree(there_fs_, "/store"));
    there_ = open(there_fs_);
    there_fs_.crash_at(at);
    const auto receipt = store_there(made);
    const bool crashed = there_fs_.has_crashed();
    there_.reset();
    there_fs_.restart();
    there_ = open(there_fs_);

    if (receipt) {
      ASSERT_TRUE(there_->verify(maker_.job, made.hash)) << "crash at " << at;
    }
    ASSERT_TRUE(store_there(made)) << "crash at " << at;
    ASSERT_TRUE(there_->verify(maker_.job, made.hash));
    if (!crashed) break;
  }
}

TEST_F(TransferTest, a_medium_that_kept_other_bytes_than_the_cache_gives_no_receipt) {
  const auto made = make_here(1, 3);
  const auto [first, last] = std::minmax_element(
      made.chunks.begin(),
      made.chunks.end(),
      [](const EncodedChunk& a, const EncodedChunk& b) { return a.ref.cipher < b.ref.cipher; }
  );
  bool has_rotted = false;
  there_fs_.before_each_read([&, first = first, last = last](const std::string& path) {
    // Nothing is read before all of the batch is synced; it is read in the order of the hashes, and
    // before it has its names.
    if (has_rotted || !path.starts_with(path_of(*first))) return;
    const std::string folder = parent_folder(path_of(*last));
    const auto names = there_fs_.list(folder).value();
    for (const std::string& name : names) {
      if (name.starts_with(to_hex(last->ref.cipher)))
        has_rotted = there_fs_.flip(join_path(folder, name), 30, 1, true);
    }
  });

  const auto receipt = store_there(made);

  EXPECT_TRUE(has_rotted);
  ASSERT_FALSE(receipt);
  EXPECT_EQ(receipt.error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(there_->list(maker_.job).empty());
  EXPECT_FALSE(there_->has(last->ref.cipher));
  there_fs_.before_each_read({});
  ASSERT_TRUE(store_there(made));  // only the bad chunk moves again
  EXPECT_EQ(sent_.chunks, 1U);
}

TEST_P(BatchTest, a_chunk_that_was_there_before_and_rotted_gives_no_receipt) {
  const auto first = make_here(1, 4);
  ASSERT_TRUE(store_there(first));
  const auto second = make_here(2, 4);
  ASSERT_EQ(second.chunks[0].ref.cipher, first.chunks[0].ref.cipher);
  ASSERT_TRUE(there_fs_.flip(path_of(first.chunks[0]), 30, 1, true));

  const auto receipt = store_there(second);

  ASSERT_FALSE(receipt);
  EXPECT_EQ(receipt.error().code, ErrorCode::kCorrupt);
}

TEST_P(BatchTest, a_chunk_that_comes_although_it_is_there_is_not_taken_for_read_back) {
  const auto made = make_here(1, 4);
  ASSERT_TRUE(store_there(made));
  ASSERT_TRUE(there_fs_.flip(path_of(made.chunks[0]), 30, 1, true));
  tamper_ = [](PeerFrame& frame) {
    if (frame.type == PeerFrameType::kHave) frame = encode_have(std::vector<bool>(4));
  };

  const auto receipt = store_there(made);

  EXPECT_EQ(sent_.chunks, 4U);
  ASSERT_FALSE(receipt);
  EXPECT_EQ(receipt.error().code, ErrorCode::kCorrupt);
}

TEST_F(TransferTest, a_receipt_waits_for_what_another_thread_reads_back) {
  const auto made = make_here(1, 20);
  const ScratchFolder folder;
  io::RealFileSystem disk;
  StoreOptions options;
  options.root = join_path(folder.path(), "store");
  options.reserve_free_bytes = 0;
  there_ = ChunkStore::open(disk, clock_, options).value();
  batch_bytes_ = 1;
  flush_ = std::launch::async;

  const auto receipt = store_there(made);

  EXPECT_TRUE(receipt);
  EXPECT_TRUE(there_->verify(maker_.job, made.hash));
  there_.reset();
}

TEST_F(TransferTest, a_failed_sync_at_the_receiver_gives_no_receipt_and_a_retry_writes_anew) {
  const auto made = make_here(1, 3);
  there_fs_.fail_once(CrashFs::Operation::kSync, 1, ErrorCode::kInternal);

  EXPECT_EQ(store_there(made).error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(store_there(made));
  EXPECT_TRUE(there_->verify(maker_.job, made.hash));
}

TEST_F(TransferTest, tickets_that_are_not_right_in_every_field_open_nothing) {
  const auto made = make_here(1, 2);
  const Ticket good = ticket_;

  {
    const Ticket forged = sign_ticket(ticket_, crypto::make_signing_key(rng_));
    const PeerServerDeps with = deps();
    StoreSender sender(*here_, forged, made.sealed, made.manifest);
    PeerServer server(with, peer_);
    run(sender, server);
    EXPECT_EQ(sender.outcome().error().code, ErrorCode::kDenied);
  }
  ticket_.to = NodeId("n-other");
  EXPECT_EQ(refusal(made), ErrorCode::kDenied);
  ticket_ = good;
  peer_ = NodeId("n-thief");
  EXPECT_EQ(refusal(made), ErrorCode::kDenied);
  peer_ = NodeId("n-here");
  ticket_.expiry_wall_ms = to_ms(clock_.now().wall) - 301'000;
  EXPECT_EQ(refusal(made), ErrorCode::kDenied);
  ticket_ = good;
  ticket_.job = JobId("j-other");
  EXPECT_EQ(refusal(made), ErrorCode::kDenied);
  ticket_ = good;
  ticket_.action = TicketAction::kFetch;
  EXPECT_EQ(refusal(made), ErrorCode::kInvalid);
  ticket_ = good;
  EXPECT_TRUE(store_there(made));
}

TEST_F(TransferTest, a_stale_epoch_is_fenced_by_what_was_heard_and_by_what_is_stored) {
  const auto old = make_here(1, 2);
  newest_ = {1, 2};
  EXPECT_EQ(refusal(old), ErrorCode::kConflict);

  newest_ = {};
  maker_.epoch = {1, 3};
  const auto current = make_here(2, 2);
  ticket_.epoch = {1, 3};
  ASSERT_TRUE(store_there(current));
  ticket_.epoch = {1, 1};
  EXPECT_EQ(store_there(old).error().code, ErrorCode::kConflict);
  EXPECT_EQ(there_->list(maker_.job).size(), 1U);
}

TEST_F(TransferTest, more_bytes_than_the_ticket_or_the_quota_allows_are_refused) {
  const auto made = make_here(1, 5);
  ticket_.max_bytes = 200;
  EXPECT_EQ(refusal(made), ErrorCode::kExhausted);

  ticket_.max_bytes = 1 << 20;
  there_fs_.set_capacity(there_fs_.used_bytes() + 150);
  EXPECT_EQ(refusal(made), ErrorCode::kExhausted);
  there_fs_.set_capacity(~std::uint64_t{0});
  EXPECT_TRUE(store_there(made));
}

TEST_F(TransferTest, a_chunk_changed_on_the_wire_is_refused) {
  const auto made = make_here(1, 2);
  tamper_ = [](PeerFrame& frame) {
    if (frame.type == PeerFrameType::kChunk) frame.body.back() ^= 1;
  };
  EXPECT_EQ(refusal(made), ErrorCode::kCorrupt);
}

TEST_F(TransferTest, a_chunk_damaged_on_the_senders_disk_is_condemned_there_and_stored_nowhere) {
  const auto made = make_here(1, 3);
  ASSERT_TRUE(here_fs_.flip(path_of(made.chunks[1]), 30, 1));

  const auto receipt = store_there(made);

  ASSERT_FALSE(receipt);
  EXPECT_EQ(receipt.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(receipt.error().message, testing::HasSubstr("on the disk"));
  EXPECT_FALSE(here_->has(made.chunks[1].ref.cipher));
  EXPECT_TRUE(here_->has(made.chunks[0].ref.cipher));
  EXPECT_FALSE(there_->has(made.chunks[1].ref.cipher));
}

TEST_F(TransferTest, a_chunk_that_went_from_the_senders_disk_is_known_to_be_gone) {
  const auto made = make_here(1, 3);
  ASSERT_TRUE(here_fs_.remove(path_of(made.chunks[1])));

  EXPECT_EQ(store_there(made).error().code, ErrorCode::kNotFound);

  EXPECT_FALSE(here_->has(made.chunks[1].ref.cipher));
}

TEST_F(TransferTest, a_manifest_that_its_node_did_not_sign_is_refused) {
  auto made = make_here(1, 2);
  made.sealed.signature[0] ^= 1;
  EXPECT_EQ(refusal(made), ErrorCode::kDenied);
}

TEST_F(TransferTest, a_peer_that_signs_for_something_else_is_not_believed) {
  const auto made = make_here(1, 1);
  tamper_ = [&](PeerFrame& frame) {
    if (frame.type != PeerFrameType::kReceipt) return;
    Receipt receipt = decode_receipt(frame.body).value();
    receipt.generation = 99;
    frame = encode_receipt(sign_receipt(receipt, holder_));
  };
  EXPECT_EQ(store_there(made).error().code, ErrorCode::kInvalid);
}

TEST_F(TransferTest, frames_out_of_turn_end_the_transfer_without_harm) {
  for (int type = 0; type < 16; ++type) {
    const PeerServerDeps with = deps();
    PeerServer server(with, peer_);
    server.on_frame(static_cast<PeerFrameType>(type), Blob(40, 0));
    ASSERT_TRUE(server.next());
    EXPECT_TRUE(server.is_finished());
    StoreSender sender(*here_, signed_ticket(), make_here(1, 1).sealed, make_here(1, 1).manifest);
    (void)sender.next();
    sender.on_frame(static_cast<PeerFrameType>(type), Blob(40, 0xff));
    EXPECT_TRUE(sender.is_finished());
  }
}

// --- ahead of the manifest
// ----------------------------------------------------------------------------------------------------

/// A transfer that begins while the generation is captured.
class AheadTest : public TransferTest {
 protected:
  static FreshChunk fresh(const EncodedChunk& chunk) {
    return {chunk.ref.cipher, std::make_shared<const Blob>(chunk.stored)};
  }

  GenerationMaker::Made capture(std::uint32_t generation, int files) {
    std::map<std::string, std::string> contents;
    for (int i = 0; i < files; ++i)
      contents["f" + std::to_string(i)] =
          std::string(3000, static_cast<char>(i + 1)) + std::to_string(generation);
    return maker_.make(generation, contents);
  }

  /// The capture's first `count` chunks go there; then the connection breaks.
  void send_in_vain(const GenerationMaker::Made& made, std::size_t count) {
    const PeerServerDeps with = deps();
    StoreSender sender(*here_, signed_ticket());
    PeerServer server(with, peer_);
    run(sender, server);
    for (std::size_t i = 0; i < count; ++i) {
      sender.offer(fresh(made.chunks[i]));
      run(sender, server);
    }
    EXPECT_FALSE(server.receipt());
  }
};

TEST_F(AheadTest, chunks_go_before_the_manifest_exists_and_the_receipt_comes_only_after_it) {
  const auto made = capture(1, 5);
  const PeerServerDeps with = deps();
  StoreSender sender(*here_, signed_ticket());
  PeerServer server(with, peer_);
  run(sender, server);
  ASSERT_TRUE(sender.is_hungry());
  for (int i = 0; i < 3; ++i) {
    sender.offer(fresh(made.chunks[static_cast<std::size_t>(i)]));
    run(sender, server);
  }
  EXPECT_EQ(server.stats().chunks, 3U);
  EXPECT_FALSE(here_->has(made.chunks[0].ref.cipher));
  EXPECT_FALSE(server.receipt());
  EXPECT_TRUE(there_->list(maker_.job).empty());

  ASSERT_TRUE(GenerationMaker::store(*here_, made));
  sender.release(made.sealed, made.manifest);
  run(sender, server);

  ASSERT_TRUE(sender.outcome()) << sender.outcome().error().describe();
  EXPECT_TRUE(is_signed_by(*sender.outcome(), holder_.public_key));
  EXPECT_EQ(sender.stats().chunks, 5U);
  EXPECT_TRUE(there_->verify(maker_.job, made.hash));
}

TEST_F(AheadTest, when_all_went_ahead_nothing_is_asked_any_more) {
  const auto made = capture(1, 3);
  int asked = 0;
  tamper_ = [&](PeerFrame& frame) { asked += frame.type == PeerFrameType::kAsk ? 1 : 0; };
  const PeerServerDeps with = deps();
  StoreSender sender(*here_, signed_ticket());
  PeerServer server(with, peer_);
  run(sender, server);
  for (const EncodedChunk& chunk : made.chunks) {
    sender.offer(fresh(chunk));
    run(sender, server);
  }
  ASSERT_TRUE(GenerationMaker::store(*here_, made));
  sender.release(made.sealed, made.manifest);
  run(sender, server);

  ASSERT_TRUE(sender.outcome()) << sender.outcome().error().describe();
  EXPECT_EQ(asked, 0);
}

TEST_F(AheadTest, a_chunk_that_went_ahead_and_rots_at_the_holder_gives_no_receipt) {
  const auto made = capture(1, 2);
  tamper_ = [](PeerFrame& frame) {
    if (frame.type == PeerFrameType::kChunk) frame.body.back() ^= 1;
  };
  const PeerServerDeps with = deps();
  StoreSender sender(*here_, signed_ticket());
  PeerServer server(with, peer_);
  run(sender, server);
  sender.offer(fresh(made.chunks[0]));
  run(sender, server);
  tamper_ = {};
  ASSERT_TRUE(GenerationMaker::store(*here_, made));
  sender.release(made.sealed, made.manifest);
  run(sender, server);

  ASSERT_FALSE(sender.outcome());
  EXPECT_EQ(sender.outcome().error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(there_->list(maker_.job).empty());
  EXPECT_TRUE(here_->has(made.chunks[0].ref.cipher));
}

TEST_F(AheadTest, what_an_abandoned_capture_sent_is_gone_when_the_next_one_is_held) {
  const auto torn = capture(1, 4);
  send_in_vain(torn, 4);
  EXPECT_TRUE(there_->has(torn.chunks[0].ref.cipher));

  const auto made = capture(2, 2);
  ASSERT_TRUE(GenerationMaker::store(*here_, made));
  ASSERT_TRUE(store_there(made));

  for (const EncodedChunk& chunk : torn.chunks) EXPECT_FALSE(there_->has(chunk.ref.cipher));
  EXPECT_TRUE(there_->verify(maker_.job, made.hash));
  EXPECT_EQ(there_->usage().chunks, 2U);
}

TEST_F(AheadTest, what_one_capture_sent_in_vain_beside_its_generation_is_gone_with_the_next) {
  const auto torn = capture(1, 1);
  const auto made = capture(2, 2);
  {
    const PeerServerDeps with = deps();
    StoreSender sender(*here_, signed_ticket());
    PeerServer server(with, peer_);
    run(sender, server);
    for (const auto* chunk : {&torn.chunks[0], &made.chunks[0], &made.chunks[1]}) {
      sender.offer(fresh(*chunk));
      run(sender, server);
    }
    ASSERT_TRUE(GenerationMaker::store(*here_, made));
    sender.release(made.sealed, made.manifest);
    run(sender, server);
    ASSERT_TRUE(sender.outcome());
  }
  EXPECT_EQ(there_->usage().chunks, 3U);

  const auto next = capture(3, 1);
  ASSERT_TRUE(GenerationMaker::store(*here_, next));
  ASSERT_TRUE(store_there(next));

  EXPECT_FALSE(there_->has(torn.chunks[0].ref.cipher));
  EXPECT_TRUE(there_->verify(maker_.job, made.hash));
}

TEST_F(AheadTest, a_transfer_that_broke_after_chunks_went_ahead_goes_on_from_them) {
  const auto made = capture(1, 5);
  send_in_vain(made, 4);
  ASSERT_TRUE(GenerationMaker::store(*here_, made));

  ASSERT_TRUE(store_there(made));

  EXPECT_EQ(sent_.chunks, 1U);
  EXPECT_EQ(sent_.skipped, 4U);
  EXPECT_TRUE(there_->verify(maker_.job, made.hash));
}

TEST_F(AheadTest, what_was_left_for_a_job_goes_when_the_job_is_over) {
  send_in_vain(capture(1, 3), 3);

  const auto forgotten = there_->forget(maker_.job);

  ASSERT_TRUE(forgotten);
  EXPECT_EQ(forgotten->chunks, 3U);
  EXPECT_EQ(there_->usage().chunks, 0U);
}

}  // namespace
}  // namespace rn::checkpoint
