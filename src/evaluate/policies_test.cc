// SPDX-License-Identifier: Apache-2.0
#include "evaluate/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/sweep.h"
#include "evaluate/world_fixture.h"

namespace rn::evaluate {
namespace {

using testing::HasSubstr;

TEST(Policies, are_made_by_their_names) {
  const Setting setting;
  for (const char* name :
       {"reclaimnet",
        "reclaimnet-daemons",
        "reclaimnet-stays",
        "reclaimnet-no-ahead",
        "reclaimnet-flat",
        "reclaimnet-constant-hazard",
        "reclaimnet-no-joint",
        "reclaimnet-one-by-one",
        "reclaimnet-no-groups",
        "reclaimnet-fair-share",
        "reclaimnet-strict-priority",
        "reclaimnet-random",
        "reclaimnet-most-free",
        "reclaimnet-nearest",
        "slurm-s0",
        "slurm-term",
        "young-daly",
        "condor-vacate",
        "checkfreq",
        "bamboo",
        "bamboo-one-lab",
        "warm-shadow",
        "oracle"}) {
    const auto made = make_policy(name, 1, setting);
    ASSERT_TRUE(made) << name;
    EXPECT_EQ((*made)->name(), name);
    EXPECT_THAT(known_policies(), HasSubstr(name));
  }
  for (const char* family :
       {"slurm-s1", "slurm-s2", "condor-vacate", "bamboo", "bamboo-one-lab", "warm-shadow"}) {
    const auto made = make_policy(std::string(family) + "-90", 1, setting);
    ASSERT_TRUE(made) << family;
    EXPECT_EQ((*made)->name(), std::string(family) + "-90s");
  }
}

TEST(Policies, others_are_refused_and_the_known_ones_named) {
  for (const char* name : {"slurm", "slurm-s1-", "slurm-s1-9", "slurm-s1-1x", "oracle-90", ""}) {
    const auto made = make_policy(name, 1, {});
    ASSERT_FALSE(made) << name;
    EXPECT_EQ(made.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(made.error().hint, HasSubstr("slurm-s1-SECONDS"));
  }
}

TEST(Policies, an_interval_is_the_number_after_a_familys_name) {
  EXPECT_EQ(interval_in_name("slurm-s1-600"), 600);
  EXPECT_EQ(interval_in_name("bamboo-one-lab-1800"), 1800);
  EXPECT_EQ(interval_in_name("bamboo-one-lab"), std::nullopt);
  EXPECT_EQ(interval_in_name("young-daly"), std::nullopt);
}

TEST(Sweep, finds_the_interval_with_the_least_median_loss) {
  const SettingOptions tiny{
      .campus = {.nodes = 4, .labs = 2, .buildings = 1}, .days = 1, .users = 10};
  std::size_t runs = 0;
  const auto found = sweep(tiny, "slurm-s1", 1, 3, [&](const Outcome& outcome) {
    ++runs;
    EXPECT_GE(outcome.interval_s, 60);
  });
  ASSERT_TRUE(found);
  EXPECT_EQ(runs, 3 * kSweptIntervals_s.size());
  ASSERT_EQ(found->all.size(), kSweptIntervals_s.size());
  const Swept& best = found->all[found->best];
  for (const Swept& one : found->all) EXPECT_LE(best.median_loss_gpu_h, one.median_loss_gpu_h);
  EXPECT_LT(best.median_loss_gpu_h, found->all.back().median_loss_gpu_h);
  EXPECT_EQ(interval_in_name(best.policy), best.interval_s);
  EXPECT_THAT(words(*found), HasSubstr("<- best"));
}

TEST(Sweep, what_is_no_family_is_refused) {
  EXPECT_EQ(sweep({}, "young-daly", 1, 1).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(swept_family("young-daly-best"), "");
  EXPECT_EQ(swept_family("s1"), "slurm-s1");
  EXPECT_EQ(swept_family("condor-vacate-best"), "condor-vacate");
}

TEST(PipelineCheck, is_the_median_of_the_pairs) {
  const std::string words = pipeline_check(
      {{"bamboo", {1, 2, 9}}, {"slurm-s1-best", {2, 5, 10}}, {"reclaimnet", {1, 1, 1}}}
  );
  EXPECT_EQ(
      words,
      "check: bamboo loses 0.500 of what slurm-s1-best does (median of 3; the paper implies about "
      "0.55)\n"
  );
  EXPECT_EQ(pipeline_check({{"bamboo", {1}}, {"young-daly", {2}}}), "");
}

}  // namespace
}  // namespace rn::evaluate
