// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reclaim/topology.h"

// The site of an evaluation: machines of labs in buildings, and the lines between them.
namespace rn::evaluate {

struct CampusNode {
  std::string name;  ///< also its host name in the topology
  std::string lab;
  std::string building;
  std::uint32_t gpus = 1;
  std::string gpu_model;
  std::uint64_t gpu_memory_mib = 0;
  std::string compute_capability;
  double line = 0;  ///< bytes/s of its own line, each way, as it is declared
  bool is_wireless = false;
  /// Above 0: it has no GPUs and lends so much of its processors; `gpus` is how many guests may be
  /// there.
  std::uint32_t guest_cpu_milli = 0;
  double transfers = 0;  ///< bytes/s of payload that its owner grants to copies; 0 = no bound
};

/// A wireless line carries so much from this moment on, each way. Nobody is told.
struct LineChange {
  double at_s = 0;
  std::size_t node = 0;
  double rate = 0;  ///< bytes/s
};

struct Campus {
  std::vector<CampusNode> nodes;
  /// The file server that baselines save to: a machine without GPUs, at the root. Its place in the
  /// topology is by this name.
  std::string store = "store";
  reclaim::TopologyDeclaration topology;
  std::vector<LineChange> changes;  ///< by time

  std::uint32_t gpus() const;
};

struct CampusOptions {
  std::uint32_t nodes = 54;
  std::uint32_t labs = 12;
  std::uint32_t buildings = 4;
  double days = 56;
};

/// Lines of 1, 2.5 and 10 Gbit/s; buildings with 10 Gbit/s to the root, the last of several with
/// 2.5; every ninth machine by wireless, whose rate goes up and down between 40 and 600 Mbit/s with
/// the people around it. A lab sits in one building, and its machines have GPUs of one or two
/// kinds. The same for the same seed. Pure; at least one lab, one building and as many nodes as
/// labs.
Campus make_campus(const CampusOptions& options, std::uint64_t seed);

/// All lines carry so many times as much; the file server's, too. Pure.
void scale_lines(Campus& campus, double factor);

}  // namespace rn::evaluate
