// SPDX-License-Identifier: Apache-2.0
#include "reclaim/checkpoint_clock.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace rn::reclaim {
namespace {

Instant at(int second) {
  return Instant(seconds(second));
}

TEST(Clock, a_constant_interval_is_a_period) {
  CheckpointClock clock;
  int ticks = 0;
  while (!clock.is_due()) {
    clock.advance(1, 300.5);
    ++ticks;
  }

  EXPECT_EQ(ticks, 301);
}

TEST(Clock, half_of_each_of_two_intervals_is_one_checkpoint) {
  CheckpointClock clock;
  clock.advance(500, 1000);
  EXPECT_FALSE(clock.is_due());

  clock.advance(50, 100);

  EXPECT_TRUE(clock.is_due());
}

TEST(Clock, a_snapshot_that_had_to_wait_is_not_made_up_for_twice) {
  CheckpointClock clock;
  clock.advance(10'000, 100);
  clock.snapshot_taken();

  EXPECT_FALSE(clock.is_due());
  EXPECT_EQ(clock.phase, 0);
}

TEST(Clock, stands_still_without_an_interval) {
  CheckpointClock clock;
  clock.advance(1e9, std::numeric_limits<double>::infinity());
  clock.advance(1e9, 0);
  clock.advance(-5, 10);

  EXPECT_EQ(clock.phase, 0);
}

TEST(Exposed, counts_from_the_instant_of_the_last_durable_snapshot) {
  ExposedWork work(at(0));
  work.snapshot_taken(1, at(100), 10);
  EXPECT_EQ(work.exposed(at(150)), seconds(150));

  work.became_durable(1, 10);

  EXPECT_EQ(work.exposed(at(150)), seconds(50));
}

TEST(Exposed, a_snapshot_never_counts_before_its_last_chunk_is_durable) {
  SeededRng rng(3);
  for (int round = 0; round < 200; ++round) {
    ExposedWork work(at(0));
    work.snapshot_taken(1, at(60), 1000);
    std::uint64_t left = 1000;
    while (left > 0) {
      EXPECT_EQ(work.saved_at(), at(0));
      EXPECT_EQ(work.gain(1), seconds(60));
      const std::uint64_t part = 1 + rng.below(left);
      work.became_durable(1, part);
      left -= part;
    }
    EXPECT_EQ(work.saved_at(), at(60));
  }
}

TEST(Exposed, an_older_snapshot_is_worth_nothing_once_a_newer_one_is_durable) {
  ExposedWork work(at(0));
  work.snapshot_taken(1, at(100), 10);
  work.snapshot_taken(2, at(200), 10);
  EXPECT_EQ(work.gain(2), seconds(200));

  work.became_durable(2, 10);
  work.became_durable(1, 10);

  EXPECT_EQ(work.saved_at(), at(200));
  EXPECT_EQ(work.gain(1), seconds(0));
  EXPECT_FALSE(work.has_pending());
}

TEST(Exposed, an_upload_that_was_given_up_never_counts) {
  ExposedWork work(at(0));
  work.snapshot_taken(1, at(100), 10);
  work.dropped(1);
  work.became_durable(1, 10);

  EXPECT_EQ(work.saved_at(), at(0));
}

SnapshotQuestion a_due_question() {
  return {
      .is_due = true,
      .hazard = 1 / 3600.0,
      .exposed_s = 300,
      .interval_s = 268,
      .cost_s = 10,
      .dirty_bytes = 1e8,
      .upload_s = 8};
}

TEST(Skip, a_snapshot_that_is_due_at_the_optimum_is_taken) {
  EXPECT_EQ(judge_snapshot(a_due_question()), SnapshotAnswer::kTake);
}

TEST(Skip, every_reason_to_skip_is_named) {
  SnapshotQuestion not_due = a_due_question();
  not_due.is_due = false;
  EXPECT_EQ(judge_snapshot(not_due), SnapshotAnswer::kNotDue);

  SnapshotQuestion in_flight = a_due_question();
  in_flight.is_in_flight = true;
  EXPECT_EQ(judge_snapshot(in_flight), SnapshotAnswer::kInFlight);

  SnapshotQuestion clean = a_due_question();
  clean.dirty_bytes = 0;
  EXPECT_EQ(judge_snapshot(clean), SnapshotAnswer::kNothingNew);

  SnapshotQuestion leaving = a_due_question();
  leaving.leaves_in_s = 7;
  EXPECT_EQ(judge_snapshot(leaving), SnapshotAnswer::kTooLate);
  leaving.leaves_in_s = 9;
  EXPECT_EQ(judge_snapshot(leaving), SnapshotAnswer::kTake);

  SnapshotQuestion busy = a_due_question();
  busy.wait_s = 269;
  EXPECT_EQ(judge_snapshot(busy), SnapshotAnswer::kLinkBusy);

  SnapshotQuestion calm = a_due_question();
  calm.hazard /= 10;
  EXPECT_EQ(judge_snapshot(calm), SnapshotAnswer::kLowRisk);
}

TEST(Skip, work_of_two_hours_is_saved_however_calm_and_busy_it_is) {
  SnapshotQuestion question = a_due_question();
  question.hazard = 0;
  question.wait_s = 1000;
  question.exposed_s = 7200;

  EXPECT_EQ(judge_snapshot(question), SnapshotAnswer::kTake);
}

TEST(Uploads, the_one_that_averts_most_per_link_second_goes_first) {
  const std::vector<PendingUpload> uploads = {
      {.weight = 1, .hazard = 1e-4, .gain_s = 600, .remaining_bytes = 1e9},
      {.weight = 8, .hazard = 1e-4, .gain_s = 600, .remaining_bytes = 4e9},
      {.weight = 1, .hazard = 1e-4, .gain_s = 600, .remaining_bytes = 2e9}};

  EXPECT_DOUBLE_EQ(upload_index(uploads[0], 1e8), 1e-4 * 600 / 10);
  EXPECT_EQ(next_upload(uploads, 1e8, std::nullopt, true), 1u);
}

TEST(Uploads, are_preempted_at_a_chunk_boundary_only_and_keep_what_they_sent) {
  std::vector<PendingUpload> uploads = {
      {.weight = 1, .hazard = 1e-4, .gain_s = 600, .remaining_bytes = 1e9},
      {.weight = 4, .hazard = 1e-4, .gain_s = 600, .remaining_bytes = 1e9}};

  EXPECT_EQ(next_upload(uploads, 1e8, 0, false), 0u);
  EXPECT_EQ(next_upload(uploads, 1e8, 0, true), 1u);

  uploads[0].remaining_bytes = 2e8;  // the rest is quick now
  EXPECT_EQ(next_upload(uploads, 1e8, 0, true), 0u);
  EXPECT_EQ(next_upload({}, 1e8, std::nullopt, true), std::nullopt);
}

/// Expected loss while uploads run one after the other in this order.
double expected_loss(
    const std::vector<PendingUpload>& uploads, const std::vector<std::size_t>& order
) {
  double now = 0;
  double loss = 0;
  for (const std::size_t i : order) {
    now += uploads[i].remaining_bytes / 1e8;
    loss += uploads[i].weight * uploads[i].hazard * uploads[i].gain_s * now;
  }
  return loss;
}

TEST(Uploads, no_other_order_loses_less) {
  SeededRng rng(17);
  for (int round = 0; round < 100; ++round) {
    std::vector<PendingUpload> uploads(5);
    for (PendingUpload& upload : uploads) {
      upload = {
          .weight = 1 + 7 * rng.unit(),
          .hazard = 1e-4 * rng.unit(),
          .gain_s = 7200 * rng.unit(),
          .remaining_bytes = 1e6 + 1e10 * rng.unit()};
    }
    std::vector<std::size_t> chosen;
    std::vector<PendingUpload> left = uploads;
    while (chosen.size() < uploads.size()) {
      const std::size_t next = *next_upload(left, 1e8, std::nullopt, true);
      chosen.push_back(next);
      left[next].weight = -1;  // sent
    }

    std::vector<std::size_t> order(uploads.size());
    std::iota(order.begin(), order.end(), 0);
    double best = std::numeric_limits<double>::infinity();
    do best = std::min(best, expected_loss(uploads, order));
    while (std::next_permutation(order.begin(), order.end()));
    EXPECT_NEAR(expected_loss(uploads, chosen), best, 1e-9 * best);
  }
}

}  // namespace
}  // namespace rn::reclaim
