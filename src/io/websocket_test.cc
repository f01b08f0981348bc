// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "io/http_client.h"
#include "io/http_server.h"
#include "io/loop_fixture.h"
#include "io/net.h"
#include "io/tls_fixture.h"
#include "io/websocket_client.h"

namespace rn::io {
namespace {

using Socket = std::shared_ptr<WebSocket>;

/// A server that upgrades on /ws, and clients on the same loop.
class WebSockets : public ::testing::Test {
 protected:
  WebSockets() {
    config_.tls = site_.server();
    opened_ = echo;
  }

  ~WebSockets() override {
    thread_.call([&] {
      for (const auto& socket : sockets_) socket->close("end of test");
      server_.reset();
    });
  }

  static void echo(const HttpRequest&, const Socket& socket) {
    socket->on_message([weak = std::weak_ptr(socket)](Blob message) {
      if (const auto alive = weak.lock()) (void)alive->send(std::move(message));
    });
  }

  void start() {
    const Status started = thread_.call([&]() -> Status {
      RN_TRY(
          server_,
          HttpServer::start(
              thread_.loop(),
              config_,
              [](const HttpRequest&, const Responder& responder) {
                responder.send_error(Error{ErrorCode::kNotFound, "no such path", {}});
              }
          )
      );
      server_->serve_websocket("/ws", admit_, opened_);
      return {};
    });
    ASSERT_TRUE(started) << started.error().describe();
  }

  WebSocketClientConfig to_server(const std::string& path = "/ws") const {
    WebSocketClientConfig client;
    client.url =
        (config_.tls ? "wss" : "ws") + ("://127.0.0.1:" + std::to_string(server_->port())) + path;
    client.tls = site_.client();
    client.connect_timeout = kLimit;
    client.limits = limits_;
    return client;
  }

  /// Connects; messages and the end are told through `messages` and `ended`.
  Result<Socket> connect(const WebSocketClientConfig& client) {
    Told<Result<Socket>> opened;
    thread_.call([&] {
      WebSocketConnect::start(thread_.loop(), client, [this, opened](Result<Socket> result) {
        if (result) {
          (*result)->on_message([told = message_](Blob message) { told.tell(std::move(message)); });
          (*result)->on_close([told = ended_](const Error& error) { told.tell(error); });
          sockets_.push_back(*result);
        }
        opened.tell(std::move(result));
      });
    });
    return opened.wait();
  }

  Status send(const Socket& socket, Blob message) {
    return thread_.call([&] { return socket->send(std::move(message)); });
  }

  LoopThread thread_;
  Site site_;
  HttpServerConfig config_;
  WebSocketLimits limits_;
  std::function<Status(const HttpRequest&)> admit_;
  std::function<void(const HttpRequest&, Socket)> opened_;
  std::unique_ptr<HttpServer> server_;
  std::vector<Socket> sockets_;
  Told<Blob> message_;  ///< the client's first message
  Told<Error> ended_;   ///< why the client's connection ended
};

TEST_F(WebSockets, echo_a_message_and_name_both_peers) {
  const Told<std::string> seen;
  opened_ = [&](const HttpRequest& request, const Socket& socket) {
    seen.tell(socket->peer_identity().value_or("none") + " " + request.query);
    echo(request, socket);
  };
  start();
  const auto socket = connect(to_server("/ws?v=1"));
  ASSERT_TRUE(socket) << socket.error().describe();

  ASSERT_TRUE(send(*socket, Blob(70'000, 5)));

  EXPECT_EQ(message_.wait(), Blob(70'000, 5));
  EXPECT_EQ(seen.wait(), std::string(kClientIdentity) + " v=1");
  EXPECT_EQ((*socket)->peer_identity(), kServerIdentity);
}

TEST_F(WebSockets, work_without_tls_too) {
  config_.tls.reset();
  start();
  const auto socket = connect(to_server());
  ASSERT_TRUE(socket) << socket.error().describe();

  ASSERT_TRUE(send(*socket, Blob{1, 2, 3}));

  EXPECT_EQ(message_.wait(), (Blob{1, 2, 3}));
}

TEST_F(WebSockets, a_message_sent_in_the_open_callback_arrives) {
  opened_ = [](const HttpRequest&, const Socket& socket) { (void)socket->send(Blob{42}); };
  start();

  const auto socket = connect(to_server());

  ASSERT_TRUE(socket);
  EXPECT_EQ(message_.wait(), Blob{42});
}

TEST_F(WebSockets, refuse_wrong_authorities_identities_and_missing_certificates) {
  start();
  WebSocketClientConfig wrong_ca = to_server();
  wrong_ca.tls.ca_pem = Site().authority.certificate_pem();
  WebSocketClientConfig wrong_peer = to_server();
  wrong_peer.tls.expected_peer = "spiffe://site/somebody-else";
  WebSocketClientConfig anonymous = to_server();
  anonymous.tls.cert_pem.clear();

  for (const auto& client : {wrong_ca, wrong_peer, anonymous}) {
    const auto socket = connect(client);
    ASSERT_FALSE(socket);
    EXPECT_EQ(socket.error().code, ErrorCode::kDenied) << socket.error().describe();
  }
}

TEST_F(WebSockets, tell_the_client_why_it_was_not_admitted) {
  admit_ = [](const HttpRequest& request) -> Status {
    if (request.header("authorization") == "Bearer right") return {};
    return fail(ErrorCode::kConflict, "another agent has this identity", "look for a clone");
  };
  start();
  WebSocketClientConfig right = to_server();
  right.headers = {{"Authorization", "Bearer right"}};

  const auto refused = connect(to_server());

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  EXPECT_EQ(refused.error().hint, "look for a clone");
  EXPECT_TRUE(connect(right));
  EXPECT_EQ(connect(to_server("/elsewhere")).error().code, ErrorCode::kNotFound);
}

TEST_F(WebSockets, both_sides_learn_of_an_orderly_close) {
  const Told<Error> server_ended;
  opened_ = [&](const HttpRequest&, const Socket& socket) {
    socket->on_close([&](const Error& error) { server_ended.tell(error); });
  };
  start();
  const auto socket = connect(to_server());
  ASSERT_TRUE(socket);

  thread_.call([&] {
    (*socket)->close("had enough");
    EXPECT_FALSE((*socket)->is_open());
    EXPECT_EQ((*socket)->send({}).error().code, ErrorCode::kUnavailable);
  });

  EXPECT_EQ(ended_.wait().code, ErrorCode::kUnavailable);
  EXPECT_NE(server_ended.wait().message.find("had enough"), std::string::npos);
}

TEST_F(WebSockets, a_client_learns_that_its_server_has_gone) {
  start();
  const auto socket = connect(to_server());
  ASSERT_TRUE(socket);

  thread_.call([&] { server_.reset(); });

  EXPECT_EQ(ended_.wait().code, ErrorCode::kUnavailable);
}

TEST_F(WebSockets, a_message_over_the_limit_ends_the_connection) {
  config_.websocket.max_message_bytes = 1000;
  const Told<Error> server_ended;
  opened_ = [&](const HttpRequest&, const Socket& socket) {
    socket->on_message([](const Blob&) { ADD_FAILURE() << "an oversize message was delivered"; });
    socket->on_close([&](const Error& error) { server_ended.tell(error); });
  };
  start();
  const auto socket = connect(to_server());
  ASSERT_TRUE(socket);

  ASSERT_TRUE(send(*socket, Blob(1001)));

  EXPECT_EQ(server_ended.wait().code, ErrorCode::kExhausted);
  EXPECT_EQ(ended_.wait().code, ErrorCode::kUnavailable);
}

TEST_F(WebSockets, a_full_send_queue_ends_the_connection) {
  limits_.max_queued_bytes = 1 << 20;
  start();
  const auto socket = connect(to_server());
  ASSERT_TRUE(socket);

  const Status overflow = thread_.call([&] {
    // On the loop nothing is written meanwhile, so the queue must fill.
    Status sent;
    for (int i = 0; i < 20 && sent; ++i) sent = (*socket)->send(Blob(100'000));
    EXPECT_LE((*socket)->queued_bytes(), std::size_t{1} << 20);
    return sent;
  });

  ASSERT_FALSE(overflow);
  EXPECT_EQ(overflow.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(ended_.wait().code, ErrorCode::kExhausted);
}

TEST_F(WebSockets, a_silent_peer_is_given_up_and_an_idle_one_kept) {
  config_.tls.reset();
  config_.websocket.idle_timeout = milliseconds(200);
  const Told<Error> server_ended;
  opened_ = [&](const HttpRequest& request, const Socket& socket) {
    if (request.query != "dead") return echo(request, socket);
    socket->on_close([&](const Error& error) { server_ended.tell(error); });
  };
  start();
  const auto idle = connect(to_server());
  ASSERT_TRUE(idle);
  const auto dead = connect_tcp("127.0.0.1", server_->port(), Deadline(kLimit), 0);
  const std::string upgrade =
      "GET /ws?dead HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
  ASSERT_EQ(
      ::send(dead->get(), upgrade.data(), upgrade.size(), 0), static_cast<ssize_t>(upgrade.size())
  );

  EXPECT_EQ(server_ended.wait().code, ErrorCode::kTimeout);

  // The idle one answered pings meanwhile.
  ASSERT_TRUE(send(*idle, Blob{7}));
  EXPECT_EQ(message_.wait(), Blob{7});
}

TEST_F(WebSockets, a_text_message_is_refused) {
  config_.tls.reset();
  const Told<Error> server_ended;
  opened_ = [&](const HttpRequest&, const Socket& socket) {
    socket->on_close([&](const Error& error) { server_ended.tell(error); });
  };
  start();
  const auto raw = connect_tcp("127.0.0.1", server_->port(), Deadline(kLimit), 0);
  const std::string upgrade =
      "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
  ASSERT_EQ(
      ::send(raw->get(), upgrade.data(), upgrade.size(), 0), static_cast<ssize_t>(upgrade.size())
  );
  ASSERT_TRUE(wait_for(raw->get(), 1 /* POLLIN */, Deadline(kLimit)));
  const std::string text = {char(0x81), char(0x82), 0, 0, 0, 0, 'h', 'i'};  // masked with zeros
  ASSERT_EQ(::send(raw->get(), text.data(), text.size(), 0), 8);
  ::shutdown(raw->get(), SHUT_WR);

  EXPECT_EQ(server_ended.wait().code, ErrorCode::kInvalid);
}

TEST_F(WebSockets, connecting_has_a_deadline_and_can_be_cancelled) {
  start();
  const auto listener = listen_tcp("127.0.0.1", 0);  // accepts by its backlog, never answers
  WebSocketClientConfig client = to_server();
  client.url = "wss://127.0.0.1:" + std::to_string(port_of(listener->get())) + "/ws";
  client.connect_timeout = milliseconds(100);

  EXPECT_EQ(connect(client).error().code, ErrorCode::kTimeout);

  thread_.call([&] {
    WebSocketConnect attempt = WebSocketConnect::start(thread_.loop(), client, [](const auto&) {
      ADD_FAILURE() << "a cancelled connect was reported";
    });
    attempt.cancel();
  });
  client.url = "nonsense";
  EXPECT_EQ(connect(client).error().code, ErrorCode::kInvalid);
  client.url = "wss://127.0.0.1:1/ws";
  client.connect_timeout = kLimit;
  EXPECT_EQ(connect(client).error().code, ErrorCode::kUnavailable);
}

TEST_F(WebSockets, count_as_connections_of_the_server) {
  start();
  EXPECT_TRUE(connect(to_server()));
  EXPECT_EQ(thread_.call([&] { return server_->connections(); }), 1U);
}

}  // namespace
}  // namespace rn::io
