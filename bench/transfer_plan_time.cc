// SPDX-License-Identifier: Apache-2.0
// How long one plan of all copies of a site takes, as the coordinator makes it four times a second:
// nine buildings of six nodes, each building with one line out; admission, rates and what is left.
//   transfer_plan_time [rounds, default 100]

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench_report.h"

#include "base/rng.h"
#include "reclaim/spare_rates.h"

namespace rn::reclaim {
namespace {

constexpr std::uint32_t kBuildings = 9;
constexpr std::uint32_t kNodesEach = 6;
constexpr double kTick_s = 0.25;
constexpr double kLine = 125e6;  // bytes/s of each node, and of each building's line

struct Site {
  std::vector<Link> links;
  std::vector<Transfer> transfers;
};

/// Links: up and down of each node, then up and down of each building.
Site a_site(
    std::uint64_t seed,
    std::size_t copies,
    std::size_t evacuations,
    double load,
    TransferClass others
) {
  SeededRng rng(seed);
  Site site;
  const std::uint32_t nodes = kBuildings * kNodesEach;
  site.links.assign(2 * (nodes + kBuildings), {.capacity = kLine});
  for (std::size_t i = 0; i < copies; ++i) {
    const auto from = static_cast<std::uint32_t>(i % nodes);
    const auto to = static_cast<std::uint32_t>((from + 1 + rng.below(nodes - 1)) % nodes);
    Transfer one;
    one.id = i;
    one.links = {2 * from, 2 * to + 1};
    if (from / kNodesEach != to / kNodesEach) {
      one.links.push_back(2 * (nodes + from / kNodesEach));
      one.links.push_back(2 * (nodes + to / kNodesEach) + 1);
    }
    one.kind = i < evacuations ? TransferClass::kEvacuation : others;
    one.value = 1 + 3600 * rng.unit();
    if (i < evacuations) one.deadline_s = 20 + 100 * rng.unit();
    // All buildings' lines together carry nine of kLine for 70 s on average.
    const double fair = load * kBuildings * kLine * 70 / static_cast<double>(evacuations);
    one.bytes = (0.1 + 1.8 * rng.unit()) * fair;
    site.transfers.push_back(std::move(one));
  }
  return site;
}

void measure(
    const char* what,
    std::size_t copies,
    std::size_t evacuations,
    double load,
    std::uint64_t rounds,
    TransferClass others = TransferClass::kCheckpoint
) {
  std::vector<double> first;
  std::vector<double> later;
  std::size_t admitted = 0;
  for (std::uint64_t seed = 1; seed <= rounds; ++seed) {
    Site site = a_site(seed, copies, evacuations, load, others);
    RatePlanner planner{LinkGuard{}};
    for (int tick = 0; tick < 4; ++tick) {
      const auto begin = std::chrono::steady_clock::now();
      RatePlan plan = planner.plan(kTick_s * tick, site.transfers, site.links, kTick_s);
      give_spare(site.transfers, site.links, LinkGuard{}, plan);
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - begin;
      (tick == 0 ? first : later).push_back(took.count());
      for (std::size_t i = 0; i < site.transfers.size(); ++i) {
        Transfer& one = site.transfers[i];
        one.bytes = std::max(one.bytes - plan.rates[i] * kTick_s, 1.0);
        if (one.kind != TransferClass::kEvacuation) continue;
        if (tick == 0) admitted += plan.is_admitted[i] ? 1 : 0;
        // What was refused is offered again after two seconds, not with each plan.
        one.deadline_s = plan.is_admitted[i] ? one.deadline_s - kTick_s
                                             : std::numeric_limits<double>::infinity();
      }
    }
  }
  const double n = static_cast<double>(rounds) * static_cast<double>(evacuations);
  std::printf(
      "%s, load %.1f: %.0f %% admitted; with all offered n=%zu median %.1f ms p99 %.1f ms max %.1f "
      "ms; the next three plans n=%zu median %.1f ms p99 %.1f ms\n",
      what,
      load,
      100 * static_cast<double>(admitted) / n,
      first.size(),
      bench::quantile(first, 0.5),
      bench::quantile(first, 0.99),
      bench::quantile(first, 1),
      later.size(),
      bench::quantile(later, 0.5),
      bench::quantile(later, 0.99)
  );
}

}  // namespace
}  // namespace rn::reclaim

int main(int argc, char** argv) {
  const std::uint64_t rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100;
  rn::bench::print_machine("one plan of all copies of a site");
  for (const double load : {0.3, 1.0, 2.0}) {
    rn::reclaim::measure("54 nodes x 16 copies, 64 evacuations", 54 * 16, 64, load, rounds);
    rn::reclaim::measure("256 evacuations", 256, 256, load, rounds);
    rn::reclaim::measure(
        "256 evacuations, 32 restores", 288, 256, load, rounds, rn::reclaim::TransferClass::kRestore
    );
  }
}
