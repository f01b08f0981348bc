// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace rn::agent {

/// The one place where a rate in bits becomes one of payload bytes, as the kernel's pacing and the
/// edge count them. 0 = no limit, on both sides; what is less than a byte is one.
constexpr std::uint64_t pacing_bytes_per_s(std::uint64_t rate_bps) {
  return rate_bps == 0 ? 0 : std::max<std::uint64_t>(rate_bps / 8, 1);
}

}  // namespace rn::agent
