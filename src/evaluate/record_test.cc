// SPDX-License-Identifier: Apache-2.0
#include "evaluate/record.h"

#include <cmath>
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace rn::evaluate {
namespace {

Moment at(double s) {
  return moment_of(s);
}

/// One job of two GPUs and 1000 s of work, on nodes that are lent from the beginning on.
class RecordTest : public testing::Test {
 protected:
  RecordTest() {
    for (NodeNumber node = 0; node < 3; ++node) record.lent(at(0), node, 2);
    record.submitted(at(0), 0, 2, 1000, "small");
  }

  void start(double when, RunNumber run, double progress_s, NodeNumber node = 0) {
    record.started(at(when), run, 0, node, progress_s);
    record.goes_at(at(when), run, 1);
  }

  std::vector<std::string> rows;
  Record record{[this](const std::string& row) { rows.push_back(row); }};
};

TEST_F(RecordTest, what_is_not_in_the_state_from_which_it_resumes_is_lost) {
  start(0, 1, 0);
  record.ended(at(100), 1, RunEnd::kNotice);
  start(130, 2, 70);
  const Figures figures = record.figures(at(200));
  EXPECT_EQ(figures.all.displaced, 1u);
  EXPECT_EQ(figures.all.resumed, 1u);
  EXPECT_NEAR(figures.all.lost_gpu_s, 2 * 30, 1e-6);
  EXPECT_NEAR(figures.by_end.at("notice").lost_gpu_s, 60, 1e-6);
}

TEST_F(RecordTest, downtime_lasts_until_the_first_step_that_is_new) {
  start(0, 1, 0);
  record.ended(at(100), 1, RunEnd::kNotice);
  start(130, 2, 70);
  EXPECT_EQ(record.figures(at(155)).all.caught_up, 0u) << "at 95 s of work, which it had done";
  const Figures figures = record.figures(at(200));
  EXPECT_EQ(figures.all.caught_up, 1u);
  EXPECT_NEAR(figures.all.downtime_s, 60, 1e-6) << "30 until it runs, 30 that it does again";
}

TEST_F(RecordTest, a_guest_that_stood_still_was_down_from_then_on) {
  start(0, 1, 0);
  record.goes_at(at(90), 1, 0);
  record.ended(at(100), 1, RunEnd::kNotice);
  start(130, 2, 90);
  EXPECT_NEAR(record.figures(at(200)).all.downtime_s, 40, 1e-6);
  EXPECT_NEAR(record.figures(at(200)).paused_gpu_s, 20, 1e-6);
}

TEST_F(RecordTest, work_that_was_done_again_is_neither_useful_nor_lost_a_second_time) {
  start(0, 1, 0);
  record.ended(at(100), 1, RunEnd::kEmergency);
  start(100, 2, 0);
  record.ended(at(180), 2, RunEnd::kEmergency);
  start(200, 3, 0);
  record.ended(at(320), 3, RunEnd::kEmergency);
  start(330, 4, 0);
  const Figures figures = record.figures(at(340));
  EXPECT_NEAR(figures.all.lost_gpu_s, 2 * (100 + 0 + 20), 1e-6);
  EXPECT_NEAR(figures.useful_gpu_s, 2 * 120, 1e-6);
  EXPECT_NEAR(figures.redone_gpu_s, 2 * (80 + 100 + 10), 1e-6);
}

TEST_F(RecordTest, one_that_is_displaced_before_it_did_anything_new_is_down_since_the_first_time) {
  start(0, 1, 0);
  record.ended(at(100), 1, RunEnd::kEmergency);
  start(100, 2, 0);
  record.ended(at(180), 2, RunEnd::kEmergency);
  start(200, 3, 50);
  const Figures figures = record.figures(at(300));
  EXPECT_EQ(figures.all.displaced, 2u);
  EXPECT_EQ(figures.all.caught_up, 1u);
  EXPECT_NEAR(figures.all.downtime_s, 150, 1e-6);
}

TEST_F(RecordTest, a_move_by_the_policy_is_no_reclaim_but_its_loss_is_shown) {
  start(0, 1, 0);
  record.ended(at(100), 1, RunEnd::kMoved);
  start(110, 2, 95, 1);
  const Figures figures = record.figures(at(200));
  EXPECT_EQ(figures.all.displaced, 0u);
  EXPECT_NEAR(figures.by_end.at("moved").lost_gpu_s, 10, 1e-6);
}

TEST_F(RecordTest, one_that_is_moved_before_it_did_anything_new_has_resumed_once_from_its_reclaim) {
  start(0, 1, 0);
  record.ended(at(100), 1, RunEnd::kNotice);
  start(110, 2, 50);
  record.ended(at(120), 2, RunEnd::kMoved);
  start(130, 3, 60, 1);
  const Figures figures = record.figures(at(300));
  EXPECT_EQ(figures.all.displaced, 1u);
  EXPECT_EQ(figures.all.resumed, 1u);
  EXPECT_EQ(figures.by_end.at("moved").resumed, 1u);
  EXPECT_NEAR(figures.by_end.at("notice").downtime_s, 70, 1e-6);
}

TEST_F(RecordTest, lent_time_ends_when_the_owner_is_there) {
  record.taken(at(50), 0, ReclaimKind::kNotice);
  record.lent(at(80), 0, 2);
  const Figures figures = record.figures(at(100));
  EXPECT_NEAR(figures.lent_gpu_s, 2 * (50 + 20 + 100 + 100), 1e-6);
}

TEST_F(RecordTest, a_departure_with_notice_that_loses_little_is_clean) {
  start(0, 1, 0);
  record.declared(at(90), 0, ReclaimKind::kNotice, at(120));
  record.ended(at(120), 1, RunEnd::kNotice);
  start(125, 2, 119, 1);
  record.declared(at(300), 1, ReclaimKind::kNotice, at(330));
  record.ended(at(330), 2, RunEnd::kNotice);
  start(340, 3, 200, 2);
  const Figures figures = record.figures(at(800));
  EXPECT_EQ(figures.scheduled_departures, 2u);
  EXPECT_EQ(figures.clean_departures, 1u);
}

/// Counts loss and downtime from the rows alone, second by second, as docs/formats/
/// evaluation-log.md says; knows nothing of Record.
struct Recount {
  double lost = 0;
  double down = 0;

  explicit Recount(const std::vector<std::string>& rows) {
    for (std::size_t i = 1; i < rows.size(); ++i) read(rows[i]);
  }

 private:
  struct Job {
    double gpus = 0;
    double reached = 0;
    double progress = 0;
    double speed = 0;
    double since = 0;
    double new_from = 0;
    double last_useful = 0;
    double owed_from = 0;
    double owed_to = 0;
    double down_since = -1;
    bool waits = false;
    bool is_taken = false;
    bool is_last_taken = false;
  };

  void move(Job& job, double now) {
    const double before = job.progress;
    job.progress += (now - job.since) * job.speed;
    if (job.speed > 0 && now > job.since) job.last_useful = now;
    if (job.down_since >= 0 && job.progress > job.new_from + 1e-6) {
      const double when = job.since + std::max(0.0, job.new_from - before) / job.speed;
      if (job.is_taken) down += when - job.down_since;
      job.down_since = -1;
    }
    job.reached = std::max(job.reached, job.progress);
    job.since = now;
  }

  void read(const std::string& row) {
    std::vector<std::string> f;
    std::stringstream in(row);
    for (std::string field; std::getline(in, field, ',');) f.push_back(field);
    f.resize(8);
    const double now = std::stod(f[0]) / 1e9;
    if (f[2].empty()) return;
    Job& job = jobs_[f[2]];
    if (f[1] == "submitted") job.gpus = std::stod(f[5]);
    if (f[1] == "started") {
      job.progress = std::stod(f[6]);
      if (job.waits && job.is_last_taken)
        lost += job.gpus * std::max(0.0, job.owed_to - std::max(job.owed_from, job.progress));
      job.waits = false;
      job.new_from = std::max(job.reached, job.progress);
      job.since = job.last_useful = now;
      job.speed = 0;
    }
    if (f[1] == "speed") {
      move(job, now);
      job.speed = std::stod(f[6]);
    }
    if (f[1] == "ended") {
      move(job, now);
      job.speed = 0;
      if (f[7] == "finished") {
        job.down_since = -1;
        return;
      }
      job.is_last_taken = f[7] != "moved";
      job.is_taken = f[7] != "moved" || (job.down_since >= 0 && job.is_taken);
      if (job.down_since < 0) job.down_since = job.last_useful;
      job.waits = true;
      job.owed_to = job.progress;
      job.owed_from = job.new_from;
    }
  }

  std::map<std::string, Job> jobs_;
};

TEST(RecordRows, say_everything_that_is_needed_to_count_again) {
  SeededRng rng(11);
  std::vector<std::string> rows;
  Record record([&](const std::string& row) { rows.push_back(row); });
  record.lent(at(0), 0, 8);
  for (JobNumber job = 0; job < 20; ++job)
    record.submitted(at(0), job, 1 + static_cast<std::uint32_t>(rng.below(4)), 1e9, "small");
  std::vector<double> saved(20, 0);
  double now = 0;
  RunNumber next = 1;
  for (int i = 0; i < 400; ++i) {
    const JobNumber job = rng.below(20);
    now += rng.unit() * 50;
    record.started(at(now), next, job, 0, saved[job]);
    record.goes_at(at(now), next, 1);
    for (std::uint64_t pauses = rng.below(3); pauses > 0; --pauses) {
      now += rng.unit() * 100;
      record.goes_at(at(now), next, 0);
      if (rng.below(2) == 0) saved[job] = record.progress_s(at(now), next);
      now += rng.unit() * 5;
      record.goes_at(at(now), next, 0.9);
    }
    now += rng.unit() * 100;
    constexpr RunEnd kEnds[] = {RunEnd::kNotice, RunEnd::kEmergency, RunEnd::kLost, RunEnd::kMoved};
    record.ended(at(now), next, kEnds[rng.below(4)]);
    ++next;
  }
  const Figures figures = record.figures(at(now));
  const Recount recount(rows);
  EXPECT_GT(recount.lost, 1000);
  EXPECT_NEAR(recount.lost, figures.all.lost_gpu_s, 1e-3);
  EXPECT_NEAR(recount.down, figures.all.downtime_s, 1e-3);
}

}  // namespace
}  // namespace rn::evaluate
