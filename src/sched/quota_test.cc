// SPDX-License-Identifier: Apache-2.0
#include "sched/quota.h"

#include <gtest/gtest.h>

namespace rn::sched {
namespace {

constexpr std::uint32_t kDayS = 86'400;

TEST(QuotaRule, what_has_no_bound_holds_nobody_back) {
  const Quota none{.subject = "user:anna"};

  EXPECT_EQ(never_words(none, "anna", {.gpus = 1000, .gpu_hours = 1e6}), "");
  EXPECT_EQ(
      not_now_words(none, "anna", {.gpus = 1000, .running = 9, .gpu_hours = 1e6}, {.gpus = 8}), ""
  );
  EXPECT_EQ(too_many_words(none, "anna", {.jobs = 1000}, 1000), "");
}

TEST(QuotaRule, exactly_what_is_left_may_be_had_and_one_more_waits) {
  const Quota four{.subject = "user:anna", .gpus = 4};

  EXPECT_EQ(not_now_words(four, "anna", {.gpus = 3}, {.gpus = 1}), "");
  EXPECT_EQ(not_now_words(four, "anna", {.gpus = 0}, {.gpus = 4}), "");
  EXPECT_EQ(not_now_words(four, "anna", {.gpus = 4}, {.gpus = 1}), "anna runs 4 of 4 GPUs");
  EXPECT_EQ(
      not_now_words(four, "anna", {.gpus = 3}, {.gpus = 2}),
      "anna runs 3 of 4 GPUs, and this job needs 2"
  );
  EXPECT_EQ(not_now_words(four, "anna", {.gpus = 4}, {.gpus = 0}), "") << "it needs none";
}

TEST(QuotaRule, more_gpus_than_may_ever_be_had_is_said_so) {
  const Quota four{.subject = "user:anna", .gpus = 4};

  EXPECT_EQ(never_words(four, "anna", {.gpus = 4}), "");
  EXPECT_EQ(
      never_words(four, "anna", {.gpus = 5}),
      "anna may have 4 GPUs at once, and this job asks for 5"
  );
  const Quota one{.subject = "user:anna", .gpu_model = "H100", .gpus = 1};
  EXPECT_EQ(never_words(one, "anna", {.gpus = 5}), "") << "there are other GPUs";
  EXPECT_EQ(not_now_words(one, "anna", {.gpus = 1}, {.gpus = 1}), "anna runs 1 of 1 H100 GPU");
}

TEST(QuotaRule, jobs_that_run_are_counted_with_and_without_gpus) {
  const Quota two{.subject = "lab:vision", .running = 2};

  EXPECT_EQ(not_now_words(two, "lab vision", {.running = 1}, {}), "");
  EXPECT_EQ(not_now_words(two, "lab vision", {.running = 2}, {}), "lab vision runs 2 of 2 jobs");
  const Quota none{.subject = "user:eve", .running = 0};
  EXPECT_EQ(never_words(none, "eve", {}), "eve may run no job");
}

TEST(QuotaRule, jobs_that_are_not_over_are_counted_when_one_is_submitted) {
  const Quota three{.subject = "user:anna", .jobs = 3};

  EXPECT_EQ(too_many_words(three, "anna", {.jobs = 2}, 1), "");
  EXPECT_EQ(
      too_many_words(three, "anna", {.jobs = 3}, 1), "anna has 3 of 3 jobs that may wait and run"
  );
  EXPECT_EQ(
      too_many_words(three, "anna", {.jobs = 1}, 3),
      "anna has 1 of 3 jobs that may wait and run, and asks for 3 more"
  );
}

TEST(QuotaRule, hours_that_are_used_up_hold_the_next_job_back) {
  const Quota hours{.subject = "user:anna", .gpu_hours = 200};

  EXPECT_EQ(not_now_words(hours, "anna", {.gpu_hours = 199.9}, {.gpus = 1}), "");
  EXPECT_EQ(
      not_now_words(hours, "anna", {.gpu_hours = 200}, {.gpus = 1}),
      "anna has used 200 of 200 GPU-hours of the last 7 d"
  );
  EXPECT_EQ(not_now_words(hours, "anna", {.gpu_hours = 300}, {}), "") << "it uses none";
  const Quota day{.subject = "user:anna", .gpu_model = "A100", .gpu_hours = 4, .window_s = kDayS};
  EXPECT_EQ(
      not_now_words(day, "anna", {.gpu_hours = 4.25}, {.gpus = 1}),
      "anna has used 4.2 of 4 GPU-hours on A100 of the last 1 d"
  );
}

TEST(QuotaRule, a_job_that_says_how_long_it_runs_is_weighed_with_what_runs_beside_it) {
  const Quota hours{.subject = "user:anna", .gpu_hours = 100};
  const QuotaNeed need{.gpus = 2, .gpu_hours = 40};

  EXPECT_EQ(not_now_words(hours, "anna", {.gpu_hours = 60}, need), "") << "exactly what is left";
  EXPECT_EQ(
      not_now_words(hours, "anna", {.gpu_hours = 61}, need),
      "anna has used 61 of 100 GPU-hours of the last 7 d, and this job may use 40"
  );
  EXPECT_EQ(
      not_now_words(hours, "anna", {.gpu_hours = 50, .promised_gpu_hours = 20}, need),
      "anna has used 50 of 100 GPU-hours of the last 7 d, what runs may use 20 more, and this job "
      "may use 40"
  );
  EXPECT_EQ(never_words(hours, "anna", {.gpus = 1, .gpu_hours = 100}), "");
  EXPECT_EQ(
      never_words(hours, "anna", {.gpus = 1, .gpu_hours = 101}),
      "anna may use 100 GPU-hours in 7 d, and this job may use 101"
  );
  const Quota none{.subject = "user:anna", .gpu_hours = 0};
  EXPECT_EQ(
      never_words(none, "anna", {.gpus = 1}),
      "anna may use 0 GPU-hours in 7 d, and this job asks for GPUs"
  );
}

TEST(QuotaRule, a_model_is_found_in_the_name_that_the_driver_gives) {
  EXPECT_TRUE(is_gpu_model("h100", "NVIDIA H100 80GB HBM3"));
  EXPECT_FALSE(is_gpu_model("a100", "NVIDIA H100 80GB HBM3"));
  EXPECT_FALSE(is_gpu_model("h100", "h10"));
  EXPECT_TRUE(is_gpu_model("", "anything"));
  EXPECT_EQ(quota_subject_words("user:anna"), "anna");
  EXPECT_EQ(quota_subject_words("lab:vision"), "lab vision");
}

}  // namespace
}  // namespace rn::sched
