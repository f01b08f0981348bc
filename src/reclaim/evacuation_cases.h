// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "reclaim/evacuation.h"

// Sites and evacuations drawn at random, for tests and figures: labs of four machines, two labs a
// building, uplinks of 0.1 to 2.5 Gbit/s, one link per building that all its machines share.
namespace rn::reclaim {

struct EvacuationCase {
  EvacuationSite site;
  std::vector<EvacuatingJob> jobs;
  std::vector<double> hazards;  ///< true ones, per node, 1/s
};

inline StayCurve a_stay_curve(double hazard) {
  StayCurve curve;
  for (const double at_s : {300., 1800., 3600., 7200., 28800., 86400.})
    curve.samples.push_back({at_s, std::exp(-hazard * at_s)});
  return curve;
}

/// Where each node has one line of its own, numbered as it is: over the sender's and the
/// receiver's.
inline std::vector<std::uint32_t> own_lines(std::size_t from, std::size_t to) {
  return {static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to)};
}

inline double drawn_between(SeededRng& rng, double from, double to) {
  return from + (to - from) * rng.unit();
}

inline EvacuationCase a_site(SeededRng& rng, std::size_t sources, std::size_t others) {
  const auto between = [&](double from, double to) { return drawn_between(rng, from, to); };
  EvacuationCase c;
  const std::size_t count = sources + others;
  std::vector<std::size_t> building;
  for (std::size_t n = 0; n < count; ++n) {
    EvacuationNode node;
    node.node = NodeId("n" + std::to_string(n));
    node.name = "lab-" + std::to_string(n / 4) + "/n" + std::to_string(n);
    node.room_bytes = 200e9;
    node.restore_s = between(5, 30);
    node.is_storage = n == sources && others > 3;
    const double hazard = std::exp(between(std::log(1 / 200e3), std::log(1 / 3600.)));
    c.hazards.push_back(hazard);
    node.stays = a_stay_curve(hazard);
    if (n >= sources && !node.is_storage)
      node.free = {
          .guests = 1 + static_cast<std::uint32_t>(rng.below(2)),
          .gpus = 1 + static_cast<std::uint32_t>(rng.below(2)),
          .cpu_milli = 8000,
          .memory_mib = 64'000};
    node.groups = {n / 4, (count + 3) / 4 + n / 8};
    building.push_back(n / 8);
    const double rate = std::vector<double>{12.5e6, 125e6, 125e6, 312.5e6}[rng.below(4)];
    c.site.links.push_back({.q10 = rate * between(0.4, 0.9), .median = rate * 0.9});
    c.site.nodes.push_back(std::move(node));
  }
  for (std::size_t g = 0; g < (count + 3) / 4; ++g)
    c.site.groups.push_back(
        {.name = "lab-" + std::to_string(g),
         .jobs = static_cast<double>(rng.below(3)),
         .reclaim_chance = between(0, 0.3)}
    );
  for (std::size_t g = 0; g <= building.back(); ++g) {
    c.site.groups.push_back(
        {.name = "building-" + std::to_string(g),
         .jobs = static_cast<double>(rng.below(4)),
         .reclaim_chance = between(0, 0.05)}
    );
    c.site.links.push_back({.q10 = 150e6, .median = 200e6});
  }
  c.site.path = [building, count](std::size_t from, std::size_t to) {
    std::vector<std::uint32_t> links;
    if (from == to) return links;
    links = {static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to)};
    if (building[from] == building[to]) return links;
    links.push_back(static_cast<std::uint32_t>(count + building[from]));
    links.push_back(static_cast<std::uint32_t>(count + building[to]));
    return links;
  };
  return c;
}

/// `sources` machines are taken back; the others take guests. The first one after them stores.
inline EvacuationCase a_case(
    std::uint64_t seed, std::size_t sources, std::size_t others, std::size_t jobs
) {
  SeededRng rng(seed);
  EvacuationCase c = a_site(rng, sources, others);
  const auto between = [&](double from, double to) { return drawn_between(rng, from, to); };
  const std::size_t count = sources + others;
  const double notice_s = between(20, 180);  // one owner, or one lab's owners, at once
  for (std::size_t j = 0; j < jobs; ++j) {
    EvacuatingJob job;
    job.job = JobId("j" + std::to_string(j));
    job.name = "job " + std::to_string(j);
    job.source = j % sources;
    job.notice_s = notice_s;
    job.save_s = between(1, 6);
    job.remaining_s = between(0.5, 8) * 3600;
    job.needs = {.guests = 1, .gpus = 1, .cpu_milli = 1000, .memory_mib = 4096};
    job.lost_s = between(60, 1800);
    const double state = std::exp(between(std::log(0.2e9), std::log(12e9)));
    const double delta = state * between(0.02, 0.4);
    job.stored_bytes = state + delta;
    for (std::size_t n = 0; n < count; ++n) {
      EvacuationOption option;
      option.can_run = n >= sources && !c.site.nodes[n].is_storage && rng.below(6) != 0;
      option.can_store = n >= sources;
      option.has_parent = n >= sources && (c.site.nodes[n].is_storage || rng.below(6) == 0);
      option.bytes = option.has_parent ? delta : state + delta;
      option.speed = rng.below(3) == 0 ? between(0.5, 1) : 1;
      job.options.push_back(option);
    }
    c.jobs.push_back(std::move(job));
  }
  return c;
}

/// The value of the best of all joint choices of direct destinations; -1e300 if there is none. A
/// choice that is in time stays so with one job less, so that what is late already is not
/// continued: all of them all the same. Up to some eight jobs and places of one guest each.
inline double best_joint_choice(
    const EvacuationCase& c, std::vector<std::optional<std::size_t>>& at, std::size_t job = 0
) {
  const auto value = evacuation_value(c.site, c.jobs, at);
  if (!value || job == c.jobs.size()) return value.value_or(-1e300);
  double best = best_joint_choice(c, at, job + 1);
  for (std::size_t n = 0; n < c.site.nodes.size(); ++n) {
    if (n == c.jobs[job].source || !c.jobs[job].options[n].can_run) continue;
    at[job] = n;
    best = std::max(best, best_joint_choice(c, at, job + 1));
  }
  at[job].reset();
  return best;
}

inline double best_joint_choice(const EvacuationCase& c) {
  std::vector<std::optional<std::size_t>> at(c.jobs.size());
  return best_joint_choice(c, at);
}

/// Straight destinations of a choice, as evacuation_value() takes them.
inline std::vector<std::optional<std::size_t>> straight(const std::vector<EvacuationChoice>& choices
) {
  std::vector<std::optional<std::size_t>> result;
  for (const EvacuationChoice& c : choices)
    result.push_back(
        c.way == EvacuationWay::kDestination ? c.destination : std::optional<std::size_t>()
    );
  return result;
}

}  // namespace rn::reclaim
