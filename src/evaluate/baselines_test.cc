// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "evaluate/baselines_fixture.h"
#include "evaluate/slurm.h"
#include "evaluate/young_daly.h"

namespace rn::evaluate {
namespace {

TEST(Slurm, a_job_that_nobody_disturbs_computes_and_ends) {
  Slurm slurm({});
  const auto world = played(one_job_on(1, 1000), slurm);
  const Figures figures = world->figures();
  EXPECT_EQ(figures.finished, 1u);
  EXPECT_NEAR(figures.useful_gpu_s, 1000, 1e-3);
  EXPECT_EQ(figures.all.displaced, 0u);
}

TEST(Slurm, without_saves_all_work_since_the_start_is_lost) {
  Setting setting = one_job_on(2, 2000);
  setting.interruptions = {emergency(0, 1000 + kPlaced, 5000)};
  Slurm slurm({});
  const auto world = played(setting, slurm);
  const Figures figures = world->figures();
  EXPECT_NEAR(figures.all.lost_gpu_s, 1000, 1e-3);
  EXPECT_NEAR(figures.all.downtime_s, kPlaced + 1000, 1e-2) << "placed anew, and all again";
  EXPECT_EQ(figures.finished, 1u);
}

TEST(Slurm, what_was_saved_counts_from_the_moment_when_its_last_byte_has_arrived) {
  Setting setting = one_job_on(2, 5000);
  // The save that began at 600 s of the run is on the way still.
  setting.interruptions = {emergency(0, kPlaced + 600 + kPause + kWay - 0.5, 50'000)};
  Slurm slurm({.interval_s = 300});
  const auto world = played(setting, slurm);
  EXPECT_NEAR(world->figures().all.lost_gpu_s, 600 + kPause + kWay - 0.5 - 2 * kPause - 300, 0.01)
      << "what the save of 300 s holds is left";

  setting.interruptions = {emergency(0, kPlaced + 600 + kPause + kWay + 0.5, 50'000)};
  Slurm again({.interval_s = 300});
  EXPECT_NEAR(played(setting, again)->figures().all.lost_gpu_s, kWay + 0.5, 0.01)
      << "what was done while the save was on its way";
}

TEST(Slurm, s1_computes_until_the_deadline_and_loses_what_it_did_since_its_save) {
  Setting setting = one_job_on(2, 5000);
  setting.interruptions = {notice(0, kPlaced + 400, kPlaced + 460, 50'000)};
  Slurm slurm({.interval_s = 300});
  EXPECT_NEAR(played(setting, slurm)->figures().all.lost_gpu_s, 160 - kPause, 0.01);
}

TEST(Slurm, s2_leaves_when_its_last_save_has_arrived) {
  Setting setting = one_job_on(2, 5000);
  setting.interruptions = {notice(0, kPlaced + 400, kPlaced + 460, 50'000)};
  Slurm slurm({.interval_s = 300, .catches_sigterm = true});
  const Figures figures = played(setting, slurm)->figures();
  EXPECT_NEAR(figures.all.lost_gpu_s, 0, 0.01) << "it stands still while that is on its way";
  EXPECT_NEAR(figures.all.downtime_s, kPause + kWay + kPlaced + kWay, 0.01);
  EXPECT_EQ(figures.overstays, 0u);
  EXPECT_EQ(figures.clean_departures, 1u);
}

TEST(Slurm, s2_whose_save_does_not_arrive_in_time_has_only_the_one_before) {
  Setting setting = one_job_on(2, 5000);
  setting.interruptions = {notice(0, kPlaced + 400, kPlaced + 405, 50'000)};
  Slurm slurm({.interval_s = 300, .catches_sigterm = true});
  EXPECT_NEAR(played(setting, slurm)->figures().all.lost_gpu_s, 100 - kPause, 0.01);
}

TEST(Slurm, s2_lets_the_save_under_way_arrive_where_another_one_would_be_late) {
  Setting setting = one_job_on(2, 5000);
  // Half of the save that began at 600 s has arrived.
  const double told_s = kPlaced + 600 + kPause + kWay / 2;
  setting.interruptions = {notice(0, told_s, told_s + 5, 50'000)};
  Slurm slurm({.interval_s = 300, .catches_sigterm = true});
  EXPECT_NEAR(played(setting, slurm)->figures().all.lost_gpu_s, kWay / 2, 0.01);
}

TEST(Slurm, guests_that_leave_together_share_the_line) {
  Setting setting = one_job_on(2, 5000);
  setting.campus.nodes[0].gpus = 2;
  setting.campus.nodes[1].gpus = 2;
  setting.jobs.push_back(small_job(0, 5000));
  // 12 s are enough for one save and not for two.
  setting.interruptions = {notice(0, kPlaced + 400, kPlaced + 412, 50'000)};
  Slurm slurm({.catches_sigterm = true});
  const Figures figures = played(setting, slurm)->figures();
  EXPECT_NEAR(figures.all.lost_gpu_s, 2 * 400, 0.1);
}

TEST(Slurm, a_machine_without_power_is_missed_after_five_minutes) {
  Setting setting = one_job_on(2, 5000);
  setting.interruptions = {{0, ReclaimKind::kLost, kPlaced + 100, kPlaced + 100, 50'000}};
  Slurm slurm({});
  const Figures figures = played(setting, slurm)->figures();
  EXPECT_NEAR(figures.by_end.at("lost").downtime_s, 300 + kPlaced + 100, 0.01);
}

TEST(Slurm, a_machine_that_is_back_earlier_says_so_itself) {
  Setting setting = one_job_on(1, 5000);
  setting.interruptions = {{0, ReclaimKind::kLost, kPlaced + 100, kPlaced + 100, kPlaced + 160}};
  Slurm slurm({});
  const Figures figures = played(setting, slurm)->figures();
  EXPECT_NEAR(figures.by_end.at("lost").downtime_s, 60 + kPlaced + 100, 0.01);
}

TEST(Slurm, jobs_go_where_their_state_fits_and_pass_one_that_has_no_place) {
  Setting setting = one_job_on(2, 1000);
  setting.campus.nodes[0].gpu_memory_mib = 8'000;
  setting.jobs = {small_job(0, 1000), small_job(0, 1000), small_job(1, 1000)};
  setting.jobs[0].kind = 2;  // 20,000 MiB: the second node
  setting.jobs[1].kind = 2;
  const auto rows_of_starts = [&] {
    std::vector<std::string> rows;
    Slurm slurm({});
    played(setting, slurm, &rows);
    std::erase_if(rows, [](const std::string& row) {
      return row.find(",started,") == std::string::npos;
    });
    return rows;
  }();
  ASSERT_EQ(rows_of_starts.size(), 3u);
  EXPECT_NE(rows_of_starts[0].find(",started,0,1,1,"), std::string::npos);
  EXPECT_NE(rows_of_starts[1].find(",started,2,2,0,"), std::string::npos);
}

TEST(YoungDaly, interval_is_the_root_of_twice_the_cost_times_the_mean_time) {
  EXPECT_NEAR(YoungDaly::interval(8, 0, 3600), std::sqrt(2 * 8 * 3600.0), 1e-9);
}

TEST(YoungDaly, saves_more_often_where_more_was_taken_back) {
  const auto saves = [](int interruptions) {
    Setting setting = one_job_on(2, 80'000);
    for (int i = 0; i < interruptions; ++i)
      setting.interruptions.push_back(emergency(1, 100.0 + i * 1000, 600.0 + i * 1000));
    std::vector<std::string> rows;
    YoungDaly policy;
    played(setting, policy, &rows);
    return std::count_if(rows.begin(), rows.end(), [](const std::string& row) {
      return row.find(",speed,") != std::string::npos && row.ends_with(",,0,");
    });
  };
  EXPECT_GT(saves(20), 2 * saves(0));
}

TEST(Requeue, the_same_setting_gives_the_same_rows) {
  Setting setting;
  setting.days = 2;
  setting.campus = make_campus({.nodes = 6, .labs = 3, .buildings = 2, .days = 2}, 4);
  setting.jobs = make_jobs({.days = 2, .users = 10, .labs = 3}, 4);
  setting.interruptions = interruptions_of(
      make_owner_uses(setting.campus, {.days = 2}, 4), find_notices("mixed").value(), 4
  );
  std::vector<std::string> first;
  std::vector<std::string> second;
  for (auto* rows : {&first, &second}) {
    Slurm slurm({.interval_s = 600, .catches_sigterm = true});
    const auto world = played(setting, slurm, rows);
    EXPECT_EQ(world->figures().overstays, 0u);
    EXPECT_GT(world->figures().all.displaced, 3u);
  }
  EXPECT_EQ(first, second);
}

// ---- the world itself

/// Starts the job at once and never ends it.
class Stubborn final : public Policy {
 public:
  std::string name() const override { return "stubborn"; }

  void begin(World& world) override { world_ = &world; }

  void on_submit(JobNumber job) override { world_->start(job, 0, 0); }

  void on_lent(NodeNumber) override {}

  void on_declared(NodeNumber, ReclaimKind, Moment) override {}

  void on_taken(NodeNumber, ReclaimKind) override {}

  void on_gone(NodeNumber) override {}

  void on_finished(RunNumber) override {}

 private:
  World* world_ = nullptr;
};

TEST(World, who_is_still_there_when_the_owner_comes_is_ended_and_counted) {
  Setting setting = one_job_on(1, 5000);
  setting.interruptions = {notice(0, 100, 160, 50'000)};
  Stubborn policy;
  EXPECT_EQ(played(setting, policy)->figures().overstays, 1u);
}

TEST(World, interruptions_and_jobs_that_cannot_be_are_refused) {
  const auto says = [](const Setting& setting) {
    const auto world = World::make(setting, nullptr);
    return world ? ErrorCode::kInternal : world.error().code;
  };
  Setting backwards = one_job_on(1, 100);
  backwards.interruptions = {notice(0, 200, 100, 300)};
  EXPECT_EQ(says(backwards), ErrorCode::kInvalid);
  Setting overlapping = one_job_on(1, 100);
  overlapping.interruptions = {notice(0, 100, 200, 300), notice(0, 250, 310, 400)};
  EXPECT_EQ(says(overlapping), ErrorCode::kInvalid);
  Setting nowhere = one_job_on(1, 100);
  nowhere.interruptions = {notice(7, 100, 200, 300)};
  EXPECT_EQ(says(nowhere), ErrorCode::kInvalid);
  Setting unsorted = one_job_on(1, 100);
  unsorted.jobs.push_back(small_job(10, 1));
  unsorted.jobs.push_back(small_job(5, 1));
  EXPECT_EQ(says(unsorted), ErrorCode::kInvalid);
}

}  // namespace
}  // namespace rn::evaluate
