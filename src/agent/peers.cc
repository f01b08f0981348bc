// SPDX-License-Identifier: Apache-2.0
#include "agent/peers.h"

#include "base/whole_number.h"
#include "io/own_address.h"
#include "io/url.h"

namespace rn::agent {

Result<HostPort> parse_host_port(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const auto bad = [&] {
    return fail(ErrorCode::kInvalid, "\"" + text + "\" is not HOST:PORT", "write HOST:PORT");
  };
  if (colon == std::string::npos || colon == 0) return bad();
  HostPort out;
  out.host = text.substr(0, colon);
  if (out.host.front() == '[') {
    if (out.host.size() < 3 || out.host.back() != ']') return bad();
    out.host = out.host.substr(1, out.host.size() - 2);
  } else if (out.host.find(':') != std::string::npos) {
    return bad();  // of an IPv6 address without brackets nobody knows where the port begins
  }
  const auto port = whole_number<std::uint16_t>(std::string_view(text).substr(colon + 1));
  if (!port) return bad();
  out.port = *port;
  return out;
}

std::string dialled_address(
    const std::string& advertised,
    const std::string& listens_on,
    std::uint16_t port,
    const Identity& identity,
    const std::string& hostname
) {
  if (!advertised.empty()) return advertised;
  std::string host = listens_on;
  if (host == "0.0.0.0" || host == "::") {
    host = hostname;
    const auto url = io::parse_url(identity.coordinator_url);
    const auto own = url ? io::own_address_towards(url->host, url->port)
                         : Result<std::string>(fail(url.error()));
    if (own) host = *own;
  }
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<checkpoint::PeerTarget> target_of(
    const Identity& identity,
    const PeerGrant& peer,
    const std::shared_ptr<TransferGauge>& gauge,
    const std::atomic<bool>& is_cancelled
) {
  auto address = parse_host_port(peer.address);
  if (!address) return fail(address.error().with("address of peer " + peer.node.str()));
  checkpoint::PeerTarget target;
  target.host = address->host;
  target.port = address->port;
  target.tls = tls_to_peer(identity, peer.node);
  target.expected_identity = identity_of(peer.node);
  target.drive.should_stop = [&is_cancelled] { return is_cancelled.load(); };
  if (gauge == nullptr) return target;
  target.on_connected = [gauge](io::FramedConnection& connection) { gauge->attach(connection); };
  target.on_closing = [gauge] { gauge->detach(); };
  target.drive.on_progress = [gauge](std::optional<std::uint64_t> left) { gauge->set_left(left); };
  return target;
}

}  // namespace rn::agent
