// SPDX-License-Identifier: Apache-2.0
#include "evaluate/campus.h"

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "evaluate/dice.h"

namespace rn::evaluate {

namespace {

constexpr double kGigabit = 1e9 / 8;
constexpr double kMegabit = 1e6 / 8;

struct GpuKind {
  const char* model;
  std::uint64_t memory_mib;
  const char* compute_capability;
  std::array<std::uint32_t, 3> counts;  ///< in one machine
};

constexpr std::array<GpuKind, 5> kGpuKinds = {{
    {"RTX 2080 Ti", 11'264, "7.5", {1, 2, 4}},
    {"RTX 3090", 24'576, "8.6", {1, 2, 4}},
    {"RTX 4090", 24'564, "8.9", {1, 2, 2}},
    {"RTX A6000", 49'140, "8.6", {1, 2, 4}},
    {"A100 80GB", 81'920, "8.0", {1, 2, 4}},
}};
constexpr std::array<double, 5> kGpuShares = {0.2, 0.35, 0.2, 0.15, 0.1};
constexpr std::array<double, 3> kCountShares = {0.55, 0.3, 0.15};
constexpr std::array<double, 3> kLineRates = {kGigabit, 2.5 * kGigabit, 10 * kGigabit};
constexpr std::array<double, 3> kLineShares = {0.6, 0.25, 0.15};
constexpr std::uint32_t kWirelessEvery = 9;
constexpr double kWirelessDeclared = 300 * kMegabit;
constexpr double kSwitchLatency_s = 0.0002;
constexpr double kWirelessLatency_s = 0.003;

/// People come and go beside the access point: worse by day, and never for long the same.
void add_changes(Campus& campus, std::size_t node, double days, std::uint64_t seed) {
  Dice dice(seed, "wireless", node);
  for (double at_s = 0; at_s < days * 86'400;) {
    const double hour = at_s / 3600 - 24 * static_cast<double>(static_cast<int>(at_s / 86'400));
    const bool is_day = hour >= 8 && hour < 20;
    const double rate = is_day ? dice.triangular(40, 150, 450) : dice.triangular(150, 450, 600);
    campus.changes.push_back({at_s, node, rate * kMegabit});
    at_s += is_day ? dice.between(120, 3600) : dice.between(1800, 4 * 3600);
  }
}

void add_node(Campus& campus, std::uint32_t number, const CampusOptions& options, Dice& dice) {
  const std::uint32_t lab = number % options.labs;
  const std::uint32_t building = lab % options.buildings;
  CampusNode node;
  node.name = "node-" + std::to_string(number + 1);
  node.lab = "lab-" + std::to_string(lab + 1);
  node.building = "building-" + std::to_string(building + 1);
  const GpuKind& kind = kGpuKinds[dice.pick(kGpuShares)];
  node.gpu_model = kind.model;
  node.gpu_memory_mib = kind.memory_mib;
  node.compute_capability = kind.compute_capability;
  node.gpus = kind.counts[dice.pick(kCountShares)];
  node.line = kLineRates[dice.pick(kLineShares)];
  node.is_wireless = number % kWirelessEvery == kWirelessEvery - 1;
  if (node.is_wireless) node.line = kWirelessDeclared;
  const double latency_s = node.is_wireless ? kWirelessLatency_s : kSwitchLatency_s;
  campus.topology.nodes.push_back({node.name, node.building, {node.line, node.line, latency_s}});
  campus.nodes.push_back(std::move(node));
}

}  // namespace

std::uint32_t Campus::gpus() const {
  std::uint32_t sum = 0;
  for (const CampusNode& node : nodes) sum += node.gpus;
  return sum;
}

Campus make_campus(const CampusOptions& options, std::uint64_t seed) {
  RN_ASSERT(
      options.labs > 0 && options.buildings > 0 && options.nodes >= options.labs,
      "a campus has a lab, a building, and a node for each lab"
  );
  Campus campus;
  campus.topology.switches.push_back({"root", "", {}});
  for (std::uint32_t i = 0; i < options.buildings; ++i) {
    const bool is_far = options.buildings > 1 && i + 1 == options.buildings;
    const double rate = (is_far ? 2.5 : 10) * kGigabit;
    campus.topology.switches.push_back(
        {"building-" + std::to_string(i + 1), "root", {rate, rate, kSwitchLatency_s}}
    );
  }
  campus.topology.nodes.push_back(
      {campus.store, "root", {10 * kGigabit, 10 * kGigabit, kSwitchLatency_s}}
  );
  Dice dice(seed, "campus");
  for (std::uint32_t i = 0; i < options.nodes; ++i) add_node(campus, i, options, dice);
  for (std::size_t i = 0; i < campus.nodes.size(); ++i) {
    if (campus.nodes[i].is_wireless) add_changes(campus, i, options.days, seed);
  }
  std::stable_sort(campus.changes.begin(), campus.changes.end(), [](const auto& a, const auto& b) {
    return a.at_s < b.at_s;
  });
  return campus;
}

void scale_lines(Campus& campus, double factor) {
  const auto scale = [factor](reclaim::TopologyLine& line) {
    line.up *= factor;
    line.down *= factor;
  };
  for (auto& one : campus.topology.switches) scale(one.line);
  for (auto& one : campus.topology.nodes) scale(one.line);
  for (CampusNode& node : campus.nodes) node.line *= factor;
  for (LineChange& change : campus.changes) change.rate *= factor;
}

}  // namespace rn::evaluate
