// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace rn::traffic {

/// An IPv4 or IPv6 prefix. IPv4 is kept as ::ffff:a.b.c.d with 96 more bits, so both families
/// compare alike.
struct IpPrefix {
  std::array<std::uint8_t, 16> address{};  ///< network order; bits beyond `bits` are zero
  std::uint8_t bits = 128;                 ///< 0..128; an IPv4 /24 is 120

  bool is_v4() const;
  /// True when `other` lies inside this prefix.
  bool contains(const IpPrefix& other) const;

  friend auto operator<=>(const IpPrefix&, const IpPrefix&) = default;
  friend bool operator==(const IpPrefix&, const IpPrefix&) = default;
};

/// "10.0.0.0/8", "fd00::/8", or an address alone (then /32 or /128). Host bits must be zero:
/// "10.0.0.1/8" is kInvalid, because the writer may have meant either. kInvalid for anything else.
Result<IpPrefix> parse_prefix(std::string_view text);
std::string to_string(const IpPrefix& prefix);

/// Every address of this network namespace and the networks on its links (getifaddrs). Blocking
/// system calls only. kInternal if the kernel refuses.
Result<std::vector<IpPrefix>> host_prefixes();

}  // namespace rn::traffic
