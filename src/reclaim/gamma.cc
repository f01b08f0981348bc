// SPDX-License-Identifier: Apache-2.0
#include "reclaim/gamma.h"

#include <cmath>

#include <boost/math/special_functions/gamma.hpp>
#include <boost/math/tools/minima.hpp>

#include "base/assert.h"

namespace rn::reclaim {
namespace {

/// Log of the negative-binomial probability of all counts, without the terms that do not depend on
/// the strength.
double log_likelihood(std::span<const EventCount> members, double strength) {
  double sum = 0;
  for (const EventCount& member : members) {
    sum += std::lgamma(strength + member.events) - std::lgamma(strength) +
           strength * std::log(strength) -
           (strength + member.events) * std::log(strength + member.expected);
  }
  return sum;
}

}  // namespace

double gamma_cdf(const Gamma& gamma, double x) {
  const double scaled = x * gamma.rate;
  return scaled > 0 ? boost::math::gamma_p(gamma.shape, scaled) : 0;
}

double gamma_quantile(const Gamma& gamma, double q) {
  RN_ASSERT(q > 0 && q < 1, "a quantile lies between 0 and 1");
  RN_ASSERT(gamma.shape > 0 && gamma.rate > 0, "a Gamma has positive parameters");
  return boost::math::gamma_p_inv(gamma.shape, q) / gamma.rate;
}

double best_strength(
    std::span<const EventCount> members, double lowest, double highest, double fallback
) {
  int telling = 0;
  for (const EventCount& member : members) telling += member.expected > 0 ? 1 : 0;
  if (telling < 3) return fallback;
  constexpr int kBits = 12;  // a thousandth of the logarithm
  const auto unlikelihood = [&](double log_strength) {
    return -log_likelihood(members, std::exp(log_strength));
  };
  const auto [best, value] = boost::math::tools::brent_find_minima(
      unlikelihood, std::log(lowest), std::log(highest), kBits
  );
  return std::exp(best);
}

}  // namespace rn::reclaim
