// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "io/channel.h"
#include "io/fd.h"
#include "io/http_server.h"
#include "io/taken_connection.h"
#include "io/tls.h"
#include "io/websocket_session.h"

// Private to io: what an HTTP server and its connections share.
namespace rn::io {

class HttpConnection {
 public:
  virtual ~HttpConnection() = default;
  virtual void start() = 0;
  virtual void close() = 0;  ///< at once; leaves HttpServerCore::connections

  // What a SendingSide asks.
  virtual bool is_open() const = 0;
  virtual Status pace(std::uint64_t bytes_per_second) = 0;
  virtual std::uint64_t bytes_waiting() = 0;
  virtual std::uint64_t bytes_given() const = 0;
};

/// Lives as long as the server or any connection.
struct HttpServerCore {
  struct Route {
    std::function<Status(const HttpRequest&)> admit;
    std::function<void(const HttpRequest&, std::shared_ptr<WebSocket>)> opened;
  };

  HttpServerCore(Loop& owner, HttpServerConfig settings, HttpHandler handle)
      : loop(owner), config(std::move(settings)), handler(std::move(handle)) {}

  Loop& loop;
  HttpServerConfig config;
  HttpHandler handler;
  SslContext tls;  ///< none: plain
  bool is_stopped = false;
  std::uint64_t next_id = 1;
  std::map<std::string, Route> routes;
  std::map<std::uint64_t, std::shared_ptr<HttpConnection>> connections;
  std::map<std::uint64_t, std::weak_ptr<WebSocketSession>> websockets;
  std::function<bool(const HttpRequest&)> wants;
  std::function<void(HttpRequest, std::shared_ptr<TakenConnection>)> taken;
  std::map<std::uint64_t, std::weak_ptr<TakenConnection>> given_away;

  std::size_t count() const { return connections.size() + websockets.size() + given_away.size(); }
};

/// A refusing connection answers 503 to its first request.
std::shared_ptr<HttpConnection> make_http_connection(
    std::shared_ptr<HttpServerCore> core, std::uint64_t id, Fd fd, Channel channel, bool is_refusing
);

}  // namespace rn::io
