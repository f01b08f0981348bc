// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// How likely a node stays. Pure.
//
// Constant rates with Gamma–Poisson shrinkage, node → lab → site (spec-reclaim.md 2.6, items 2 and
// 3, without the hour-of-week profile). With n departures in exposure E (lent seconds):
//
//   μ_site = (n_site + 1) / (E_site + 1/μ₀)        μ₀ = 1 / 35 h (mean of interrupted runs at
//   Salad) μ_lab  = (n_lab + κ) / (E_lab + κ/μ_site)      κ = 3 events λ_node = (n_node + κ) /
//   (E_node + κ/μ_lab) S(Δ)   = exp(−λ Δ)
//
// Announced departures (ends of windows) are not counted: they are deadlines, not risk.
namespace rn::sched {

inline constexpr double kPriorRate = 1.0 / (35 * 3600);  ///< 1/s
inline constexpr double kShrinkEvents = 3;

struct Exposure {
  double seconds = 0;
  double departures = 0;  ///< with notice, emergency, or lost

  Exposure& operator+=(const Exposure& other) {
    seconds += other.seconds;
    departures += other.departures;
    return *this;
  }
};

/// Departures per second that a node is expected to make, and a risk-averse figure: the upper end
/// of about 75 % of the Gamma posterior, λ · (1 + 0.7 / √(n + κ)).
struct DepartureRate {
  double mean = kPriorRate;
  double upper = kPriorRate;
};

/// The totals include the parts: `lab` includes `node`, `site` includes `lab`.
DepartureRate departure_rate(const Exposure& node, const Exposure& lab, const Exposure& site);

/// Probability of no departure within `seconds`.
double survival(double rate, double seconds);

/// Mean of the survival over [0, seconds]: the expected share of that time that is really there.
double mean_survival(double rate, double seconds);

}  // namespace rn::sched
