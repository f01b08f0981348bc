// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/time.h"
#include "io/local_socket.h"
#include "io/loop.h"
#include "io/websocket_client.h"

namespace rn::agent {

/// The way into the node's guests for their users (ADR 0019, docs/formats/tunnel.md): a second
/// outbound WebSocket to the coordinator, which is there while the node has guests, and for each
/// tunnel a connection to the packet socket of the guest's PID 1. Passes packets on; what a guest
/// says is believed in nothing but its size. What goes out is held to the contract's rate for
/// everyday traffic. A tunnel breaks when its guest is told to end, and when it is gone. Loop
/// thread.
class Tunnels {
 public:
  struct Deps {
    io::Loop& loop;
    Rng& rng;
    std::string url;  ///< "wss://host:port/v1/agent/tunnels"
    std::function<io::TlsConfig()> tls;
    std::function<bool()> has_guests;
    /// Of the guest "JOB EPOCH": its disk, as long as its processes run. An error says what it does
    /// instead.
    std::function<Result<std::string>(const std::string& guest)> disk_of;
    std::function<std::uint64_t()> rate_bps;  ///< what all may send; 0 = no bound
  };

  explicit Tunnels(Deps deps);
  ~Tunnels();
  Tunnels(const Tunnels&) = delete;
  Tunnels& operator=(const Tunnels&) = delete;

  std::size_t open() const { return tunnels_.size(); }

  /// "JOB EPOCH" of each into which one is open.
  std::set<std::string> guests() const;

 private:
  using Id = std::uint32_t;

  struct Tunnel {
    std::string guest;
    std::unique_ptr<io::LocalSocket> socket;
    std::deque<Blob> to_guest;  ///< what its PID 1 has not taken yet
    std::size_t to_guest_bytes = 0;
    bool has_user_ended = false;
    bool has_guest_ended = false;
    Instant ended_at;  ///< seen that both have; the epoch: not yet
  };

  void look();
  void connect();
  void connected(Result<std::shared_ptr<io::WebSocket>> socket);
  void lost(const std::string& why);
  void hear(const Blob& message);
  void open(Id id, BlobView packet, std::size_t asked);
  Result<std::unique_ptr<io::LocalSocket>> enter(const std::string& guest);
  void to_guest(Id id, BlobView packet);
  void write_guest(Id id);
  void read_guest(Id id);
  bool pass_on(Id id, Tunnel& tunnel, BlobView packet);
  bool may_send();
  void say(Id id, BlobView packet);
  void say(Id id, std::uint8_t kind, const std::string& words);
  /// Says so to the user, and forgets it.
  void break_off(Id id, const std::string& why);

  Deps deps_;
  std::shared_ptr<io::WebSocket> socket_;
  std::optional<io::WebSocketConnect> connecting_;
  std::map<Id, Tunnel> tunnels_;
  io::TimerId timer_;
  Instant next_try_;
  Instant needed_at_;  ///< there was a guest
  std::uint32_t failures_ = 0;
  double budget_ = 0;  ///< bytes that may go now
  Instant budget_at_;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  ///< read by late callbacks
};

}  // namespace rn::agent
