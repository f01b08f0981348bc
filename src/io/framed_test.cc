// SPDX-License-Identifier: Apache-2.0
#include "io/framed.h"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>

#include "io/loop_fixture.h"
#include "io/net.h"
#include "io/tls_fixture.h"

namespace rn::io {
namespace {

const WallTime kToday = RealClock().now().wall;

void echo(FramedConnection& connection) {
  for (;;) {
    auto frame = connection.receive(kLimit);
    if (!frame) return;
    if (!connection.send(frame->type, frame->body)) return;
  }
}

class Framed : public ::testing::Test {
 protected:
  void start(FramedServer::Handler handler = echo, std::size_t max_frame = kMaxFrameBytes) {
    FramedServerConfig config;
    config.tls = site_.server();
    config.max_connections = 3;
    config.max_frame_bytes = max_frame;
    config.handshake_timeout = milliseconds(500);
    auto server = FramedServer::start(config, std::move(handler));
    ASSERT_TRUE(server) << server.error().describe();
    server_ = std::move(*server);
  }

  FramedClientConfig to_server(TlsConfig tls) const {
    FramedClientConfig config;
    config.host = "127.0.0.1";
    config.port = server_->port();
    config.tls = std::move(tls);
    return config;
  }

  Result<std::unique_ptr<FramedConnection>> connect() {
    return FramedConnection::connect(to_server(site_.client()));
  }

  /// TLS 1.3 tells a client only with its first data that the server did not accept it.
  static ErrorCode outcome(Result<std::unique_ptr<FramedConnection>> connection) {
    if (!connection) return connection.error().code;
    const auto frame = (*connection)->receive(kLimit);
    EXPECT_FALSE(frame);
    return frame ? ErrorCode::kInternal : frame.error().code;
  }

  Site site_;
  std::unique_ptr<FramedServer> server_;
};

TEST(FrameDecoder, takes_frames_from_single_bytes) {
  FrameDecoder decoder(100);
  const Blob wire = {2, 0, 0, 0, 7, 'h', 'i', 0, 0, 0, 0, 9};
  std::vector<Frame> frames;

  for (const std::uint8_t byte : wire) {
    BlobView one(&byte, 1);
    auto frame = decoder.take(one);
    ASSERT_TRUE(frame);
    if (*frame) frames.push_back(**frame);
  }

  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(frames[0].type, 7);
  EXPECT_EQ(as_text(frames[0].body), "hi");
  EXPECT_EQ(frames[1].type, 9);
  EXPECT_TRUE(frames[1].body.empty());
  EXPECT_TRUE(decoder.is_between_frames());
}

TEST(FrameDecoder, refuses_a_frame_over_the_bound_by_its_header) {
  FrameDecoder decoder(100);
  const auto header = encode_frame_header(1, 101);
  BlobView in(header);

  EXPECT_EQ(decoder.take(in).error().code, ErrorCode::kInvalid);
}

TEST_F(Framed, carries_small_and_large_frames_both_ways_and_names_the_peer) {
  std::string seen_identity;
  start([&](FramedConnection& connection) {
    seen_identity = connection.peer_identity().value_or("none");
    echo(connection);
  });
  auto connection = connect();
  ASSERT_TRUE(connection) << connection.error().describe();
  Blob large(5'000'000);
  for (std::size_t i = 0; i < large.size(); ++i)
    large[i] = static_cast<std::uint8_t>(i * 7 + i / 251);

  std::thread sender([&] {
    EXPECT_TRUE((*connection)->send(1, as_bytes("hello")));
    EXPECT_TRUE((*connection)->send(2, large));
    EXPECT_TRUE((*connection)->send(3, {}));
  });
  const auto small = (*connection)->receive(kLimit);
  const auto big = (*connection)->receive(kLimit);
  const auto empty = (*connection)->receive(kLimit);
  sender.join();

  ASSERT_TRUE(small && big && empty);
  EXPECT_EQ(as_text(small->body), "hello");
  EXPECT_EQ(big->type, 2);
  EXPECT_TRUE(big->body == large);
  EXPECT_EQ(empty->type, 3);
  EXPECT_EQ(seen_identity, kClientIdentity);
  EXPECT_EQ((*connection)->peer_identity(), kServerIdentity);
  EXPECT_EQ((*connection)->bytes_sent(), 5'000'000U + 5 + 3 * 5);
  EXPECT_EQ((*connection)->bytes_received(), (*connection)->bytes_sent());
}

TEST_F(Framed, a_timeout_leaves_the_connection_good) {
  start();
  auto connection = connect();
  ASSERT_TRUE(connection);

  EXPECT_EQ((*connection)->receive(milliseconds(10)).error().code, ErrorCode::kTimeout);
  ASSERT_TRUE((*connection)->send(1, as_bytes("still there")));

  EXPECT_EQ(as_text((*connection)->receive(kLimit)->body), "still there");
}

TEST_F(Framed, ed25519_authorities_and_keys_serve_as_well) {
  site_.authority = *CertificateAuthority::create("ed", kToday, KeyKind::kEd25519);
  start();

  const auto connection =
      FramedConnection::connect(to_server(site_.end(kClientIdentity, kToday, KeyKind::kEd25519)));

  ASSERT_TRUE(connection) << connection.error().describe();
  ASSERT_TRUE((*connection)->send(1, as_bytes("hi")));
  EXPECT_EQ(as_text((*connection)->receive(kLimit)->body), "hi");
}

TEST_F(Framed, refuses_a_server_of_another_authority_name_or_time) {
  start();
  const Site other;
  TlsConfig wrong_ca = site_.client();
  wrong_ca.ca_pem = other.authority.certificate_pem();
  TlsConfig wrong_peer = site_.client();
  wrong_peer.expected_peer = "spiffe://site/node/n-2";
  TlsConfig right_peer = site_.client();
  right_peer.expected_peer = kServerIdentity;

  EXPECT_EQ(outcome(FramedConnection::connect(to_server(wrong_ca))), ErrorCode::kDenied);
  EXPECT_EQ(outcome(FramedConnection::connect(to_server(wrong_peer))), ErrorCode::kDenied);
  EXPECT_TRUE(FramedConnection::connect(to_server(right_peer)));
}

TEST_F(Framed, checks_the_host_when_no_identity_is_expected) {
  start();
  TlsConfig nowhere = site_.client();
  FramedServerConfig config;
  config.tls = site_.server();
  CertificateSpec spec;
  spec.dns_names = {"elsewhere.lab"};
  config.tls.cert_pem =
      *site_.authority.issue(*public_key_of(config.tls.key_pem), spec, RealClock().now().wall);
  ASSERT_TRUE(server_->reload_tls(config.tls));

  const auto connection = FramedConnection::connect(to_server(nowhere));

  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code, ErrorCode::kDenied);
  EXPECT_FALSE(connection.error().hint.empty());
}

TEST_F(Framed, pins_the_authority_by_fingerprint_alone) {
  start();
  TlsConfig pinned = site_.client();
  pinned.ca_pem.clear();
  pinned.ca_fingerprint = site_.authority.fingerprint();
  TlsConfig wrong = pinned;
  wrong.ca_fingerprint = Site().authority.fingerprint();
  TlsConfig leaf_instead = pinned;
  leaf_instead.ca_fingerprint = *certificate_fingerprint(site_.server().cert_pem);
  TlsConfig nothing = pinned;
  nothing.ca_fingerprint.clear();

  EXPECT_TRUE(FramedConnection::connect(to_server(pinned)));
  EXPECT_EQ(outcome(FramedConnection::connect(to_server(wrong))), ErrorCode::kDenied);
  EXPECT_EQ(outcome(FramedConnection::connect(to_server(leaf_instead))), ErrorCode::kDenied);
  EXPECT_EQ(FramedConnection::connect(to_server(nothing)).error().code, ErrorCode::kInvalid);
}

TEST_F(Framed, refuses_clients_without_certificate_expired_or_of_another_authority) {
  start([](FramedConnection&) { ADD_FAILURE() << "a stranger was served"; });
  TlsConfig anonymous = site_.client();
  anonymous.cert_pem.clear();
  const TlsConfig expired = site_.end(kClientIdentity, kToday - std::chrono::hours(24 * 30));
  const TlsConfig early = site_.end(kClientIdentity, kToday + std::chrono::hours(24));
  TlsConfig foreign = Site().client();
  foreign.ca_pem = site_.authority.certificate_pem();

  EXPECT_EQ(outcome(FramedConnection::connect(to_server(anonymous))), ErrorCode::kDenied);
  EXPECT_EQ(outcome(FramedConnection::connect(to_server(foreign))), ErrorCode::kDenied);
  EXPECT_EQ(outcome(FramedConnection::connect(to_server(expired))), ErrorCode::kDenied);
  EXPECT_EQ(outcome(FramedConnection::connect(to_server(early))), ErrorCode::kDenied);
}

TEST_F(Framed, both_sides_end_on_an_oversize_frame) {
  std::atomic<int> server_code{-1};
  start(
      [&](FramedConnection& connection) {
        const auto frame = connection.receive(kLimit);
        server_code = frame ? -2 : static_cast<int>(frame.error().code);
      },
      1000
  );
  auto connection = connect();
  ASSERT_TRUE(connection);

  ASSERT_TRUE((*connection)->send(1, Blob(1001)));

  EXPECT_EQ((*connection)->receive(kLimit).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(server_code, static_cast<int>(ErrorCode::kInvalid));
}

TEST_F(Framed, does_not_send_what_is_over_its_own_bound) {
  start();
  FramedClientConfig config = to_server(site_.client());
  config.max_frame_bytes = 10;
  auto connection = FramedConnection::connect(config);
  ASSERT_TRUE(connection);

  EXPECT_EQ((*connection)->send(1, Blob(11)).error().code, ErrorCode::kInvalid);
  EXPECT_TRUE((*connection)->send(1, Blob(10)));
  EXPECT_EQ((*connection)->receive(kLimit)->body.size(), 10U);
}

TEST_F(Framed, closes_connections_over_the_bound) {
  start();
  std::vector<std::unique_ptr<FramedConnection>> open;
  for (int i = 0; i < 3; ++i) {
    auto connection = connect();
    ASSERT_TRUE(connection);
    open.push_back(std::move(*connection));
  }

  const auto fourth = connect();

  ASSERT_FALSE(fourth);
  EXPECT_EQ(fourth.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(server_->connections(), 3U);
  EXPECT_EQ(server_->refused(), 1U);
}

TEST_F(Framed, shutting_down_ends_a_receive_in_another_thread) {
  start();
  auto connection = connect();
  ASSERT_TRUE(connection);
  std::thread other([&] { (*connection)->shut_down(); });

  const auto frame = (*connection)->receive(kLimit);

  other.join();
  ASSERT_FALSE(frame);
  EXPECT_EQ(frame.error().code, ErrorCode::kUnavailable);
}

TEST_F(Framed, a_server_ends_while_its_handlers_wait) {
  start();
  auto connection = connect();
  ASSERT_TRUE(connection);
  ASSERT_TRUE((*connection)->send(1, {}));
  ASSERT_TRUE((*connection)->receive(kLimit));

  server_.reset();

  EXPECT_FALSE((*connection)->receive(kLimit));
}

TEST_F(Framed, a_client_that_never_shakes_hands_is_dropped) {
  start();
  const auto silent = connect_tcp("127.0.0.1", server_->port(), Deadline(kLimit), 0);
  ASSERT_TRUE(silent);

  ASSERT_TRUE(wait_for(silent->get(), 1 /* POLLIN */, Deadline(kLimit)));
  char byte = 0;
  EXPECT_LE(recv(silent->get(), &byte, 1, 0), 0);
}

TEST_F(Framed, a_refused_port_is_unavailable) {
  start();
  FramedClientConfig config = to_server(site_.client());
  server_.reset();

  EXPECT_EQ(FramedConnection::connect(config).error().code, ErrorCode::kUnavailable);
}

TEST_F(Framed, pacing_slows_the_sender_down) {
  std::atomic<std::size_t> received{0};
  start([&](FramedConnection& connection) {
    while (auto frame = connection.receive(kLimit)) received += frame->body.size();
  });
  auto connection = connect();
  ASSERT_TRUE(connection);
  ASSERT_TRUE((*connection)->set_pacing_rate(2'000'000));

  const Instant start_time = RealClock().now().boot;
  ASSERT_TRUE((*connection)->send(1, Blob(8'000'000)));
  const auto took = RealClock().now().boot - start_time;

  // 8 MB at 2 MB/s less what fits into the socket buffers; unpaced loopback needs some
  // milliseconds.
  EXPECT_GT(took, milliseconds(300));
  const RoundTrip seen = (*connection)->round_trip();
  EXPECT_GT(seen.now.count(), 0);
  EXPECT_LT(seen.now - seen.least, milliseconds(25)) << "pacing waits count as others' waits";
  EXPECT_TRUE((*connection)->set_pacing_rate(0));
}

TEST_F(Framed, the_round_trip_is_what_the_kernel_has_measured) {
  start();
  auto connection = connect();
  ASSERT_TRUE(connection);
  ASSERT_TRUE((*connection)->send(1, Blob(100)));
  ASSERT_TRUE((*connection)->receive(kLimit));

  const RoundTrip seen = (*connection)->round_trip();
  EXPECT_GT(seen.least.count(), 0);
  EXPECT_GE(seen.now, seen.least);
  EXPECT_LT(seen.now, seconds(1));
}

TEST_F(Framed, what_has_not_left_when_a_connection_is_aborted_never_arrives) {
  std::atomic<bool> may_read{false};
  std::atomic<std::size_t> arrived{0};
  std::atomic<bool> is_over{false};
  start([&](FramedConnection& connection) {
    while (!may_read) std::this_thread::sleep_for(milliseconds(5));
    while (connection.receive(kLimit)) ++arrived;
    is_over = true;
  });
  auto connection = connect();
  ASSERT_TRUE(connection) << connection.error().describe();
  const Blob piece(16'000);
  std::size_t sent = 0;
  while (sent < 10'000 && (*connection)->send(1, piece, milliseconds(300))) ++sent;
  EXPECT_GT((*connection)->unacknowledged_bytes(), piece.size());

  (*connection)->abort();
  may_read = true;
  while (!is_over) std::this_thread::sleep_for(milliseconds(5));

  EXPECT_LT(arrived, sent) << "the kernel has sent what it had";
  EXPECT_FALSE((*connection)->send(1, piece, kLimit));
}

TEST_F(Framed, no_more_than_was_said_waits_in_the_kernel) {
  std::atomic<bool> may_end{false};
  start([&](FramedConnection&) {
    while (!may_end) std::this_thread::sleep_for(milliseconds(5));
  });
  const Blob piece(16'000);
  const auto taken = [&](bool is_bounded) {
    auto connection = connect();
    EXPECT_TRUE(connection) << connection.error().describe();
    if (is_bounded) (*connection)->bound_unsent(64 << 10);
    std::size_t sent = 0;
    while (sent < 10'000 && (*connection)->send(1, piece, milliseconds(300))) ++sent;
    return sent;
  };

  const std::size_t unbounded = taken(false);
  const std::size_t bounded = taken(true);
  may_end = true;
  server_.reset();  // its threads look at what is here

  EXPECT_LT(bounded, unbounded);
}

TEST_F(Framed, strangers_that_say_nothing_keep_nobody_out) {
  FramedServerConfig config;
  config.tls = site_.server();
  config.max_connections = 8;
  config.max_handshakes = 2;
  config.handshake_timeout = seconds(60);
  auto server = FramedServer::start(config, echo);
  ASSERT_TRUE(server) << server.error().describe();
  server_ = std::move(*server);
  std::vector<Fd> strangers;

  // More than all connections, and none of them ends by itself.
  for (int i = 0; i < 20; ++i) {
    auto stranger = connect_tcp("127.0.0.1", server_->port(), Deadline(kLimit), 0);
    ASSERT_TRUE(stranger) << stranger.error().describe();
    strangers.push_back(std::move(*stranger));
    for (int look = 0; look < 400 && server_->connections() > 2; ++look)
      std::this_thread::sleep_for(milliseconds(5));
  }
  auto connection = connect();

  ASSERT_TRUE(connection) << connection.error().describe();
  EXPECT_TRUE((*connection)->send(1, as_bytes("here")));
  EXPECT_TRUE((*connection)->receive(kLimit));
}

TEST_F(Framed, a_connection_for_which_there_is_no_thread_is_closed_and_the_next_one_served) {
  start();
  pthread_attr_t usual;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  pthread_attr_t huge;
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 50), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);

  const auto nobody = connect();
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  const auto somebody = connect();

  EXPECT_FALSE(nobody);
  EXPECT_TRUE(somebody) << "the server goes on";
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&usual);
}

}  // namespace
}  // namespace rn::io
