// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "io/http.h"
#include "io/loop.h"
#include "io/websocket.h"

// Private to io: a WebSocket on an open stream, either side.
namespace rn::io {

class SocketStream;

class WebSocketSession : public WebSocket {
 public:
  virtual void close_at_once() = 0;  ///< no closing handshake; on_close comes in a later turn
  virtual void on_finished(std::function<void()> fn) = 0;  ///< io's own, before the user's on_close
};

struct WebSocketPeer {
  std::optional<std::string> identity;
  std::string remote;
};

using WebSocketReady = std::function<void(Result<std::shared_ptr<WebSocketSession>>)>;

/// Answers the upgrade request and calls `ready`; reading begins when that has returned.
std::shared_ptr<WebSocketSession> accept_websocket(
    Loop& loop,
    SocketStream stream,
    const HttpRequest& request,
    const std::string& target,
    const WebSocketLimits& limits,
    WebSocketPeer peer,
    WebSocketReady ready
);

/// Asks for the upgrade and calls `ready`.
std::shared_ptr<WebSocketSession> request_websocket(
    Loop& loop,
    SocketStream stream,
    const std::string& host,
    const std::string& target,
    const HttpHeaders& headers,
    const WebSocketLimits& limits,
    WebSocketPeer peer,
    WebSocketReady ready
);

}  // namespace rn::io
