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

/// How fast a job rewrites its state, and how often its owner comes: nobody knows when, so that
/// rounds go on, and each is worth what is left of it by then.
struct AheadUse {
  double state_bytes = 0;
  double new_bytes = 0;   ///< in the newest save
  double gap_s = 0;       ///< from the save before to that
  double departures = 0;  ///< 1/s
};

/// Of the bytes that go ahead, how many are not to be moved when the owner comes. With a state of
/// which a part e^(−a·t) is as it was after t seconds, rounds move a·S a second; a departure (h a
/// second) finds all but what its last save, a gap later, has rewritten: (h/a)·e^(−a·gap). More
/// than 1 where an owner comes before the state is rewritten once. What cannot be (no state, no
/// time between saves) has no use.
double used_share(const AheadUse& use);

/// Below it is a waste of the line, although nothing else needs that at the moment: what a notice
/// has no time for is worth some bytes ahead, but not a hundred times as many.
inline constexpr double kUsedLeast = 0.05;

}  // namespace rn::reclaim
