// SPDX-License-Identifier: Apache-2.0
// How long the joint choice of destinations takes for 16 jobs and 54 nodes, and how far it is from
// every joint choice there is in small cases.
//   evacuation_time [cases, default 300]

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench_report.h"

#include "reclaim/evacuation.h"
#include "reclaim/evacuation_cases.h"

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
}
