// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_gpu_hours.h"

#include <gtest/gtest.h>

namespace rn::coordinator {
namespace {

constexpr std::int64_t kOneHourMs = 3'600'000;
constexpr std::int64_t kMidnightMs = 500'000 * kOneHourMs;
constexpr std::uint32_t kTwoHoursS = 7200;

const UserId kAnn("ann");
const LabId kLab("lab-x");

TEST(GpuHoursUsed, they_are_of_the_user_of_the_lab_and_of_the_model) {
  GpuHours hours;
  hours.add(kAnn, kLab, "NVIDIA H100", kMidnightMs, 3600);
  hours.add(kAnn, kLab, "NVIDIA A100", kMidnightMs, 1800);
  hours.add(UserId("bob"), kLab, "NVIDIA A100", kMidnightMs, 7200);

  const std::int64_t now = kMidnightMs + 1000;
  EXPECT_DOUBLE_EQ(hours.used("user:ann", "", now, kTwoHoursS), 1.5);
  EXPECT_DOUBLE_EQ(hours.used("user:ann", "h100", now, kTwoHoursS), 1);
  EXPECT_DOUBLE_EQ(hours.used("lab:lab-x", "", now, kTwoHoursS), 3.5);
  EXPECT_DOUBLE_EQ(hours.used("lab:lab-x", "a100", now, kTwoHoursS), 2.5);
  EXPECT_DOUBLE_EQ(hours.used("user:eve", "", now, kTwoHoursS), 0);
}

TEST(GpuHoursUsed, what_is_longer_ago_than_the_window_counts_no_more) {
  GpuHours hours;
  hours.add(kAnn, kLab, "", kMidnightMs, 3600);

  const auto used = [&](std::int64_t after_ms) {
    return hours.used("user:ann", "", kMidnightMs + after_ms, kTwoHoursS);
  };
  EXPECT_DOUBLE_EQ(used(kOneHourMs), 1);
  EXPECT_DOUBLE_EQ(used(2 * kOneHourMs), 1) << "exactly as old as the window";
  EXPECT_DOUBLE_EQ(used(2 * kOneHourMs + kOneHourMs / 4), 0.75);
  EXPECT_DOUBLE_EQ(used(3 * kOneHourMs), 0);
}

TEST(GpuHoursUsed, rows_are_told_when_they_have_changed_and_read_back) {
  GpuHours hours;
  hours.add(kAnn, kLab, "A", kMidnightMs, 10);
  hours.add(kAnn, kLab, "A", kMidnightMs + kOneHourMs, 20);
  const std::vector<GpuHourRow> first = hours.take_changed();
  ASSERT_EQ(first.size(), 2U);
  EXPECT_TRUE(hours.take_changed().empty());
  hours.add(kAnn, kLab, "A", kMidnightMs + kOneHourMs, 5);
  const std::vector<GpuHourRow> second = hours.take_changed();
  ASSERT_EQ(second.size(), 1U);
  EXPECT_DOUBLE_EQ(second[0].gpu_s, 25) << "the whole hour";

  GpuHours again;
  again.restore(first[0]);
  again.restore(second[0]);
  const std::int64_t now = kMidnightMs + kOneHourMs;
  EXPECT_DOUBLE_EQ(
      again.used("user:ann", "", now, kTwoHoursS), hours.used("user:ann", "", now, kTwoHoursS)
  );
  EXPECT_TRUE(again.take_changed().empty());
  again.add(kAnn, kLab, "A", now, 5);
  EXPECT_DOUBLE_EQ(again.take_changed().at(0).gpu_s, 30) << "it goes on with the hour";
}

TEST(GpuHoursUsed, what_no_window_reaches_is_forgotten) {
  GpuHours hours;
  hours.add(kAnn, kLab, "A", kMidnightMs, 10);
  const std::int64_t month_ms = std::int64_t{kQuotaWindowMostS} * 1000;
  EXPECT_FALSE(hours.forget_old(kMidnightMs + month_ms).has_value());
  const auto first = hours.forget_old(kMidnightMs + month_ms + kOneHourMs);

  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(*first, kMidnightMs / kOneHourMs + 1);
  EXPECT_TRUE(hours.subjects().empty());
  EXPECT_TRUE(hours.take_changed().empty());
}

TEST(GpuHoursUsed, gpus_that_the_node_has_not_named_are_taken_for_the_first_it_lends) {
  NodeRow node;
  node.facts.gpus = {
      {.index = 0, .model = "own"}, {.index = 1, .model = "A"}, {.index = 2, .model = "B"}};
  node.contract.gpus = {1, 2};

  EXPECT_EQ(gpu_models_of(node, {2, 1}, 2), (std::vector<std::string>{"B", "A"}));
  EXPECT_EQ(gpu_models_of(node, {}, 2), (std::vector<std::string>{"A", "A"}));
  EXPECT_EQ(gpu_models_of(node, {9}, 1), std::vector<std::string>{""});
  EXPECT_EQ(gpu_models_of(node, {2, 1, 0}, 1), std::vector<std::string>{"B"}) << "it asked for one";
}

}  // namespace
}  // namespace rn::coordinator
