// SPDX-License-Identifier: Apache-2.0
#include "agent/site_clock.h"

#include <gtest/gtest.h>

namespace rn::agent {
namespace {

using std::chrono::hours;

TEST(SiteClock, it_shows_the_coordinators_time_on_a_machine_that_is_hours_ahead) {
  ManualClock own;
  const SiteClock untold(own);
  EXPECT_EQ(untold.now().wall, own.now().wall);
  SiteClock site(own);
  const WallTime coordinators = own.now().wall - hours(5);

  site.told(-milliseconds(hours(5)).count());
  own.advance(seconds(90));

  EXPECT_TRUE(site.is_told());
  EXPECT_EQ(site.now().wall, coordinators + seconds(90));
  EXPECT_EQ(site.now().boot, own.now().boot);
}

TEST(SiteClock, setting_the_machines_clock_does_not_move_it) {
  ManualClock own;
  SiteClock site(own);
  site.told(1000);
  const WallTime before = site.now().wall;

  own.set_wall(own.now().wall + hours(100));
  own.advance(seconds(1));

  EXPECT_EQ(site.now().wall, before + seconds(1));
}

}  // namespace
}  // namespace rn::agent
