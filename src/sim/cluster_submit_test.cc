// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "sim/cluster.h"
#include "sim/world.h"

namespace rn::sim {
namespace {

constexpr auto kFailsWithin = std::chrono::minutes(3);
constexpr auto kEndsWithin = std::chrono::hours(6);

Training a_training(std::uint32_t fails_at_step = 0) {
  Training training;
  training.steps = 60;
  training.save_every = 10;
  training.fails_at_step = fails_at_step;
  return training;
}

/// A site on which nothing fails but what is submitted.
struct CalmSite {
  explicit CalmSite(std::uint64_t seed) : world(seed), cluster(world, ClusterOptions()) {
    cluster.start();
  }

  std::string complaint() const {
    return world.violations().empty() ? "" : world.violations().front();
  }

  World world;
  Cluster cluster;
};

TEST(ClusterSubmit, who_waits_for_a_failure_runs_and_who_waits_for_a_success_is_cancelled) {
  CalmSite site(1);
  site.cluster.submit("bad", a_training(25));
  site.cluster.submit("report", a_training(), {{"bad", AfterWhen::kOk}});
  site.cluster.submit("mend", a_training(), {{"bad", AfterWhen::kFail}});
  site.cluster.submit("after-the-report", a_training(), {{"report", AfterWhen::kAny}});

  ASSERT_TRUE(site.cluster.run_to_the_end(kEndsWithin)) << site.complaint();

  EXPECT_EQ(site.cluster.state_of("bad"), JobState::kFailed);
  EXPECT_EQ(site.cluster.state_of("report"), JobState::kCancelled);
  EXPECT_EQ(site.cluster.state_of("mend"), JobState::kSucceeded);
  EXPECT_EQ(site.cluster.state_of("after-the-report"), JobState::kSucceeded);
}

TEST(ClusterSubmit, one_task_of_an_array_fails_and_the_others_take_their_turns) {
  CalmSite site(2);
  SubmittedArray sweep{.training = a_training(25)};
  sweep.training.failing_task = 1;
  sweep.tasks = 3;
  sweep.at_most = 1;
  site.cluster.submit_array("sweep", sweep);
  site.cluster.submit("report", a_training(), {{"sweep", AfterWhen::kOk}});
  site.cluster.submit("mend", a_training(), {{"sweep", AfterWhen::kFail}});

  ASSERT_TRUE(site.cluster.run_to_the_end(kEndsWithin)) << site.complaint();

  EXPECT_EQ(site.cluster.state_of("sweep.0"), JobState::kSucceeded);
  EXPECT_EQ(site.cluster.state_of("sweep.1"), JobState::kFailed);
  EXPECT_EQ(site.cluster.state_of("sweep.2"), JobState::kSucceeded);
  EXPECT_EQ(site.cluster.state_of("report"), JobState::kCancelled);
  EXPECT_EQ(site.cluster.state_of("mend"), JobState::kSucceeded);
}

TEST(ClusterSubmit, what_could_never_begin_is_refused_and_that_is_its_end) {
  CalmSite site(3);
  site.cluster.submit("bad", a_training(5));
  ASSERT_TRUE(site.cluster.run_until(kFailsWithin)) << site.complaint();
  ASSERT_EQ(site.cluster.state_of("bad"), JobState::kFailed);

  site.cluster.submit("late", a_training(), {{"bad", AfterWhen::kOk}});
  ASSERT_TRUE(site.cluster.run_to_the_end(kEndsWithin)) << site.complaint();

  EXPECT_EQ(site.cluster.state_of("late"), JobState::kCancelled);
  EXPECT_EQ(site.cluster.job("late"), nullptr) << "it was taken, and not refused";
}

TEST(ClusterSubmit, another_end_than_its_training_says_is_a_violation) {
  CalmSite site(4);
  SubmittedArray sweep{.training = a_training()};
  sweep.tasks = 2;
  site.cluster.submit_array("sweep", sweep);
  ASSERT_TRUE(site.cluster.run_until(seconds(20))) << site.complaint();
  site.cluster.coordinator().command(
      {UserId("student"), LabId("lab0"), coordinator::Role::kUser},
      coordinator::StopJob{.job = site.cluster.jobs().at("sweep.1").id, .reason = "by mistake"},
      [](const Result<coordinator::Answer>&) {}
  );

  EXPECT_FALSE(site.cluster.run_to_the_end(kEndsWithin));

  EXPECT_NE(site.complaint().find("sweep.1 has not succeeded"), std::string::npos)
      << site.complaint();
}

}  // namespace
}  // namespace rn::sim
