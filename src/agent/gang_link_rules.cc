// SPDX-License-Identifier: Apache-2.0
#include "agent/gang_link_rules.h"

#include <algorithm>

#include "base/whole_number.h"
#include "checkpoint/manifest.h"
#include "model/codec_detail.h"
#include "model/gang_link.h"

namespace rn {

RN_INSTANTIATE_CODEC(agent::LinkHello)

namespace agent {

namespace {

/// Where torch.distributed's programs meet, as launchers choose it.
constexpr const char* kMasterPort = "29500";

std::string member_address(std::uint32_t rank) {
  return gang_link::kPrefix + std::to_string(rank + 1);
}

}  // namespace

const wire::GangPeer* LinkedGuest::member(std::uint32_t rank) const {
  const auto found = std::find_if(members.begin(), members.end(), [&](const wire::GangPeer& one) {
    return one.rank == rank;
  });
  return found == members.end() ? nullptr : &*found;
}

void tell_of_members(const GangPlace& place, warden_wire::StartGuest& start) {
  start.gang = warden_wire::GangMember{place.rank, place.size};
  std::string all;
  for (std::uint32_t rank = 0; rank < place.size; ++rank)
    all += (rank == 0 ? "" : "\n") + member_address(rank);
  start.env["RECLAIM_NODES_IPS"] = all;
  start.env["RECLAIM_MASTER_NODE_IP"] = member_address(0);
  start.env.emplace("MASTER_ADDR", member_address(0));
  start.env.emplace("MASTER_PORT", kMasterPort);
}

Blob encode(const LinkHello& hello) {
  return to_cbor(hello);
}

Result<LinkHello> decode_link_hello(BlobView body) {
  auto hello = from_cbor<LinkHello>(body);
  if (!hello) return fail(ErrorCode::kInvalid, "link: " + hello.error().message);
  if (hello->protocol != kLinkProtocol)
    return fail(ErrorCode::kUnsupported, "no common protocol of links", "upgrade the older node");
  const bool is_good = !hello->gang.empty() && !hello->epoch.is_none() &&
                       hello->from < gang_link::kRanks && hello->to < gang_link::kRanks &&
                       hello->from != hello->to && hello->port >= 1 && hello->port <= 65'535;
  if (!is_good) return fail(ErrorCode::kInvalid, "link: it names no two members, or no port");
  return hello;
}

std::uint16_t port_in(const std::string& end) {
  const std::size_t colon = end.rfind(':');
  const std::string text = colon == std::string::npos ? end : end.substr(colon + 1);
  return whole_number<std::uint16_t>(text).value_or(0);
}

Status check_link_end(const std::string& end, const std::vector<std::uint16_t>& control_ports) {
  const std::uint16_t port = port_in(end);
  if (port == 0 ||
      std::find(control_ports.begin(), control_ports.end(), port) == control_ports.end())
    return {};
  return fail(
      ErrorCode::kDenied,
      "no link has an end at port " + std::to_string(port) + ", which a cut lets through",
      "give that node's agent another --listen-peer"
  );
}

Status check_link_ticket(const LinkHello& hello, const NodeId& peer, const LinkTicketRules& rules) {
  const Ticket& ticket = hello.ticket;
  const auto deny = [](std::string why) {
    return fail(
        ErrorCode::kDenied, std::move(why), "the coordinator renews a gang's tickets; wait for it"
    );
  };
  if (!checkpoint::is_signed_by(ticket, rules.ticket_key))
    return deny("the ticket is not signed by the coordinator");
  if (ticket.action != TicketAction::kLink) return deny("the ticket is for no link");
  if (ticket.to != rules.self)
    return deny("the ticket is for " + ticket.to.str() + ", this is " + rules.self.str());
  if (ticket.from != peer)
    return deny("the ticket is " + ticket.from.str() + "'s, the connection " + peer.str() + "'s");
  if (ticket.epoch != hello.epoch) return deny("the ticket is of another epoch");
  const std::int64_t until =
      ticket.expiry_wall_ms + std::chrono::duration_cast<milliseconds>(rules.tolerance).count();
  if (to_ms(rules.now) > until) return deny("the ticket has expired");
  return {};
}

Status check_link(const LinkHello& hello, const NodeId& peer, const LinkedGuest& guest) {
  const GangPlace& place = guest.place;
  if (hello.gang != place.gang || hello.to != place.rank)
    return fail(ErrorCode::kDenied, "another member of another gang runs here");
  if (hello.epoch != guest.name.epoch)
    return fail(
        ErrorCode::kConflict,
        "epoch " + to_string(hello.epoch) + " of gang " + hello.gang.str() + " is not the one here",
        "the attempt of the older one is fenced; stop it"
    );
  if (hello.ticket.job != guest.name.job)
    return fail(ErrorCode::kDenied, "the ticket is for another member's job");
  const wire::GangPeer* const from = guest.member(hello.from);
  if (from == nullptr || from->node != peer)
    return fail(
        ErrorCode::kDenied, "rank " + std::to_string(hello.from) + " does not run at " + peer.str()
    );
  return {};
}

}  // namespace agent
}  // namespace rn
