// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/gang_link_rules.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/ids.h"
#include "io/framed.h"

namespace rn::agent {

/// The ways between members of gangs (ADR 0027, docs/formats/tunnel.md, "Links"). At each guest
/// that is a member a few connections wait at its PID 1 for what its programs connect to; each of
/// these goes on to the agent of the other member by a TLS connection of its own, and from there to
/// that one's PID 1. So nothing of a guest's comes onto a wire, and who does not read stops its own
/// sender alone. Whatever is there of a link is here one packet each way.
///
/// Links are of one epoch. They break when their guest is told to end, is gone, or is another
/// attempt's; what the kernel still has of one is dropped then. Threads: two, of low priority, for
/// each link, and one for each connection that waits; bounded by what may be open.
class GangLinks {
 public:
  struct Deps {
    /// Connects to the member's agent, with certificates of both ends; seconds at most. Any thread.
    std::function<Result<std::unique_ptr<io::FramedConnection>>(const wire::GangPeer&)> dial;
    /// Any thread.
    std::function<LinkTicketRules()> rules;
    /// A link of this guest's could not be opened, or broke, for what is no program's doing: by us,
    /// by the way to the other agent, or by that one. Before the guest is told. Any thread.
    std::function<void(const GuestName&)> on_broken = [](const GuestName&) {};
    /// Ports at which a link may not end (check_link_end).
    std::vector<std::uint16_t> control_ports;
    milliseconds peer_patience{60'000};  ///< for a member that has not begun
    std::size_t most = 512;              ///< links of the node
    std::uint32_t dials_per_s = 16;      ///< of a guest; more wait
  };

  /// Any thread.
  struct Seen {
    std::size_t open = 0;
    std::uint64_t opened = 0;
    std::uint64_t refused = 0;
    std::uint64_t bytes_sent = 0;  ///< to other agents
  };

  explicit GangLinks(Deps deps);
  /// stop(), and waits for its threads. serve() has returned everywhere by then.
  ~GangLinks();
  GangLinks(const GangLinks&) = delete;
  GangLinks& operator=(const GangLinks&) = delete;

  /// The members whose guests run here now, and no others: what is open of others breaks before
  /// this returns. To be called every few hundred milliseconds, changed or not. One thread.
  void set(std::vector<LinkedGuest> guests);
  /// What all links may send together; 0 = no bound. Any thread.
  void set_rate(std::uint64_t bps);
  /// A connection of `peer` whose first frame was LinkFrame::kLink: until the link is over. Any
  /// thread.
  void serve(io::FramedConnection& connection, const NodeId& peer, BlobView hello);
  /// Breaks everything, for good. Any thread.
  void stop();
  Seen look() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rn::agent
