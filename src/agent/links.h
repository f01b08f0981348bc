// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/identity.h"
#include "base/rng.h"
#include "io/framed_unix.h"
#include "io/loop.h"
#include "io/websocket_client.h"
#include "model/warden.h"
#include "model/wire.h"

namespace rn::agent {

/// The outbound WebSocket to the coordinator: connects, and connects again with jittered backoff
/// (0.25 s doubling to 5 s, half of it random). Loop thread.
class CoordinatorLink {
 public:
  struct Callbacks {
    std::function<void()> connected;
    std::function<void(wire::Message)> message;
    std::function<void(std::string reason)> disconnected;
  };

  CoordinatorLink(
      io::Loop& loop, Rng& rng, std::string url, io::TlsConfig tls, Callbacks callbacks
  );
  ~CoordinatorLink();
  CoordinatorLink(const CoordinatorLink&) = delete;
  CoordinatorLink& operator=(const CoordinatorLink&) = delete;

  void start();
  void send(const wire::Message& message);
  /// Drops the connection; the next try comes after `retry` (none: the usual backoff).
  void close(const std::string& reason, std::optional<milliseconds> retry);
  void give_up();                   ///< never connects again
  void set_tls(io::TlsConfig tls);  ///< for the next connection

  std::string last_error() const { return last_error_; }

 private:
  void connect();
  void opened(Result<std::shared_ptr<io::WebSocket>> socket);
  void schedule(std::optional<milliseconds> after);
  void lost(const std::string& reason);

  io::Loop& loop_;
  Rng& rng_;
  std::string url_;
  io::TlsConfig tls_;
  Callbacks callbacks_;
  std::shared_ptr<io::WebSocket> socket_;
  std::optional<io::WebSocketConnect> connecting_;
  io::TimerId timer_;
  std::uint32_t failures_ = 0;
  bool is_given_up_ = false;
  std::string last_error_;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);
};

/// The warden's socket: connects, and tries again every second. Loop thread.
class WardenLink {
 public:
  struct Callbacks {
    std::function<void()> connected;
    std::function<void(warden_wire::Reply)> reply;
    std::function<void()> disconnected;
  };

  WardenLink(io::Loop& loop, std::string path, std::uint32_t warden_uid, Callbacks callbacks);
  ~WardenLink();
  WardenLink(const WardenLink&) = delete;
  WardenLink& operator=(const WardenLink&) = delete;

  void start();
  void send(const warden_wire::NumberedRequest& request);

 private:
  void connect();
  void read();
  void lost(const std::string& why);

  io::Loop& loop_;
  std::string path_;
  std::uint32_t warden_uid_;
  Callbacks callbacks_;
  std::unique_ptr<io::FramedUnixClient> client_;
  io::WatchId watch_;
  io::TimerId timer_;
  std::string last_error_;
};

/// Type of the frames on the warden's socket.
inline constexpr std::uint8_t kWardenFrame = 1;

}  // namespace rn::agent
