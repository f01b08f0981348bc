// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core_types.h"
#include "checkpoint/transfer.h"
#include "sim/network.h"
#include "sim/world.h"

namespace rn::sim {

class AgentHost;

/// The data port of an agent's process, for one life of it: production transfers (checkpoint/
/// transfer.h), one frame at a time over connections of the simulated network. A connection may
/// break and either process may die between any two frames; what had become durable by then is not
/// sent again.
class PeerPort {
 public:
  using Done = std::function<void(Status connection)>;

  /// `host` outlives it.
  explicit PeerPort(AgentHost& host) : host_(host) {}

  /// Runs the client's end over a new connection; `done` is called once, when the end is finished
  /// or the connection is gone. Answers a number for stop().
  Network::ConnectionId run(AgentHost& peer, std::shared_ptr<checkpoint::PeerEnd> end, Done done);

  /// The end has something to send that no frame asked for.
  void go_on(Network::ConnectionId id) { pump_later(id, nanoseconds(0)); }

  /// How fast its chunks go from now on, in bits per second; 0 = no limit.
  void pace(Network::ConnectionId id, std::uint64_t rate_bps);

  /// As io::FramedConnection and the sender's end would tell it.
  struct Progress {
    std::optional<std::uint64_t> bytes_left;
    std::uint64_t bytes_sent = 0;
  };

  Progress progress(Network::ConnectionId id) const;

  /// What peers fetch here now, by the numbers of their connections beyond agent::kFirstFetch.
  std::vector<agent::FetchProgress> fetches() const;

  /// The process dies: its lines are the others'.
  void leave_lines();

  /// Breaks the connection off; `done` is not called.
  void stop(Network::ConnectionId id);

  /// The other side of run(): what the network calls at the serving host.
  Network::Endpoint accept(Network::ConnectionId id, AgentHost& client);

  std::size_t open() const { return transfers_.size(); }

 private:
  struct Transfer {
    std::shared_ptr<checkpoint::PeerEnd> end;
    Done done;  ///< empty at the server
    bool is_pumping = false;
    TrueTime heard{0};
    std::optional<Ticket> fetched_by = {};  ///< of a server: the peer's, once it was accepted
    // Where lines are not endless: the chunk that is on its way.
    std::string peer = {};
    std::uint64_t rate_bps = 0;
    double sent = 0;
    std::optional<Blob> held = {};
    double held_left = 0;
    TrueTime held_at{0};
    Lines::Sender sender = 0;
  };

  Network::Endpoint endpoint(Network::ConnectionId id);
  Progress progress(const Transfer& transfer) const;
  void pump_later(Network::ConnectionId id, nanoseconds delay);
  void pump(Network::ConnectionId id);
  void hold(Transfer& transfer, Blob bytes);
  void push(Network::ConnectionId id, Transfer& transfer);
  void let_go(Transfer& transfer);
  void hear_at_both_ends(Network::ConnectionId id, Transfer& transfer);
  void on_frame(Network::ConnectionId id, const Blob& bytes);
  void on_close(Network::ConnectionId id);
  void watch(Network::ConnectionId id);
  void finish(Network::ConnectionId id, Status connection);
  bool is_dead_after_work();

  AgentHost& host_;
  std::map<Network::ConnectionId, Transfer> transfers_;
};

}  // namespace rn::sim
