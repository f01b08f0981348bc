// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/event_queue.h"
#include "base/rng.h"

namespace rn::sim {

/// True time of the simulated world. Machines read it through their own (wrong) clocks.
using TrueTime = nanoseconds;

/// Faults of every link; all off by default. Probabilities are per message.
struct NetworkFaults {
  double loss = 0;  ///< of a whole connection: TCP hides lost packets, so a "lost" message breaks
                    ///< its connection
  double duplicate = 0;  ///< delivered once more, up to half a minute later, as a replay would be
  double reorder = 0;    ///< held back for up to two seconds, while later ones overtake it
  nanoseconds latency_min = std::chrono::microseconds(200);
  nanoseconds latency_max = milliseconds(5);
};

/// Connections between named hosts. A connection is a pair of ordered, reliable streams until it
/// breaks; a broken one is noticed by either end after its own detection time. Cuts are directed:
/// `cut(a, b)` loses what a sends to b.
class Network {
 public:
  using ConnectionId = std::uint64_t;

  struct Endpoint {
    std::function<void(Blob)> on_message;
    std::function<void()> on_close;
  };

  Network(EventQueue& queue, Rng& rng) : queue_(queue), rng_(rng) {}

  /// What was asked for single messages and has not come is forgotten.
  void set_faults(const NetworkFaults& faults) {
    faults_ = faults;
    repeated_.clear();
    held_back_.clear();
  }

  /// The next message that the host sends is delivered once more, as by `duplicate`; is held back,
  /// as by `reorder`. Not on exact connections.
  void repeat_next(const std::string& host) { repeated_.insert(host); }

  void hold_back_next(const std::string& host) { held_back_.insert(host); }

  /// `accept` is called at the server's side with the new connection after the round trip; nothing
  /// happens at all if a direction is cut (the caller's own timeout decides). Answers the
  /// connection's number, used by both ends.
  ConnectionId connect(
      const std::string& from,
      const std::string& to,
      Endpoint client,
      std::function<Endpoint(ConnectionId)> accept,
      std::function<void()> on_open
  );

  /// The number that the next connect() will answer.
  ConnectionId next_id() const { return next_; }

  /// Messages of this connection are neither repeated nor reordered: inside one TLS stream they
  /// cannot be. (Those that are not exact stand for a protocol that promises to bear it.)
  void make_exact(ConnectionId id);
  /// Sends on an open connection; on a closed or cut one the bytes vanish.
  void send(ConnectionId id, const std::string& from, Blob bytes);
  /// Closes; the other end hears of it if the link lets it.
  void close(ConnectionId id, const std::string& from);
  /// All connections of a host break without a word (crash, power loss).
  void drop_host(const std::string& host);
  /// The same, and the host is there to notice it.
  void break_host(const std::string& host);

  void cut(const std::string& from, const std::string& to) { cuts_.insert({from, to}); }

  void heal(const std::string& from, const std::string& to) { cuts_.erase({from, to}); }

  void heal_all() { cuts_.clear(); }

  bool is_cut(const std::string& from, const std::string& to) const;

  /// Messages so far, without those of exact connections.
  std::uint64_t delivered() const { return delivered_; }

  /// Faults that happened so far, by name.
  const std::map<std::string, std::uint64_t>& injected() const { return injected_; }

 private:
  struct Side {
    std::string host;
    Endpoint endpoint;
    TrueTime last_arrival{0};  ///< keeps the stream in order
    bool is_open = false;
  };

  struct Connection {
    Side client;
    Side server;
    bool is_broken = false;
    bool is_exact = false;
  };

  nanoseconds latency();
  nanoseconds up_to(nanoseconds bound);
  void deliver(ConnectionId id, bool to_server, Blob bytes);
  void break_connection(ConnectionId id);

  EventQueue& queue_;
  Rng& rng_;
  NetworkFaults faults_;
  ConnectionId next_ = 1;
  std::map<ConnectionId, Connection> connections_;
  std::set<std::pair<std::string, std::string>> cuts_;
  std::set<std::string> repeated_;
  std::set<std::string> held_back_;
  std::uint64_t delivered_ = 0;
  std::map<std::string, std::uint64_t> injected_;
};

}  // namespace rn::sim
