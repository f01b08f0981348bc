// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sending a state ahead of its job, in rounds: the first moves all of it, each later one what the
// job changed while the one before was under way. Pure.
namespace rn::reclaim {

/// From here on a round is nearly as long as the one before, and stale before it is there.
inline constexpr double kDirtyMost = 0.8;

struct Precopy {
  double whole_s = 0;  ///< that what is not there yet takes on the way
  double dirty = 0;    ///< x: bytes that change in a second, against those that the way carries
};

/// One round more: what is not there yet takes longer than `budget_s`, and the job changes slowly
/// enough for the round to make it less: after n rounds whole · xⁿ. Asked before each.
bool goes_another_round(const Precopy& left, double budget_s);

}  // namespace rn::reclaim
