// SPDX-License-Identifier: Apache-2.0
#include "reclaim/gamma.h"

#include <cmath>

#include "base/assert.h"

namespace rn::reclaim {
namespace {

constexpr int kMaxTerms = 2000;
constexpr double kPrecision = 1e-13;

/// Lower regularised incomplete gamma function for x < a + 1.
double lower_by_series(double a, double x) {
  double term = 1 / a;
  double sum = term;
  for (int n = 1; n < kMaxTerms && std::abs(term) > kPrecision * std::abs(sum); ++n) {
    term *= x / (a + n);
    sum += term;
  }
  return sum * std::exp(-x + a * std::log(x) - std::lgamma(a));
}

/// Upper regularised incomplete gamma function for x ≥ a + 1 (modified Lentz).
double upper_by_fraction(double a, double x) {
  constexpr double kTiny = 1e-300;
  double b = x + 1 - a;
  double c = 1 / kTiny;
  double d = 1 / b;
  double product = d;
  for (int n = 1; n < kMaxTerms; ++n) {
    const double numerator = -n * (n - a);
    b += 2;
    d = numerator * d + b;
    if (std::abs(d) < kTiny) d = kTiny;
    c = b + numerator / c;
    if (std::abs(c) < kTiny) c = kTiny;
    d = 1 / d;
    const double change = d * c;
    product *= change;
    if (std::abs(change - 1) < kPrecision) break;
  }
  return product * std::exp(-x + a * std::log(x) - std::lgamma(a));
}

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
  if (!(scaled > 0)) return 0;
  if (scaled < gamma.shape + 1) return lower_by_series(gamma.shape, scaled);
  return 1 - upper_by_fraction(gamma.shape, scaled);
}

double gamma_quantile(const Gamma& gamma, double q) {
  RN_ASSERT(q > 0 && q < 1, "a quantile lies between 0 and 1");
  RN_ASSERT(gamma.shape > 0 && gamma.rate > 0, "a Gamma has positive parameters");
  const Gamma unit{.shape = gamma.shape, .rate = 1};
  double high = gamma.shape + 1;
  while (gamma_cdf(unit, high) < q) high *= 2;
  double low = 0;
  while (high - low > 1e-9 * high && high > 1e-300) {
    const double middle = (low + high) / 2;
    (gamma_cdf(unit, middle) < q ? low : high) = middle;
  }
  return (low + high) / 2 / gamma.rate;
}

double best_strength(
    std::span<const EventCount> members, double lowest, double highest, double fallback
) {
  int telling = 0;
  for (const EventCount& member : members) telling += member.expected > 0 ? 1 : 0;
  if (telling < 3) return fallback;

  const double golden = (std::sqrt(5.0) - 1) / 2;
  double low = std::log(lowest);
  double high = std::log(highest);
  double left = high - golden * (high - low);
  double right = low + golden * (high - low);
  double at_left = log_likelihood(members, std::exp(left));
  double at_right = log_likelihood(members, std::exp(right));
  while (high - low > 1e-3) {
    if (at_left > at_right) {
      high = right;
      right = left;
      at_right = at_left;
      left = high - golden * (high - low);
      at_left = log_likelihood(members, std::exp(left));
    } else {
      low = left;
      left = right;
      at_left = at_right;
      right = low + golden * (high - low);
      at_right = log_likelihood(members, std::exp(right));
    }
  }
  return std::exp((low + high) / 2);
}

}  // namespace rn::reclaim
