// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "model/warden.h"
#include "warden/kernel_findings.h"

namespace rn::warden {

/// "member-3": its name to the others, and that of its host. Pure.
std::string member_name(std::uint32_t rank);

/// /etc/hosts of every member of every gang. Pure.
std::string member_hosts();

/// What makes a network namespace one of this member, as commands of `ip`: the own address at an
/// interface that leads nowhere, for programs that choose one by themselves (a pair of veth, whose
/// other end is there, too: every kernel that gives guests a network has these); and a route by
/// which the whole range is the guest's own, so that nothing of it can leave, not even by a wire.
/// Pure.
std::string member_addresses(std::uint32_t rank);

/// And for nft: what connects to another member is given to PID 1; what is no TCP is refused. All
/// else is not tracked, so that the rules cost it nothing. Pure.
std::string member_rules(std::uint32_t rank);

/// All of that in the namespace of `pid` alone, with which it ends. Once for each namespace. Blocks
/// for seconds at most (spawns ip and nft).
Status give_member_network(std::int32_t pid, const warden_wire::GangMember& member);

/// Whether this kernel can do that, by doing it in a namespace that ends with the look. Needs root;
/// blocks as give_member_network.
KernelFinding look_at_member_network();

}  // namespace rn::warden
