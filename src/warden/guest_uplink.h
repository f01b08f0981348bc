// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace rn::warden {

/// What the owner grants the guests of the way out: all of them together `bps`, on `interface`.
struct UplinkGrant {
  std::string interface;
  std::uint64_t bps = 0;
};

/// "eth0:100mbit", with kbit, mbit or gbit. kInvalid: anything else, below 1 Mbit/s or above
/// 1 Tbit/s. Pure.
Result<UplinkGrant> parse_uplink(const std::string& text);
/// Whether the machine can keep it: kNotFound when `sys_net` (/sys/class/net) has no such
/// interface, kInvalid when the grant leaves less than a twentieth of the link's speed free, where
/// the kernel tells it: guests' packets would wait in the owner's queue.
Status check_uplink(const UplinkGrant& grant, const std::string& sys_net);

/// What one of `guests` may send: an equal part of what is granted to all, and no more than the cap
/// of each; 0 stands for no bound, there and here. Pure.
std::uint64_t rate_of_guest(std::uint64_t cap_bps, std::uint64_t granted_bps, std::size_t guests);
/// What `tc -batch` makes the guest's queue with, on eth0 in the guest's own namespace: before the
/// gate, so that a cut leaves nothing queued behind it. Pure.
std::string guest_queue(std::uint64_t bps);
/// What changes the rate of such a queue; nothing in it is lost. Pure.
std::string guest_rate(std::uint64_t bps);
/// Largest segment that the guest's stack may hand on at once: a quarter millisecond at `bps`, at
/// least two packets and at most what the kernel's default is. Pure.
std::uint32_t guest_gso_bytes(std::uint64_t bps);

}  // namespace rn::warden
