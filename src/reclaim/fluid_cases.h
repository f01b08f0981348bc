// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "reclaim/demand_bound.h"
#include "reclaim/fluid_play.h"

// Random conflicts and exhaustive answers to them, for tests and benches.
namespace rn::reclaim {

/// Greatest total value of any subset that `is_met(FlowSet)` accepts; all 2^n are considered,
/// highest value first. For n up to about 14.
template <class IsMet>
double best_subset_value(const std::vector<double>& value, IsMet is_met) {
  std::vector<std::pair<double, std::uint32_t>> subsets;
  for (std::uint32_t mask = 0; mask < (1u << value.size()); ++mask) {
    double total = 0;
    for (std::size_t i = 0; i < value.size(); ++i)
      if ((mask >> i & 1u) != 0) total += value[i];
    subsets.emplace_back(total, mask);
  }
  std::sort(subsets.rbegin(), subsets.rend());
  for (const auto& [total, mask] : subsets) {
    FlowSet set;
    for (std::uint32_t i = 0; i < value.size(); ++i)
      if ((mask >> i & 1u) != 0) set.push_back(i);
    if (is_met(set)) return total;
  }
  return 0;
}

struct FluidCase {
  std::vector<BudgetCurve> budgets;
  std::vector<Flow> flows;  ///< ascending by due time
  std::vector<double> value;
};

/// What no policy whatever can get round: on every link, the bytes due until d fit until d.
inline bool no_link_forbids(const FluidCase& one, const FlowSet& set) {
  for (LinkIndex link = 0; link < one.budgets.size(); ++link) {
    std::vector<Demand> demands;
    for (const std::uint32_t i : set) {
      const LinkPath& path = one.flows[i].path;
      if (std::find(path.begin(), path.end(), link) != path.end())
        demands.push_back({one.flows[i].bytes, one.flows[i].due_s, 1});
    }
    if (!edf_demand_bound(one.budgets[link], demands).fits) return false;
  }
  return true;
}

struct CaseShape {
  std::size_t flows = 10;
  std::size_t links = 5;  ///< each flow crosses one to three of them
  double load = 1.2;      ///< greatest over links and due times: bytes due / bytes possible
  bool varies = false;    ///< budgets change twice
  bool has_equal_values = false;
};

inline FluidCase random_case(Rng& rng, const CaseShape& shape) {
  FluidCase one;
  for (std::size_t l = 0; l < shape.links; ++l) {
    one.budgets.emplace_back(1e8 * (0.5 + rng.unit()));
    if (!shape.varies) continue;
    one.budgets.back().add(10 + 10 * rng.unit(), 1e8 * rng.unit());
    one.budgets.back().add(30 + 20 * rng.unit(), 1e8 * (0.5 + rng.unit()));
  }
  for (std::size_t i = 0; i < shape.flows; ++i) {
    Flow flow;
    flow.bytes = 1e8 * std::exp(2 * rng.unit());
    flow.due_s = 5 + 85 * rng.unit();
    const std::size_t hops = 1 + rng.below(std::min<std::size_t>(3, shape.links));
    while (flow.path.size() < hops) {
      const auto link = static_cast<LinkIndex>(rng.below(shape.links));
      if (std::find(flow.path.begin(), flow.path.end(), link) == flow.path.end())
        flow.path.push_back(link);
    }
    one.flows.push_back(std::move(flow));
    one.value.push_back(shape.has_equal_values ? 1 : std::exp(3 * rng.unit()));
  }
  std::sort(one.flows.begin(), one.flows.end(), [](const Flow& a, const Flow& b) {
    return a.due_s < b.due_s;
  });
  double load = 0;
  for (LinkIndex link = 0; link < shape.links; ++link) {
    double bytes = 0;
    for (const Flow& flow : one.flows) {
      if (std::find(flow.path.begin(), flow.path.end(), link) == flow.path.end()) continue;
      bytes += flow.bytes;
      load = std::max(load, bytes / one.budgets[link].bytes_until(flow.due_s));
    }
  }
  for (Flow& flow : one.flows) flow.bytes *= shape.load / load;
  return one;
}

inline FlowSet all_of(const FluidCase& one) {
  FlowSet all(one.flows.size());
  std::iota(all.begin(), all.end(), 0u);
  return all;
}

inline double value_of(const FluidCase& one, const FlowSet& set) {
  double total = 0;
  for (const std::uint32_t i : set) total += one.value[i];
  return total;
}

}  // namespace rn::reclaim
