// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/time.h"
#include "traffic/guest_cut_abi.h"
#include "traffic/pinned_cut.h"

namespace rn::traffic {

/// Index of a guest's gate and counters: 0 .. RN_CUT_SLOTS - 1.
using Slot = std::uint32_t;

/// What the gates say now. Guests pass only when node and slot are open and the lease lies in the
/// future.
struct CutState {
  bool is_node_open = false;
  Instant lease_until;  ///< epoch (0) when not armed
};

/// One slot's traffic in one direction, summed over CPUs.
struct DirectionCounters {
  std::uint64_t passed_packets = 0;  ///< GSO packets count their segments
  std::uint64_t passed_bytes = 0;
  Instant last_passed;                                  ///< epoch (0) when none ever passed
  std::array<std::uint64_t, RN_CUT_REASONS> dropped{};  ///< packets by rn_cut_reason
};

struct SlotCounters {
  DirectionCounters from_guest;
  DirectionCounters to_guest;
};

/// The gates of one node, by their pinned maps: no program is loaded and no object parsed, so a
/// second process (the emergency tool) opens it with the warden dead. Not thread-safe for moves;
/// the calls themselves are.
class CutSwitch {
 public:
  /// kNotFound when nothing is pinned in `folder`, kDenied without the privilege, else kInternal.
  static Result<CutSwitch> open_pinned(const std::string& folder);

  CutSwitch(CutSwitch&& other) noexcept;
  CutSwitch& operator=(CutSwitch&& other) noexcept;
  CutSwitch(const CutSwitch&) = delete;
  CutSwitch& operator=(const CutSwitch&) = delete;
  ~CutSwitch();

  /// Cuts both directions with one system call on an open descriptor, without allocating (unless it
  /// fails). Idempotent. kInternal if the kernel refuses; the lease still expires then.
  Status cut_node();
  Status cut(Slot slot);  ///< kInvalid for a slot beyond the last
  /// Opens the gate; the other gates and the lease still apply.
  Status uncut_node();
  Status uncut(Slot slot);

  /// Arms the dead man's switch: guests pass until `until`. To be called once after reconciliation.
  Status arm_lease(Instant until);
  /// Extends a lease that is alive at `now`. kConflict when it is not armed or has expired: a
  /// renewing process that slept past its lease must reconcile and arm again, not go on as if
  /// nothing had happened.
  Status renew_lease(Instant now, Instant until);
  Status disarm_lease();  ///< cuts until armed again

  Result<CutState> state() const;
  Result<bool> is_open(Slot slot) const;  ///< the slot's own gate only
  Result<SlotCounters> counters(Slot slot) const;

  /// Borrowed descriptors for code that must not allocate; valid while this object lives.
  const rn_pinned_cut& pinned() const { return pinned_; }

 private:
  CutSwitch(rn_pinned_cut pinned, int counters_fd);

  rn_pinned_cut pinned_{-1, -1, -1, -1};
  int counters_fd_ = -1;
};

}  // namespace rn::traffic
