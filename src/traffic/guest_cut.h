// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "traffic/cut_switch.h"
#include "traffic/guest_filter.h"
#include "traffic/ip_prefix.h"

namespace rn::traffic {

enum class Protocol : std::uint8_t { kIcmp = 1, kTcp = 6, kUdp = 17, kIcmpV6 = 58 };

/// Who may open a TCP connection. Datagrams know no opener: a rule lets them through both ways.
enum class Opener : std::uint8_t {
  kGuest = RN_CUT_GUEST_OPENS,
  kRemote = RN_CUT_REMOTE_OPENS,
  kBoth = RN_CUT_GUEST_OPENS | RN_CUT_REMOTE_OPENS,
};

/// The guest may talk with `remote` by `protocol`, and replies pass. Port 0 means any.
struct AllowRule {
  IpPrefix remote;
  Protocol protocol = Protocol::kTcp;
  std::uint16_t remote_port = 0;
  std::uint16_t local_port = 0;  ///< the guest's own port, e.g. 8888 for a tunnel to its notebook
  Opener opener = Opener::kGuest;
};

/// All that a guest may do on the network. Empty means nothing but ARP and neighbour discovery with
/// its gateway.
///
/// The *longest* prefix that contains the remote address decides alone. Beside `deny`, these are
/// denied by themselves, and so open only to a rule whose own prefix is as long or longer: every
/// address of this host and the networks on its links, private and shared address space (10/8,
/// 172.16/12, 192.168/16, 100.64/10, fc00::/7). Loopback, link-local (with 169.254.169.254),
/// multicast, broadcast, v4-mapped, 6to4 and NAT64 addresses never pass.
struct GuestPolicy {
  std::string guest_v4;    ///< empty: no IPv4
  std::string gateway_v4;  ///< the host's end; ARP is answered for it alone
  std::string guest_v6;    ///< empty: no IPv6
  std::string gateway_v6;
  std::vector<AllowRule> allow;
  std::vector<IpPrefix> deny;
};

/// A bound interface that was found without our filter on both its hooks.
struct FilterLoss {
  Slot slot = 0;
  std::string interface;
  Status repaired;  ///< an error: it is not back, so the gate is shut and the interface down
};

/// A bound interface whose packets somebody else's program sees before ours.
struct FilterBefore {
  Slot slot = 0;
  std::string interface;
  ForeignFilter filter;
};

/// Looks at every bound interface for what stands before our filters: it may let pass what is cut.
/// Changes nothing, and needs no more than the pinned maps. Waits for the kernel's own lock of
/// interfaces, so it is not for what must not wait. A look that fails is a finding.
std::vector<FilterBefore> filters_before(const CutSwitch& gates);

/// The cut at the guests' host-side interfaces: loads the program, keeps its maps pinned, attaches
/// it.
///
/// The maps outlive the process: after a crash `open` finds gates, lease, guests and counters as
/// they were, and filters that went on working meanwhile. All calls block for a few system calls.
/// One thread at a time; the gates may be written by other processes at any time.
class GuestCut {
 public:
  struct Parts;

  /// Loads the program on the maps pinned in `folder`, making them (all closed) when they are
  /// missing. Mounts a bpffs on `folder` when it is on none. kDenied without CAP_BPF and
  /// CAP_NET_ADMIN; kConflict when maps of another ABI are pinned there; kUnsupported when the
  /// kernel refuses the program.
  static Result<GuestCut> open(const std::string& folder);

  static Result<CutSwitch> open_pinned(const std::string& folder) {
    return CutSwitch::open_pinned(folder);
  }

  GuestCut(GuestCut&&) noexcept;
  GuestCut& operator=(GuestCut&&) noexcept;
  ~GuestCut();  ///< closes descriptors; filters, maps and gates stay

  /// Binds the interface to `slot` and puts the filter on both hooks of its clsact qdisc, replacing
  /// an own older one. To be called before the interface is up: until then nothing filters it. A
  /// slot that was free starts *cut*, and `uncut(slot)` opens it; a slot bound to this interface
  /// already keeps its gate as it is. kNotFound: no such interface. kConflict: the slot or the
  /// interface is taken, or a foreign filter sits at our place. kExhausted: too many prefixes, or
  /// more than 8 port entries for one. kInvalid: the policy. On error nothing of it passes traffic.
  Status attach(const std::string& interface, Slot slot, const GuestPolicy& policy);
  /// Everything of attach() but the filter: what the program answers for `ifindex`. For packet
  /// tables.
  Status bind(std::uint32_t ifindex, Slot slot, const GuestPolicy& policy);
  /// Closes the gate, takes the interface down (unfiltered it would be open), removes filter,
  /// binding and prefixes, and the clsact qdisc if attach() made it; the counters reset. Fine when
  /// the interface is gone or the slot was never bound.
  Status detach(Slot slot);
  /// Looks at every bound interface, and puts back the filters that somebody else has removed, the
  /// clsact qdisc included; the gates stay as they are. Where that fails, nothing would cut the
  /// guest any more: its gate is shut and its interface taken down. Answers what was missing.
  std::vector<FilterLoss> repair();
  /// Detaches every slot, unpins the maps and unmounts the bpffs that open() mounted. The object is
  /// spent.
  Status leave();

  Status cut_node() { return gates().cut_node(); }

  Status uncut_node() { return gates().uncut_node(); }

  Status cut(Slot slot) { return gates().cut(slot); }

  Status uncut(Slot slot) { return gates().uncut(slot); }

  Status arm_lease(Instant until) { return gates().arm_lease(until); }

  Status renew_lease(Instant now, Instant until) { return gates().renew_lease(now, until); }

  Result<SlotCounters> counters(Slot slot) const;

  CutSwitch& gates();
  /// Slots that are bound, with their interface index: for recovery.
  Result<std::vector<std::pair<Slot, std::uint32_t>>> bound_slots() const;
  /// Borrowed; for BPF_PROG_TEST_RUN.
  int program_fd(rn_cut_direction direction) const;

 private:
  explicit GuestCut(std::unique_ptr<Parts> parts);
  static Result<GuestCut> load(const std::string& folder);
  std::unique_ptr<Parts> parts_;
};

}  // namespace rn::traffic
