// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

namespace rn::reclaim {

/// What a transfer has shown that it gets, by the bytes that are left of it. One that gets much
/// less than it may for some looks in a row is bounded by something that nobody declared (its
/// receiver reads slowly, a line is thinner): it is planned with little more than it got, so that
/// what it does not use goes to others, and with half as much again whenever it takes that. Pure.
class ShownRate {
 public:
  /// A look: it got so much while `granted` was its rate (infinite: none), bytes/s. `has_more`:
  /// it had enough to send for that.
  void observe(double got, double granted, bool has_more);

  /// It is of another kind now: what it got before is no measure.
  void forget() { *this = {}; }

  /// Bytes/s; infinite as long as it has shown nothing.
  double most() const { return most_; }

 private:
  double most_ = std::numeric_limits<double>::infinity();
  std::uint32_t slow_looks_ = 0;  ///< in a row
};

/// So many looks in a row are needed.
inline constexpr std::uint32_t kSlowLooks = 4;
/// Bytes/s that it may try at least.
inline constexpr double kProbeRate = 125'000;

}  // namespace rn::reclaim
