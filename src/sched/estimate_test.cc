// SPDX-License-Identifier: Apache-2.0
#include "sched/estimate.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace rn::sched {
namespace {

constexpr double kNineOfTen = 0.9;

JobKind of(const char* user, const char* image = "torch", const char* command = "train") {
  return {UserId(user), image, command};
}

/// Of a kind, in steps of `step`.
void add(std::vector<PastUse>& past, const JobKind& kind, int jobs, double first, double step) {
  for (int i = 0; i < jobs; ++i) past.push_back({kind, first + step * i});
}

TEST(Estimate, with_fewer_jobs_than_the_share_needs_nothing_is_said) {
  std::vector<PastUse> past;
  EXPECT_FALSE(estimate(of("ada"), past, kNineOfTen).is_known);
  add(past, of("ada"), 18, 100, 1);
  const Estimate none = estimate(of("ada"), past, kNineOfTen);

  EXPECT_EQ(jobs_needed(kNineOfTen), 19U);
  EXPECT_EQ(jobs_needed(0.5), 3U);
  EXPECT_FALSE(none.is_known);
  EXPECT_EQ(none.jobs, 18U);
  EXPECT_EQ(none.likeness, Likeness::kSite);
}

TEST(Estimate, of_nineteen_like_it_the_least_and_the_most_are_the_ends) {
  std::vector<PastUse> past;
  add(past, of("ada"), 19, 100, 1);
  const Estimate seen = estimate(of("ada"), past, kNineOfTen);

  EXPECT_TRUE(seen.is_known);
  EXPECT_EQ(seen.likeness, Likeness::kCommand);
  EXPECT_EQ(seen.jobs, 19U);
  EXPECT_NEAR(seen.low, 100, 1e-6);
  EXPECT_NEAR(seen.typical, 109, 1e-6);
  EXPECT_NEAR(seen.high, 118, 1e-6);
}

TEST(Estimate, of_more_a_twentieth_lies_beyond_each_end) {
  std::vector<PastUse> past;
  add(past, of("ada"), 199, 1, 1);
  const Estimate seen = estimate(of("ada"), past, kNineOfTen);

  EXPECT_NEAR(seen.low, 10, 1e-6);
  EXPECT_NEAR(seen.high, 190, 1e-6);
  const Estimate half = estimate(of("ada"), past, 0.5);
  EXPECT_NEAR(half.low, 50, 1e-6);
  EXPECT_NEAR(half.high, 150, 1e-6);
}

TEST(Estimate, it_stands_on_the_nearest_jobs_that_are_enough) {
  std::vector<PastUse> past;
  add(past, of("bob", "r"), 19, 9000, 1);
  EXPECT_EQ(estimate(of("ada"), past, kNineOfTen).likeness, Likeness::kSite);
  add(past, of("bob"), 19, 5000, 1);
  EXPECT_EQ(estimate(of("ada"), past, kNineOfTen).likeness, Likeness::kImage);
  add(past, of("ada", "torch", "test"), 19, 300, 1);
  EXPECT_EQ(estimate(of("ada"), past, kNineOfTen).likeness, Likeness::kUserAndImage);
  add(past, of("ada"), 18, 50, 1);
  EXPECT_EQ(estimate(of("ada"), past, kNineOfTen).likeness, Likeness::kUserAndImage);
  add(past, of("ada"), 1, 68, 1);

  const Estimate own = estimate(of("ada"), past, kNineOfTen);
  EXPECT_EQ(own.likeness, Likeness::kCommand);
  EXPECT_NEAR(own.low, 50, 1e-6);
  EXPECT_NEAR(own.high, 68, 1e-6);
}

TEST(Estimate, a_few_jobs_of_its_own_draw_it_away_from_those_of_others) {
  std::vector<PastUse> past;
  for (const char* user : {"bob", "cyd", "dan", "eve"})
    add(past, of(user), 10, 900 + 20 * user[0], 20);
  const Estimate stranger = estimate(of("ada"), past, kNineOfTen);
  add(past, of("ada"), 5, 9, 0.5);
  const Estimate known = estimate(of("ada"), past, kNineOfTen);

  EXPECT_EQ(stranger.likeness, Likeness::kImage);
  EXPECT_GT(stranger.low, 1000);
  EXPECT_EQ(known.likeness, Likeness::kImage);
  EXPECT_EQ(known.jobs, 45U);
  EXPECT_LT(known.high, 100);
  EXPECT_GT(known.high, 11) << "five jobs do not make it sure";
}

/// Jobs of users who differ, whose commands differ, whose runs differ.
class Department {
 public:
  explicit Department(std::uint64_t seed) : rng_(seed) {
    for (double& user : users_) user = 1.5 * normal();
    for (double& command : commands_) command = 0.7 * normal();
  }

  PastUse job() {
    const std::size_t command = rng_.below(std::size(commands_));
    const std::size_t user = command % std::size(users_);
    const double used = std::exp(users_[user] + commands_[command] + 0.3 * normal());
    return {{UserId(std::to_string(user)), "torch", std::to_string(command)}, used};
  }

 private:
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - rng_.unit()));
    return radius * std::cos(2 * std::numbers::pi * rng_.unit());
  }

  SeededRng rng_;
  double users_[8]{};
  double commands_[40]{};
};

/// Share of jobs held out that lie within their intervals.
double coverage(double share) {
  int inside = 0;
  constexpr int kSites = 12;
  constexpr int kHeldOut = 60;
  for (int number = 0; number < kSites; ++number) {
    Department department(static_cast<std::uint64_t>(number));
    std::vector<PastUse> past;
    for (int i = 0; i < 150; ++i) past.push_back(department.job());
    for (int i = 0; i < kHeldOut; ++i) {
      const PastUse held = department.job();
      const Estimate seen = estimate(held.kind, past, share);
      if (seen.low <= held.used && held.used <= seen.high) ++inside;
    }
  }
  return static_cast<double>(inside) / (kSites * kHeldOut);
}

TEST(Estimate, of_jobs_held_out_the_share_that_was_said_lies_within) {
  EXPECT_NEAR(coverage(0.9), 0.9, 0.04);
  EXPECT_NEAR(coverage(0.5), 0.5, 0.07);
}

TEST(CommandShape, two_runs_of_a_script_are_alike_whatever_their_numbers_and_folders) {
  const std::string shape =
      command_shape({"/usr/bin/python3", "train.py", "--lr", "0.1", "--out=/data/run7/"});

  EXPECT_EQ(shape, "python# train.py --lr # --out=run#");
  EXPECT_EQ(command_shape({"python3", "./train.py", "--lr", "1e-4", "--out=run12"}), shape);
  EXPECT_NE(command_shape({"python3", "test.py", "--lr", "0.1", "--out=run7"}), shape);
  EXPECT_EQ(command_shape({}), "");
}

TEST(CommandShape, a_line_for_a_shell_is_seen_word_by_word) {
  EXPECT_EQ(
      command_shape({"/bin/sh", "-c", "cd sub\npython train.py  --epochs=30"}),
      "sh -c cd sub python train.py --epochs=#"
  );
}

TEST(CommandShape, of_a_long_script_the_end_counts) {
  const std::string prelude(5000, 'x');
  const std::string shape = command_shape({"bash", "-c", prelude + " python a.py"});

  EXPECT_LT(shape.size(), 1100U);
  EXPECT_TRUE(shape.ends_with("python a.py")) << shape;
}

}  // namespace
}  // namespace rn::sched
