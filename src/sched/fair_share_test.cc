// SPDX-License-Identifier: Apache-2.0
#include "sched/fair_share.h"

#include <gtest/gtest.h>

namespace rn::sched {
namespace {

TEST(FairShare, usage_halves_in_a_half_life) {
  DecayedSum sum;
  sum.add(1000, 0, 100);

  EXPECT_DOUBLE_EQ(sum.at(100'000, 100), 500);
  EXPECT_DOUBLE_EQ(sum.at(200'000, 100), 250);
}

TEST(FairShare, a_clock_that_jumps_back_changes_nothing) {
  DecayedSum sum;
  sum.add(1000, 5'000'000, 100);

  EXPECT_DOUBLE_EQ(sum.at(0, 100), 1000);
  sum.add(10, 0, 100);
  EXPECT_DOUBLE_EQ(sum.at(5'000'000, 100), 1010);
}

TEST(FairShare, a_lab_that_lends_what_it_takes_pays_nothing) {
  EXPECT_DOUBLE_EQ(charge(300, 1000, 1000), 0);
  EXPECT_DOUBLE_EQ(charge(300, 1000, 5000), 0);
}

TEST(FairShare, lending_is_credited_in_proportion_to_use) {
  EXPECT_DOUBLE_EQ(charge(300, 1000, 500), 150);
  EXPECT_DOUBLE_EQ(charge(300, 1000, 0), 300);
}

TEST(FairShare, cores_count_a_twentieth_of_a_gpu) {
  EXPECT_DOUBLE_EQ(gpu_equivalents({.gpus = 2, .cpu_milli = 8000}), 2);
  EXPECT_DOUBLE_EQ(gpu_equivalents({.gpus = 0, .cpu_milli = 4000}), 0.2);
}

}  // namespace
}  // namespace rn::sched
