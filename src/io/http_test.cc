// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/scratch_folder.h"
#include "io/http_client.h"
#include "io/http_error.h"
#include "io/http_server.h"
#include "io/loop_fixture.h"
#include "io/net.h"
#include "io/tls_fixture.h"
#include "io/url.h"

namespace rn::io {
namespace {

/// A server on its own loop; the test's thread calls it with blocking clients.
class Http : public ::testing::Test {
 protected:
  void start(HttpHandler handler) {
    const Status started = thread_.call([&]() -> Status {
      RN_TRY(server_, HttpServer::start(thread_.loop(), config_, std::move(handler)));
      return {};
    });
    ASSERT_TRUE(started) << started.error().describe();
  }

  void start_tls(HttpHandler handler) {
    config_.tls = site_.server();
    start(std::move(handler));
  }

  ~Http() override {
    thread_.call([&] { server_.reset(); });
  }

  std::string url(const std::string& path) const {
    return std::string(config_.tls ? "https" : "http") +
           "://127.0.0.1:" + std::to_string(server_->port()) + path;
  }

  HttpCall call(const std::string& method, const std::string& path) const {
    HttpCall result;
    result.method = method;
    result.url = url(path);
    result.timeout = kLimit;
    if (config_.tls) result.tls = site_.client();
    return result;
  }

  /// What the server answers to raw bytes until it closes.
  std::string talk(const std::string& bytes) const {
    const auto fd = connect_tcp("127.0.0.1", server_->port(), Deadline(kLimit), 0);
    EXPECT_TRUE(fd);
    if (!fd) return {};
    EXPECT_EQ(
        ::send(fd->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
        static_cast<ssize_t>(bytes.size())
    );
    std::string answer;
    char piece[4096];
    while (wait_for(fd->get(), 1 /* POLLIN */, Deadline(kLimit))) {
      const ssize_t got = recv(fd->get(), piece, sizeof(piece), 0);
      if (got <= 0) break;
      answer.append(piece, static_cast<std::size_t>(got));
    }
    return answer;
  }

  static void echo(const HttpRequest& request, const Responder& responder) {
    HttpResponse response;
    response.headers = {{"X-Method", request.method}, {"X-Query", request.query}};
    response.body = request.path + ":" + request.body;
    responder.send(std::move(response));
  }

  LoopThread thread_;
  Site site_;
  HttpServerConfig config_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(Http, carries_method_path_query_headers_and_body) {
  start(echo);
  HttpCall request = call("PUT", "/a%20b/c?x=1&y=%2F");
  request.body = "hello";

  const auto reply = perform_blocking(request);

  ASSERT_TRUE(reply) << reply.error().describe();
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body, "/a b/c:hello");
  EXPECT_EQ(find_header(reply->headers, "x-method"), "PUT");
  EXPECT_EQ(find_header(reply->headers, "X-QUERY"), "x=1&y=%2F");
  EXPECT_EQ(parse_query("x=1&y=%2F&x=2&z=a+b")->at("z"), "a b");
}

TEST_F(Http, names_the_client_by_its_certificate) {
  const Told<std::string> seen;
  start_tls([&](const HttpRequest& request, const Responder& responder) {
    seen.tell(request.peer_identity.value_or("none") + " " + request.remote.substr(0, 10));
    responder.send(json_response(201, "{}"));
  });

  const auto reply = perform_blocking(call("POST", "/x"));

  ASSERT_TRUE(reply) << reply.error().describe();
  EXPECT_EQ(reply->status, 201);
  EXPECT_EQ(seen.wait(), std::string(kClientIdentity) + " 127.0.0.1:");
}

TEST_F(Http, names_the_clients_key_by_its_digest) {
  const Told<std::string> seen;
  start_tls([&](const HttpRequest& request, const Responder& responder) {
    seen.tell(request.peer_key ? to_hex(*request.peer_key) : "none");
    responder.send(json_response(200, "{}"));
  });
  const HttpCall hello = call("GET", "/x");
  std::string pem = *public_key_of(hello.tls->key_pem);
  pem = pem.substr(pem.find('\n'), pem.rfind("-----END") - pem.find('\n'));
  std::erase(pem, '\n');

  ASSERT_TRUE(perform_blocking(hello).has_value());

  EXPECT_EQ(seen.wait(), to_hex(crypto::sha256(*from_base64(pem))));
}

TEST_F(Http, lets_strangers_in_only_where_the_server_says_so) {
  config_.tls = site_.server();
  config_.tls->require_peer_certificate = false;
  start([&](const HttpRequest& request, const Responder& responder) {
    if (request.peer_identity) return responder.send(HttpResponse{200, {}, "welcome"});
    responder.send_error(Error{ErrorCode::kDenied, "who are you", "log in"});
  });
  HttpCall anonymous = call("GET", "/");
  anonymous.tls->cert_pem.clear();

  const auto reply = perform_blocking(anonymous);

  ASSERT_TRUE(reply) << reply.error().describe();
  EXPECT_EQ(reply->status, 401);
  EXPECT_EQ(reply->body, R"({"error":{"code":"denied","hint":"log in","message":"who are you"}})");
  EXPECT_EQ(succeed(*reply).error(), (Error{ErrorCode::kDenied, "who are you", "log in"}));
  EXPECT_EQ(perform_blocking(call("GET", "/"))->body, "welcome");
}

TEST_F(Http, refuses_clients_without_certificate_expired_or_foreign) {
  start_tls([](const HttpRequest&, const Responder&) { ADD_FAILURE() << "a stranger was served"; });
  HttpCall anonymous = call("GET", "/");
  anonymous.tls->cert_pem.clear();
  HttpCall expired = call("GET", "/");
  expired.tls = site_.end(kClientIdentity, RealClock().now().wall - std::chrono::hours(24 * 30));
  HttpCall foreign = call("GET", "/");
  foreign.tls = Site().client();
  foreign.tls->ca_pem = site_.authority.certificate_pem();

  for (const HttpCall& refused : {anonymous, expired, foreign}) {
    const auto reply = perform_blocking(refused);
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().code, ErrorCode::kDenied) << reply.error().describe();
  }
}

TEST_F(Http, clients_refuse_a_server_of_another_authority_or_identity) {
  start_tls(echo);
  HttpCall wrong_ca = call("GET", "/");
  wrong_ca.tls->ca_pem = Site().authority.certificate_pem();
  HttpCall wrong_peer = call("GET", "/");
  wrong_peer.tls->expected_peer = "spiffe://site/somebody-else";
  HttpCall wrong_pin = call("GET", "/");
  wrong_pin.tls->ca_pem.clear();
  wrong_pin.tls->ca_fingerprint = Site().authority.fingerprint();
  HttpCall unverified = call("GET", "/");
  unverified.tls.reset();

  EXPECT_EQ(perform_blocking(wrong_ca).error().code, ErrorCode::kDenied);
  EXPECT_EQ(perform_blocking(wrong_peer).error().code, ErrorCode::kDenied);
  EXPECT_EQ(perform_blocking(wrong_pin).error().code, ErrorCode::kDenied);
  EXPECT_EQ(perform_blocking(unverified).error().code, ErrorCode::kInvalid);

  HttpCall pinned = call("GET", "/");
  pinned.tls->ca_pem.clear();
  pinned.tls->ca_fingerprint = site_.authority.fingerprint();
  pinned.tls->expected_peer = kServerIdentity;
  EXPECT_TRUE(perform_blocking(pinned));
}

TEST_F(Http, new_connections_get_the_renewed_certificate) {
  start_tls(echo);
  const std::string renewed = "spiffe://site/coordinator-2";
  ASSERT_TRUE(thread_.call([&] { return server_->reload_tls(site_.end(renewed)); }));
  HttpCall request = call("GET", "/");
  request.tls->expected_peer = renewed;

  EXPECT_TRUE(perform_blocking(request));
  EXPECT_FALSE(thread_.call([&] { return server_->reload_tls(TlsConfig{}); }));
  EXPECT_TRUE(perform_blocking(request));
}

TEST_F(Http, an_oversize_body_is_413_as_json_announced_or_not) {
  config_.body_limit = [](const std::string& path) {
    return path == "/big" ? std::size_t{1} << 20 : 1000;
  };
  start_tls(echo);
  HttpCall announced = call("POST", "/small");
  announced.body = std::string(500'000, 'x');
  HttpCall chunked = call("POST", "/small");
  chunked.upload = [left = 100]() mutable -> std::function<Result<Blob>(std::size_t)> {
    return [left](std::size_t max) mutable -> Result<Blob> {
      return left-- > 0 ? Blob(std::min<std::size_t>(max, 1000), 'x') : Blob();
    };
  }();
  HttpCall allowed = call("POST", "/big");
  allowed.body = announced.body;

  for (const HttpCall& over : {announced, chunked}) {
    const auto reply = perform_blocking(over);
    ASSERT_TRUE(reply) << reply.error().describe();
    EXPECT_EQ(reply->status, 413);
    EXPECT_EQ(error_from_http(413, reply->body).code, ErrorCode::kInvalid);
    EXPECT_NE(reply->body.find("1000 bytes"), std::string::npos) << reply->body;
  }
  EXPECT_EQ(perform_blocking(allowed)->body.size(), announced.body.size() + 5);
}

TEST_F(Http, a_slow_header_gets_408_and_the_connection_ends) {
  config_.header_timeout = milliseconds(100);
  start(echo);

  const std::string answer = talk("GET / HTTP/1.1\r\nHost: x\r\nX-Slow");

  EXPECT_NE(answer.find("HTTP/1.1 408"), std::string::npos);
  EXPECT_NE(answer.find(R"("code":"timeout")"), std::string::npos);
}

TEST_F(Http, a_silent_connection_is_closed) {
  config_.header_timeout = milliseconds(100);
  start(echo);

  EXPECT_EQ(talk(""), "");
}

TEST_F(Http, says_what_is_wrong_with_a_header) {
  start(echo);

  EXPECT_NE(talk("nonsense\r\n\r\n").find("HTTP/1.1 400"), std::string::npos);
  EXPECT_NE(
      talk("GET nowhere HTTP/1.1\r\nHost: x\r\n\r\n").find("HTTP/1.1 400"), std::string::npos
  );
  EXPECT_NE(talk("GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n").find("HTTP/1.1 400"), std::string::npos);
  EXPECT_NE(talk("GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n").find("HTTP/1.1 400"), std::string::npos);
  const std::string long_header =
      "GET / HTTP/1.1\r\nX-Long: " + std::string(20'000, 'x') + "\r\n\r\n";
  EXPECT_NE(talk(long_header).find("HTTP/1.1 431"), std::string::npos);
}

TEST_F(Http, answers_pipelined_requests_in_order_and_half_closed_clients) {
  start(echo);
  const std::string three =
      "GET /1 HTTP/1.1\r\nHost: x\r\n\r\n"
      "POST /2 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"
      "GET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

  const std::string answer = talk(three);

  const std::size_t first = answer.find("/1:");
  const std::size_t second = answer.find("/2:ab");
  const std::size_t third = answer.find("/3:");
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_LT(third, answer.size());
}

TEST_F(Http, head_and_http_1_0_are_served_as_they_should) {
  start(echo);

  const std::string head = talk("HEAD /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string old = talk("GET /x HTTP/1.0\r\n\r\n");

  EXPECT_NE(head.find("Content-Length: 3\r\n"), std::string::npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
  EXPECT_TRUE(old.starts_with("HTTP/1.0 200 OK"));
  EXPECT_TRUE(old.ends_with("/x:"));
}

TEST_F(Http, a_line_break_in_a_response_header_is_not_sent) {
  start([](const HttpRequest&, const Responder& responder) {
    responder.send(HttpResponse{200, {{"X-Evil", "a\r\nX-Injected: b"}, {"X-Good", "c"}}, ""});
  });

  const auto reply = perform_blocking(call("GET", "/"));

  EXPECT_EQ(find_header(reply->headers, "X-Injected"), "");
  EXPECT_EQ(find_header(reply->headers, "X-Good"), "c");
}

TEST_F(Http, an_unused_responder_answers_500) {
  start([](const HttpRequest&, const Responder&) {});

  EXPECT_EQ(perform_blocking(call("GET", "/"))->status, 500);
}

TEST_F(Http, a_late_answer_from_the_loop_arrives) {
  start([&](const HttpRequest&, const Responder& responder) {
    thread_.loop().run_after(milliseconds(20), [responder] {
      responder.send(HttpResponse{200, {}, "late"});
    });
  });

  EXPECT_EQ(perform_blocking(call("GET", "/"))->body, "late");
}

TEST_F(Http, connections_over_the_bound_get_503) {
  config_.max_connections = 1;
  start(echo);
  const auto first = connect_tcp("127.0.0.1", server_->port(), Deadline(kLimit), 0);
  while (thread_.call([&] { return server_->connections(); }) == 0) std::this_thread::yield();

  const auto reply = perform_blocking(call("GET", "/"));

  ASSERT_TRUE(reply) << reply.error().describe();
  EXPECT_EQ(reply->status, 503);
  EXPECT_EQ(find_header(reply->headers, "Retry-After"), "1");
}

TEST_F(Http, serves_a_unix_socket_and_tells_the_user) {
  const ScratchFolder folder;
  config_.unix_path = folder.path() + "/http";
  start([](const HttpRequest& request, const Responder& responder) {
    responder.send(HttpResponse{
        200, {}, request.remote + " " + std::to_string(request.peer_uid.value_or(99))});
  });
  HttpCall request;
  request.url = "http://docker/v1.41/info";
  request.unix_socket = config_.unix_path;

  const auto reply = perform_blocking(request);

  ASSERT_TRUE(reply) << reply.error().describe();
  EXPECT_EQ(reply->body, "unix " + std::to_string(geteuid()));
  thread_.call([&] { server_.reset(); });
  EXPECT_EQ(perform_blocking(request).error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(Http, streams_to_a_callback_while_it_is_written) {
  const Told<bool> first_arrived;
  start_tls([&](const HttpRequest&, const Responder& responder) {
    ResponseStream stream =
        responder.stream(HttpResponse{200, {{"Content-Type", "text/plain"}}, "first\n"});
    // The rest goes out only after the client has seen the first line: nothing waits for the end.
    auto timer = std::make_shared<TimerId>();
    *timer =
        thread_.loop().run_every(milliseconds(1), [this, stream, timer, first_arrived]() mutable {
          if (!first_arrived.is_told()) return;
          thread_.loop().cancel(*timer);
          EXPECT_TRUE(stream.write("second\n"));
          stream.finish();
          EXPECT_FALSE(stream.write("too late"));
        });
  });
  std::string seen;
  HttpCall request = call("GET", "/logs");
  request.on_data = [&](BlobView piece) -> Status {
    if (seen.empty()) first_arrived.tell(true);
    seen += as_text(piece);
    return {};
  };

  const auto reply = perform_blocking(request);

  ASSERT_TRUE(reply) << reply.error().describe();
  EXPECT_EQ(seen, "first\nsecond\n");
  EXPECT_TRUE(reply->body.empty());
}

TEST_F(Http, a_stream_has_a_bound_and_says_when_it_is_drained) {
  config_.max_stream_buffer_bytes = 100'000;
  const std::size_t total = 3'000'000;
  std::atomic<int> refusals{0};
  start([&](const HttpRequest&, const Responder& responder) {
    ResponseStream stream = responder.stream(HttpResponse{});
    auto left = std::make_shared<std::size_t>(total);
    auto pump = [stream, left, &refusals]() mutable {
      while (*left > 0) {
        const Status written = stream.write(std::string(10'000, 'x'));
        if (!written) {
          EXPECT_EQ(written.error().code, ErrorCode::kExhausted);
          EXPECT_LE(stream.queued_bytes(), 100'000U + 100);
          ++refusals;
          return;
        }
        *left -= 10'000;
      }
      stream.finish();
    };
    stream.on_drained(pump);
    pump();
  });

  const auto reply = perform_blocking(call("GET", "/"));

  ASSERT_TRUE(reply) << reply.error().describe();
  EXPECT_EQ(reply->body.size(), total);
  EXPECT_GT(refusals, 0);
}

TEST_F(Http, a_stream_learns_that_the_client_left_even_when_it_writes_nothing) {
  const Told<bool> closed;
  start_tls([&](const HttpRequest&, const Responder& responder) {
    ResponseStream stream = responder.stream(HttpResponse{200, {}, "hello"});
    stream.on_closed([stream, closed]() mutable { closed.tell(!stream.is_open()); });
  });
  HttpCall request = call("GET", "/");
  request.on_data = [](BlobView) -> Status { return fail(ErrorCode::kConflict, "enough"); };

  EXPECT_EQ(perform_blocking(request).error(), (Error{ErrorCode::kConflict, "enough", ""}));

  EXPECT_TRUE(closed.wait());
}

TEST_F(Http, a_stream_that_is_dropped_or_aborted_is_seen_as_broken) {
  start([](const HttpRequest& request, const Responder& responder) {
    ResponseStream stream = responder.stream(HttpResponse{200, {}, "part"});
    if (request.path == "/abort") stream.abort();
  });

  EXPECT_EQ(perform_blocking(call("GET", "/dropped")).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(perform_blocking(call("GET", "/abort")).error().code, ErrorCode::kUnavailable);
}

TEST_F(Http, a_handler_says_how_fast_the_answers_of_a_connection_go) {
  std::vector<SendingSide> sides;  // the loop's
  start_tls([&](const HttpRequest& request, const Responder& responder) {
    sides.push_back(responder.sending_side());
    EXPECT_TRUE(sides.back().pace(request.path == "/slow" ? 2'000'000 : 0));
    responder.send(HttpResponse{200, {}, std::string(512 << 10, 'x')});
  });
  HttpSession session;
  HttpCall kept = call("GET", "/slow");

  const auto begun = std::chrono::steady_clock::now();
  ASSERT_TRUE(session.perform(kept));
  const auto slow = std::chrono::steady_clock::now() - begun;
  kept.url = url("/fast");
  ASSERT_TRUE(session.perform(kept));
  ASSERT_TRUE(perform_blocking(call("GET", "/fast")));

  EXPECT_GT(slow, milliseconds(150));
  thread_.call([&] {
    ASSERT_EQ(sides.size(), 3U);
    EXPECT_TRUE(sides[0].is_same(sides[1]));
    EXPECT_FALSE(sides[0].is_same(sides[2]));
    EXPECT_TRUE(sides[0].is_open());
    EXPECT_GT(sides[0].bytes_given(), 1U << 20);
    server_.reset();
    EXPECT_FALSE(sides[0].is_open());
    EXPECT_EQ(sides[0].bytes_waiting(), 0U);
    EXPECT_EQ(sides[0].pace(1000).error().code, ErrorCode::kUnavailable);
  });
}

TEST_F(Http, a_unix_socket_is_not_paced) {
  const ScratchFolder folder;
  config_.unix_path = folder.path() + "/socket";
  const Told<bool> paced;
  start([&](const HttpRequest&, const Responder& responder) {
    paced.tell(responder.sending_side().pace(1000).has_value());
    responder.send(HttpResponse{});
  });
  HttpCall there = call("GET", "/");
  there.url = "http://here/";
  there.unix_socket = config_.unix_path;

  ASSERT_TRUE(perform_blocking(there));

  EXPECT_FALSE(paced.wait());
}

TEST_F(Http, uploads_a_file_and_bounds_what_it_collects) {
  std::string pattern = "/tmp/rn-io-test-XXXXXX";
  const int fd = mkstemp(pattern.data());
  const std::string content(300'000, 'f');
  ASSERT_EQ(write(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
  close(fd);
  start_tls(echo);
  HttpCall request = call("PUT", "/f");
  request.upload_file = pattern;

  EXPECT_EQ(perform_blocking(request)->body, "/f:" + content);
  request.max_body_bytes = 1000;
  EXPECT_EQ(perform_blocking(request).error().code, ErrorCode::kExhausted);
  unlink(pattern.c_str());
  EXPECT_EQ(perform_blocking(request).error().code, ErrorCode::kNotFound);
}

TEST_F(Http, a_call_has_its_deadline) {
  std::vector<Responder> held;
  start([&](const HttpRequest&, const Responder& responder) { held.push_back(responder); });
  HttpCall request = call("GET", "/");
  request.timeout = milliseconds(100);

  EXPECT_EQ(perform_blocking(request).error().code, ErrorCode::kTimeout);
  thread_.call([&] { server_.reset(); });
  thread_.call([&] { held.clear(); });
}

TEST_F(Http, a_session_keeps_one_connection_but_never_across_different_trust) {
  start_tls([](const HttpRequest& request, const Responder& responder) {
    responder.send(HttpResponse{200, {}, request.remote});
  });
  HttpSession session;
  const HttpCall first = call("GET", "/");
  HttpCall stranger = first;
  stranger.tls->expected_peer = "spiffe://site/somebody-else";
  HttpCall renewed = first;
  renewed.tls = site_.client();

  const auto one = session.perform(first);
  const auto two = session.perform(first);
  const auto refused = session.perform(stranger);
  const auto other = session.perform(renewed);

  ASSERT_TRUE(one && two && other);
  EXPECT_EQ(one->body, two->body);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kDenied);
  EXPECT_NE(other->body, one->body);
}

TEST_F(Http, a_sessions_call_leaves_nothing_in_the_next_one) {
  start_tls([](const HttpRequest& request, const Responder& responder) {
    const std::string colour(request.header("X-Colour"));
    responder.send(HttpResponse{200, {}, request.method + ":" + colour + ":" + request.body});
  });
  HttpSession session;
  HttpCall put = call("PUT", "/");
  put.body = "bytes";
  put.headers = {{"X-Colour", "red"}};

  const auto first = session.perform(put);
  const auto second = session.perform(call("GET", "/"));

  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->body, "PUT:red:bytes");
  EXPECT_EQ(second->body, "GET::");
}

TEST_F(Http, who_watches_a_session_says_how_fast_it_sends_and_sees_what_it_sent) {
  start_tls(&Http::echo);
  const auto sockets = std::make_shared<SessionSockets>();
  HttpSession session(sockets);
  HttpCall put = call("PUT", "/");
  put.body.assign(512 << 10, 'x');
  ASSERT_TRUE(sockets->set_pacing_rate(2'000'000));
  EXPECT_EQ(sockets->local(), "");

  const auto begun = std::chrono::steady_clock::now();
  ASSERT_TRUE(session.perform(put));
  const auto slow = std::chrono::steady_clock::now() - begun;
  const std::uint64_t once = sockets->bytes_sent();
  ASSERT_TRUE(session.perform(put));

  EXPECT_GT(slow, milliseconds(150));
  EXPECT_GT(once, 512U << 10);
  EXPECT_GT(sockets->bytes_sent(), once + (512 << 10)) << "the same connection";
  EXPECT_LT(sockets->bytes_sent(), 2 * once);
  EXPECT_EQ(sockets->remote(), "127.0.0.1:" + std::to_string(server_->port()));
  EXPECT_EQ(sockets->local().substr(0, 10), "127.0.0.1:");
  EXPECT_GT(sockets->round_trip().now.count(), 0);
  const std::uint64_t all = sockets->bytes_sent();
  session = HttpSession();
  EXPECT_EQ(sockets->bytes_sent(), all) << "what was sent stays sent";
  EXPECT_EQ(sockets->remote(), "") << "its number may be another's by now";
}

TEST_F(Http, a_call_that_is_to_stop_does_so_in_the_middle) {
  start_tls(&Http::echo);
  const auto sockets = std::make_shared<SessionSockets>();
  HttpSession session(sockets);
  ASSERT_TRUE(sockets->set_pacing_rate(20'000));
  HttpCall put = call("PUT", "/");
  put.body.assign(512 << 10, 'x');
  int asked = 0;
  put.should_stop = [&asked] { return ++asked > 2; };

  const auto stopped = session.perform(put);

  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(stopped.error().message, "cancelled");
}

TEST_F(Http, a_session_replaces_a_connection_that_the_server_closed) {
  config_.idle_timeout = milliseconds(1);
  start_tls([](const HttpRequest& request, const Responder& responder) {
    responder.send(HttpResponse{200, {}, request.remote});
  });
  HttpSession session;

  const auto one = session.perform(call("GET", "/"));
  while (thread_.call([&] { return server_->connections(); }) > 0) {
  }
  const auto two = session.perform(call("GET", "/"));

  ASSERT_TRUE(one && two);
  EXPECT_NE(one->body, two->body);
}

TEST_F(Http, a_long_body_comes_whole_over_a_kept_connection) {
  const std::string body(5 << 20, 'b');
  start_tls([&](const HttpRequest&, const Responder& responder) {
    responder.send(HttpResponse{200, {}, body});
  });
  HttpSession session;
  HttpCall bounded = call("GET", "/");
  bounded.max_body_bytes = 1 << 20;

  const auto whole = session.perform(call("GET", "/"));
  const auto refused = session.perform(bounded);
  const auto again = session.perform(call("GET", "/"));

  ASSERT_TRUE(whole && again);
  EXPECT_TRUE(whole->body == body && again->body == body);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
}

TEST_F(Http, refuses_bad_calls_before_they_leave) {
  start(echo);
  HttpCall injected = call("GET", "/");
  injected.headers = {{"X", "a\r\nY: b"}};
  HttpCall other_scheme = call("GET", "/");
  other_scheme.url = "file:///etc/passwd";
  HttpCall nonsense = call("GET", "/");
  nonsense.url = "::";

  for (const HttpCall& bad : {injected, other_scheme, nonsense})
    EXPECT_EQ(perform_blocking(bad).error().code, ErrorCode::kInvalid);
}

/// A client on a loop of its own.
class AsyncHttp : public Http {
 protected:
  AsyncHttp() {
    client_thread_.call([&] { client_ = std::make_unique<HttpClient>(client_thread_.loop(), 4); });
  }

  ~AsyncHttp() override {
    client_thread_.call([&] { client_.reset(); });
  }

  Told<Result<HttpReply>> begin(HttpCall request) {
    Told<Result<HttpReply>> told;
    client_thread_.call([&] {
      client_->perform(std::move(request), [told](Result<HttpReply> reply) {
        told.tell(std::move(reply));
      });
    });
    return told;
  }

  LoopThread client_thread_;
  std::unique_ptr<HttpClient> client_;
};

TEST_F(AsyncHttp, makes_calls_at_once_and_refuses_those_over_the_bound) {
  std::vector<Responder> held;
  const Told<bool> all_there;
  start_tls([&](const HttpRequest&, const Responder& responder) {
    held.push_back(responder);
    if (held.size() == 4) all_there.tell(true);
  });
  std::vector<Told<Result<HttpReply>>> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(begin(call("GET", "/")));
  EXPECT_TRUE(all_there.wait());

  const auto fifth = begin(call("GET", "/")).wait();
  thread_.call([&] {
    for (const Responder& responder : held) responder.send(HttpResponse{200, {}, "ok"});
    held.clear();
  });

  EXPECT_EQ(fifth.error().code, ErrorCode::kExhausted);
  for (const auto& told : calls) EXPECT_EQ(told.wait()->body, "ok");
}

TEST_F(AsyncHttp, reuses_a_connection_but_never_across_different_trust) {
  start_tls([](const HttpRequest& request, const Responder& responder) {
    responder.send(HttpResponse{200, {}, request.remote});
  });
  const HttpCall first = call("GET", "/");
  HttpCall stranger = first;
  stranger.tls->expected_peer = "spiffe://site/somebody-else";

  const std::string one = begin(first).wait()->body;
  const std::string two = begin(first).wait()->body;
  const auto other = begin(stranger).wait();

  EXPECT_EQ(one, two);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kDenied);
}

TEST_F(AsyncHttp, a_cancelled_call_is_never_reported) {
  const Told<Responder> arrived;
  start([&](const HttpRequest&, const Responder& responder) { arrived.tell(responder); });
  HttpCallId id;
  client_thread_.call([&] {
    id = client_->perform(call("GET", "/"), [](const auto&) {
      ADD_FAILURE() << "a cancelled call was reported";
    });
  });
  const Responder responder = arrived.wait();

  client_thread_.call([&] { client_->cancel(id); });
  client_thread_.call([] {});  // the next turn

  EXPECT_EQ(client_thread_.call([&] { return client_->active(); }), 0U);
  thread_.call([&] { responder.send(HttpResponse{}); });
}

TEST_F(AsyncHttp, reports_failures_and_bad_calls_later) {
  start(echo);
  HttpCall nobody = call("GET", "/");
  thread_.call([&] { server_.reset(); });
  HttpCall bad = nobody;
  bad.url = "gopher://x/";

  EXPECT_EQ(begin(nobody).wait().error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(begin(bad).wait().error().code, ErrorCode::kInvalid);
}

TEST(HttpError, maps_codes_to_statuses_and_back) {
  const std::vector<std::pair<ErrorCode, int>> table = {
      {ErrorCode::kInvalid, 400},
      {ErrorCode::kDenied, 403},
      {ErrorCode::kNotFound, 404},
      {ErrorCode::kConflict, 409},
      {ErrorCode::kCorrupt, 422},
      {ErrorCode::kExhausted, 429},
      {ErrorCode::kInternal, 500},
      {ErrorCode::kUnsupported, 501},
      {ErrorCode::kUnavailable, 503},
      {ErrorCode::kTimeout, 504},
  };
  for (const auto& [code, status] : table) {
    EXPECT_EQ(http_status(code), status);
    EXPECT_EQ(error_from_http(status, "not json").code, code);
    const Error error{code, "what \"happened\" \xff", "do this"};
    EXPECT_EQ(error_from_http(418, error_json(error)).code, code);
    EXPECT_EQ(error_from_http(418, error_json(error)).hint, "do this");
  }
  EXPECT_EQ(http_status(ErrorCode::kDenied, {.has_credentials = false}), 401);
  EXPECT_EQ(http_status(ErrorCode::kExhausted, {.is_storage = true}), 507);
  EXPECT_EQ(
      error_from_http(404, R"({"message":"No such container: x"})").message, "No such container: x"
  );
}

TEST(Url, takes_its_parts_and_refuses_nonsense) {
  const auto full = parse_url("WSS://[2001:db8::1]:8443/a/b?c=d");
  ASSERT_TRUE(full);
  EXPECT_EQ(full->scheme, "wss");
  EXPECT_EQ(full->host, "2001:db8::1");
  EXPECT_EQ(full->port, 8443);
  EXPECT_EQ(full->authority, "[2001:db8::1]:8443");
  EXPECT_EQ(full->target, "/a/b?c=d");
  EXPECT_EQ(parse_url("https://host?x")->target, "/?x");
  EXPECT_EQ(parse_url("https://host")->port, 443);
  for (const char* bad :
       {"",
        "host",
        "://x",
        "ftp://x",
        "http://",
        "http://a:b",
        "http://a:70000",
        "http://u@h/",
        "http://a b/",
        "http://[::1",
        "http://a/#f",
        "http://a:"})
    EXPECT_FALSE(parse_url(bad)) << bad;
}

}  // namespace
}  // namespace rn::io
