// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <limits>

// How likely a node stays, as ranking and journeys home need it. Pure. The figures come from the
// hazard model (reclaim/hazard.h), which knows hours, ages, labs and owners; here they are sampled
// at fixed horizons from one moment on.
namespace rn::sched {

/// Horizons at which a curve is sampled, ascending.
inline constexpr std::array<double, 6> kHorizons_s = {300, 1800, 3600, 7200, 28800, 86400};

/// Chances of staying from now on. Between two horizons, and after the last one, the hazard is
/// taken as constant. The first sample of a curve is at 0, where everything stays.
struct SurvivalCurve {
  using Samples = std::array<double, kHorizons_s.size()>;

  Samples mean{1, 1, 1, 1, 1, 1};
  /// What is not known of the node counts against it: exceeded with a probability of 75 %.
  Samples cautious{1, 1, 1, 1, 1, 1};
  /// An announced departure or the end of a lending window: a deadline, and no risk.
  double leaves_in_s = std::numeric_limits<double>::infinity();
};

/// A curve of constant rates (1/s), for tests and for what has no history.
SurvivalCurve constant_curve(double mean_rate, double cautious_rate);

/// Probability of no departure within `seconds`; 0 if it leaves before.
double survival(const SurvivalCurve& curve, double seconds);

/// The same cautiously, and of unannounced departures alone: for what stays on a node that no
/// longer lends (copies).
double cautious_survival(const SurvivalCurve& curve, double seconds);

/// Mean of the survival over [0, seconds], announced departures included: the share of that time
/// that the node is expected to be there.
double mean_survival(const SurvivalCurve& curve, double seconds);
double cautious_mean_survival(const SurvivalCurve& curve, double seconds);

}  // namespace rn::sched
