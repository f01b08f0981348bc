// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "io/http_client.h"
#include "io/http_server.h"
#include "io/loop_fixture.h"
#include "io/net.h"
#include "io/tls_fixture.h"

namespace rn::io {
namespace {

using Taken = std::shared_ptr<TakenConnection>;

Blob bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

/// A server that gives requests for "/raw…" away.
class GivenAway : public ::testing::Test {
 protected:
  void start(std::function<void(const HttpRequest&, const Taken&)> taken) {
    const Status started = thread_.call([&]() -> Status {
      RN_TRY(
          server_,
          HttpServer::start(
              thread_.loop(),
              config_,
              [](const HttpRequest& request, const Responder& responder) {
                responder.send(json_response(200, "\"" + request.path + "\""));
              }
          )
      );
      server_->give_away(
          [](const HttpRequest& request) { return request.path.starts_with("/raw"); },
          std::move(taken)
      );
      return {};
    });
    ASSERT_TRUE(started) << started.error().describe();
  }

  ~GivenAway() override {
    thread_.call([&] { server_.reset(); });
  }

  Fd dial() const {
    auto fd = connect_tcp("127.0.0.1", server_->port(), Deadline(kLimit), 0);
    EXPECT_TRUE(fd);
    return fd ? std::move(*fd) : Fd();
  }

  static void send_all(const Fd& fd, const std::string& bytes) {
    EXPECT_EQ(
        ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
        static_cast<ssize_t>(bytes.size())
    );
  }

  /// What comes until `end` has come, or nothing more.
  static std::string hear(const Fd& fd, const std::string& end = {}) {
    std::string heard;
    char piece[4096];
    while (end.empty() || !heard.ends_with(end)) {
      if (!wait_for(fd.get(), 1 /* POLLIN */, Deadline(kLimit))) break;
      const ssize_t got = recv(fd.get(), piece, sizeof(piece), 0);
      if (got <= 0) break;
      heard.append(piece, static_cast<std::size_t>(got));
    }
    return heard;
  }

  LoopThread thread_;
  HttpServerConfig config_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(GivenAway, a_request_goes_with_its_head_and_the_bytes_behind_it) {
  const Told<std::string> target;
  const Told<std::string> body;
  start([=](const HttpRequest& request, const Taken& connection) {
    target.tell(request.method + " " + request.target + " " + std::string(request.header("X-A")));
    connection->read(5, [connection, body](Result<Blob> first) {
      ASSERT_TRUE(first) << first.error().describe();
      body.tell(std::string(as_text(*first)));
      connection->write(bytes_of("answer"), [connection](const Status& written) {
        EXPECT_TRUE(written);
        connection->finish();
      });
    });
  });
  const Fd fd = dial();

  send_all(
      fd, "POST /raw/%41?q=%20 HTTP/1.1\r\nHost: x\r\nX-A: b\r\nContent-Length: 9\r\n\r\n123456789"
  );

  EXPECT_EQ(target.wait(), "POST /raw/%41?q=%20 b");
  EXPECT_EQ(body.wait(), "12345");
  EXPECT_EQ(hear(fd), "answer");
}

TEST_F(GivenAway, bytes_go_both_ways_until_the_peer_ends) {
  const Told<bool> ended;
  start([=](const HttpRequest&, const Taken& connection) {
    // Each piece goes back; the handle keeps itself by what is under way.
    const auto echo = std::make_shared<std::function<void()>>();
    *echo = [connection, weak = std::weak_ptr(echo), ended] {
      connection->read(4096, [connection, again = weak.lock(), ended](Result<Blob> piece) {
        if (!piece || piece->empty()) {
          ended.tell(piece.has_value());
          return connection->close();
        }
        connection->write(*std::move(piece), [again](const Status&) { (*again)(); });
      });
    };
    (*echo)();
  });
  Fd fd = dial();
  send_all(fd, "GET /raw HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");

  for (const std::string& word :
       {std::string("one"), std::string(20000, 'x'), std::string("end")}) {
    send_all(fd, word + "\n");
    EXPECT_EQ(hear(fd, "\n"), word + "\n");
  }
  fd.reset();

  EXPECT_TRUE(ended.wait());
}

TEST_F(GivenAway, the_same_server_answers_other_requests_and_an_earlier_one_of_the_connection) {
  const Told<std::string> target;
  start([=](const HttpRequest& request, const Taken& connection) {
    target.tell(request.target);
    connection->close();
  });
  const Fd fd = dial();

  send_all(fd, "GET /own HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(hear(fd, "\"/own\"").starts_with("HTTP/1.1 200 "));
  send_all(fd, "GET /raw/2 HTTP/1.1\r\nHost: x\r\n\r\n");

  EXPECT_EQ(target.wait(), "/raw/2");
  EXPECT_EQ(hear(fd), "");
}

TEST_F(GivenAway, it_works_below_tls) {
  const Site site;
  config_.tls = site.server();
  start([](const HttpRequest&, const Taken& connection) {
    connection->write(
        bytes_of("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"),
        [connection](const Status&) { connection->finish(); }
    );
  });
  HttpCall call;
  call.url = "https://127.0.0.1:" + std::to_string(server_->port()) + "/raw";
  call.timeout = kLimit;
  call.tls = site.client();

  const auto reply = perform_blocking(call);

  ASSERT_TRUE(reply) << reply.error().describe();
  EXPECT_EQ(reply->body, "hi");
}

TEST_F(GivenAway, a_peer_that_takes_nothing_ends_the_write) {
  config_.write_timeout = milliseconds(200);
  const Told<Status> written;
  start([=](const HttpRequest&, const Taken& connection) {
    connection->write(Blob(64u << 20, 'x'), [written](const Status& status) {
      written.tell(status);
    });
  });
  const Fd fd = dial();
  send_all(fd, "GET /raw HTTP/1.1\r\nHost: x\r\n\r\n");

  const Status status = written.wait();

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kTimeout);
}

TEST_F(GivenAway, it_ends_with_its_server_and_counts_until_then) {
  const Told<Taken> taken;
  start([=](const HttpRequest&, const Taken& connection) { taken.tell(connection); });
  const Fd fd = dial();
  send_all(fd, "GET /raw HTTP/1.1\r\nHost: x\r\n\r\n");
  const Taken connection = taken.wait();
  EXPECT_EQ(thread_.call([&] { return server_->connections(); }), 1u);

  thread_.call([&] {
    connection->read(10, [](const Result<Blob>&) { ADD_FAILURE() << "called after the end"; });
    server_.reset();
    EXPECT_FALSE(connection->is_open());
  });

  EXPECT_EQ(hear(fd), "");
  // The connection's last handle belongs to the loop.
  thread_.call([] {});
}

}  // namespace
}  // namespace rn::io
