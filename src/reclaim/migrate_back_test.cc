// SPDX-License-Identifier: Apache-2.0
#include "reclaim/migrate_back.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace rn::reclaim {
namespace {

MigrateBackInput a_settled_job() {
  return {
      .speed_home = 1.0,
      .speed_here = 0.5,
      .remaining_s = 3600,
      .bytes_missing = 12.5e6,
      .restore_s = 10,
      .unsaved_s = 5,
      .residence_s = 1000,
      .home_open_s = 1000};
}

TEST(MigrateBack, twice_the_speed_pays_and_the_numbers_are_shown) {
  const MigrateBackDecision d = decide_migrate_back(a_settled_job(), {});

  EXPECT_TRUE(d.moves);
  EXPECT_DOUBLE_EQ(d.gain_s, 1800);
  EXPECT_DOUBLE_EQ(d.cost_s, 10.5);
  EXPECT_EQ(
      d.sentence,
      "goes home: gains 1800 s over 1.0 h for 10 s (speed 1.00 against 0.50, value 1.00 against "
      "0.50)"
  );
}

TEST(MigrateBack, a_job_that_is_nearly_done_stays) {
  MigrateBackInput input = a_settled_job();
  input.remaining_s = 40;

  EXPECT_FALSE(decide_migrate_back(input, {}).moves);
}

TEST(MigrateBack, equal_nodes_never_swing) {
  MigrateBackInput input = a_settled_job();
  input.speed_here = 1.0;

  EXPECT_FALSE(decide_migrate_back(input, {}).moves);
  input.speed_home = 1.05;
  EXPECT_FALSE(decide_migrate_back(input, {}).moves);
}

TEST(MigrateBack, a_restless_home_is_worth_less) {
  MigrateBackInput input = a_settled_job();
  input.presence_home = 0.17;  // leaves every ten minutes

  EXPECT_FALSE(decide_migrate_back(input, {}).moves);
}

TEST(MigrateBack, waits_for_residence_and_settling) {
  MigrateBackInput input = a_settled_job();
  input.residence_s = 10;
  EXPECT_FALSE(decide_migrate_back(input, {}).moves);
  input.residence_s = 1000;
  input.home_open_s = 10;
  EXPECT_FALSE(decide_migrate_back(input, {}).moves);
}

TEST(MigrateBack, whoever_goes_would_not_go_back_at_once) {
  SeededRng rng(5);
  int moved = 0;
  for (int round = 0; round < 5000; ++round) {
    MigrateBackInput there;
    there.speed_home = rng.unit();
    there.speed_here = rng.unit();
    there.presence_home = there.presence_here = rng.unit();
    there.remaining_s = rng.unit() * 20'000;
    there.bytes_missing = rng.unit() * 1e9;
    there.residence_s = there.home_open_s = 1e9;
    MigrateBackInput back = there;
    std::swap(back.speed_home, back.speed_here);

    const MigrateBackDecision d = decide_migrate_back(there, {});
    if (!d.moves) continue;
    ++moved;
    ASSERT_GT(d.gain_s, 2 * d.cost_s);
    ASSERT_FALSE(decide_migrate_back(back, {}).moves);
  }
  EXPECT_GT(moved, 500);
}

TEST(MigrateBack, more_to_move_never_makes_it_go) {
  SeededRng rng(6);
  for (int round = 0; round < 2000; ++round) {
    MigrateBackInput input = a_settled_job();
    input.speed_here = rng.unit();
    input.remaining_s = rng.unit() * 1000;
    input.bytes_missing = rng.unit() * 1e9;
    const bool before = decide_migrate_back(input, {}).moves;
    input.bytes_missing *= 2;

    ASSERT_LE(decide_migrate_back(input, {}).moves, before);
  }
}

}  // namespace
}  // namespace rn::reclaim
