// SPDX-License-Identifier: Apache-2.0
#include "agent/gpu_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rn::agent {
namespace {

using testing::HasSubstr;

TEST(GpuHealth, one_of_which_nothing_is_told_is_well) {
  GpuHealth health;
  EXPECT_FALSE(note_signs(health, {}));
  EXPECT_EQ(sickness_of(health, {}, false), "");
}

TEST(GpuHealth, each_sign_is_named_with_what_may_help_and_the_worst_one_first) {
  GpuSigns signs{.uncorrected = 2};
  const GpuHealth health;
  EXPECT_THAT(sickness_of(health, signs, true), HasSubstr("2 errors of its memory"));
  signs.needs_reset = true;
  EXPECT_THAT(sickness_of(health, signs, true), HasSubstr("waits to be replaced; next: reset it"));
  signs.is_remap_failed = true;
  EXPECT_THAT(sickness_of(health, signs, true), HasSubstr("have the card replaced"));
  signs.is_lost = true;
  EXPECT_THAT(sickness_of(health, signs, true), HasSubstr("fallen off the bus"));
  EXPECT_THAT(sickness_of(health, {}, true), HasSubstr("slowed by heat"));
}

TEST(GpuHealth, errors_of_programs_are_nobodys_sickness) {
  GpuHealth health;
  EXPECT_FALSE(note_signs(health, {.xids = {13, 31, 43, 45, 68}}));
  EXPECT_EQ(sickness_of(health, {}, false), "");
}

TEST(GpuHealth, errors_of_the_hardware_are_remembered_until_the_owner_has_looked) {
  GpuHealth health;
  EXPECT_TRUE(note_signs(health, {.xids = {31, 79}}));
  EXPECT_FALSE(note_signs(health, {.xids = {79}})) << "known";
  EXPECT_TRUE(note_signs(health, {.xids = {48}}));
  EXPECT_THAT(sickness_of(health, {}, false), HasSubstr("(Xid 79, 48)"));
  accept_signs(health, {});
  EXPECT_EQ(sickness_of(health, {}, false), "");
  EXPECT_TRUE(note_signs(health, {.xids = {48}})) << "again";
  EXPECT_THAT(sickness_of(health, {}, false), HasSubstr("(Xid 48)"));
}

TEST(GpuHealth, what_the_owner_has_accepted_is_a_reason_again_when_there_is_more_of_it) {
  GpuHealth health;
  GpuSigns signs{.uncorrected = 3, .is_remap_failed = true, .needs_reset = true};
  accept_signs(health, signs);
  EXPECT_FALSE(note_signs(health, signs));
  EXPECT_EQ(sickness_of(health, signs, false), "");
  signs.uncorrected = 4;
  EXPECT_THAT(sickness_of(health, signs, false), HasSubstr("1 errors of its memory"));
}

TEST(GpuHealth, what_has_gone_is_not_accepted_for_the_next_time) {
  GpuHealth health;
  const GpuSigns signs{.uncorrected = 3, .is_remap_failed = true, .needs_reset = true};
  accept_signs(health, signs);
  EXPECT_TRUE(note_signs(health, {})) << "the driver was loaded again";
  EXPECT_THAT(sickness_of(health, {.uncorrected = 1}, false), HasSubstr("1 errors"));
  EXPECT_THAT(sickness_of(health, {.needs_reset = true}, false), HasSubstr("waits"));
  EXPECT_THAT(sickness_of(health, {.is_remap_failed = true}, false), HasSubstr("replaced"));
}

TEST(GpuHealth, one_that_is_lost_is_not_accepted_and_says_nothing_of_the_rest) {
  GpuHealth health;
  accept_signs(health, {.uncorrected = 3});
  EXPECT_FALSE(note_signs(health, {.is_lost = true}));
  EXPECT_EQ(health.accepted, 3U);
  accept_signs(health, {.is_lost = true});
  EXPECT_THAT(sickness_of(health, {.is_lost = true}, false), HasSubstr("fallen off the bus"));
}

}  // namespace
}  // namespace rn::agent
