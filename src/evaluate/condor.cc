// SPDX-License-Identifier: Apache-2.0
#include "evaluate/condor.h"

#include <fmt/core.h>

namespace rn::evaluate {

std::string Condor::name() const {
  if (saved_every_s_ == kHourly_s) return "condor-vacate";
  return fmt::format("condor-vacate-{:.0f}s", saved_every_s_);
}

void Condor::begin(World& world) {
  Requeue::begin(world);
  away_since_.resize(world.campus().nodes.size(), Moment(0));
}

void Condor::on_lent(NodeNumber node) {
  away_since_[node] = world().now();
  Requeue::on_lent(node);
}

std::optional<Requeue::Rank> Condor::rank(JobNumber, NodeNumber node) const {
  return Rank(seconds_of(away_since_[node]), free_gpus(node));
}

}  // namespace rn::evaluate
