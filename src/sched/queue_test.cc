// SPDX-License-Identifier: Apache-2.0
#include "sched/queue.h"

#include <gtest/gtest.h>

namespace rn::sched {
namespace {

QueuedJob a_job(const char* id, const char* owner, std::uint32_t priority, std::int64_t queued) {
  return {
      .id = JobId(id),
      .owner = UserId(owner),
      .priority = priority,
      .gpus = 1,
      .queued_wall_ms = queued};
}

std::vector<std::string> ids(
    const std::vector<QueuedJob>& jobs,
    Strategy strategy,
    const std::map<UserId, Standing>& standings = {}
) {
  std::vector<std::string> result;
  for (const std::size_t i : order(jobs, standings, strategy)) result.push_back(jobs[i].id.str());
  return result;
}

using Ids = std::vector<std::string>;

TEST(Queue, priority_goes_before_age) {
  const std::vector<QueuedJob> jobs = {
      a_job("a", "u", 4, 10), a_job("b", "u", 4, 5), a_job("c", "u", 1, 99)};

  EXPECT_EQ(ids(jobs, Strategy::kPriority), (Ids{"c", "b", "a"}));
}

TEST(Queue, a_displaced_job_goes_to_the_head_of_its_class_not_of_a_higher_one) {
  std::vector<QueuedJob> jobs = {
      a_job("a", "u", 4, 1), a_job("b", "u", 4, 50), a_job("c", "u", 1, 99)};
  jobs[1].is_displaced = true;

  EXPECT_EQ(ids(jobs, Strategy::kPriority), (Ids{"c", "b", "a"}));
}

TEST(Queue, round_robin_gives_each_user_a_turn) {
  const std::vector<QueuedJob> jobs = {
      a_job("a1", "ann", 4, 1),
      a_job("a2", "ann", 4, 2),
      a_job("a3", "ann", 4, 3),
      a_job("b1", "bob", 4, 9)};

  EXPECT_EQ(ids(jobs, Strategy::kRoundRobin), (Ids{"a1", "b1", "a2", "a3"}));
}

TEST(Queue, round_robin_counts_what_already_runs) {
  const std::vector<QueuedJob> jobs = {a_job("a1", "ann", 4, 1), a_job("b1", "bob", 4, 9)};

  EXPECT_EQ(
      ids(jobs, Strategy::kRoundRobin, {{UserId("ann"), {.running_jobs = 2}}}), (Ids{"b1", "a1"})
  );
}

TEST(Queue, round_robin_serves_who_was_served_longer_ago_when_nobody_has_a_job_running) {
  const std::vector<QueuedJob> jobs = {
      a_job("a2", "ann", 4, 2), a_job("a3", "ann", 4, 3), a_job("b1", "bob", 4, 9)};

  EXPECT_EQ(
      ids(jobs, Strategy::kRoundRobin, {{UserId("ann"), {.served_wall_ms = 1000}}}),
      (Ids{"b1", "a2", "a3"})
  );
  EXPECT_EQ(
      ids(jobs, Strategy::kFair, {{UserId("ann"), {.served_wall_ms = 1000}}}),
      (Ids{"a2", "b1", "a3"})
  );
}

TEST(Queue, round_robin_serves_first_who_has_waited_longest_when_nobody_was_ever_served) {
  const std::vector<QueuedJob> jobs = {
      a_job("a1", "ann", 0, 9), a_job("b1", "bob", 7, 5), a_job("c1", "cem", 4, 7)};

  EXPECT_EQ(ids(jobs, Strategy::kRoundRobin), (Ids{"b1", "c1", "a1"}))
      << "priority orders a user's own jobs";
}

TEST(Queue, round_robin_keeps_its_order_in_later_turns) {
  const std::vector<QueuedJob> jobs = {
      a_job("a1", "ann", 4, 1),
      a_job("b1", "bob", 4, 2),
      a_job("b2", "bob", 4, 3),
      a_job("a2", "ann", 4, 50)};

  EXPECT_EQ(ids(jobs, Strategy::kRoundRobin), (Ids{"a1", "b1", "a2", "b2"}));
  EXPECT_EQ(
      ids(jobs, Strategy::kRoundRobin, {{UserId("ann"), {.served_wall_ms = 1000}}}),
      (Ids{"b1", "a1", "b2", "a2"})
  );
}

TEST(Queue, round_robin_serves_who_had_no_turn_before_who_has_just_had_one) {
  const std::vector<QueuedJob> jobs = {
      a_job("a1", "ann", 4, 9),
      a_job("a2", "ann", 4, 10),
      a_job("b1", "bob", 4, 1),
      a_job("b2", "bob", 4, 2)};

  // Ann's job was placed last and runs; when b1 has been placed too, bob's was.
  EXPECT_EQ(
      ids(jobs,
          Strategy::kRoundRobin,
          {{UserId("ann"), {.running_jobs = 1, .served_wall_ms = 2000}},
           {UserId("bob"), {.served_wall_ms = 1000}}}),
      (Ids{"b1", "a1", "b2", "a2"})
  );
}

TEST(Queue, the_order_of_turns_is_what_happens_when_there_is_room_for_one) {
  std::vector<QueuedJob> jobs = {
      a_job("a1", "ann", 4, 1),
      a_job("a2", "ann", 4, 2),
      a_job("a3", "ann", 1, 3),
      a_job("b1", "bob", 4, 5),
      a_job("b2", "bob", 4, 4),
      a_job("c1", "cem", 0, 9)};
  std::map<UserId, Standing> standings = {{UserId("ann"), {.served_wall_ms = 100}}};
  const Ids told = ids(jobs, Strategy::kRoundRobin, standings);

  Ids served;
  for (std::int64_t now = 1000; !jobs.empty(); ++now) {
    const std::size_t next = order(jobs, standings, Strategy::kRoundRobin).front();
    served.push_back(jobs[next].id.str());
    standings[jobs[next].owner].served_wall_ms = now;
    jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(next));
  }

  EXPECT_EQ(told, (Ids{"b2", "c1", "a3", "b1", "a1", "a2"}));
  EXPECT_EQ(served, told);
}

TEST(Queue, fair_serves_who_used_less) {
  const std::vector<QueuedJob> jobs = {a_job("a1", "ann", 0, 1), a_job("b1", "bob", 7, 9)};

  EXPECT_EQ(
      ids(jobs,
          Strategy::kFair,
          {{UserId("ann"), {.charge_gpu_s = 500}}, {UserId("bob"), {.charge_gpu_s = 100}}}),
      (Ids{"b1", "a1"})
  );
}

TEST(Queue, fair_does_not_let_a_burst_of_one_user_through_before_anybody_else) {
  std::vector<QueuedJob> jobs;
  for (int i = 0; i < 5; ++i) jobs.push_back(a_job(("a" + std::to_string(i)).c_str(), "ann", 4, i));
  jobs.push_back(a_job("b", "bob", 4, 100));

  EXPECT_EQ(
      ids(jobs, Strategy::kFair, {{UserId("bob"), {.charge_gpu_s = 4000}}}),
      (Ids{"a0", "a1", "b", "a2", "a3", "a4"})
  );
}

TEST(Queue, equal_jobs_are_ordered_by_id_whatever_their_place) {
  const std::vector<QueuedJob> one = {a_job("x", "u", 4, 1), a_job("y", "v", 4, 1)};
  const std::vector<QueuedJob> other = {a_job("y", "v", 4, 1), a_job("x", "u", 4, 1)};

  for (const auto strategy : {Strategy::kPriority, Strategy::kRoundRobin, Strategy::kFair}) {
    EXPECT_EQ(ids(one, strategy), (Ids{"x", "y"}));
    EXPECT_EQ(ids(other, strategy), (Ids{"x", "y"}));
  }
}

}  // namespace
}  // namespace rn::sched
