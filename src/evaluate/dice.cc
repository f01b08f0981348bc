// SPDX-License-Identifier: Apache-2.0
#include "evaluate/dice.h"

#include <cmath>
#include <numeric>

namespace rn::evaluate {

namespace {

/// FNV-1a over the name, the seed and the number.
std::uint64_t mixed(std::uint64_t seed, std::string_view name, std::uint64_t number) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto add = [&](std::uint64_t byte) { hash = (hash ^ (byte & 0xff)) * 0x100000001b3ULL; };
  for (const char c : name) add(static_cast<unsigned char>(c));
  for (int shift = 0; shift < 64; shift += 8) add(seed >> shift);
  for (int shift = 0; shift < 64; shift += 8) add(number >> shift);
  return hash;
}

}  // namespace

Dice::Dice(std::uint64_t seed, std::string_view name, std::uint64_t number)
    : rng_(mixed(seed, name, number)) {}

double Dice::triangular(double low, double peak, double high) {
  const double u = rng_.unit();
  const double turn = (peak - low) / (high - low);
  if (u < turn) return low + std::sqrt(u * (high - low) * (peak - low));
  return high - std::sqrt((1 - u) * (high - low) * (high - peak));
}

std::size_t Dice::pick(std::span<const double> weights) {
  double left = std::accumulate(weights.begin(), weights.end(), 0.0) * rng_.unit();
  std::size_t last = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    last = i;
    left -= weights[i];
    if (left < 0) return i;
  }
  return last;
}

}  // namespace rn::evaluate
