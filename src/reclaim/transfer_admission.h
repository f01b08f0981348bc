// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "reclaim/fluid_play.h"

// Which evacuations are begun when not all fit their deadlines. Pure. spec-reclaim.md 5.2.
namespace rn::reclaim {

struct AdmissionLimits {
  /// Up to so many transfers in conflict are searched exhaustively (branch and bound).
  std::size_t exact = 12;
  /// Sets that one such search may play.
  std::size_t sets = 4096;
  /// Steps of play (FluidPlay::work) after which what was found so far is the answer.
  std::uint64_t work = 1'000'000;
};

struct Admission {
  FlowSet admitted;
  bool was_cut_short = false;  ///< the work ran out before all repairs were tried
};

/// A subset of `candidates` that the play meets, of a total value as high as found:
///
///   per group of candidates that share links which can be short:
///   1. all, if the play meets them; else without those that are too large even alone
///   2. drop_least_dense link by link, then, while the play misses one, the least value per byte
///      among what is due until then and shares a link with it (of more than 64: what is late, for
///      links that are full, and nearly full); or the `incumbents`, if they have
///      no less value once step 3's first half is done for both
///   3. repair: try to add each dropped one again, highest value first; then try each against the
///      least dense that share a link with it, and keep the exchange if the value grew
///   4. exhaustive search over at most `exact` of them: the whole group, or the dropped ones and
///      the least dense of those that share links with them
///
/// `value` is by flow, at least 0; `incumbents` ⊆ `candidates` may be empty. Same input, same
/// answer. When the work runs out in step 2, FluidPlay::without_late
/// ends it.
Admission admit(
    FluidPlay& play,
    const FlowSet& candidates,
    const FlowSet& incumbents,
    const std::vector<double>& value,
    const AdmissionLimits& limits
);

}  // namespace rn::reclaim
