// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/node.h"
#include "traffic/guest_cut.h"
#include "warden/leave_report.h"

namespace rn::warden {

struct GuestNetConfig {
  std::string lab;
  /// First address of a /22 of its own: four addresses per slot. Shared address space (RFC 6598)
  /// by default, which no campus routes.
  std::string first_address = "100.64.0.0";
  std::uint64_t uplink_bps = 0;   ///< of each guest; 0 = no cap
  std::uint64_t granted_bps = 0;  ///< of all guests together, in equal parts; 0 = no bound
  std::string sysctl_record;      ///< file that remembers what was changed, for leave()
};

/// Addresses of one slot. Pure.
struct SlotAddresses {
  std::string gateway;  ///< the host's end
  std::string guest;    ///< both in a /30
};

Result<SlotAddresses> addresses_of(const std::string& first_address, traffic::Slot slot);

/// Name of the slot's interface on the host: "rnXXXXgN", at most 15 characters. Pure.
std::string interface_name(const std::string& lab, traffic::Slot slot);

/// What the contract opens, as rules of the cut. "any" opens TCP and UDP at that port, and ICMP
/// when the port is 0. kInvalid for a prefix or protocol that is none. Pure.
Result<std::vector<traffic::AllowRule>> allow_rules(const std::vector<NetworkAllow>& network);

/// The nftables file that hides the guests' addresses behind the node's, and lets a guest have no
/// more than 4096 entries of the machine's table of connections. Pure.
std::string nat_rules(const GuestNetConfig& config);

/// The guests' wires: a pair of interfaces whose one end lies in the container's network namespace,
/// the other on the host with the cut on both its hooks. A guest to which nothing is open gets no
/// wire at all. Addresses are translated by a table of our own, `inet reclaimnet`; forwarding is
/// switched on for our interfaces and the interfaces towards the allowed networks alone, and what
/// was changed is written down first and put back by leave().
///
/// Blocking (spawns ip, nft); thread-safe.
class GuestNet {
 public:
  /// `cut` outlives this and is used under this object's lock alone.
  GuestNet(GuestNetConfig config, traffic::GuestCut& cut) : config_(std::move(config)), cut_(cut) {}

  /// Wires the namespace of `pid`; the slot's gate stays shut. Answers the host interface's index,
  /// 0 when there is no wire. On error nothing of it is left. Whatever had the slot before is
  /// removed.
  Result<std::uint32_t> attach(
      traffic::Slot slot, std::int32_t pid, const std::vector<NetworkAllow>& network
  );
  /// In the namespace of `pid` alone: the address at which code for cloud instances asks for their
  /// metadata, at its loopback, and that the guest may have ports from 80 on there without a right.
  /// Nothing of it can be reached from outside the namespace, and it ends with it. Idempotent.
  static Status give_metadata_address(std::int32_t pid);
  /// Removes interface, filter and binding. Idempotent.
  Status detach(traffic::Slot slot);
  /// Detaches the bound slots that are not in `keep`: leftovers of an earlier life. The others are
  /// adopted with the pid of a process in their namespace; 0 for one that does not run. What this
  /// object has wired is left as it is, because `keep` may have been looked up before.
  Status keep_only(const std::map<traffic::Slot, std::int32_t>& keep);
  /// Puts back what somebody else removed from the guests' interfaces (GuestCut::repair).
  std::vector<traffic::FilterLoss> repair();
  /// What somebody else has put before the cut (traffic::filters_before).
  std::vector<traffic::FilterBefore> filters_before();
  /// Everything: slots, the table, sysctls. Answers what was removed or put back, and what was not.
  LeaveReport leave();

 private:
  Status wire(traffic::Slot slot, std::int32_t pid, const std::vector<NetworkAllow>& network);
  Status enable_forwarding(const std::string& interface);
  Status forward_towards(const std::vector<NetworkAllow>& network);
  Status make_nat();
  Status count_anew(const std::string& guest) const;
  Status detach_locked(traffic::Slot slot);
  std::uint64_t rate_of_each() const;
  /// Tells every guest with a wire `but` this one what its part is now.
  void share_uplink(traffic::Slot but) const;

  GuestNetConfig config_;
  std::mutex mutex_;  ///< guards all below
  traffic::GuestCut& cut_;
  bool has_nat_ = false;
  std::map<traffic::Slot, std::int32_t> pids_;  ///< of the guests with a wire
  std::set<traffic::Slot> own_;                 ///< those whose wire is of this life
};

}  // namespace rn::warden
