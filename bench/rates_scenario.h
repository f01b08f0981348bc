// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "reclaim/deadline_rates.h"
#include "reclaim/link_topology.h"

/// Random evacuations of a campus, and the best that anybody could make of them.
namespace rn::bench {

struct Job {
  double arrives_s = 0;
  double deadline_s = 0;  ///< infinite for a checkpoint
  double bytes = 0;
  double value = 0;
  reclaim::LinkPath path;

  bool is_evacuation() const { return value > 0; }
};

struct Scenario {
  std::vector<reclaim::LinkState> links;  ///< true capacities; times since 0
  std::vector<reclaim::LinkState> forecast;
  std::vector<Job> jobs;  ///< in order of arrival
};

struct ScenarioShape {
  std::size_t evacuations = 12;
  double load = 1;
  double forecast_error = 0;  ///< each link's forecast is wrong by so much, up or down
};

/// Three buildings of six nodes; uplinks of 0.3 (varying), 1 and 2.5 Gbit/s, building links of 2.5.
/// Groups of nodes are reclaimed together with notices of 15 to 120 s, one to three jobs each;
/// states are log-normal and scaled so that the greatest demand of any time window on any link is
/// `load` times what that link carries in it. Up to three checkpoints run beside them.
Scenario random_scenario(Rng& rng, const ScenarioShape& shape);

/// 54 nodes in three buildings, each with 16 evacuations to other nodes, all known now.
Scenario full_campus(Rng& rng, double load);

/// Value of the best subset of evacuations that no link forbids, arrivals known beforehand: an
/// upper bound of what any policy can keep. On a single link it is reached.
double clairvoyant_bound(const Scenario& scenario);

/// Bytes that a link carries between two times.
double carried(const reclaim::LinkState& link, double from_s, double to_s);

Instant at_s(double value_s);

}  // namespace rn::bench
