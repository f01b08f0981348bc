// SPDX-License-Identifier: Apache-2.0
#include "sched/survival.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace rn::sched {
namespace {

TEST(Survival, a_new_node_of_a_new_site_has_the_prior) {
  EXPECT_NEAR(departure_rate({}, {}, {}).mean, 1.0 / (35 * 3600), 1e-12);
}

TEST(Survival, a_new_node_inherits_from_its_lab) {
  const Exposure restless{.seconds = 100'000, .departures = 100};
  const Exposure site{.seconds = 10'000'000, .departures = 200};

  EXPECT_NEAR(
      departure_rate({}, restless, site).mean, 103.0 / (100'000 + 3 * 10'126'000.0 / 201), 1e-9
  );
  EXPECT_GT(departure_rate({}, restless, site).mean, 10 * departure_rate({}, {}, site).mean);
}

TEST(Survival, much_own_history_outweighs_the_lab) {
  const Exposure own{.seconds = 36'000'000, .departures = 10'000};
  const double rate = departure_rate(own, own, own).mean;

  EXPECT_NEAR(rate, 10'000.0 / 36'000'000, 1e-6);
}

TEST(Survival, known_values) {
  EXPECT_DOUBLE_EQ(survival(0, 1e9), 1);
  EXPECT_NEAR(survival(1.0 / 3600, 3600), 0.36787944, 1e-8);
  EXPECT_NEAR(mean_survival(1.0 / 3600, 3600), 0.63212056, 1e-8);
  EXPECT_DOUBLE_EQ(mean_survival(0, 3600), 1);
}

TEST(Survival, more_departures_never_lower_the_rate_and_more_time_never_raises_it) {
  SeededRng rng(7);
  for (int round = 0; round < 1000; ++round) {
    const Exposure node{rng.unit() * 1e6, static_cast<double>(rng.below(50))};
    Exposure lab = node;
    lab += {rng.unit() * 1e6, static_cast<double>(rng.below(50))};
    Exposure site = lab;
    site += {rng.unit() * 1e6, static_cast<double>(rng.below(50))};
    Exposure worse = node;
    worse.departures += 1;
    Exposure longer = node;
    longer.seconds += 1000;

    const DepartureRate rate = departure_rate(node, lab, site);

    EXPECT_GT(rate.mean, 0);
    EXPECT_GT(rate.upper, rate.mean);
    EXPECT_GT(departure_rate(worse, lab, site).mean, rate.mean);
    EXPECT_LT(departure_rate(longer, lab, site).mean, rate.mean);
  }
}

}  // namespace
}  // namespace rn::sched
