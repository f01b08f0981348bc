// SPDX-License-Identifier: Apache-2.0
#include "reclaim/precopy.h"

namespace rn::reclaim {

bool goes_another_round(const Precopy& left, double budget_s) {
  return left.whole_s > budget_s && left.dirty < kDirtyMost;
}

}  // namespace rn::reclaim
