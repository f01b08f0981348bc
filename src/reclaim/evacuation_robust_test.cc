// SPDX-License-Identifier: Apache-2.0
// Wrong forecasts: what a choice is worth under the true hazards, against one that looks at
// topology, sizes and deadlines only.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include <gtest/gtest.h>

#include "reclaim/evacuation.h"
#include "reclaim/evacuation_cases.h"

namespace rn::reclaim {
namespace {

enum class Wrong { kNot, kThreefold, kThird, kShuffled, kInverted };

std::vector<double> forecast(const EvacuationCase& c, Wrong wrong, SeededRng& rng) {
  std::vector<double> out = c.hazards;
  if (wrong == Wrong::kThreefold || wrong == Wrong::kThird) {
    for (double& hazard : out) hazard *= wrong == Wrong::kThreefold ? 3 : 1.0 / 3;
  }
  if (wrong == Wrong::kShuffled) {
    for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[rng.below(i)]);
  }
  if (wrong == Wrong::kInverted) {  // the calmest owner is taken for the most restless one
    std::vector<double> ascending = out;
    std::sort(ascending.begin(), ascending.end());
    for (double& hazard : out) {
      const auto rank = std::lower_bound(ascending.begin(), ascending.end(), hazard);
      hazard = *(ascending.rbegin() + (rank - ascending.begin()));
    }
  }
  return out;
}

/// Trust after some departures of the owners, who follow the true hazards.
double trust_after(
    const EvacuationCase& c, const std::vector<double>& told, int departures, SeededRng& rng
) {
  ForecastTrust trust;
  const double sum = std::accumulate(c.hazards.begin(), c.hazards.end(), 0.0);
  for (int i = 0; i < departures; ++i) {
    double draw = rng.unit() * sum;
    std::size_t who = 0;
    while (who + 1 < c.hazards.size() && draw >= c.hazards[who]) draw -= c.hazards[who++];
    trust.departed(told, who);
  }
  return trust.trust();
}

/// Mean worth per job under the true hazards, over many sites.
double mean_worth(Wrong wrong, std::optional<double> fixed_trust) {
  double sum = 0;
  int count = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const EvacuationCase truth = a_case(seed, 2, 14, 5);
    SeededRng rng(seed + 77);
    EvacuationCase told = truth;
    const std::vector<double> hazards = forecast(truth, wrong, rng);
    for (std::size_t n = 0; n < hazards.size(); ++n)
      told.site.nodes[n].stays = a_stay_curve(hazards[n]);
    EvacuationPolicy policy;
    policy.trust = fixed_trust ? *fixed_trust : trust_after(truth, hazards, 60, rng);
    const auto choices = choose_evacuation(told.site, told.jobs, policy);
    const auto worth = evacuation_value(truth.site, truth.jobs, straight(choices));
    if (!worth) continue;
    sum += *worth / static_cast<double>(truth.jobs.size());
    ++count;
  }
  EXPECT_EQ(count, 150) << "hazards never make a transfer late";
  return sum / count;
}

TEST(EvacuationRobust, wrong_hazards_are_at_worst_as_good_as_topology_alone) {
  const double topology = mean_worth(Wrong::kNot, 0.0);
  const double right = mean_worth(Wrong::kNot, std::nullopt);
  const double threefold = mean_worth(Wrong::kThreefold, std::nullopt);
  const double third = mean_worth(Wrong::kThird, std::nullopt);
  const double shuffled = mean_worth(Wrong::kShuffled, std::nullopt);
  const double inverted = mean_worth(Wrong::kInverted, std::nullopt);
  const double believed = mean_worth(Wrong::kInverted, 1.0);
  std::printf(
      "useful seconds per job, 150 sites: right %.0f, x3 %.0f, /3 %.0f, shuffled %.0f, inverted "
      "%.0f (believed all the same %.0f), topology only %.0f\n",
      right,
      threefold,
      third,
      shuffled,
      inverted,
      believed,
      topology
  );
  EXPECT_GT(right, 1.05 * topology);
  EXPECT_GE(threefold, topology);
  EXPECT_GE(third, topology);
  EXPECT_GE(shuffled, 0.99 * topology);
  EXPECT_GE(inverted, 0.99 * topology);
  EXPECT_LT(believed, 0.95 * topology) << "the trust is what helps";
}

TEST(EvacuationRobust, a_lab_that_goes_as_a_whole_takes_fewer_jobs_with_it_than_without_the_risk) {
  int with = 0;
  int without = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    EvacuationCase c = a_case(seed, 4, 20, 6);
    for (auto& job : c.jobs) {
      for (auto& option : job.options) option.bytes = 1e8;
    }
    for (auto& group : c.site.groups) {
      group.jobs = 0;
      group.reclaim_chance = 0.2;
    }
    for (const bool counts : {true, false}) {
      EvacuationPolicy policy;
      if (!counts) policy.group_risk_s = 0;
      std::vector<int> jobs_of(c.site.groups.size());
      for (const auto& choice : choose_evacuation(c.site, c.jobs, policy)) {
        if (choice.destination) ++jobs_of[c.site.nodes[*choice.destination].groups[0]];
      }
      // The lab that has most is taken back.
      (counts ? with : without) += *std::max_element(jobs_of.begin(), jobs_of.end());
    }
  }
  std::printf(
      "jobs lost with the worst lab of 100 sites: %d, without the term %d\n", with, without
  );
  EXPECT_LT(with, without);
}

}  // namespace
}  // namespace rn::reclaim
