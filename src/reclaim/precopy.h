// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Sending a state ahead of its job, in rounds: the first moves all of it, each later one what the
// job changed while the one before was under way. Pure.
namespace rn::reclaim {

/// From here on a round is nearly as long as the one before, and stale before it is there.
inline constexpr double kDirtyMost = 0.8;

struct Precopy {
  double whole_s = 0;  ///< that all of the state takes on the way
  double dirty = 0;    ///< x: bytes that change in a second, against those that the way carries

  /// How long a job that stops after so many rounds waits for what is not there yet: whole · xⁿ.
  double pause_s(std::uint32_t rounds) const;

  /// What so many rounds and the pause take together: whole · (1 + x + … + xⁿ).
  double total_s(std::uint32_t rounds) const;
};

/// One round more: what is not there yet takes longer than `budget_s`, and the job changes slowly
/// enough for the round to make it less. Asked before each; `left.whole_s` is what is left then.
bool goes_another_round(const Precopy& left, double budget_s);

/// How many that is from the start of a state nothing of which is there. 0: it goes when the job
/// stops, all at once. At most kRoundsMost.
std::uint32_t precopy_rounds(const Precopy& state, double budget_s);

inline constexpr std::uint32_t kRoundsMost = 64;

}  // namespace rn::reclaim
