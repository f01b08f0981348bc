// SPDX-License-Identifier: Apache-2.0
#include "sched/survival.h"

#include <cmath>

namespace rn::sched {

DepartureRate departure_rate(const Exposure& node, const Exposure& lab, const Exposure& site) {
  const double site_rate = (site.departures + 1) / (site.seconds + 1 / kPriorRate);
  const double lab_rate =
      (lab.departures + kShrinkEvents) / (lab.seconds + kShrinkEvents / site_rate);
  DepartureRate result;
  result.mean = (node.departures + kShrinkEvents) / (node.seconds + kShrinkEvents / lab_rate);
  result.upper = result.mean * (1 + 0.7 / std::sqrt(node.departures + kShrinkEvents));
  return result;
}

double survival(double rate, double seconds) {
  return std::exp(-rate * seconds);
}

double mean_survival(double rate, double seconds) {
  const double x = rate * seconds;
  if (x < 1e-9) return 1.0;
  return -std::expm1(-x) / x;
}

}  // namespace rn::sched
