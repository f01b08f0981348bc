// SPDX-License-Identifier: Apache-2.0
#include "agent/renewal.h"

#include <gtest/gtest.h>

namespace rn::agent {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

/// As the coordinator issues it at `at`, by the coordinator's clock.
io::CertificateInfo issued(WallTime at, milliseconds life = hours(24 * 7)) {
  io::CertificateInfo info;
  info.not_before = at - kBackdating;
  info.not_after = at + life;
  return info;
}

TEST(Renewal, a_certificate_is_due_after_a_day_of_its_week_and_then_once_a_day) {
  ManualClock clock;
  Renewal renewal;
  renewal.loaded(issued(clock.now().wall), clock.now());

  clock.advance(hours(23));
  EXPECT_FALSE(renewal.is_due(clock.now()));
  EXPECT_EQ(renewal.wait(clock.now()), hours(1));
  clock.advance(hours(1));
  EXPECT_TRUE(renewal.is_due(clock.now()));

  renewal.renewed(issued(clock.now().wall), clock.now());
  clock.advance(hours(23));
  EXPECT_FALSE(renewal.is_due(clock.now()));
  clock.advance(hours(1));
  EXPECT_TRUE(renewal.is_due(clock.now()));
}

TEST(Renewal, one_that_aged_on_the_disk_is_due_at_the_rest_of_its_day_and_an_old_one_at_once) {
  ManualClock clock;
  Renewal fresh;
  fresh.loaded(issued(clock.now().wall - hours(20)), clock.now());
  EXPECT_EQ(fresh.wait(clock.now()), hours(4));

  Renewal old;
  old.loaded(issued(clock.now().wall - hours(100)), clock.now());
  EXPECT_TRUE(old.is_due(clock.now()));
}

TEST(Renewal, a_clock_that_is_days_ahead_renews_once_and_not_in_a_loop) {
  ManualClock clock;
  const auto coordinators = [&] { return clock.now().wall - hours(48); };
  Renewal renewal;
  renewal.loaded(issued(coordinators()), clock.now());
  EXPECT_TRUE(renewal.is_due(clock.now())) << "it looks two days old here";

  renewal.renewed(issued(coordinators()), clock.now());

  clock.advance(hours(23));
  EXPECT_FALSE(renewal.is_due(clock.now()));
  clock.advance(hours(1));
  EXPECT_TRUE(renewal.is_due(clock.now()));
}

TEST(Renewal, a_clock_that_is_behind_or_set_back_delays_it_by_no_more_than_a_day) {
  ManualClock clock;
  Renewal renewal;
  renewal.loaded(issued(clock.now().wall + hours(20)), clock.now());
  EXPECT_EQ(renewal.wait(clock.now()), hours(24));

  clock.set_wall(clock.now().wall - hours(1000));
  clock.advance(hours(24));
  EXPECT_TRUE(renewal.is_due(clock.now()));
}

TEST(Renewal, a_try_that_failed_is_repeated_after_an_hour_and_seconds_where_lives_are_short) {
  ManualClock clock;
  Renewal renewal;
  renewal.loaded(issued(clock.now().wall - hours(100)), clock.now());
  renewal.tried(clock.now());
  EXPECT_EQ(renewal.wait(clock.now()), hours(1));

  Renewal brief;
  brief.loaded(issued(clock.now().wall - seconds(30), seconds(28)), clock.now());
  brief.tried(clock.now());
  EXPECT_EQ(brief.wait(clock.now()), seconds(1));
}

TEST(Renewal, a_certificate_without_backdating_lives_as_long_as_it_says) {
  io::CertificateInfo info;
  info.not_before = wall_from_ms(0);
  info.not_after = wall_from_ms(0) + minutes(10);
  EXPECT_EQ(Renewal::life_of(info), minutes(10));
}

}  // namespace
}  // namespace rn::agent
