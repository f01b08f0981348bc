// SPDX-License-Identifier: Apache-2.0
// Two nodes over real loopback TLS.
#include "checkpoint/peer_link.h"

#include <condition_variable>
#include <future>
#include <mutex>

#include <gtest/gtest.h>

#include "base/fs_crash.h"
#include "checkpoint/generation_fake.h"
#include "checkpoint/manifest.h"
#include "io/tls_fixture.h"

namespace rn::checkpoint {
namespace {

TEST(PeerLink, identities_name_nodes_and_nothing_else) {
  EXPECT_EQ(node_of_identity("spiffe://site/node/n-12"), NodeId("n-12"));
  EXPECT_TRUE(node_of_identity("spiffe://site/coordinator").empty());
  EXPECT_TRUE(node_of_identity("spiffe://site/node/n-12/more").empty());
  EXPECT_TRUE(node_of_identity("https://site/node/n-12").empty());
  EXPECT_TRUE(node_of_identity("").empty());
}

class PeerLinkTest : public ::testing::Test {
 protected:
  PeerLinkTest() : here_fs_(clock_, 1), there_fs_(clock_, 2) {
    here_ = open(here_fs_);
    there_ = open(there_fs_);
    deps_ = std::make_unique<PeerServerDeps>(PeerServerDeps{
        *there_,
        nullptr,
        clock_,
        NodeId("n-2"),
        "room",
        holder_,
        coordinator_.public_key,
        seconds(300),
        {},
        {},
        {}});
    io::FramedServerConfig config;
    config.tls = site_.end("spiffe://site/node/n-2");
    server_ =
        io::FramedServer::start(config, [this](io::FramedConnection& connection) {
          const TransferStats stats = serve_peer(connection, *deps_, DriveOptions{seconds(10), {}});
          const std::lock_guard lock(mutex_);
          served_.push_back(stats);
          has_served_.notify_all();
        }).value();
    target_.host = "127.0.0.1";
    target_.port = server_->port();
    target_.expected_identity = "spiffe://site/node/n-2";
    target_.tls = site_.end("spiffe://site/node/n-1");
    target_.drive.frame_timeout = seconds(10);
  }

  std::unique_ptr<ChunkStore> open(CrashFs& fs) {
    StoreOptions options;
    options.root = "/store";
    options.reserve_free_bytes = 0;
    return ChunkStore::open(fs, clock_, options).value();
  }

  /// What the connections so far brought, as their server counts; waits for so many to be over.
  TransferStats served(std::size_t connections) {
    std::unique_lock lock(mutex_);
    const bool are_over =
        has_served_.wait_for(lock, seconds(10), [&] { return served_.size() >= connections; });
    EXPECT_TRUE(are_over);
    TransferStats sum;
    for (const TransferStats& one : served_) {
      sum.chunks += one.chunks;
      sum.bytes += one.bytes;
    }
    return sum;
  }

  Ticket ticket(TicketAction action, const std::string& from) {
    Ticket out;
    out.job = maker_.job;
    out.epoch = {1, 1};
    out.from = NodeId(from);
    out.to = NodeId("n-2");
    out.action = action;
    out.expiry_wall_ms = to_ms(clock_.now().wall) + 60'000;
    out.max_bytes = 64 << 20;
    return sign_ticket(out, coordinator_);
  }

  ManualClock clock_;
  CrashFs here_fs_;
  CrashFs there_fs_;
  GenerationMaker maker_;
  SeededRng rng_{9};
  crypto::SigningKey coordinator_ = crypto::make_signing_key(rng_);
  crypto::SigningKey holder_ = crypto::make_signing_key(rng_);
  std::unique_ptr<ChunkStore> here_;
  std::unique_ptr<ChunkStore> there_;
  std::unique_ptr<PeerServerDeps> deps_;
  io::Site site_;
  std::mutex mutex_;  ///< guards served_
  std::condition_variable has_served_;
  std::vector<TransferStats> served_;
  std::unique_ptr<io::FramedServer> server_;
  PeerTarget target_;
};

TEST_F(PeerLinkTest, a_generation_goes_over_and_comes_back) {
  Blob large(3 << 20);
  rng_.fill(large);
  const auto made = maker_.make(1, {{"a.pt", std::string(as_text(large))}, {"b.txt", "small"}});
  ASSERT_TRUE(GenerationMaker::store(*here_, made));
  TransferStats stats;

  const auto receipt = send_generation(
      target_, *here_, ticket(TicketAction::kStore, "n-1"), maker_.job, made.hash, &stats
  );

  ASSERT_TRUE(receipt) << receipt.error().describe();
  EXPECT_TRUE(is_signed_by(*receipt, holder_.public_key));
  EXPECT_EQ(stats.chunks, 2U);
  ASSERT_TRUE(here_->forget(maker_.job));
  const auto fetched =
      fetch_from(target_, *here_, {ticket(TicketAction::kFetch, "n-1"), made.hash, {}}, &stats);
  ASSERT_TRUE(fetched) << fetched.error().describe();
  EXPECT_TRUE(fetched->generation);
  EXPECT_TRUE(here_->verify(maker_.job, made.hash));
}

TEST_F(PeerLinkTest, a_generation_goes_ahead_of_its_manifest) {
  Blob large(3 << 20);
  rng_.fill(large);
  const auto made = maker_.make(1, {{"a.pt", std::string(as_text(large))}, {"b.txt", "small"}});
  ChunkTap tap;
  ASSERT_TRUE(
      tap.offer({made.chunks[0].ref.cipher, std::make_shared<const Blob>(made.chunks[0].stored)})
  );
  TransferStats stats;
  auto receipt = std::async(std::launch::async, [&] {
    return send_ahead(target_, *here_, ticket(TicketAction::kStore, "n-1"), tap, &stats);
  });
  ASSERT_TRUE(GenerationMaker::store(*here_, made));
  tap.release(describe(made.manifest, made.hash));

  const auto answer = receipt.get();

  ASSERT_TRUE(answer) << answer.error().describe();
  EXPECT_TRUE(is_signed_by(*answer, holder_.public_key));
  EXPECT_EQ(stats.chunks, 2U);
  EXPECT_TRUE(there_->verify(maker_.job, made.hash));
}

TEST_F(PeerLinkTest, a_copy_ahead_of_a_capture_that_is_given_up_ends_when_it_is_told_to_stop) {
  ChunkTap tap;
  target_.drive.should_stop = [] { return true; };
  const auto receipt = send_ahead(target_, *here_, ticket(TicketAction::kStore, "n-1"), tap);

  ASSERT_FALSE(receipt);
  EXPECT_EQ(receipt.error().code, ErrorCode::kTimeout);
  EXPECT_FALSE(tap.offer({{}, std::make_shared<const Blob>(1)}));
}

TEST_F(PeerLinkTest, who_loses_its_turn_ends_the_chunk_under_way_and_nothing_of_it_is_sent_twice) {
  std::map<std::string, std::string> files;
  for (int i = 0; i < 8; ++i) {
    Blob bytes(256 << 10);
    rng_.fill(bytes);
    files["f" + std::to_string(i)] = std::string(as_text(bytes));
  }
  const auto made = maker_.make(1, files);
  ASSERT_TRUE(GenerationMaker::store(*here_, made));
  std::uint64_t all = 0;
  for (const EncodedChunk& chunk : made.chunks) all += chunk.stored.size();
  // Slow, so that most of it is still in the kernel when the connection is given up.
  target_.on_connected = [](io::FramedConnection& c) { ASSERT_TRUE(c.set_pacing_rate(4 << 20)); };
  std::size_t sent = 0;
  target_.drive.on_progress = [&](std::optional<std::uint64_t> left) { sent += left ? 1 : 0; };
  target_.drive.should_stop = [&] { return sent == 3; };
  const Ticket may = ticket(TicketAction::kStore, "n-1");
  TransferStats first;
  const auto stopped = send_generation(target_, *here_, may, maker_.job, made.hash, &first);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(first.chunks, 3U);
  const TransferStats arrived = served(1);
  EXPECT_EQ(arrived.chunks, first.chunks) << "the last one, too, to its end";
  EXPECT_EQ(arrived.bytes, first.bytes);

  target_.drive.should_stop = {};
  TransferStats second;
  const auto receipt = send_generation(target_, *here_, may, maker_.job, made.hash, &second);

  ASSERT_TRUE(receipt) << receipt.error().describe();
  EXPECT_EQ(second.skipped, 3U);
  EXPECT_EQ(second.chunks, 5U);
  EXPECT_EQ(first.bytes + second.bytes, all);
  EXPECT_EQ(served(2).bytes, all);
}

TEST_F(PeerLinkTest, a_ticket_of_another_node_than_the_certificates_is_refused_with_the_reason) {
  const auto made = maker_.make(1, {{"a.pt", "x"}});
  ASSERT_TRUE(GenerationMaker::store(*here_, made));

  const auto receipt =
      send_generation(target_, *here_, ticket(TicketAction::kStore, "n-9"), maker_.job, made.hash);

  ASSERT_FALSE(receipt);
  EXPECT_EQ(receipt.error().code, ErrorCode::kDenied);
  EXPECT_NE(receipt.error().message.find("n-9"), std::string::npos);
}

TEST_F(PeerLinkTest, a_refusal_in_the_middle_of_sending_reaches_the_sender) {
  std::map<std::string, std::string> files;
  for (int i = 0; i < 8; ++i) {
    Blob bytes(4 << 20);
    rng_.fill(bytes);
    files["f" + std::to_string(i)] = std::string(as_text(bytes));
  }
  const auto made = maker_.make(1, files);
  ASSERT_TRUE(GenerationMaker::store(*here_, made));
  there_fs_.set_capacity(there_fs_.used_bytes() + (6 << 20));

  const auto receipt =
      send_generation(target_, *here_, ticket(TicketAction::kStore, "n-1"), maker_.job, made.hash);

  ASSERT_FALSE(receipt);
  EXPECT_EQ(receipt.error().code, ErrorCode::kExhausted) << receipt.error().describe();
}

TEST_F(PeerLinkTest, being_told_to_stop_and_a_dead_peer_are_errors_that_may_be_retried) {
  const auto made = maker_.make(1, {{"a.pt", "x"}});
  ASSERT_TRUE(GenerationMaker::store(*here_, made));
  target_.drive.should_stop = [] { return true; };
  EXPECT_EQ(
      send_generation(target_, *here_, ticket(TicketAction::kStore, "n-1"), maker_.job, made.hash)
          .error()
          .code,
      ErrorCode::kTimeout
  );

  target_.drive.should_stop = {};
  server_.reset();
  const auto sent =
      send_generation(target_, *here_, ticket(TicketAction::kStore, "n-1"), maker_.job, made.hash);
  ASSERT_FALSE(sent);
  EXPECT_TRUE(is_retryable(sent.error().code)) << sent.error().describe();
}

}  // namespace
}  // namespace rn::checkpoint
