// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/rng.h"
#include "sim/cluster.h"
#include "sim/forger.h"
#include "sim/point_faults.h"
#include "sim/world.h"

namespace rn::sim {

/// Faults in the very moment when a process passes a crash point, as the seed's plan says how often
/// and of which kinds. Cells of the coverage table are drawn with equal chances and wait for a
/// process to pass their point, so that what is passed seldom is struck as often as it can be.
class Striker {
 public:
  Striker(World& world, Cluster& cluster, Forger& forger);

  /// Which kinds this seed has, and how often. By randomness of its own: without it a seed is what
  /// it is with no striker at all.
  void draw_plan();
  void start();
  void stop();

 private:
  void arm_next();
  bool strike(PointFault fault, const std::string& process);
  bool strike_process(PointFault fault, const std::string& process, std::size_t node);
  bool strike_node(PointFault fault, std::size_t node);
  void cut(const std::string& host, bool is_outward, bool is_inward);
  bool take(std::size_t node, bool is_now);
  bool lie(std::size_t node);
  nanoseconds some_seconds(std::uint64_t low, std::uint64_t high);

  World& world_;
  Cluster& cluster_;
  Forger& forger_;
  SeededRng rng_;
  std::vector<std::pair<PointFault, std::string>> cells_;  ///< that this seed may strike
  bool is_on_ = false;
};

}  // namespace rn::sim
