// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/fs_crash.h"
#include "checkpoint/generation_fake.h"
#include "checkpoint/transfer.h"

namespace rn::checkpoint {

/// Two nodes with a store each, a coordinator's ticket key, and a wire that can break.
class TransferTest : public ::testing::Test {
 protected:
  TransferTest() : here_fs_(clock_, 1), there_fs_(clock_, 2) {
    here_ = open(here_fs_);
    there_ = open(there_fs_);
    ticket_.job = maker_.job;
    ticket_.epoch = {1, 1};
    ticket_.from = NodeId("n-here");
    ticket_.to = NodeId("n-there");
    ticket_.expiry_wall_ms = to_ms(clock_.now().wall) + 60'000;
    ticket_.max_bytes = 1 << 20;
  }

  /// A generation of the other node: of one to the next each second file changes.
  GenerationMaker::Made make_there(std::uint32_t generation, int files) {
    std::map<std::string, std::string> contents;
    for (int i = 0; i < files; ++i)
      contents["f" + std::to_string(i)] =
          std::string(3000, static_cast<char>(i + 1)) + std::to_string(i % 2 == 0 ? 0 : generation);
    auto made = maker_.make(generation, contents);
    EXPECT_TRUE(GenerationMaker::store(*there_, made));
    return made;
  }

  PeerServerDeps deps() {
    PeerServerDeps out{
        *there_,
        images_.get(),
        clock_,
        NodeId("n-there"),
        "room-2",
        holder_,
        coordinator_.public_key,
        seconds(300),
        {},
        {},
        {}};
    out.batch_bytes = batch_bytes_;
    out.flush = flush_;
    out.newest_epoch = [this](const JobId&) { return newest_; };
    out.verify_key = [this](const NodeId& node) -> std::optional<crypto::PublicKey> {
      if (node != maker_.node) return std::nullopt;
      return maker_.signer.public_key;
    };
    out.is_image_blob = [](const std::string& image, const Digest&) {
      return image == "sha256:base";
    };
    return out;
  }

  std::unique_ptr<ChunkStore> open(CrashFs& fs) {
    StoreOptions options;
    options.root = "/store";
    options.reserve_free_bytes = 0;
    return ChunkStore::open(fs, clock_, options).value();
  }

  Ticket signed_ticket() { return sign_ticket(ticket_, coordinator_); }

  /// Runs both ends until they finish or `frames` were delivered; then the wire breaks. Every frame
  /// passes `tamper_`.
  void run(PeerEnd& client, PeerEnd& server, std::size_t frames = 1'000'000) {
    bool moved = true;
    while (moved) {
      moved = false;
      for (auto [from, to] : {std::pair(&client, &server), std::pair(&server, &client)}) {
        while (auto frame = from->next()) {
          moved = true;
          if (delivered_ >= frames) return;
          ++delivered_;
          if (tamper_) tamper_(*frame);
          to->on_frame(frame->type, frame->body);
        }
      }
    }
  }

  Result<Receipt> store_there(const GenerationMaker::Made& made, std::size_t frames = 1'000'000) {
    delivered_ = 0;
    const PeerServerDeps with = deps();
    StoreSender sender(*here_, signed_ticket(), made.sealed, made.manifest);
    PeerServer server(with, peer_);
    run(sender, server, frames);
    sent_ = sender.stats();
    return sender.outcome();
  }

  Result<Fetched> fetch_here(FetchRequest request, std::size_t frames = 1'000'000) {
    delivered_ = 0;
    const PeerServerDeps with = deps();
    Fetcher fetcher(*here_, std::move(request));
    PeerServer server(with, peer_);
    run(fetcher, server, frames);
    sent_ = fetcher.stats();
    return fetcher.outcome();
  }

  ErrorCode refusal(const GenerationMaker::Made& made) {
    const auto stored = store_there(made);
    EXPECT_FALSE(stored);
    EXPECT_TRUE(there_->list(maker_.job).empty());
    return stored ? ErrorCode::kInternal : stored.error().code;
  }

  GenerationMaker::Made make_here(std::uint32_t generation, int files) {
    std::map<std::string, std::string> contents;
    for (int i = 0; i < files; ++i)
      contents["f" + std::to_string(i)] =
          std::string(3000, static_cast<char>(i + 1)) + std::to_string(i % 2 == 0 ? 0 : generation);
    auto made = maker_.make(generation, contents);
    EXPECT_TRUE(GenerationMaker::store(*here_, made));
    return made;
  }

  static std::string path_of(const EncodedChunk& chunk) {
    const std::string hex = to_hex(chunk.ref.cipher);
    return "/store/chunks/" + hex.substr(0, 2) + "/" + hex;
  }

  ManualClock clock_;
  CrashFs here_fs_;
  CrashFs there_fs_;
  std::uint64_t batch_bytes_ = 32 << 20;
  std::launch flush_ = std::launch::deferred;
  GenerationMaker maker_;
  SeededRng rng_{9};
  crypto::SigningKey coordinator_ = crypto::make_signing_key(rng_);
  crypto::SigningKey holder_ = crypto::make_signing_key(rng_);
  std::unique_ptr<ChunkStore> here_;
  std::unique_ptr<ChunkStore> there_;
  std::unique_ptr<ChunkStore> images_;
  LeaseEpoch newest_;
  NodeId peer_{"n-here"};
  Ticket ticket_;
  std::function<void(PeerFrame&)> tamper_;
  std::size_t delivered_ = 0;
  TransferStats sent_;
};

}  // namespace rn::checkpoint
