// SPDX-License-Identifier: Apache-2.0
#include "evaluate/young_daly.h"

#include <algorithm>
#include <cmath>

namespace rn::evaluate {

namespace {
constexpr double kFirstGuess_s = 35 * 3600.0;
constexpr double kUsualLine = 1e9 / 8;
}  // namespace

void YoungDaly::begin(World& world) {
  Requeue::begin(world);
  lent_since_.resize(world.campus().nodes.size());
}

void YoungDaly::on_lent(NodeNumber node) {
  lent_since_[node] = world().now();
  Requeue::on_lent(node);
}

void YoungDaly::hear_of_loss(NodeNumber node) {
  if (!lent_since_[node]) return;
  lent_s_ += seconds_of(world().now() - *lent_since_[node]);
  lent_since_[node].reset();
  ++losses_;
}

double YoungDaly::mtbf_s() {
  double lent_s = lent_s_ + kFirstGuess_s;
  for (const auto& since : lent_since_) {
    if (since) lent_s += seconds_of(world().now() - *since);
  }
  return lent_s / (losses_ + 1);
}

double YoungDaly::interval(double cost_s, double restart_s, double mtbf_s) {
  return std::sqrt(2 * cost_s * (restart_s + mtbf_s));
}

std::optional<double> YoungDaly::interval_s(JobNumber job) {
  const StateKind& kind = world().kind(job);
  const double write_s = kind.bytes / kind.pause_bytes_per_s + kind.bytes / kUsualLine;
  return interval(write_s, kind.bytes / kUsualLine, mtbf_s());
}

}  // namespace rn::evaluate
