// SPDX-License-Identifier: Apache-2.0
// Evacuations that share a campus's links, as fluids: reclaim::plan_rates beside TCP's fair share,
// strict priority, first come first served after D3, and EDF without admission, all on the same
// random scenarios in one run; then admission against exhaustive search, and the time of a
// decision.
//   bench_deadline_rates [scenarios per load, default 40] [rounds of the timing, default 10]

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <limits>

#include "bench_report.h"
#include "rates_policies.h"
#include "rates_scenario.h"

#include "base/assert.h"
#include "base/rng.h"
#include "reclaim/fluid_cases.h"

namespace rn::bench {
namespace {

constexpr double kTick_s = 0.25;

double load_average() {
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  return load;
}

/// Of this thread: on a shared machine the wall clock counts the others' work.
double cpu_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

struct Outcome {
  double evacuations = 0, met = 0;
  double admitted = 0, missed = 0, revoked = 0;
  double shares_of_bound = 0, worst_share = 1, scenarios = 0;
};

/// One policy's run of a scenario. The links decide: rates that together exceed what a link really
/// has are cut back fairly. A job's bytes stop at its deadline, because its node is gone.
std::vector<char> play(const Scenario& scenario, Policy& policy) {
  std::vector<double> left;
  for (const Job& job : scenario.jobs) left.push_back(job.bytes);
  std::vector<char> met(scenario.jobs.size(), 0);
  double end_s = 0;
  for (const Job& job : scenario.jobs)
    if (job.is_evacuation()) end_s = std::max(end_s, job.deadline_s);

  for (double now_s = 0; now_s < end_s;) {
    double step_s = std::min(kTick_s, end_s - now_s);
    std::vector<Running> running;
    for (std::size_t i = 0; i < scenario.jobs.size(); ++i) {
      const Job& job = scenario.jobs[i];
      if (job.arrives_s > now_s) step_s = std::min(step_s, job.arrives_s - now_s);
      if (job.arrives_s > now_s || job.deadline_s <= now_s || left[i] < 1) continue;
      step_s = std::min(step_s, job.deadline_s - now_s);
      running.push_back({&job, i, left[i]});
    }
    std::vector<double> capacity;
    for (const reclaim::LinkState& link : scenario.links) {
      capacity.push_back(reclaim::capacity_at(link, at_s(now_s)));
      for (const reclaim::CapacityStep& step : link.capacity) {
        const double change_s = reclaim::seconds_between(at_s(0), step.from);
        if (change_s > now_s) step_s = std::min(step_s, change_s - now_s);
      }
    }
    std::vector<double> rates(running.size(), 0);
    share_fairly(running, policy.rates(now_s, running, capacity), capacity, rates);
    for (std::size_t i = 0; i < running.size(); ++i)
      if (rates[i] > 0) step_s = std::min(step_s, running[i].left / rates[i]);
    step_s = std::max(step_s, 1e-6);
    now_s += step_s;
    for (std::size_t i = 0; i < running.size(); ++i) {
      left[running[i].index] -= rates[i] * step_s;
      if (left[running[i].index] < 1) met[running[i].index] = 1;
    }
  }
  return met;
}

void count(
    const Scenario& scenario,
    const Policy& policy,
    double bound,
    const std::vector<char>& met,
    Outcome& all
) {
  double value = 0;
  for (std::size_t i = 0; i < scenario.jobs.size(); ++i) {
    const Job& job = scenario.jobs[i];
    if (!job.is_evacuation()) continue;
    ++all.evacuations;
    all.met += met[i];
    value += met[i] != 0 ? job.value : 0;
    if (policy.was_admitted.empty() || policy.was_admitted[i] == 0) continue;
    ++all.admitted;
    if (met[i] != 0) continue;
    (policy.was_revoked[i] != 0 ? all.revoked : all.missed) += 1;
  }
  ++all.scenarios;
  const double share = value / bound;
  RN_ASSERT(share <= 1 + 1e-6, "nobody beats the clairvoyant bound");
  all.shares_of_bound += share;
  all.worst_share = std::min(all.worst_share, share);
}

void compare(double load, double error, std::size_t scenarios) {
  std::vector<Outcome> outcomes(5);
  std::vector<std::string> names(5);
  for (std::uint64_t seed = 1; seed <= scenarios; ++seed) {
    SeededRng rng(seed * 1000 + static_cast<std::uint64_t>(load * 100));
    const Scenario scenario =
        random_scenario(rng, {.evacuations = 12, .load = load, .forecast_error = error});
    const double bound = clairvoyant_bound(scenario);
    std::unique_ptr<Policy> policies[] = {
        deadline_rates(scenario),
        fair_share(),
        strict_priority(),
        first_come_first_served(),
        edf_without_admission()};
    for (std::size_t p = 0; p < 5; ++p) {
      names[p] = policies[p]->name();
      count(scenario, *policies[p], bound, play(scenario, *policies[p]), outcomes[p]);
    }
  }
  for (std::size_t p = 0; p < 5; ++p) {
    const Outcome& o = outcomes[p];
    std::printf(
        "%4.2f  %3.0f %%  %-18s  met %5.1f %%  value %5.1f %% worst %5.1f %%",
        load,
        100 * error,
        names[p].c_str(),
        100 * o.met / o.evacuations,
        100 * o.shares_of_bound / o.scenarios,
        100 * o.worst_share
    );
    if (o.admitted > 0)
      std::printf(
          "  admitted %4.0f of %4.0f: missed %.2f %%, given up for worthier %.2f %%",
          o.admitted,
          o.evacuations,
          100 * o.missed / o.admitted,
          100 * o.revoked / o.admitted
      );
    std::printf("\n");
  }
  std::fflush(stdout);
}

void judge_admission(std::size_t cases) {
  std::vector<double> of_policy;
  std::vector<double> of_bound;
  for (std::uint64_t seed = 1; seed <= cases; ++seed) {
    SeededRng rng(seed);
    const reclaim::FluidCase one = reclaim::random_case(
        rng,
        {.flows = 4 + rng.below(9),
         .links = 1 + rng.below(6),
         .load = 1 + rng.unit(),
         .varies = seed % 2 == 0}
    );
    reclaim::FluidPlay play(one.budgets, one.flows);
    const auto set = reclaim::admit(play, reclaim::all_of(one), {}, one.value, {}).admitted;
    const double value = reclaim::value_of(one, set);
    of_policy.push_back(
        -value / reclaim::best_subset_value(
                     one.value, [&](const reclaim::FlowSet& s) { return !play.first_late(s); }
                 )
    );
    of_bound
        .push_back(-value / reclaim::best_subset_value(one.value, [&](const reclaim::FlowSet& s) {
          return reclaim::no_link_forbids(one, s);
        }));
  }
  const auto print = [&](const char* what, const std::vector<double>& shares) {
    double sum = 0;
    for (const double share : shares) sum -= share;
    std::printf(
        "%-44s n %zu  mean %.2f %%  median %.2f %%  p99 of the worst %.2f %%  worst %.2f %%\n",
        what,
        shares.size(),
        100 * sum / static_cast<double>(shares.size()),
        -100 * quantile(shares, 0.5),
        -100 * quantile(shares, 0.99),
        -100 * quantile(shares, 1)
    );
  };
  print("admitted value / best that the policy serves", of_policy);
  print("admitted value / best that no link forbids", of_bound);
}

void time_decisions(double load, std::size_t rounds) {
  std::vector<double> first_ms;
  std::vector<double> next_ms;
  double sends = 0;
  double kept = 0;
  std::size_t cut_short = 0;
  for (std::uint64_t seed = 1; seed <= rounds; ++seed) {
    SeededRng rng(seed);
    const Scenario scenario = full_campus(rng, load);
    std::vector<reclaim::DeadlineTransfer> transfers;
    for (std::size_t i = 0; i < scenario.jobs.size(); ++i) {
      const Job& job = scenario.jobs[i];
      reclaim::DeadlineTransfer transfer;
      transfer.id = TransferId("t-" + std::to_string(1000 + i));
      transfer.bytes_left = static_cast<std::uint64_t>(job.bytes);
      transfer.path = job.path;
      transfer.value = job.value;
      transfer.begun = at_s(0);
      transfer.deadline = at_s(job.deadline_s);
      transfers.push_back(std::move(transfer));
    }
    reclaim::RateMemory memory;
    for (int tick = 0; tick < 10; ++tick) {
      const double now_s = kTick_s * tick;
      const double begin_ms = cpu_ms();
      const auto plan = reclaim::plan_rates(scenario.links, transfers, {}, memory, at_s(now_s));
      const double took_ms = cpu_ms() - begin_ms;
      RN_ASSERT(plan.has_value(), "a scenario's input is sound");
      (tick == 0 ? first_ms : next_ms).push_back(took_ms);
      if (tick == 0) kept += plan->kept_value / (plan->kept_value + plan->lost_value);
      cut_short += plan->was_cut_short ? 1 : 0;
      for (std::size_t i = 0; i < transfers.size(); ++i) {
        const reclaim::TransferGrant& grant = plan->grants[i];
        if (tick == 0 && grant.outcome == reclaim::TransferOutcome::kSends) ++sends;
        const auto sent =
            static_cast<std::uint64_t>(kTick_s * static_cast<double>(grant.rate_bytes_per_s));
        transfers[i].bytes_left -= std::min(transfers[i].bytes_left, sent);
      }
    }
  }
  std::printf(
      "54 nodes x 16, load %.2f: first plan n %zu p50 %.1f ms p99 %.1f ms; next plans n %zu p50 "
      "%.1f ms p99 %.1f ms (CPU); %.0f of 864 admitted, %.1f %% of the value; %zu of %zu ended by "
      "their bound of work\n",
      load,
      first_ms.size(),
      quantile(first_ms, 0.5),
      quantile(first_ms, 0.99),
      next_ms.size(),
      quantile(next_ms, 0.5),
      quantile(next_ms, 0.99),
      sends / static_cast<double>(rounds),
      100 * kept / static_cast<double>(rounds),
      cut_short,
      first_ms.size() + next_ms.size()
  );
  std::fflush(stdout);
}

int measure(std::size_t scenarios, std::size_t rounds) {
  print_machine("evacuations on shared links (fluid)");
  std::printf("load average at the begin %.1f\n", load_average());
  judge_admission(10 * scenarios);
  for (const double load : {0.5, 0.9, 1.2}) time_decisions(load, rounds);
  std::printf(
      "n %zu scenarios of 12 evacuations per line; value: share of the clairvoyant bound, mean\n"
      "load  error  policy\n",
      scenarios
  );
  for (const double load : {0.5, 0.75, 1.0, 1.25, 1.5})
    for (const double error : {0.0, 0.2}) compare(load, error, scenarios);
  std::printf("load average at the end %.1f\n", load_average());
  return 0;
}

}  // namespace
}  // namespace rn::bench

int main(int argc, char** argv) {
  const std::size_t scenarios = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 40;
  const std::size_t rounds = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 10;
  if (scenarios == 0 || rounds == 0) {
    std::fprintf(stderr, "bench_deadline_rates [scenarios per load] [rounds of the timing]\n");
    return 2;
  }
  return rn::bench::measure(scenarios, rounds);
}
