// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/warden.h"
#include "traffic/transfer_edge.h"

namespace rn::warden {

/// What the owner lets the agent's transfers have of the way out.
struct TransfersGrant {
  std::string interface;          ///< empty: those of the default routes
  std::uint64_t bytes_per_s = 0;  ///< of all together, payload; 0 = no bound

  friend bool operator==(const TransfersGrant&, const TransfersGrant&) = default;
};

/// "auto", "eth0", "auto:90mbit", "eth0:90mbit" (as parse_uplink). kInvalid: anything else. Pure.
Result<TransfersGrant> parse_transfers(const std::string& text);

/// Interfaces of the default routes of both families, without loopback; by `proc_net` (/proc/net).
std::vector<std::string> default_route_interfaces(const std::string& proc_net);

/// kInvalid, naming the transfer, for an end that is none; kExhausted for too many. Pure.
Result<std::vector<traffic::TransferClaim>> claims_of(const warden_wire::SetTransfers& wanted);
/// The smaller of what the agent sets and the owner grants, by class. Pure.
traffic::ClassRates class_rates_of(
    const warden_wire::SetTransfers& wanted, const TransfersGrant& grant
);
/// Connections that no gate cuts: to the coordinator, of the LAN REST, and for names. Pure.
std::vector<rn_edge_port> control_ports_of(const warden_wire::SetTransfers& wanted);

/// The owner's cut of all transfers: the gate, and the file by which it is found after a reboot.
/// Needs no daemon.
class TransfersCut {
 public:
  /// kNotFound where transfers are not bounded.
  static Result<TransfersCut> open(const std::string& gates, const std::string& record);

  /// The map write alone: waits for no disk.
  Status set_gate(bool is_open) { return is_open ? gate_.uncut() : gate_.cut(); }

  Result<bool> is_cut() const;
  /// Makes durable what the gate says. Blocks for as long as the disk does.
  Status record() const;

 private:
  TransfersCut(traffic::TransferGate gate, std::string record)
      : gate_(std::move(gate)), record_(std::move(record)) {}

  traffic::TransferGate gate_;
  std::string record_;
};

/// The bounds of the agent's transfers at the uplinks. Every call blocks for some microseconds to
/// milliseconds; thread-safe.
class TransferBounds {
 public:
  /// Adopts what an earlier warden has pinned in `gates`: claims, counters and the owner's cut.
  static Result<std::unique_ptr<TransferBounds>> open(
      const TransfersGrant& grant,
      const std::string& gates,
      const std::string& record,
      std::uint32_t agent_uid
  );

  Result<warden_wire::TransferCounts> set(const warden_wire::SetTransfers& wanted);

  const TransfersGrant& grant() const { return grant_; }

  /// Puts back what is missing at the uplinks; answers in sentences what the owner should know.
  std::vector<std::string> look();

 private:
  TransferBounds(TransfersGrant grant, traffic::TransferEdge edge)
      : grant_(std::move(grant)), edge_(std::move(edge)) {}

  std::vector<std::string> uplinks() const;

  const TransfersGrant grant_;
  std::mutex mutex_;  ///< guards edge_
  traffic::TransferEdge edge_;
};

}  // namespace rn::warden
