// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "base/error.h"
#include "traffic/guest_cut.h"

namespace rn::traffic {

/// The trie's content for one guest: what GuestPolicy's contract says, with the denials by default.
/// `host` is what host_prefixes() answered. Pure. kExhausted for more than 8 entries of one prefix.
Result<std::map<IpPrefix, rn_cut_ports>> make_prefix_table(
    const GuestPolicy& policy, const std::vector<IpPrefix>& host
);

}  // namespace rn::traffic
