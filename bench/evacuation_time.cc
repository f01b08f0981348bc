// SPDX-License-Identifier: Apache-2.0
// How long the joint choice of destinations takes for 16 jobs and 54 nodes, and how far it is from
// every joint choice there is in small cases.
// Then how long it takes for many jobs that have lost their nodes.
//   evacuation_time [cases, default 300]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench_report.h"

#include "reclaim/evacuation.h"
#include "reclaim/evacuation_cases.h"

namespace {

/// All lost at once; four places at each node that takes guests.
void time_stranded(std::size_t nodes, std::size_t jobs, std::uint64_t cases) {
  std::vector<double> milliseconds;
  for (std::uint64_t seed = 1; seed <= cases; ++seed) {
    auto c = rn::reclaim::a_case(seed, 8, nodes - 8, jobs);
    for (auto& job : c.jobs) job.is_stranded = true;
    for (auto& node : c.site.nodes) {
      if (node.free.guests == 0) continue;
      node.free = {.guests = 4, .gpus = 4, .cpu_milli = 8000, .memory_mib = 64'000};
    }
    const auto begin = std::chrono::steady_clock::now();
    const auto choices = rn::reclaim::choose_evacuation(c.site, c.jobs);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (choices.size() == jobs) milliseconds.push_back(took.count());
  }
  std::printf(
      "%zu nodes x %zu stranded jobs: n=%lu median %.1f ms max %.1f ms\n",
      nodes,
      jobs,
      static_cast<unsigned long>(milliseconds.size()),
      rn::bench::quantile(milliseconds, 0.5),
      rn::bench::quantile(milliseconds, 1)
  );
}

}  // namespace

int main(int argc, char** argv) {
  using rn::reclaim::EvacuationWay;
  const std::uint64_t cases = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 300;
  rn::bench::print_machine("joint choice of destinations");
  for (const std::size_t sources : {1, 4, 8}) {
    std::vector<double> milliseconds;
    std::size_t straight = 0;
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
      const auto c = rn::reclaim::a_case(seed, sources, 54 - sources, 16);
      const auto begin = std::chrono::steady_clock::now();
      const auto choices = rn::reclaim::choose_evacuation(c.site, c.jobs);
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - begin;
      milliseconds.push_back(took.count());
      for (const auto& choice : choices) straight += choice.way == EvacuationWay::kDestination;
    }
    std::printf(
        "54 nodes x 16 jobs of %zu sources: n=%lu median %.2f ms p99 %.2f ms max %.2f ms; %.1f of "
        "16 jobs go straight to their destination\n",
        sources,
        static_cast<unsigned long>(cases),
        rn::bench::quantile(milliseconds, 0.5),
        rn::bench::quantile(milliseconds, 0.99),
        rn::bench::quantile(milliseconds, 1),
        static_cast<double>(straight) / static_cast<double>(cases)
    );
  }
  const std::uint64_t few = std::max<std::uint64_t>(1, cases / 30);
  time_stranded(54, 16, few);
  time_stranded(54, 256, few);
  time_stranded(512, 256, few);
}
