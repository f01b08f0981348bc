// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/ids.h"
#include "base/time.h"
#include "model/checkpoint.h"
#include "model/fields.h"
#include "model/gang.h"
#include "model/warden.h"
#include "model/wire_gangs.h"

// Who may reach whom by a link between two members of a gang (ADR 0027), and what agents say to
// each other about one (docs/formats/wire.md, "Peer data"). Pure.

namespace rn::agent {

using warden_wire::GuestName;

/// Frames of a link's own connection, beside those of transfers (checkpoint::PeerFrameType). It is
/// answered by their `welcome` or `refused`.
enum class LinkFrame : std::uint8_t {
  kLink = 12,  ///< client, first: LinkHello
  kData = 13,  ///< bytes of the stream, 1 to gang_link::kDataMax
  kEnd = 14,   ///< no more data comes; nothing
};

inline constexpr std::uint32_t kLinkProtocol = 1;

/// What the agent of the member that connects asks for.
struct LinkHello {
  std::uint32_t protocol = kLinkProtocol;
  GangId gang;
  LeaseEpoch epoch;
  std::uint32_t from = 0;  ///< rank
  std::uint32_t to = 0;
  std::uint32_t port = 0;
  Ticket ticket;

  RN_FIELDS(LinkHello, protocol, gang, epoch, from, to, port, ticket)
};

/// A member whose guest runs on this node, and where the others are.
struct LinkedGuest {
  GuestName name;
  GangPlace place;
  std::string disk;
  std::vector<wire::GangPeer> members;  ///< by rank, itself too

  /// nullptr: no such member.
  const wire::GangPeer* member(std::uint32_t rank) const;

  friend bool operator==(const LinkedGuest&, const LinkedGuest&) = default;
};

/// What a member's guest is started with, to know the others. Addresses are the same wherever they
/// run; what the submitter has said of the place where they meet stays.
void tell_of_members(const GangPlace& place, warden_wire::StartGuest& start);

Blob encode(const LinkHello& hello);
/// Takes hostile bytes. kInvalid; kUnsupported for a newer protocol alone.
Result<LinkHello> decode_link_hello(BlobView body);

/// What the node knows for it.
struct LinkTicketRules {
  NodeId self;
  crypto::PublicKey ticket_key{};
  WallTime now{};
  seconds tolerance{300};
};

/// The port behind the last colon of "192.0.2.1:4711", or all of it; 0 for none.
std::uint16_t port_in(const std::string& end);

/// kDenied for a far end ("192.0.2.1:4711") at one of the ports by which the node's cut knows what
/// it lets through (the coordinator's, REST): a link there would go on after a cut.
Status check_link_end(const std::string& end, const std::vector<std::uint16_t>& control_ports);

/// What can be said before it is known whether the member runs here: kDenied for a ticket that is
/// not the coordinator's, of another kind, for another pair of nodes, for another epoch, or
/// expired. `peer`: as its certificate says.
Status check_link_ticket(const LinkHello& hello, const NodeId& peer, const LinkTicketRules& rules);

/// kConflict for a stale epoch; kDenied for another gang, another member, or one that the
/// coordinator does not say to run at `peer`.
Status check_link(const LinkHello& hello, const NodeId& peer, const LinkedGuest& guest);

}  // namespace rn::agent
