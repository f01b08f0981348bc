// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

// The Gamma distribution as what is known of a rate, and how strongly a group's rates resemble each
// other. Pure.
namespace rn::reclaim {

/// Gamma with density ∝ x^(shape−1) e^(−rate·x). Both are positive.
struct Gamma {
  double shape = 1;
  double rate = 1;

  double mean() const { return shape / rate; }
};

/// P(X ≤ x); 0 for x ≤ 0.
double gamma_cdf(const Gamma& gamma, double x);

/// The x with P(X ≤ x) = q; 0 < q < 1.
double gamma_quantile(const Gamma& gamma, double q);

/// What one member of a group did: events seen, and events expected if it were like the group.
struct EventCount {
  double events = 0;
  double expected = 0;
};

/// Empirical Bayes: the strength κ under which members with multipliers r ~ Gamma(κ, κ) make these
/// counts most probable (negative-binomial marginal likelihood), found
/// on log κ within [lowest, highest]. `fallback` if fewer than three members expected anything: two
/// say nothing about how members differ.
double best_strength(
    std::span<const EventCount> members, double lowest, double highest, double fallback
);

}  // namespace rn::reclaim
