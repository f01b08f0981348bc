// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/node.h"

namespace rn {

/// A copy that gets less stands still so long between two frames that its peer gives it up.
inline constexpr std::uint64_t kLeastUplink_bps = 1'000'000;

/// True of a speed that a line may have; 0, which stands for no bound or for not known, is none.
constexpr bool is_uplink_rate(std::uint64_t bps) {
  return bps >= kLeastUplink_bps && bps <= kMostGranted_bps;
}

}  // namespace rn
