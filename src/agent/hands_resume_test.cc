// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "agent/hands_fixture.h"
#include "agent/peers.h"
#include "checkpoint/manifest.h"
#include "checkpoint/peer_link.h"
#include "io/framed.h"
#include "io/tls_fixture.h"
#include "model/codec.h"
#include "model/signing.h"

namespace rn::agent {
namespace {

/// Two generations that another node holds and serves.
class HandsThatResume : public HandsTest {
 protected:
  HandsThatResume() {
    const io::TlsConfig client = site.end(identity_of(identity.node));
    identity.certificate_pem = client.cert_pem;
    identity.key_pem = client.key_pem;
    identity.ca_pem = client.ca_pem;
    make_hands();
    holder_store = open_store("holder");
    deps = std::make_unique<checkpoint::PeerServerDeps>(checkpoint::PeerServerDeps{
        *holder_store,
        nullptr,
        clock,
        NodeId("n-2"),
        "room",
        identity.signing,
        coordinator.public_key,
        seconds(300),
        {},
        {},
        {}});
    io::FramedServerConfig config;
    config.tls = site.end(identity_of(NodeId("n-2")));
    server = *io::FramedServer::start(config, [this](io::FramedConnection& connection) {
      checkpoint::serve_peer(connection, *deps, checkpoint::DriveOptions{seconds(10), {}});
    });
    run(a_start("disk"));
    put(in_work("disk", "same.txt"), "never changes");
    put(in_work("disk", "ckpt.bin"), "step 1");
    first = std::get<SnapshotTaken>(run(a_snapshot(1))).generation;
    put(in_work("disk", "ckpt.bin"), "step 2, longer");
    second = std::get<SnapshotTaken>(run(a_snapshot(2))).generation;
    for (const GenerationRef& ref : {first, second}) copy(*store, *holder_store, ref);
  }

  static void copy(
      checkpoint::ChunkStore& from, checkpoint::ChunkStore& to, const GenerationRef& ref
  ) {
    const SignedManifest sealed = from.load_manifest(ref.job, ref.manifest).value();
    checkpoint::ChunkStore::Session session(to);
    const Manifest manifest = checkpoint::parse_manifest(sealed.body).value();
    for (const ChunkRef& chunk : manifest.chunks)
      ASSERT_TRUE(session.put(chunk.cipher, from.get(chunk.cipher).value()));
    ASSERT_TRUE(session.flush());
    ASSERT_TRUE(to.put_manifest(sealed));
  }

  PeerGrant grant_of(const NodeId& node, std::uint16_t port) {
    Ticket ticket;
    ticket.job = guest.job;
    ticket.epoch = guest.epoch;
    ticket.from = identity.node;
    ticket.to = node;
    ticket.action = TicketAction::kFetch;
    ticket.expiry_wall_ms = to_ms(clock.now().wall) + 60'000;
    ticket.max_bytes = 64 << 20;
    PeerGrant grant;
    grant.node = ticket.to;
    grant.address = "127.0.0.1:" + std::to_string(port);
    grant.ticket = checkpoint::sign_ticket(ticket, coordinator);
    return grant;
  }

  PrepareWork a_resume() {
    PrepareWork w = a_start("other");
    w.resume = second;
    w.resume_previous = first;
    w.resume_from = {grant_of(NodeId("n-2"), server->port())};
    return w;
  }

  /// Other bytes of the same length in every file of the own store below `part`.
  void rot(const std::string& part) {
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder + "/" + part)) {
      if (!file.is_regular_file()) continue;
      const std::string bytes(file.file_size(), '!');
      std::ofstream(file.path()) << bytes;
    }
  }

  /// As serve_peer does, but that each chunk comes with other bytes than its name says.
  static void lie(io::FramedConnection& connection, const checkpoint::PeerServerDeps& deps) {
    const NodeId peer = checkpoint::node_of_identity(connection.peer_identity().value_or(""));
    checkpoint::PeerServer serving(deps, peer);
    while (true) {
      while (auto frame = serving.next()) {
        if (frame->type == checkpoint::PeerFrameType::kChunk) frame->body.back() ^= 1;
        if (!connection.send(static_cast<std::uint8_t>(frame->type), frame->body)) return;
      }
      const auto heard = connection.receive(seconds(10));
      if (!heard) return;
      serving.on_frame(static_cast<checkpoint::PeerFrameType>(heard->type), heard->body);
    }
  }

  void expect_the_newest(const WorkResult& restored, const std::string& note = "") {
    ASSERT_TRUE(std::holds_alternative<WorkPrepared>(restored))
        << std::get<Error>(restored).describe();
    EXPECT_EQ(std::get<WorkPrepared>(restored).restored.generation, 2u);
    EXPECT_EQ(std::get<WorkPrepared>(restored).note, note);
    EXPECT_EQ(text_of(in_work("other", "ckpt.bin")), "step 2, longer");
    EXPECT_EQ(text_of(in_work("other", "same.txt")), "never changes");
  }

  io::Site site;
  crypto::SigningKey coordinator = crypto::make_signing_key(rng);
  std::unique_ptr<checkpoint::ChunkStore> holder_store;
  std::unique_ptr<checkpoint::PeerServerDeps> deps;
  std::unique_ptr<io::FramedServer> server;
  GenerationRef first;
  GenerationRef second;
};

/// A guest that goes on from the second generation, and how it left its folder.
class HandsAfterAResume : public HandsThatResume {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::holds_alternative<WorkPrepared>(run(a_resume())));
    // Files carry the kernel's tick: what is laid out lies before the guest's begin, what it writes
    // after it.
    std::this_thread::sleep_for(milliseconds(20));
    guest_since_ns_ = (to_ms(clock.now().wall) + 1) * 1'000'000;
    std::this_thread::sleep_for(milliseconds(20));
  }

  bool is_a_generation() {
    TakeSnapshot w = a_snapshot(3);
    w.disk = folder + "/other";
    w.epoch = {1, 2};
    w.parent = second;
    w.guest_since_ns = guest_since_ns_;
    w.spec.paths = {"ckpt.bin", "checkpoint/"};
    w.spec.temporary = {"*.tmp"};
    const WorkResult result = run(w);
    EXPECT_FALSE(std::holds_alternative<Error>(result));
    return std::holds_alternative<SnapshotTaken>(result);
  }

  std::int64_t guest_since_ns_ = 0;
};

TEST_F(HandsAfterAResume, who_has_written_nothing_makes_no_generation) {
  EXPECT_FALSE(is_a_generation());
}

TEST_F(HandsAfterAResume, who_has_written_only_what_is_temporary_makes_no_generation) {
  put(in_work("other", "ckpt.tmp"), "half");

  EXPECT_FALSE(is_a_generation());
}

TEST_F(HandsAfterAResume, who_has_written_beside_the_checkpoint_makes_one) {
  put(in_work("other", "state.npz"), "what nobody takes for a checkpoint");

  EXPECT_TRUE(is_a_generation());
}

TEST_F(HandsAfterAResume, who_has_saved_makes_one) {
  put(in_work("other", "ckpt.bin"), "step 3, longer still");

  EXPECT_TRUE(is_a_generation());
}

TEST_F(HandsAfterAResume, who_has_saved_the_same_bytes_with_an_old_time_makes_one) {
  const std::filesystem::path file = folder + "/" + in_work("other", "ckpt.bin");
  const auto old = std::filesystem::last_write_time(file);
  put(in_work("other", "ckpt.bin"), "step 2, longer");
  std::filesystem::last_write_time(file, old);

  EXPECT_TRUE(is_a_generation());
}

TEST_F(HandsAfterAResume, who_has_saved_after_the_clock_was_set_back_makes_one) {
  put(in_work("other", "ckpt.bin"), "step 3, longer still");
  guest_since_ns_ += std::int64_t{3600} * 1'000'000'000;

  EXPECT_TRUE(is_a_generation());
}

class HandsAfterAResumeOfAFolder : public HandsAfterAResume {
 protected:
  void SetUp() override {
    put(in_work("disk", "checkpoint/model"), "step 3");
    put(in_work("disk", "checkpoint/old"), "step 2");
    TakeSnapshot w = a_snapshot(2);
    w.spec.paths = {"ckpt.bin", "checkpoint/"};
    const WorkResult taken = run(w);
    ASSERT_TRUE(std::holds_alternative<SnapshotTaken>(taken));
    second = std::get<SnapshotTaken>(taken).generation;
    HandsAfterAResume::SetUp();
  }
};

TEST_F(HandsAfterAResumeOfAFolder, who_has_written_nothing_makes_no_generation) {
  EXPECT_FALSE(is_a_generation());
}

TEST_F(HandsAfterAResumeOfAFolder, who_has_removed_a_file_of_it_makes_one) {
  std::filesystem::remove(folder + "/" + in_work("other", "checkpoint/old"));

  EXPECT_TRUE(is_a_generation());
}

TEST_F(HandsThatResume, a_chunk_that_rotted_here_before_the_fetch_is_fetched_too) {
  ASSERT_TRUE(store->forget(guest.job));
  copy(*holder_store, *store, first);  // with a chunk of the second
  rot("chunks/chunks");

  expect_the_newest(run(a_resume()));
}

TEST_F(HandsThatResume, chunks_and_manifests_that_rotted_here_are_fetched_again) {
  rot("chunks");

  expect_the_newest(run(a_resume()));
}

TEST_F(HandsThatResume, a_holder_that_lacks_a_chunk_is_not_the_last_one_asked) {
  const auto poor = open_store("poor");
  copy(*holder_store, *poor, second);
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder + "/poor/chunks"))
    if (file.is_regular_file()) std::ofstream(file.path()) << "rotten";
  checkpoint::PeerServerDeps poor_deps{
      *poor,
      nullptr,
      clock,
      NodeId("n-3"),
      "room",
      identity.signing,
      coordinator.public_key,
      seconds(300),
      {},
      {},
      {}};
  io::FramedServerConfig config;
  config.tls = site.end(identity_of(NodeId("n-3")));
  const auto poor_server = *io::FramedServer::start(config, [&](io::FramedConnection& connection) {
    checkpoint::serve_peer(connection, poor_deps, checkpoint::DriveOptions{seconds(10), {}});
  });
  ASSERT_TRUE(store->forget(guest.job));
  rot("chunks/chunks");
  PrepareWork w = a_resume();
  w.resume_from.insert(w.resume_from.begin(), grant_of(NodeId("n-3"), poor_server->port()));

  expect_the_newest(run(w));
}

TEST_F(HandsThatResume, a_holder_that_lies_about_its_chunks_is_named_and_the_next_one_is_asked) {
  checkpoint::PeerServerDeps lying = *deps;
  lying.self = NodeId("n-3");
  io::FramedServerConfig config;
  config.tls = site.end(identity_of(NodeId("n-3")));
  const auto liar = *io::FramedServer::start(config, [&](io::FramedConnection& connection) {
    lie(connection, lying);
  });
  ASSERT_TRUE(store->forget(guest.job));
  rot("chunks/chunks");
  PrepareWork w = a_resume();
  w.resume_from.insert(w.resume_from.begin(), grant_of(NodeId("n-3"), liar->port()));

  expect_the_newest(
      run(w), "what n-3 served of it was not believed (the peer sent a chunk with other bytes)"
  );
}

TEST_F(HandsThatResume, holders_that_cannot_be_reached_are_named_and_nothing_older_is_taken) {
  ASSERT_TRUE(store->forget(guest.job));
  copy(*holder_store, *store, first);
  PrepareWork w = a_resume();
  w.resume_from = {grant_of(NodeId("n-2"), 1), grant_of(NodeId("n-3"), 1)};

  const WorkResult result = run(w);

  const auto* const away = std::get_if<HoldersAway>(&result);
  ASSERT_NE(away, nullptr);
  EXPECT_EQ(away->generation, 2u);
  EXPECT_EQ(away->holders, (std::vector{NodeId("n-2"), NodeId("n-3")}));
  EXPECT_NE(away->why.find("generation 2"), std::string::npos) << away->why;
}

TEST_F(HandsThatResume, one_that_lacks_it_is_not_waited_for) {
  checkpoint::ChunkStore& poor = *holder_store;
  ASSERT_TRUE(store->forget(guest.job));
  ASSERT_TRUE(poor.forget(guest.job));
  PrepareWork w = a_resume();
  w.resume_from.push_back(grant_of(NodeId("n-3"), 1));

  const WorkResult result = run(w);

  const auto* const away = std::get_if<HoldersAway>(&result);
  ASSERT_NE(away, nullptr);
  EXPECT_EQ(away->holders, std::vector{NodeId("n-3")});
}

TEST_F(HandsTest, what_nobody_has_any_more_and_nothing_is_before_is_no_fresh_start) {
  GenerationRef none;
  none.job = guest.job;
  PrepareWork w = a_start_after_one_that_nobody_has(none);
  w.resume_previous = {};

  const WorkResult restored = run(w);

  ASSERT_TRUE(std::holds_alternative<Error>(restored)) << "its work is lost without a word";
  EXPECT_EQ(std::get<Error>(restored).code, ErrorCode::kNotFound);
}

TEST_F(HandsTest, a_listing_of_another_workspace_that_lies_here_is_not_taken) {
  PrepareWork w = a_start("disk");
  w.workspace = crypto::sha256(as_bytes("the wanted one"));
  const std::string path = join_path(guests->folder(guest), "base.cbor");
  ASSERT_TRUE(make_folders(fs, parent_folder(path), 0700));
  ASSERT_TRUE(write_durably(fs, path, to_cbor(Listing{}), 0600));

  const WorkResult prepared = run(w);

  ASSERT_TRUE(std::holds_alternative<Error>(prepared));
  EXPECT_EQ(std::get<Error>(prepared).code, ErrorCode::kUnavailable) << "nobody else has it here";
}

TEST_F(HandsTest, an_archive_that_rotted_here_is_made_again) {
  const FetchImage image = an_image(7, 4096);
  const std::string path = std::get<ImageFetched>(run(image)).archive_path;
  std::ofstream(path) << "rotten";

  const WorkResult again = run(image);

  ASSERT_TRUE(std::holds_alternative<ImageFetched>(again)) << std::get<Error>(again).describe();
  EXPECT_EQ("sha256:" + to_hex(crypto::sha256(*read_all(fs, path, 1 << 20))), image.digest);
}

TEST_F(HandsTest, the_last_snapshot_looks_for_itself_what_there_is) {
  run(a_start("disk"));
  put(in_work("disk", "ckpt.bin"), "step 1");
  guests->entry(guest)->ready = checkpoint::GenerationReady{{"gone.bin", false}, true, false, {}};

  EXPECT_TRUE(std::holds_alternative<SnapshotTaken>(run(a_snapshot(1))));
}

TEST_F(HandsTest, a_generation_names_the_one_before_it) {
  run(a_start("disk"));
  put(in_work("disk", "ckpt.bin"), "step 1");
  const auto first = std::get<SnapshotTaken>(run(a_snapshot(1))).generation;
  put(in_work("disk", "ckpt.bin"), "step 2, longer");
  TakeSnapshot w = a_snapshot(2);
  w.parent = first;

  const auto second = std::get<SnapshotTaken>(run(w)).generation;

  const SignedManifest sealed_manifest = store->load_manifest(guest.job, second.manifest).value();
  EXPECT_EQ(checkpoint::parse_manifest(sealed_manifest.body)->parent, first.manifest);
}

TEST_F(HandsTest, a_rate_that_the_owner_allows_is_set_on_the_connection) {
  PeerGrant peer;
  peer.node = NodeId("n-2");
  peer.address = "127.0.0.1:1";

  EXPECT_TRUE(
      target_of(identity, peer, std::make_shared<TransferGauge>(8000), is_cancelled)->on_connected
  );
  EXPECT_FALSE(target_of(identity, peer, nullptr, is_cancelled)->on_connected);
}

}  // namespace
}  // namespace rn::agent
