// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "traffic/guest_cut_abi.h"

namespace rn::traffic {

/// Where one of our programs stands on a hook, and its names in the kernel: by these a restarted
/// loader finds its own.
struct FilterPlace {
  std::uint32_t priority = 0;
  const char* ingress_program = "";
  const char* egress_program = "";
};

/// No meaning beyond being the same everywhere.
inline constexpr FilterPlace kGuestCutPlace{0x726e, "rn_from_guest", "rn_to_guest"};

/// Our place among the filters of an interface's clsact hook. Netlink in the calling thread's
/// network namespace.
///
/// True when the clsact qdisc was made by this call, false when it was there.
Result<bool> ensure_clsact(std::uint32_t ifindex);
/// Puts the program at our handle and priority, replacing our older filter. kConflict when a
/// foreign one sits there.
Status put_filter(
    std::uint32_t ifindex,
    rn_cut_direction direction,
    int program_fd,
    const FilterPlace& place = kGuestCutPlace
);
/// True when our filter is on that hook of the interface.
bool has_filter(
    std::uint32_t ifindex, rn_cut_direction direction, const FilterPlace& place = kGuestCutPlace
);

/// Somebody else's program that sees an interface's packets before ours does.
struct ForeignFilter {
  std::string what;    ///< "tc filter (flower, pref 10)"
  std::string remove;  ///< the command that takes it away
};

/// The first found before ours on that hook: a tc filter, a tcx program (Linux 6.6), or XDP, which
/// is before all for what comes from the guest. Whether it lets anything pass is not asked. None
/// too when the interface is gone.
Result<std::optional<ForeignFilter>> filter_before(
    std::uint32_t ifindex, rn_cut_direction direction, const FilterPlace& place = kGuestCutPlace
);
/// How many tc filters there are on that hook, ours and others'. 0 when the interface is gone.
Result<std::size_t> count_filters(std::uint32_t ifindex, rn_cut_direction direction);
/// Removes our filter. Fine when it or the interface is gone; a foreign filter stays.
Status remove_filter(
    std::uint32_t ifindex, rn_cut_direction direction, const FilterPlace& place = kGuestCutPlace
);
Status remove_clsact(std::uint32_t ifindex);
/// Takes the interface down, so that nothing passes once it is unfiltered. Fine when it is gone.
Status set_link_down(std::uint32_t ifindex);

}  // namespace rn::traffic
