// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "traffic/guest_filter.h"
#include "traffic/transfer_edge_abi.h"
#include "traffic/transfer_gate.h"

namespace rn::traffic {

/// One end of a connection; IPv4 as ::ffff:a.b.c.d, network order.
struct EdgeEnd {
  std::array<std::uint8_t, 16> address{};
  std::uint16_t port = 0;

  friend bool operator==(const EdgeEnd&, const EdgeEnd&) = default;
};

/// "192.0.2.7" or "2001:db8::7". kInvalid for anything else.
Result<EdgeEnd> parse_end(const std::string& address, std::uint16_t port);

/// A transfer that is on its way over one TCP connection, and what it may have of the way out.
struct TransferClaim {
  std::uint64_t id = 0;  ///< the claimer's name for it, unique at a time
  EdgeEnd local;
  EdgeEnd remote;
  rn_edge_class purpose = RN_EDGE_CHECKPOINT;  ///< evacuation, checkpoint or prefetch
  std::uint64_t bytes_per_s = 0;               ///< payload; RN_EDGE_UNBOUNDED: its class's alone
  bool is_open = true;
};

/// Payload bytes a second by rn_edge_class.
using ClassRates = std::array<std::uint64_t, RN_EDGE_CLASSES>;

/// Nothing is bounded but what carries no payload.
ClassRates unbounded_rates();

struct EdgeCounters {
  std::uint64_t passed_packets = 0;  ///< segments
  std::uint64_t passed_bytes = 0;    ///< payload
  std::uint64_t marked_packets = 0;
  std::uint64_t dropped_packets = 0;
  std::uint64_t dropped_bytes = 0;
  std::uint64_t cut_packets = 0;
  Instant last_passed;  ///< with payload; epoch (0) when none ever passed
};

struct ClaimCounters {
  std::uint64_t id = 0;
  EdgeCounters counters;
};

/// An uplink on which our filters were not as they should be.
struct EdgeLoss {
  std::string interface;
  Status repaired;  ///< why they are not back, if not
};

/// Somebody else's filter that sees an uplink's packets before ours.
struct EdgeBefore {
  std::string interface;
  ForeignFilter filter;
};

/// Bucket of one transfer: deep enough that TCP which keeps to the rate loses nothing. Its largest
/// packet is 64 KiB whatever the rate, and its timers are late by milliseconds. Where the interface
/// has fq, TCP leaves its pacing to that, and the program sees up to three packets before they are
/// due (the kernel holds a socket to two in the queue before it adds one). Pure.
rn_edge_rate transfer_bucket(std::uint64_t bytes_per_s);
/// Bucket of a class, in which the packets of several transfers may meet, each ahead by three
/// bursts of two milliseconds (io/send_bursts.h). Pure.
rn_edge_rate class_bucket(std::uint64_t bytes_per_s);

/// The grants of the agent's transfers at this machine's uplinks (transfer_edge.bpf.c). The maps
/// are pinned and the kernel holds the filters: grants and gates outlive the process, and the next
/// one finds them. Every call blocks in the kernel for some microseconds; not thread-safe.
class TransferEdge {
 public:
  struct Parts;

  /// Loads the program and adopts what an earlier one has pinned in `folder` (on a bpffs, which is
  /// mounted if need be). The gate of all transfers stays as it is: shut on first use.
  /// kInvalid for user 0, whose packets are the owner's; kConflict when the pinned maps are of
  /// another version; kDenied without the privilege; kUnsupported when the kernel has no such
  /// programs.
  static Result<TransferEdge> open(const std::string& folder, std::uint32_t agent_uid);
  TransferEdge(TransferEdge&&) noexcept;
  TransferEdge& operator=(TransferEdge&&) noexcept;
  ~TransferEdge();

  /// Which connections of the agent's are no transfers. At most RN_EDGE_CONTROL_PORTS, else
  /// kInvalid.
  Status set_control(const std::vector<rn_edge_port>& ports);
  /// The grants of all classes.
  Status set_classes(const ClassRates& rates);
  /// These transfers and no others. One that stays keeps its counters and what is in its bucket.
  /// Nothing is changed on kInvalid (the same id or connection twice, a class that is none) and
  /// kExhausted (more than RN_EDGE_TRANSFERS).
  Status set_claims(const std::vector<TransferClaim>& claims);
  /// The one map write by which one transfer is cut, or let go on. kNotFound: no such id.
  Status set_gate(std::uint64_t id, bool is_open);
  /// The one map write by which its rate is another. kNotFound: no such id.
  Status set_rate(std::uint64_t id, std::uint64_t bytes_per_s);

  /// Puts the filters on these interfaces and takes them off all others that have them. Answers
  /// where one of ours was missing that had been put; the first time is no loss. An interface that
  /// is gone is passed over.
  std::vector<EdgeLoss> guard(const std::vector<std::string>& interfaces);

  /// The first before ours on each hook. It may be harmless; whoever put it knows.
  std::vector<EdgeBefore> filters_before(const std::vector<std::string>& interfaces) const;

  Result<std::vector<ClaimCounters>> claim_counters() const;
  Result<EdgeCounters> class_counters(rn_edge_class purpose) const;

  TransferGate& gate();

  /// Takes the filters off, clsact where we made it and nobody else uses it, and unpins the maps.
  /// The object is spent. The bpffs stays: GuestCut::leave() unmounts it.
  Status leave();
  /// The same for what some process has pinned in `folder`; fine when it is nothing.
  static Status leave_pinned(const std::string& folder);

  /// Borrowed; for BPF_PROG_TEST_RUN.
  int egress_fd() const;
  int ingress_fd() const;
  int settings_fd() const;

 private:
  explicit TransferEdge(std::unique_ptr<Parts> parts);
  static Result<TransferEdge> load(const std::string& folder);
  std::unique_ptr<Parts> parts_;
};

/// True when an edge is pinned in `folder`.
bool has_pinned_edge(const std::string& folder);

}  // namespace rn::traffic
