// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/time.h"
#include "io/http.h"
#include "io/loop.h"
#include "io/pki.h"
#include "io/websocket.h"

namespace rn::io {

struct WebSocketClientConfig {
  std::string url;      ///< "wss://host:port/path" or "ws://…" (loopback tests)
  TlsConfig tls;        ///< for wss
  HttpHeaders headers;  ///< beside the handshake's own, e.g. Authorization
  milliseconds connect_timeout = seconds(10);  ///< name lookup to accepted upgrade
  WebSocketLimits limits;
  std::uint32_t socket_mark = 0;  ///< SO_MARK when not 0 (needs CAP_NET_ADMIN)
};

/// Connects once and calls `opened` on the loop with the connection or the reason: kTimeout,
/// kUnavailable (refused, no route, no such name), kDenied (certificate or identity not accepted,
/// by either side; 401, 403), or what the server answered instead of the upgrade. Reconnecting is
/// the caller's. Loop thread. Dropping the answer closes nothing: call cancel() to give up earlier.
class WebSocketConnect {
 public:
  using Opened = std::function<void(Result<std::shared_ptr<WebSocket>>)>;
  static WebSocketConnect start(Loop& loop, WebSocketClientConfig config, Opened opened);

  /// `opened` will not be called any more. Does nothing once it was.
  void cancel();

 private:
  struct State;

  explicit WebSocketConnect(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}  // namespace rn::io
