// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/baselines_fixture.h"
#include "evaluate/check_freq.h"
#include "evaluate/condor.h"
#include "evaluate/oracle.h"

namespace rn::evaluate {
namespace {

using testing::ElementsAre;

// ---- HTCondor

TEST(Condor, jobs_go_where_the_owner_has_been_away_longest) {
  Setting setting = one_job_on(3, 500);
  setting.jobs = {small_job(1000, 500), small_job(1000, 500), small_job(1000, 500)};
  setting.interruptions = {emergency(0, 100, 500), emergency(1, 100, 200)};
  Condor condor;
  std::vector<std::string> rows;
  played(setting, condor, &rows);
  EXPECT_THAT(started_in(rows), ElementsAre("0@2", "1@1", "2@0"));
}

TEST(Condor, a_job_that_has_saved_within_the_notice_goes_on_elsewhere_from_there) {
  Setting setting = one_job_on(2, 5000);
  setting.interruptions = {notice(0, kPlaced + 400, kPlaced + 460, 50'000)};
  Condor condor;
  const Figures figures = played(setting, condor)->figures();
  EXPECT_NEAR(figures.all.lost_gpu_s, 0, 0.01);
  EXPECT_EQ(figures.clean_departures, 1u);
}

TEST(Condor, after_ten_minutes_it_is_killed_however_long_the_notice) {
  Setting setting = one_job_on(2, 5000);
  setting.campus = small_campus(2, 1e6);  // a thousand seconds for its state
  setting.interruptions = {notice(0, kPlaced + 400, kPlaced + 2000, 50'000)};
  Condor condor;
  const Figures figures = played(setting, condor)->figures();
  EXPECT_NEAR(figures.all.lost_gpu_s, 400, 0.01);
  EXPECT_NEAR(figures.all.downtime_s, 600 + kPlaced + 400, 0.01) << "and all again";
  EXPECT_EQ(figures.overstays, 0u);
}

TEST(Condor, saves_by_itself_once_an_hour_unless_told) {
  Setting setting = one_job_on(2, 9000);
  setting.interruptions = {emergency(0, kPlaced + 4000, 50'000)};
  Condor hourly;
  EXPECT_NEAR(played(setting, hourly)->figures().all.lost_gpu_s, 400 - kPause, 0.01);
  Condor often(900);
  EXPECT_NEAR(played(setting, often)->figures().all.lost_gpu_s, 400 - kPause, 0.01);
  setting.interruptions = {emergency(0, kPlaced + 3500, 50'000)};
  Condor again(900);
  EXPECT_NEAR(played(setting, again)->figures().all.lost_gpu_s, 800 - kPause, 0.01);
}

// ---- CheckFreq

TEST(CheckFreq, interval_is_the_whole_save_or_what_the_bound_asks_for_in_whole_steps) {
  EXPECT_EQ(CheckFreq::interval(0.25, 8.25), 9);
  EXPECT_EQ(CheckFreq::interval(0.25, 1), 8) << "0.25 s are 3.5 % of 7.2 s";
  EXPECT_EQ(CheckFreq::interval(10, 320), 320);
}

TEST(CheckFreq, one_save_follows_the_other) {
  Setting setting = one_job_on(2, 5000);
  setting.interruptions = {emergency(0, kPlaced + 1000, 50'000)};
  CheckFreq policy;
  const Figures figures = played(setting, policy)->figures();
  // It saves at 21 s, when it has seen that it takes 8.25 s, and each 9 s from there: at 984 s, and
  // at 993 s what had not arrived.
  EXPECT_NEAR(figures.all.lost_gpu_s, 16 - 2 * kPause, 0.05);
  EXPECT_LE(figures.paused_gpu_s, CheckFreq::kBound * figures.used_gpu_s);
}

TEST(CheckFreq, saves_less_often_where_lines_are_shared) {
  const auto paused_s = [](std::uint32_t jobs) {
    Setting setting = one_job_on(1, 5000);
    setting.campus.nodes[0].gpus = jobs;
    setting.jobs.assign(jobs, small_job(0, 5000));
    CheckFreq policy;
    return played(setting, policy)->figures().paused_gpu_s / jobs;
  };
  EXPECT_NEAR(paused_s(1), 5000 / (9 - kPause) * kPause, 1);
  EXPECT_LT(paused_s(4), 0.3 * paused_s(1));
}

// ---- the oracle

TEST(Oracle, leaves_before_anybody_comes_and_loses_nothing) {
  Setting setting = one_job_on(2, 5000);
  setting.interruptions = {emergency(1, 500, 600), emergency(0, kPlaced + 1000, 50'000)};
  Oracle oracle(setting.interruptions);
  std::vector<std::string> rows;
  const Figures figures = played(setting, oracle, &rows)->figures();
  EXPECT_EQ(displaced_by(figures, "emergency"), 1u);
  EXPECT_NEAR(figures.all.lost_gpu_s, 0, 1e-6);
  EXPECT_NEAR(figures.all.downtime_s, kPause + kWay + kPlaced + kWay, 0.01);
  EXPECT_THAT(started_in(rows), ElementsAre("0@0", "0@1"))
      << "first where nobody comes for longest";
  EXPECT_EQ(figures.finished, 1u);
}

TEST(Oracle, saves_once_before_each_taking_back_and_else_never) {
  Setting setting = one_job_on(2, 5000);
  setting.interruptions = {emergency(1, 500, 600), emergency(0, kPlaced + 1000, 50'000)};
  Oracle oracle(setting.interruptions);
  const Figures figures = played(setting, oracle)->figures();
  EXPECT_NEAR(figures.moved_bytes, 2e9, 1e6) << "there and back";
}

TEST(Oracle, a_job_waits_where_it_could_not_be_saved_in_time) {
  Setting setting = one_job_on(1, 1000);
  setting.interruptions = {emergency(0, 100, 200)};
  Oracle oracle(setting.interruptions);
  const Figures figures = played(setting, oracle)->figures();
  EXPECT_EQ(figures.all.displaced, 0u);
  EXPECT_EQ(figures.finished, 1u);
  EXPECT_NEAR(figures.redone_gpu_s, 0, 1e-6);
}

TEST(Oracle, knows_that_a_wireless_line_will_be_slow) {
  Setting setting = one_job_on(2, 5000);
  setting.campus.nodes[0].is_wireless = true;
  setting.campus.changes = {{900, 0, 5e6}};
  setting.interruptions = {emergency(1, 500, 600), emergency(0, kPlaced + 1000, 50'000)};
  Oracle oracle(setting.interruptions);
  EXPECT_NEAR(played(setting, oracle)->figures().all.lost_gpu_s, 0, 1e-6);
}

TEST(Oracle, on_a_site_of_people_hardly_anything_is_lost) {
  Setting setting;
  setting.days = 3;
  setting.campus = make_campus({.nodes = 8, .labs = 4, .buildings = 2, .days = 3}, 3);
  setting.jobs = make_jobs({.days = 3, .users = 12, .labs = 4}, 3);
  setting.interruptions = interruptions_of(
      make_owner_uses(setting.campus, {.days = 3}, 3), find_notices("emergency-heavy").value(), 3
  );
  Oracle oracle(setting.interruptions);
  const Figures figures = played(setting, oracle)->figures();
  EXPECT_GT(figures.all.displaced, 5u);
  EXPECT_EQ(figures.overstays, 0u);
  EXPECT_LT(figures.all.lost_gpu_s, 1e-3 * figures.useful_gpu_s);
}

}  // namespace
}  // namespace rn::evaluate
