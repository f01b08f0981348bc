// SPDX-License-Identifier: Apache-2.0
#include "reclaim/precopy.h"

#include <cmath>

namespace rn::reclaim {

double Precopy::pause_s(std::uint32_t rounds) const {
  return whole_s * std::pow(dirty, rounds);
}

double Precopy::total_s(std::uint32_t rounds) const {
  if (dirty == 1) return whole_s * (rounds + 1);
  return whole_s * (1 - std::pow(dirty, rounds + 1)) / (1 - dirty);
}

bool goes_another_round(const Precopy& left, double budget_s) {
  return left.whole_s > budget_s && left.dirty < kDirtyMost;
}

std::uint32_t precopy_rounds(const Precopy& state, double budget_s) {
  std::uint32_t rounds = 0;
  while (rounds < kRoundsMost && goes_another_round({state.pause_s(rounds), state.dirty}, budget_s))
    ++rounds;
  return rounds;
}

}  // namespace rn::reclaim
