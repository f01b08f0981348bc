// SPDX-License-Identifier: Apache-2.0
#include "reclaim/gamma.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace rn::reclaim {
namespace {

TEST(Gamma, has_the_known_distribution) {
  EXPECT_NEAR(gamma_cdf({.shape = 1, .rate = 1}, 1), 0.632120559, 1e-9);
  EXPECT_NEAR(gamma_cdf({.shape = 0.5, .rate = 1}, 1), 0.842700793, 1e-9);   // erf(1)
  EXPECT_NEAR(gamma_cdf({.shape = 5, .rate = 0.5}, 18.307038), 0.95, 1e-8);  // χ², 10 degrees
  EXPECT_NEAR(gamma_cdf({.shape = 100, .rate = 100}, 1), 0.513298799, 1e-9);
  EXPECT_EQ(gamma_cdf({.shape = 2, .rate = 3}, 0), 0);
  EXPECT_EQ(gamma_cdf({.shape = 2, .rate = 3}, -1), 0);
}

TEST(Gamma, quantiles_undo_the_distribution) {
  EXPECT_NEAR(gamma_quantile({.shape = 0.5, .rate = 0.5}, 0.05), 0.00393214, 1e-8);
  EXPECT_NEAR(gamma_quantile({.shape = 5, .rate = 0.5}, 0.95), 18.307038, 1e-5);
  for (const double shape : {0.05, 0.7, 3.0, 40.0, 3000.0}) {
    for (const double q : {0.05, 0.25, 0.5, 0.95}) {
      const Gamma gamma{.shape = shape, .rate = 2};
      EXPECT_NEAR(gamma_cdf(gamma, gamma_quantile(gamma, q)), q, 1e-6) << shape << " " << q;
    }
  }
}

double poisson(double mean, Rng& rng) {
  double left = rng.unit();
  double probability = std::exp(-mean);
  int n = 0;
  while (left > probability && n < 10'000) {
    left -= probability;
    probability *= mean / ++n;
  }
  return n;
}

std::vector<EventCount> members_with_strength(double strength, double expected) {
  SeededRng rng(11);
  std::vector<EventCount> members;
  for (int i = 0; i < 400; ++i) {
    const double own =
        gamma_quantile({.shape = strength, .rate = strength}, std::max(1e-9, rng.unit()));
    members.push_back({.events = poisson(own * expected, rng), .expected = expected});
  }
  return members;
}

TEST(Strength, is_found_from_counts_drawn_with_it) {
  EXPECT_NEAR(best_strength(members_with_strength(4, 20), 0.3, 300, 1), 4, 0.8);
  EXPECT_NEAR(best_strength(members_with_strength(0.8, 20), 0.3, 300, 1), 0.8, 0.15);
}

TEST(Strength, members_that_do_not_differ_are_held_as_tightly_as_allowed) {
  const std::vector<EventCount> members(50, EventCount{.events = 10, .expected = 10});

  EXPECT_GT(best_strength(members, 0.3, 300, 1), 290);
}

TEST(Strength, two_members_say_nothing_about_how_members_differ) {
  const std::vector<EventCount> members = {{.events = 9, .expected = 1}, {.expected = 5}, {}};

  EXPECT_EQ(best_strength(members, 0.3, 300, 7), 7);
}

}  // namespace
}  // namespace rn::reclaim
