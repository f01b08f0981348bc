// SPDX-License-Identifier: Apache-2.0
#pragma once

// A guest whose owner comes back later, and that nobody can take now, computes on where it is: its
// place would stand idle otherwise. How long it may, so that what it saves last is durable
// elsewhere before the deadline. Pure. Seconds and bytes; what cannot be (negative, not a number)
// counts as nothing.
namespace rn::reclaim {

/// Less than that is not worth staying for.
inline constexpr double kLeastStay_s = 60;

/// What leaving takes, by estimate.
struct LeavingCosts {
  double save_s = 30;            ///< from the word to a complete save
  double asked_s = 0;            ///< notice that its job asks for
  double take_s = 0;             ///< from a complete save to a generation
  double bytes = 0;              ///< that holders will lack, of all that leave with it
  double bytes_per_s = 12.5e6;   ///< of the uplink; 0 = nothing can be sent
  double gap_s = 0;              ///< between saves that it makes by itself; 0 = not known
  bool saves_when_told = false;  ///< then its own saves are nothing to wait for
  bool has_nothing_to_save = false;
};

struct LastMoments {
  /// So long before the deadline it has to be told to leave.
  double tell_s = 0;
  /// From so long before the deadline on, a save that it makes by itself is the last one that is
  /// sure to come in time: it leaves with it. At least tell_s.
  double save_s = 0;
};

LastMoments last_moments(const LeavingCosts& costs);

}  // namespace rn::reclaim
