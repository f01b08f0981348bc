// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/time.h"

namespace rn::io {

struct WebSocketLimits {
  std::size_t max_message_bytes =
      1 << 20;  ///< a longer incoming message closes the connection (1009)
  std::size_t max_queued_bytes =
      4 << 20;  ///< not yet written; beyond it send() closes the connection
  std::size_t max_queued_messages = 4096;
  milliseconds handshake_timeout = seconds(10);  ///< upgrade and closing handshakes
  milliseconds idle_timeout =
      seconds(30);  ///< a ping goes out after half of it in silence; then the end
};

/// One binary WebSocket connection, either side. Use it on the loop thread only; callbacks come
/// there too. The connection keeps itself alive until it is closed; on_close is called exactly
/// once, also after close(), and afterwards no other callback is. Setting the callbacks inside the
/// open callback misses nothing.
class WebSocket {
 public:
  virtual ~WebSocket() = default;

  /// Queues one binary message. kUnavailable when closed. When a queue limit is passed the
  /// connection is closed and the answer is kExhausted: a peer that does not read must reconnect
  /// and start afresh.
  virtual Status send(Blob message) = 0;
  /// Starts an orderly close; queued messages are dropped. `reason` ≤ 120 bytes is told to the
  /// peer. Repeatable.
  virtual void close(const std::string& reason) = 0;

  virtual void on_message(std::function<void(Blob)> fn) = 0;
  /// kUnavailable: closed by either side or connection lost; kTimeout: keepalive missed;
  /// kExhausted: a limit was passed; kInvalid: the peer broke the protocol (text messages are
  /// refused).
  virtual void on_close(std::function<void(const Error&)> fn) = 0;

  virtual std::size_t queued_bytes() const = 0;
  virtual bool is_open() const = 0;
  /// First URI SAN of the peer's verified certificate, if it has one.
  virtual const std::optional<std::string>& peer_identity() const = 0;
  virtual const std::string& remote() const = 0;  ///< "192.0.2.1:4711", or "unix"
};

}  // namespace rn::io
