// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "agent/identity.h"
#include "agent/transfer_gauge.h"
#include "base/error.h"
#include "checkpoint/peer_link.h"

namespace rn::agent {

/// "host:port" or "[v6]:port". kInvalid for anything else.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

Result<HostPort> parse_host_port(const std::string& text);

/// What others dial: `advertised` where it is set, else where we listen. Listening everywhere is no
/// address: then the one on the way to the coordinator, or the host's name while there is no way.
/// Blocks for the lookup of the coordinator's name.
std::string dialled_address(
    const std::string& advertised,
    const std::string& listens_on,
    std::uint16_t port,
    const Identity& identity,
    const std::string& hostname
);

/// How to reach a peer's data port with the own identity; the transfer stops soon after
/// `is_cancelled` becomes true. `gauge`, if there is one, paces it and sees how far it is.
/// `is_cancelled` outlives the transfer. kInvalid for a bad address.
Result<checkpoint::PeerTarget> target_of(
    const Identity& identity,
    const PeerGrant& peer,
    const std::shared_ptr<TransferGauge>& gauge,
    const std::atomic<bool>& is_cancelled
);

}  // namespace rn::agent
