// SPDX-License-Identifier: Apache-2.0
#include "evaluate/redundancy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/baselines_fixture.h"

namespace rn::evaluate {
namespace {

using testing::ElementsAre;

constexpr double kLocalRendezvous = 5;  ///< of a vision model
constexpr double kGlobalRendezvous = 30;
constexpr double kUndisturbed = 0.95;

/// A pipeline of so many stages on as many of the machines, one GPU each.
Setting one_pipeline_on(std::size_t nodes, std::uint32_t stages) {
  Setting setting = one_job_on(nodes, 5000);
  setting.jobs[0].gpus = stages;
  return setting;
}

Redundancy::Options shadows_alone() {
  return {.has_pipelines = false, .name = "warm-shadow"};
}

// ---- pipelines

TEST(Pipeline, undisturbed_it_is_slower_by_its_redundancy) {
  Redundancy policy({});
  const Figures figures = played(one_pipeline_on(2, 2), policy)->figures();
  EXPECT_EQ(figures.finished, 1u);
  EXPECT_NEAR(figures.useful_gpu_s, 2 * 5000, 1e-3);
  EXPECT_NEAR(figures.slowed_gpu_s, 0.05 * 2 * 5000 / kUndisturbed, 1);
}

TEST(Pipeline, one_stage_less_loses_nothing_and_stands_still_for_both_rendezvous) {
  Setting setting = one_pipeline_on(3, 2);
  setting.interruptions = {emergency(0, kPlaced + 100, 50'000)};
  Redundancy policy({});
  const Figures figures = played(setting, policy)->figures();
  EXPECT_EQ(displaced_by(figures, "emergency"), 1u);
  EXPECT_NEAR(figures.all.lost_gpu_s, 0, 1e-6);
  EXPECT_NEAR(figures.by_end.at("emergency").downtime_s, kLocalRendezvous, 1e-3);
  // A place after 3 s, its start, half of the state: 8 s, of which it stood still for 5.
  EXPECT_EQ(displaced_by(figures, "moved"), 1u);
  EXPECT_NEAR(figures.by_end.at("moved").downtime_s, kGlobalRendezvous, 1e-3);
  EXPECT_EQ(figures.finished, 1u);
}

TEST(Pipeline, without_another_machine_the_neighbour_does_both_at_two_thirds) {
  Setting setting = one_pipeline_on(2, 2);
  setting.interruptions = {emergency(0, kPlaced + 100, 50'000)};
  Redundancy policy({.interval_s = 1e5});
  std::vector<std::string> rows;
  const Figures figures = played(setting, policy, &rows)->figures();
  EXPECT_EQ(figures.finished, 1u);
  const double left_s = 5000 - 100 * kUndisturbed;
  const double ends_s = kPlaced + 100 + kLocalRendezvous + left_s * 1.5 / kUndisturbed;
  const auto ended = std::find_if(rows.begin(), rows.end(), [](const std::string& row) {
    return row.find("finished") != std::string::npos;
  });
  ASSERT_NE(ended, rows.end());
  EXPECT_NEAR(std::stod(*ended) / 1e9, ends_s, 0.01);
}

TEST(Pipeline, two_neighbours_at_once_are_lost_with_all_since_the_last_save) {
  Setting setting = one_pipeline_on(4, 2);
  setting.interruptions = {
      emergency(0, kPlaced + 100, 50'000), emergency(1, kPlaced + 103, 50'000)};
  Redundancy policy({});
  std::vector<std::string> rows;
  const Figures figures = played(setting, policy, &rows)->figures();
  EXPECT_NEAR(figures.all.lost_gpu_s, 2 * 100 * kUndisturbed, 1e-3);
  EXPECT_THAT(started_in(rows), ElementsAre("0@0", "0@2"));
  EXPECT_EQ(figures.finished, 1u);
}

TEST(Pipeline, what_was_saved_to_the_file_server_is_left_then) {
  Setting setting = one_pipeline_on(4, 2);
  setting.interruptions = {
      emergency(0, kPlaced + 100, 50'000), emergency(1, kPlaced + 103, 50'000)};
  Redundancy policy({.interval_s = 60});
  EXPECT_NEAR(
      played(setting, policy)->figures().all.lost_gpu_s, 2 * (40 - kPause) * kUndisturbed, 1e-3
  );
}

TEST(Pipeline, of_four_stages_two_that_are_no_neighbours_may_go) {
  Setting setting = one_pipeline_on(6, 4);
  setting.interruptions = {
      emergency(0, kPlaced + 100, 50'000), emergency(2, kPlaced + 100, 50'000)};
  Redundancy apart({});
  EXPECT_NEAR(played(setting, apart)->figures().all.lost_gpu_s, 0, 1e-6);
  setting.interruptions = {
      emergency(0, kPlaced + 100, 50'000), emergency(3, kPlaced + 100, 50'000)};
  Redundancy beside({});
  EXPECT_NEAR(played(setting, beside)->figures().all.lost_gpu_s, 4 * 100 * kUndisturbed, 1e-3)
      << "the last one keeps the first one's stage, as in a ring";
}

TEST(Pipeline, at_a_notice_the_stage_is_elsewhere_before_its_machine_goes) {
  Setting setting = one_pipeline_on(3, 2);
  setting.interruptions = {notice(0, kPlaced + 100, kPlaced + 160, 50'000)};
  Redundancy policy({});
  const Figures figures = played(setting, policy)->figures();
  EXPECT_EQ(displaced_by(figures, "notice"), 1u);
  EXPECT_EQ(displaced_by(figures, "moved"), 0u);
  EXPECT_NEAR(figures.all.lost_gpu_s, 0, 1e-6);
  EXPECT_NEAR(figures.all.downtime_s, kGlobalRendezvous, 1e-3);
  EXPECT_EQ(figures.scheduled_departures, 1u);
  EXPECT_EQ(figures.overstays, 0u);
}

TEST(Pipeline, stages_are_spread_over_labs_or_kept_in_one) {
  Setting setting = one_pipeline_on(3, 2);
  setting.campus.nodes[1].lab = setting.campus.nodes[0].lab;
  setting.interruptions = {emergency(1, kPlaced + 100, 50'000)};
  Redundancy spread({});
  EXPECT_EQ(played(setting, spread)->figures().all.displaced, 0u) << "it is on the third";
  Redundancy together({.is_spread = false});
  EXPECT_EQ(played(setting, together)->figures().all.displaced, 1u);
}

TEST(Pipeline, waits_until_all_its_stages_have_a_place_and_later_jobs_pass_it) {
  Setting setting = one_pipeline_on(2, 4);
  setting.jobs.push_back(small_job(1, 500));
  Redundancy policy({});
  std::vector<std::string> rows;
  played(setting, policy, &rows);
  EXPECT_THAT(started_in(rows), ElementsAre("1@0"));
}

// ---- shadows

TEST(WarmShadow, goes_on_from_the_newest_state_that_it_has_whole) {
  Setting setting = one_job_on(3, 5000);
  setting.interruptions = {emergency(0, kPlaced + 100, 50'000)};
  Redundancy policy(shadows_alone());
  std::vector<std::string> rows;
  const Figures figures = played(setting, policy, &rows)->figures();
  // It gets a shadow after 3 s, and a state each 8.25 s from there: the one of 85.5 s is whole.
  EXPECT_NEAR(figures.all.lost_gpu_s, 100 - 85.5 - 2 * kPause, 0.01);
  // What is done again takes 14 s, and two saves for its next shadow.
  EXPECT_NEAR(figures.all.downtime_s, kLocalRendezvous + 14 + 2 * kPause, 0.01);
  EXPECT_THAT(started_in(rows), ElementsAre("0@0", "0@1"));
}

TEST(WarmShadow, at_a_notice_it_gets_one_last_state_and_nothing_is_lost) {
  Setting setting = one_job_on(3, 5000);
  setting.interruptions = {notice(0, kPlaced + 100, kPlaced + 160, 50'000)};
  Redundancy policy(shadows_alone());
  const Figures figures = played(setting, policy)->figures();
  EXPECT_NEAR(figures.all.lost_gpu_s, 0, 1e-6);
  EXPECT_NEAR(figures.all.downtime_s, kPause + kWay + 1, 0.01);
  EXPECT_EQ(figures.clean_departures, 1u);
}

TEST(WarmShadow, when_both_go_within_the_time_to_shadow_anew_the_last_save_is_what_there_is) {
  Setting setting = one_job_on(4, 5000);
  setting.interruptions = {
      emergency(0, kPlaced + 100, 50'000), emergency(1, kPlaced + 103, 50'000)};
  Redundancy policy(shadows_alone());
  const Figures figures = played(setting, policy)->figures();
  // It stood still for twelve states.
  EXPECT_NEAR(figures.all.lost_gpu_s, 100 - 12 * kPause, 0.01);
  EXPECT_EQ(figures.finished, 1u);
}

TEST(WarmShadow, a_machine_without_power_is_noticed_by_its_shadow_at_once) {
  Setting setting = one_job_on(2, 5000);
  setting.interruptions = {{0, ReclaimKind::kLost, kPlaced + 100, kPlaced + 100, 50'000}};
  Redundancy policy(shadows_alone());
  EXPECT_LT(played(setting, policy)->figures().by_end.at("lost").downtime_s, 30);
}

TEST(WarmShadow, makes_room_for_jobs_that_wait) {
  Setting setting = one_job_on(2, 5000);
  setting.jobs.push_back(small_job(200, 500));
  Redundancy policy(shadows_alone());
  std::vector<std::string> rows;
  const Figures figures = played(setting, policy, &rows)->figures();
  EXPECT_THAT(started_in(rows), ElementsAre("0@0", "1@1"));
  EXPECT_EQ(figures.finished, 2u);
}

TEST(WarmShadow, a_sparse_state_moves_once_whole_and_then_by_what_differs) {
  Setting setting = one_job_on(2, 1000);
  setting.jobs[0].kind = 4;  // 8 GB, of which 0.4 differ; a save stops it for 2 s
  Redundancy policy(shadows_alone());
  const Figures figures = played(setting, policy)->figures();
  // From 3 s on; 66 s for the whole, then every 40 s, 2 s being 5 % of them.
  const double many = std::floor((1000 - 69) / 40.) + 1;
  EXPECT_NEAR(figures.moved_bytes, 8e9 + many * 0.4e9, 0.9e9);
  EXPECT_LE(figures.paused_gpu_s, 0.055 * figures.used_gpu_s);
}

TEST(Redundancy, the_same_setting_gives_the_same_rows_and_nobody_overstays) {
  Setting setting;
  setting.days = 2;
  setting.campus = make_campus({.nodes = 8, .labs = 4, .buildings = 2, .days = 2}, 4);
  setting.jobs = make_jobs({.days = 2, .users = 14, .labs = 4}, 4);
  for (const char* notices : {"mixed", "gpunion"}) {
    setting.interruptions =
        std::string(notices) == "gpunion"
            ? gpunion_interruptions(8, 2, 4)
            : interruptions_of(
                  make_owner_uses(setting.campus, {.days = 2}, 4), find_notices(notices).value(), 4
              );
    std::vector<std::string> first;
    std::vector<std::string> second;
    for (auto* rows : {&first, &second}) {
      Redundancy policy({});
      const auto world = played(setting, policy, rows);
      EXPECT_EQ(world->figures().overstays, 0u);
      EXPECT_GT(world->figures().all.displaced, 3u);
      EXPECT_GT(world->figures().finished, 10u);
    }
    EXPECT_EQ(first, second);
  }
}

}  // namespace
}  // namespace rn::evaluate
