// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/ids.h"
#include "base/time.h"
#include "coordinator/api.h"
#include "coordinator/daemon_shell.h"
#include "io/http.h"
#include "io/loop.h"
#include "io/websocket.h"
#include "model/tunnel.h"

namespace rn::coordinator {

/// Users' connections into their running guests (ADR 0019, docs/formats/tunnel.md): joins a user's
/// WebSocket, which is one tunnel, with the second WebSocket of the node where the job runs, which
/// has all tunnels of the node. Passes packets on and keeps none; what may be under way is bounded
/// by the ends' credit, which is counted here, too. A tunnel breaks as soon as its attempt is not
/// the job's any more, or has no guest that runs; nothing of it is written down. Loop thread.
class Tunnels {
 public:
  static constexpr std::size_t kOfJob = 32;
  static constexpr std::size_t kOfNode = 48;
  static constexpr std::size_t kOfUser = 128;
  static constexpr std::size_t kOfAll = 1024;
  /// Where users ask for visits (model/visit.h), and for ports.
  static constexpr const char* kVisitPath = "/v1/visit";
  static constexpr const char* kForwardPath = "/v1/forward";

  /// All outlive it.
  Tunnels(io::Loop& loop, Shell& shell, Api& api);
  ~Tunnels();
  Tunnels(const Tunnels&) = delete;
  Tunnels& operator=(const Tunnels&) = delete;

  /// Whether such a request may become a tunnel now. kNotFound: no such job, or not the caller's;
  /// kConflict: it is over; kUnavailable: no guest of it runs now, with what it does instead, or
  /// its node has no way in; kExhausted: too many are open; kInvalid, kDenied: as any request.
  Status admit(const io::HttpRequest& request);
  void adopt_user(const io::HttpRequest& request, std::shared_ptr<io::WebSocket> socket);

  /// Where somebody wants to get, who was found to be the job's user or an administrator.
  struct Wish {
    JobId job;
    std::uint16_t port = 0;  ///< 0: a visit
    UserId user;
    std::string token;  ///< its id: a token that ends, ends the tunnel
  };

  /// The same for whoever has asked by another way than the interface's own (notebooks).
  Status admit(const Wish& wish) const;
  void adopt_user(const Wish& wish, std::shared_ptr<io::WebSocket> socket);

  /// The newest connection of a node is the one that counts.
  void adopt_node(const NodeId& node, std::shared_ptr<io::WebSocket> socket);

 private:
  using Id = std::uint32_t;

  struct Place {
    JobId job;
    std::uint64_t number = 0;
    LeaseEpoch epoch;
    NodeId node;
    UserId user;
    std::uint16_t port = 0;  ///< 0: a visit
    std::string token;
  };

  struct Tunnel {
    Place place;
    std::shared_ptr<io::WebSocket> user;
    JobWatchId watch;
    Instant until;                                  ///< of what it waits for
    std::string waits_for;                          ///< said when that did not come
    std::uint32_t credit = tunnel::kWindowToGuest;  ///< what the user may send
    std::uint32_t held_credit = 0;                  ///< given by the guest, not yet passed on
    bool is_open = false;
    bool has_user_ended = false;
    bool has_guest_ended = false;
  };

  struct Link {
    std::shared_ptr<io::WebSocket> socket;
    std::uint64_t number = 0;  ///< of the connection: an older one says nothing any more
  };

  /// What becomes of a packet.
  enum class Next : std::uint8_t { kPass, kPassAsLast, kKeep, kBroken };

  Result<Wish> wish_of(const io::HttpRequest& request);
  Result<Place> place_of(const Wish& wish) const;
  Status check_room(const Place& place) const;
  void refuse(std::shared_ptr<io::WebSocket> socket, const Error& error);
  bool is_still_there(const Place& place) const;
  void ask(Id id);
  void from_user(Id id, const Blob& packet);
  void from_node(const NodeId& node, std::uint64_t number, const Blob& message);
  Next take_from_user(Tunnel& tunnel, const Blob& packet) const;
  Next take_from_guest(Tunnel& tunnel, const Blob& packet) const;
  void note_life(Tunnel& tunnel) const;
  void send_to_guest(Id id, const NodeId& node, const Blob& packet);
  void pass_credit_on();
  void user_closed(Id id);
  void node_closed(const NodeId& node, std::uint64_t number);
  void look();
  /// Ends it on both sides, with why.
  void break_off(Id id, const std::string& why);
  void break_off_all_of(const NodeId& node, const std::string& why);
  void forget(Id id);

  io::Loop& loop_;
  Shell& shell_;
  Api& api_;
  std::map<Id, Tunnel> tunnels_;
  std::map<NodeId, Link> links_;
  Id next_id_ = 1;
  std::uint64_t next_link_ = 1;
  io::TimerId beat_;
  io::TimerId credit_timer_;
  bool is_credit_waiting_ = false;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  ///< read by late callbacks
};

}  // namespace rn::coordinator
