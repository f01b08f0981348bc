// SPDX-License-Identifier: Apache-2.0
#include "cli_quota.h"

#include <gtest/gtest.h>

namespace rn::cli {
namespace {

std::string wrong_hours(const std::string& text) {
  QuotaOptions options;
  options.gpu_hours = text;
  const auto request = quota_request(options);
  return request ? "" : request.error().message;
}

TEST(CliQuota, hours_are_of_a_week_unless_another_time_is_named) {
  QuotaOptions options;
  options.gpus = 4;
  options.gpu_hours = "200";
  const auto week = quota_request(options);
  ASSERT_TRUE(week.has_value());
  EXPECT_EQ(week->gpus, 4U);
  EXPECT_FALSE(week->jobs.has_value());
  EXPECT_DOUBLE_EQ(*week->gpu_hours, 200);
  EXPECT_EQ(week->window_s, 7U * 86'400);

  options.gpu_hours = "1.5/12h";
  const auto half_a_day = quota_request(options);
  ASSERT_TRUE(half_a_day.has_value());
  EXPECT_DOUBLE_EQ(*half_a_day->gpu_hours, 1.5);
  EXPECT_EQ(half_a_day->window_s, 12U * 3600);
}

TEST(CliQuota, when_jobs_are_stopped_that_use_nothing_is_a_time) {
  QuotaOptions options;
  EXPECT_FALSE(quota_request(options)->idle_stop_s.has_value());
  options.idle_stop = "90m";
  EXPECT_EQ(quota_request(options)->idle_stop_s, 5400U);
  options.idle_stop = "soon";
  EXPECT_TRUE(quota_request(options).error().message.starts_with("--idle-stop"))
      << quota_request(options).error().message;
}

TEST(CliQuota, hours_that_are_none_are_refused) {
  EXPECT_EQ(wrong_hours("many"), "--gpu-hours: 'many' is no number of hours");
  EXPECT_EQ(wrong_hours("-1"), "--gpu-hours: '-1' is no number of hours");
  EXPECT_EQ(wrong_hours("1e9"), "--gpu-hours: '1e9' is no number of hours");
  EXPECT_EQ(wrong_hours("1.2.3"), "--gpu-hours: '1.2.3' is no number of hours");
  EXPECT_EQ(wrong_hours("/7d"), "--gpu-hours: '' is no number of hours");
  EXPECT_TRUE(wrong_hours("5/").starts_with("--gpu-hours: ")) << wrong_hours("5/");
  EXPECT_TRUE(wrong_hours("5/week").starts_with("--gpu-hours: ")) << wrong_hours("5/week");
}

TEST(CliQuota, what_is_used_stands_beside_what_may_be) {
  api::QuotaList list;
  list.uses = {
      {.subject = "user:anna",
       .rule = "user:*",
       .gpus_used = 3,
       .gpus = 4,
       .running_used = 2,
       .jobs_used = 5,
       .jobs = 100,
       .gpu_hours_used = 12.25,
       .gpu_hours = 200,
       .window_s = 604'800},
      {.subject = "user:anna",
       .rule = "user:anna",
       .gpu_model = "H100",
       .gpus_used = 1,
       .gpus = 1}};
  const std::string text = table_of_quotas(list);

  for (const char* part :
       {"3 of 4", "5 of 100", "12.2 of 200 in 7.0 d", "user:*", "H100", "1 of 1"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

}  // namespace
}  // namespace rn::cli
