// SPDX-License-Identifier: Apache-2.0
#include "rates_scenario.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>

#include "base/assert.h"
#include "reclaim/fluid_cases.h"

namespace rn::bench {

namespace {

using reclaim::LinkIndex;
using reclaim::LinkTopology;
using reclaim::TopologyPoint;

constexpr double kGigabit = 125e6;

double log_normal(Rng& rng, double sigma) {
  const double radius = std::sqrt(-2 * std::log(1 - rng.unit()));
  return std::exp(sigma * radius * std::cos(2 * std::numbers::pi * rng.unit()));
}

std::string node_name(std::size_t node) {
  return "n-" + std::to_string(node);
}

LinkTopology a_campus(
    Rng& rng, std::size_t buildings, std::size_t nodes_each, double building_rate
) {
  std::vector<TopologyPoint> points = {{"core", "", 0, 0}};
  for (std::size_t b = 0; b < buildings; ++b) {
    const std::string building = "b-" + std::to_string(b);
    points.push_back({building, "core", building_rate, building_rate});
    for (std::size_t n = 0; n < nodes_each; ++n) {
      const double kinds[] = {0.3, 1, 1, 2.5};
      const double rate = kGigabit * kinds[rng.below(4)];
      points.push_back({node_name(b * nodes_each + n), building, rate, rate});
    }
  }
  auto made = LinkTopology::from_tree(points);
  RN_ASSERT(made.has_value(), "the campus is a tree");
  return *std::move(made);
}

/// Radio links, and some others, change three times.
void vary(Rng& rng, std::vector<reclaim::LinkState>& links) {
  for (reclaim::LinkState& link : links) {
    const double rate = link.capacity[0].bytes_per_s;
    link.capacity = {{at_s(0), rate}};
    if (rate > 0.5 * kGigabit && rng.below(5) != 0) continue;
    double at = 0;
    for (int i = 0; i < 3; ++i) {
      at += 10 + 40 * rng.unit();
      link.capacity.push_back({at_s(at), rate * (0.3 + 0.7 * rng.unit())});
    }
  }
}

bool crosses(const Job& job, LinkIndex link) {
  return std::find(job.path.begin(), job.path.end(), link) != job.path.end();
}

/// Calls `each(members, bytes that the link carries)` for every link and window between an arrival
/// and a deadline; members are evacuations that must be sent within it.
template <class Each>
void for_each_window(const Scenario& scenario, Each each) {
  for (LinkIndex link = 0; link < scenario.links.size(); ++link) {
    for (const Job& from : scenario.jobs) {
      for (const Job& to : scenario.jobs) {
        if (!from.is_evacuation() || !to.is_evacuation()) continue;
        if (!crosses(from, link) || !crosses(to, link)) continue;
        if (to.deadline_s <= from.arrives_s) continue;
        std::vector<std::size_t> members;
        for (std::size_t i = 0; i < scenario.jobs.size(); ++i) {
          const Job& job = scenario.jobs[i];
          if (job.is_evacuation() && crosses(job, link) && job.arrives_s >= from.arrives_s &&
              job.deadline_s <= to.deadline_s)
            members.push_back(i);
        }
        each(members, carried(scenario.links[link], from.arrives_s, to.deadline_s));
      }
    }
  }
}

void scale_to(Scenario& scenario, double load) {
  double most = 0;
  for_each_window(scenario, [&](const std::vector<std::size_t>& members, double possible) {
    double bytes = 0;
    for (const std::size_t i : members) bytes += scenario.jobs[i].bytes;
    most = std::max(most, bytes / possible);
  });
  for (Job& job : scenario.jobs)
    if (job.is_evacuation()) job.bytes = std::ceil(job.bytes * load / most);
}

void mislead(Rng& rng, Scenario& scenario, double error) {
  scenario.forecast = scenario.links;
  for (reclaim::LinkState& link : scenario.forecast) {
    const double factor = rng.below(2) == 0 ? 1 - error : 1 + error;
    for (reclaim::CapacityStep& step : link.capacity) step.bytes_per_s *= factor;
  }
}

}  // namespace

Instant at_s(double value_s) {
  return Instant(seconds(10)) + nanoseconds(static_cast<std::int64_t>(value_s * 1e9));
}

double carried(const reclaim::LinkState& link, double from_s, double to_s) {
  reclaim::BudgetCurve curve(link.capacity[0].bytes_per_s);
  for (std::size_t i = 1; i < link.capacity.size(); ++i)
    curve.add(
        reclaim::seconds_between(at_s(0), link.capacity[i].from), link.capacity[i].bytes_per_s
    );
  return curve.bytes_until(to_s) - curve.bytes_until(from_s);
}

Scenario random_scenario(Rng& rng, const ScenarioShape& shape) {
  constexpr std::size_t kBuildings = 3;
  constexpr std::size_t kEach = 6;
  constexpr std::size_t kNodes = kBuildings * kEach;
  const LinkTopology campus = a_campus(rng, kBuildings, kEach, 2.5 * kGigabit);
  Scenario scenario;
  scenario.links = campus.links();
  vary(rng, scenario.links);

  const double notices[] = {15, 30, 60, 120};
  std::vector<char> leaves(kNodes, 0);

  struct Group {
    std::size_t node;
    double at_s, notice_s;
  };

  std::vector<Group> groups;
  while (groups.size() < 3 + shape.evacuations / 4) {
    const double at = 40 * rng.unit();
    const double notice = notices[rng.below(4)];
    const std::size_t building = rng.below(kBuildings);
    for (std::size_t k = 0; k < 1 + rng.below(3); ++k) {
      const std::size_t node = building * kEach + rng.below(kEach);
      if (leaves[node] != 0) continue;
      leaves[node] = 1;
      groups.push_back({node, at, notice});
    }
  }
  const auto staying = [&] {
    std::size_t node = rng.below(kNodes);
    while (leaves[node] != 0) node = rng.below(kNodes);
    return node;
  };
  for (std::size_t i = 0; i < shape.evacuations; ++i) {
    const Group& group = groups[rng.below(groups.size())];
    scenario.jobs.push_back(
        {.arrives_s = group.at_s,
         .deadline_s = group.at_s + group.notice_s,
         .bytes = 1e9 * log_normal(rng, 0.8),
         .value = 600 * log_normal(rng, 1),
         .path = campus.path(node_name(group.node), node_name(staying())).value()}
    );
  }
  scale_to(scenario, shape.load);
  for (std::size_t i = rng.below(4); i > 0; --i) {
    const std::size_t from = staying();
    std::size_t to = staying();
    while (to == from) to = staying();
    scenario.jobs.push_back(
        {.arrives_s = 60 * rng.unit(),
         .deadline_s = std::numeric_limits<double>::infinity(),
         .bytes = 2e9 * log_normal(rng, 0.8),
         .value = 0,
         .path = campus.path(node_name(from), node_name(to)).value()}
    );
  }
  std::stable_sort(scenario.jobs.begin(), scenario.jobs.end(), [](const Job& a, const Job& b) {
    return a.arrives_s < b.arrives_s;
  });
  mislead(rng, scenario, shape.forecast_error);
  return scenario;
}

Scenario full_campus(Rng& rng, double load) {
  constexpr std::size_t kNodes = 54;
  const LinkTopology campus = a_campus(rng, 3, kNodes / 3, 10 * kGigabit);
  Scenario scenario;
  scenario.links = campus.links();
  vary(rng, scenario.links);
  for (std::size_t node = 0; node < kNodes; ++node) {
    const double notice_s = 30 + 90 * rng.unit();
    for (std::size_t k = 0; k < 16; ++k) {
      std::size_t to = rng.below(kNodes);
      while (to == node) to = rng.below(kNodes);
      scenario.jobs.push_back(
          {.arrives_s = 0,
           .deadline_s = notice_s,
           .bytes = 1e9 * log_normal(rng, 0.8),
           .value = 600 * log_normal(rng, 1),
           .path = campus.path(node_name(node), node_name(to)).value()}
      );
    }
  }
  // One link is always loaded most: the median of the links' loads is set here instead.
  std::vector<double> loads;
  for (LinkIndex link = 0; link < scenario.links.size(); ++link) {
    double bytes = 0;
    double last_s = 0;
    for (const Job& job : scenario.jobs) {
      if (!crosses(job, link)) continue;
      bytes += job.bytes;
      last_s = std::max(last_s, job.deadline_s);
    }
    if (bytes > 0) loads.push_back(bytes / carried(scenario.links[link], 0, last_s));
  }
  std::sort(loads.begin(), loads.end());
  for (Job& job : scenario.jobs) job.bytes *= load / loads[loads.size() / 2];
  scenario.forecast = scenario.links;
  return scenario;
}

double clairvoyant_bound(const Scenario& scenario) {
  std::vector<double> value;
  std::vector<std::size_t> job_of;
  std::map<std::size_t, std::uint32_t> bit_of;
  for (std::size_t i = 0; i < scenario.jobs.size(); ++i) {
    if (!scenario.jobs[i].is_evacuation()) continue;
    bit_of[i] = static_cast<std::uint32_t>(job_of.size());
    job_of.push_back(i);
    value.push_back(scenario.jobs[i].value);
  }

  struct Limit {
    std::uint32_t members;
    double possible;
  };

  std::vector<Limit> limits;  // only those that some subset can break
  for_each_window(scenario, [&](const std::vector<std::size_t>& members, double possible) {
    Limit limit{0, possible};
    double bytes = 0;
    for (const std::size_t i : members) {
      limit.members |= 1u << bit_of[i];
      bytes += scenario.jobs[i].bytes;
    }
    if (bytes > possible * (1 + 1e-6)) limits.push_back(limit);
  });
  return reclaim::best_subset_value(value, [&](const reclaim::FlowSet& set) {
    return std::all_of(limits.begin(), limits.end(), [&](const Limit& limit) {
      double bytes = 0;
      for (const std::uint32_t bit : set)
        if ((limit.members >> bit & 1u) != 0) bytes += scenario.jobs[job_of[bit]].bytes;
      return bytes <= limit.possible * (1 + 1e-6);
    });
  });
}

}  // namespace rn::bench
