// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/time.h"
#include "io/http.h"
#include "io/loop.h"
#include "io/pki.h"
#include "io/taken_connection.h"
#include "io/websocket.h"

namespace rn::io {

/// The open end of a chunked response (logs -f, server-sent events). A copyable handle; loop thread
/// only.
class ResponseStream {
 public:
  struct State;

  explicit ResponseStream(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Queues one chunk. kExhausted when more than max_stream_buffer_bytes would wait (nothing is
  /// queued: come back after on_drained, or give up); kUnavailable when the client is gone or after
  /// finish().
  Status write(std::string chunk);
  /// Ends the response properly after what is queued.
  void finish();
  /// Cuts the connection, so that the client sees a broken response and not a short one.
  void abort();
  /// Calls `fn` each time the queue has become empty.
  void on_drained(std::function<void()> fn);
  /// Calls `fn` once when the client went away before finish().
  void on_closed(std::function<void()> fn);
  std::size_t queued_bytes() const;
  bool is_open() const;

 private:
  std::shared_ptr<State> state_;
};

class HttpConnection;

/// The connection by which one request came, as whoever says how fast its answers go sees it. It
/// may bring more requests, and belongs to one client all its life. A copyable handle; loop thread
/// only.
class SendingSide {
 public:
  SendingSide() = default;

  explicit SendingSide(std::weak_ptr<HttpConnection> connection)
      : connection_(std::move(connection)) {}

  /// Paces what the kernel sends from now on, what is queued included. 0: no limit. kUnavailable
  /// when the connection is gone, kUnsupported when it is no TCP.
  Status pace(std::uint64_t bytes_per_second) const;
  /// Of answers: not handed to the kernel yet, or not acknowledged by the client.
  std::uint64_t bytes_waiting() const;
  /// Of all answers so far, what is waiting included.
  std::uint64_t bytes_given() const;
  bool is_open() const;
  /// Both are of one connection.
  bool is_same(const SendingSide& other) const;

 private:
  std::weak_ptr<HttpConnection> connection_;
};

/// Answers one request, once, from the loop thread; at once or later. A copyable handle. When the
/// last copy goes away unused the client gets a 500.
class Responder {
 public:
  struct State;

  explicit Responder(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Does nothing if the client is gone.
  void send(HttpResponse response) const;
  void send_error(const Error& error) const;  ///< error_response()
  /// Sends the head with chunked encoding; `head.body` is the first chunk.
  ResponseStream stream(HttpResponse head) const;
  bool is_client_gone() const;
  SendingSide sending_side() const;

 private:
  std::shared_ptr<State> state_;
};

using HttpHandler = std::function<void(HttpRequest, Responder)>;

struct HttpServerConfig {
  std::string address = "127.0.0.1";  ///< textual IPv4 or IPv6
  std::uint16_t port = 0;             ///< 0: the kernel chooses; see HttpServer::port
  std::string unix_path;  ///< when set, listens there instead; a stale socket file is replaced
  std::uint32_t unix_mode = 0600;
  std::optional<TlsConfig> tls;  ///< none: plain, for Unix sockets and loopback

  std::size_t max_connections =
      4096;  ///< beyond it a connection gets 503 (plain) or is closed (TLS)
  std::size_t max_header_bytes = 16 << 10;
  std::size_t max_body_bytes = 1 << 20;
  /// Body limit by path; none set: max_body_bytes for all. Called before the body is read.
  std::function<std::size_t(const std::string& path)> body_limit;
  std::size_t max_stream_buffer_bytes = 256 << 10;
  milliseconds header_timeout =
      seconds(10);  ///< TLS handshake, and from the first byte of a request to its header's end
  milliseconds body_timeout = seconds(60);   ///< without any progress
  milliseconds idle_timeout = seconds(60);   ///< between requests on a kept connection
  milliseconds write_timeout = seconds(30);  ///< without any progress
  WebSocketLimits websocket;
};

/// HTTP/1.1 on one listening socket. Errors it answers itself use the JSON form: 400 malformed, 408
/// slow, 413 body too long, 431 header too long, 503 too many connections. Handlers run on the loop
/// thread.
class HttpServer {
 public:
  /// Listens and starts to accept. kConflict if the address is taken; kInvalid for a bad address or
  /// certificate.
  static Result<std::unique_ptr<HttpServer>> start(
      Loop& loop, HttpServerConfig config, HttpHandler handler
  );
  /// Closes the listener and all connections (WebSockets get their on_close later on the loop).
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Upgrades on exactly `path` are allowed. `admit` refuses by an error, answered as JSON;
  /// `opened` gets the connection.
  void serve_websocket(
      const std::string& path,
      std::function<Status(const HttpRequest&)> admit,
      std::function<void(const HttpRequest&, std::shared_ptr<WebSocket>)> opened
  );

  /// Requests that `wants` says yes to are read no further than their head: `taken` gets that and
  /// the connection, whose bytes begin with the request's body, and answers itself. Asked for each
  /// request with a head in order, before upgrades and body limits. Once, before the loop runs.
  void give_away(
      std::function<bool(const HttpRequest&)> wants,
      std::function<void(HttpRequest, std::shared_ptr<TakenConnection>)> taken
  );

  /// New connections use the new certificate; old ones go on. kInvalid leaves the old one.
  Status reload_tls(const TlsConfig& tls);
  std::uint16_t port() const;  ///< 0 for Unix sockets
  std::size_t connections() const;

 private:
  struct State;
  explicit HttpServer(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace rn::io
