// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/log.h"
#include "evaluate/world.h"

namespace rn::evaluate {

inline constexpr double kGigabitLine = 1e9 / 8;

/// A site of a few equal machines at one switch, each of its own lab, with one GPU.
inline Campus small_campus(std::size_t nodes, double line = kGigabitLine) {
  Campus campus;
  campus.topology.switches.push_back({"root", "", {}});
  campus.topology.nodes.push_back({"store", "root", {10 * line, 10 * line, 0}});
  for (std::size_t i = 0; i < nodes; ++i) {
    CampusNode node;
    node.name = "node-" + std::to_string(i + 1);
    node.lab = "lab-" + std::to_string(i + 1);
    node.building = "root";
    node.gpu_model = "RTX 3090";
    node.gpu_memory_mib = 24'576;
    node.compute_capability = "8.6";
    node.line = line;
    campus.topology.nodes.push_back({node.name, "root", {line, line, 0}});
    campus.nodes.push_back(std::move(node));
  }
  return campus;
}

/// A job of one GPU and the smallest state: 1 GB, 8 s over a line of 1 Gbit/s.
inline SubmittedJob small_job(double at_s, double work_s) {
  SubmittedJob job;
  job.at_s = at_s;
  job.work_s = work_s;
  job.user = "user-1";
  job.lab = "lab-9";
  return job;
}

/// Runs the policy, and fails the test if the setting cannot be.
inline std::unique_ptr<World> played(
    Setting setting, Policy& policy, std::vector<std::string>* rows = nullptr
) {
  log::set_level(log::Level::kError);
  std::function<void(const std::string&)> out;
  if (rows != nullptr) out = [rows](const std::string& row) { rows->push_back(row); };
  auto world = World::make(std::move(setting), std::move(out));
  if (!world) {
    ADD_FAILURE() << world.error().describe();
    return nullptr;
  }
  (*world)->run(policy);
  return *std::move(world);
}

}  // namespace rn::evaluate
