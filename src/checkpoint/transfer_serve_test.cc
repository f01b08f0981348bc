// SPDX-License-Identifier: Apache-2.0
// What a serving end knows of a fetch: who fetches, and how much is still to be sent.
#include <map>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/transfer_fixture.h"

namespace rn::checkpoint {
namespace {

class ServeTest : public TransferTest {
 protected:
  ServeTest() { ticket_.action = TicketAction::kFetch; }

  static std::uint64_t bytes_of(const GenerationMaker::Made& made) {
    std::uint64_t bytes = 0;
    for (const ChunkRef& chunk : made.manifest.chunks) bytes += chunk.cipher_bytes;
    return bytes;
  }

  /// Runs a fetch and calls `look` whenever the server has sent a frame.
  void serve(
      FetchRequest request,
      const std::function<void(const PeerServer&)>& look,
      const std::function<void(const Ticket&)>& on_fetch = {}
  ) {
    PeerServerDeps with = deps();
    with.on_fetch = on_fetch;
    Fetcher fetcher(*here_, std::move(request));
    PeerServer server(with, peer_);
    while (!fetcher.is_finished()) {
      while (auto frame = fetcher.next()) server.on_frame(frame->type, frame->body);
      auto frame = server.next();
      ASSERT_TRUE(frame) << "nobody has anything to say";
      look(server);
      fetcher.on_frame(frame->type, frame->body);
    }
    ASSERT_TRUE(fetcher.outcome()) << fetcher.outcome().error().describe();
  }

  std::optional<std::uint64_t> ask(PeerServer& server, const std::vector<Digest>& digests) {
    const PeerFrame question = encode_digests(PeerFrameType::kWantChunks, digests);
    server.on_frame(question.type, question.body);
    return server.bytes_left();
  }
};

TEST_F(ServeTest, what_is_left_of_a_restore_is_known_once_its_manifest_is_and_sinks_to_nothing) {
  const auto made = make_there(1, 200);  // more than one question
  std::vector<std::optional<std::uint64_t>> seen;

  serve({signed_ticket(), made.hash, {}}, [&](const PeerServer& server) {
    seen.push_back(server.bytes_left());
  });

  ASSERT_GT(seen.size(), 200u);
  EXPECT_FALSE(seen[0]) << "the welcome";
  EXPECT_EQ(seen[1], bytes_of(made)) << "the manifest";
  for (std::size_t i = 2; i < seen.size(); ++i) {
    ASSERT_TRUE(seen[i]);
    EXPECT_LE(*seen[i], *seen[i - 1]) << i;
  }
  EXPECT_EQ(seen.back(), 0u);
}

TEST_F(ServeTest, what_the_peer_has_already_is_not_expected_to_be_asked_for) {
  const auto first = make_there(1, 200);
  ASSERT_TRUE(fetch_here({signed_ticket(), first.hash, {}}));
  const auto second = make_there(2, 200);  // half of it is the first one's
  std::vector<std::uint64_t> seen;

  serve({signed_ticket(), second.hash, {}}, [&](const PeerServer& server) {
    if (const auto left = server.bytes_left()) seen.push_back(*left);
  });

  ASSERT_EQ(seen.size(), 101u);
  EXPECT_EQ(seen.front(), bytes_of(second)) << "until the first question";
  EXPECT_EQ(seen.back(), 0u);
}

TEST_F(ServeTest, who_asks_for_the_same_again_and_again_does_not_make_the_rest_larger) {
  const auto made = make_there(1, 200);
  const PeerServerDeps with = deps();
  PeerServer server(with, peer_);
  const PeerFrame hello = encode_hello({kPeerProtocol, kPeerProtocolOldest, signed_ticket()});
  server.on_frame(hello.type, hello.body);
  const PeerFrame manifest = encode_digests(PeerFrameType::kWantManifest, std::span(&made.hash, 1));
  server.on_frame(manifest.type, manifest.body);
  while (server.next()) {
  }
  const auto& chunks = made.manifest.chunks;
  const auto late = ask(server, {chunks[150].cipher});
  while (server.next()) {
  }

  const auto early = ask(server, {chunks[0].cipher});

  ASSERT_TRUE(late && early);
  EXPECT_LE(*early, *late - chunks[150].cipher_bytes + chunks[0].cipher_bytes);
}

TEST_F(ServeTest, of_an_image_it_knows_what_was_asked) {
  CrashFs images_fs(clock_, 3);
  images_ = open(images_fs);
  const Blob piece(4000, 7);
  const Digest name = crypto::sha256(piece);
  {
    ChunkStore::Session session(*images_);
    ASSERT_TRUE(session.put(name, piece));
    ASSERT_TRUE(session.flush());
  }
  ticket_.action = TicketAction::kFetchImage;
  ticket_.image = "sha256:base";
  const PeerServerDeps with = deps();
  std::optional<PeerServer> served(std::in_place, with, peer_);
  PeerServer& server = *served;
  const PeerFrame hello = encode_hello({kPeerProtocol, kPeerProtocolOldest, signed_ticket()});
  server.on_frame(hello.type, hello.body);
  EXPECT_EQ(server.bytes_left(), 0u);
  (void)server.next();

  EXPECT_EQ(ask(server, {name}), 4000u);
  (void)server.next();
  EXPECT_EQ(server.bytes_left(), 0u);
  served.reset();
  images_.reset();
}

TEST_F(ServeTest, a_ticket_for_a_link_opens_nothing_of_the_store) {
  ticket_.action = TicketAction::kLink;
  const PeerServerDeps with = deps();
  PeerServer server(with, peer_);
  const PeerFrame hello = encode_hello({kPeerProtocol, kPeerProtocolOldest, signed_ticket()});

  server.on_frame(hello.type, hello.body);

  ASSERT_TRUE(server.refusal());
  EXPECT_EQ(server.refusal()->code, ErrorCode::kDenied);
  (void)server.next();
  EXPECT_TRUE(server.is_finished());
}

TEST_F(ServeTest, a_fetch_is_told_with_its_ticket_and_a_copy_is_not) {
  const auto made = make_there(1, 3);
  std::vector<Ticket> told;
  const auto keep = [&](const Ticket& ticket) { told.push_back(ticket); };

  serve(
      {signed_ticket(), made.hash, {}}, [](const PeerServer&) {}, keep
  );

  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].job, maker_.job);
  EXPECT_EQ(told[0].from, NodeId("n-here"));

  told.clear();
  ticket_.action = TicketAction::kStore;
  PeerServerDeps with = deps();
  with.on_fetch = keep;
  PeerServer server(with, peer_);
  const PeerFrame hello = encode_hello({kPeerProtocol, kPeerProtocolOldest, signed_ticket()});
  server.on_frame(hello.type, hello.body);
  EXPECT_TRUE(told.empty());
  EXPECT_FALSE(server.bytes_left()) << "it receives";
}

TEST_F(ServeTest, a_ticket_that_is_refused_fetches_nothing) {
  ticket_.expiry_wall_ms = 1;
  int told = 0;
  PeerServerDeps with = deps();
  with.clock_tolerance = seconds(0);
  with.on_fetch = [&](const Ticket&) { ++told; };
  clock_.advance(seconds(5));
  PeerServer server(with, peer_);

  const PeerFrame hello = encode_hello({kPeerProtocol, kPeerProtocolOldest, signed_ticket()});
  server.on_frame(hello.type, hello.body);

  EXPECT_TRUE(server.refusal());
  EXPECT_EQ(told, 0);
}

}  // namespace
}  // namespace rn::checkpoint
