// SPDX-License-Identifier: Apache-2.0
// How long the joint choice of destinations takes for 16 jobs and 54 nodes, and for many jobs that
// have lost their nodes; and how far it is from the best of all joint choices, in cases that are
// too large for its own search to look through whole, and with greedy, moves and chains of two
// alone.
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

/// One source, `jobs` jobs, as many places for one guest each.
void gap_to_the_best(std::size_t jobs, std::uint64_t cases) {
  std::vector<double> gaps;
  std::vector<double> greedy_gaps;
  for (std::uint64_t seed = 1; seed <= cases; ++seed) {
    auto c = rn::reclaim::a_case(seed, 1, jobs, jobs);
    for (auto& node : c.site.nodes) node.free.guests = std::min(node.free.guests, 1U);
    const double best = rn::reclaim::best_joint_choice(c);
    if (best <= 0) continue;
    const auto gap = [&](std::size_t searches) {
      const rn::reclaim::EvacuationPolicy policy{.searches_max = searches};
      const auto chosen = rn::reclaim::choose_evacuation(c.site, c.jobs, policy);
      const auto value = evacuation_value(c.site, c.jobs, straight(chosen));
      return value ? 1 - *value / best : 1;
    };
    gaps.push_back(gap(rn::reclaim::EvacuationPolicy{}.searches_max));
    greedy_gaps.push_back(gap(0));
  }
  for (const auto& [what, of] : {std::pair("whole", &gaps), std::pair("greedy", &greedy_gaps)}) {
    const auto beyond = std::count_if(of->begin(), of->end(), [](double g) { return g > 0.05; });
    std::printf(
        "%zu jobs on %zu places, %s: gap to the best n=%lu median %.2f %% p95 %.2f %% max %.2f %%; "
        "beyond 5 %%: %ld\n",
        jobs,
        jobs,
        what,
        static_cast<unsigned long>(of->size()),
        100 * rn::bench::quantile(*of, 0.5),
        100 * rn::bench::quantile(*of, 0.95),
        100 * rn::bench::quantile(*of, 1),
        static_cast<long>(beyond)
    );
  }
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
  for (const std::size_t jobs : {4, 5, 6, 7, 8})
    gap_to_the_best(jobs, std::max<std::uint64_t>(1, cases / (jobs < 8 ? 3 : 10)));
}
