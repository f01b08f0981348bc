// SPDX-License-Identifier: Apache-2.0
#include "cli_history.h"

#include <gtest/gtest.h>

namespace rn::cli {
namespace {

Attempt an_attempt(
    std::uint32_t number,
    const char* node,
    std::int64_t from_s,
    std::int64_t to_s,
    AttemptEnd end,
    std::uint32_t resumed = 0
) {
  Attempt attempt;
  attempt.epoch = {1, number};
  attempt.node = NodeId(node);
  attempt.state = AttemptState::kEnded;
  attempt.end = end;
  attempt.started_wall_ms = from_s * 1000;
  attempt.ended_wall_ms = to_s * 1000;
  attempt.resumed_generation = resumed;
  return attempt;
}

api::GenerationInfo a_generation(std::uint32_t number, std::int64_t made_s) {
  api::GenerationInfo info;
  info.generation.generation = number;
  info.generation.created_wall_ms = made_s * 1000;
  return info;
}

TEST(PastJobs, what_ran_after_the_state_that_it_went_on_from_was_done_again) {
  const std::vector<Attempt> attempts = {
      an_attempt(1, "n-1", 100, 200, AttemptEnd::kReclaimed),
      an_attempt(2, "n-2", 300, 400, AttemptEnd::kLost, 3),
      an_attempt(3, "n-1", 500, 600, AttemptEnd::kSucceeded, 0)};

  EXPECT_EQ(lost_work_ms(attempts, {a_generation(3, 180)}), 20'000 + 100'000);
  EXPECT_EQ(lost_work_ms(attempts, {a_generation(3, 90)}), 100'000 + 100'000)
      << "no more than it ran";
  EXPECT_EQ(lost_work_ms(attempts, {}), 100'000) << "of a state whose row is gone nothing is known";
  EXPECT_EQ(lost_work_ms({attempts[0]}, {}), 0) << "nothing was done again yet";
}

TEST(PastJobs, an_end_after_which_it_does_not_go_on_loses_nothing) {
  EXPECT_EQ(
      lost_work_ms(
          {an_attempt(1, "n-1", 100, 200, AttemptEnd::kTimedOut),
           an_attempt(2, "n-1", 300, 400, AttemptEnd::kSucceeded)},
          {}
      ),
      0
  );
}

TEST(PastJobs, a_job_says_where_it_ran_and_what_that_took) {
  Job job;
  job.id = JobId("j-1");
  job.number = 7;
  job.state = JobState::kFailed;
  job.exit_code = 3;
  job.displacements = 1;
  job.spec.name = "train";
  job.finished_wall_ms = 600'000;
  Attempt never = an_attempt(2, "n-3", 0, 250, AttemptEnd::kRefused);

  const PastJob past = past_job(
      job,
      {an_attempt(1, "n-1", 100, 200, AttemptEnd::kReclaimed),
       never,
       an_attempt(3, "n-2", 300, 400, AttemptEnd::kReclaimed, 1),
       an_attempt(4, "n-2", 500, 600, AttemptEnd::kCrashed, 2)},
      {a_generation(1, 190), a_generation(2, 400)},
      {{NodeId("n-1"), "ada"}}
  );

  EXPECT_EQ(past.hosts, (std::vector<std::string>{"ada", "n-2"}));
  EXPECT_EQ(past.attempts, 3u);
  EXPECT_DOUBLE_EQ(past.ran_s, 300);
  EXPECT_DOUBLE_EQ(past.lost_s, 10) << "the attempt that never started says nothing of it";
  const std::string shown = table_of_history({{past}}, 660'000);
  EXPECT_NE(shown.find("train  failed  3     60 s ago"), std::string::npos) << shown;
  EXPECT_NE(shown.find("ada > n-2"), std::string::npos) << shown;
}

}  // namespace
}  // namespace rn::cli
