// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/rng.h"

// Draws of the generators: uniform, triangular and from lists, nothing else. Whatever the hazard
// model fits (exponentials, Gamma) is not among them, so that it is not tested on its own family.
namespace rn::evaluate {

inline constexpr double kHour = 3600;   ///< seconds
inline constexpr double kDay = 86'400;  ///< seconds

class Dice {
 public:
  /// The same sequence for the same seed and name, whatever else is drawn: two runs that differ in
  /// one part of the setting have all other parts in common.
  Dice(std::uint64_t seed, std::string_view name, std::uint64_t number = 0);

  double between(double low, double high) { return low + (high - low) * rng_.unit(); }

  /// Whole, both ends included.
  int whole(int low, int high) {
    return low + static_cast<int>(rng_.below(static_cast<std::uint64_t>(high - low) + 1));
  }

  bool chance(double probability) { return rng_.unit() < probability; }

  double triangular(double low, double peak, double high);
  /// An index, with these weights; at least one is positive.
  std::size_t pick(std::span<const double> weights);

 private:
  SeededRng rng_;
};

}  // namespace rn::evaluate
