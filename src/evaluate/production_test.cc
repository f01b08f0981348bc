// SPDX-License-Identifier: Apache-2.0
#include "evaluate/production.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "evaluate/world_fixture.h"

namespace rn::evaluate {
namespace {

Setting a_job_among(std::size_t nodes, double work_s) {
  Setting setting;
  setting.campus = small_campus(nodes);
  setting.jobs = {small_job(60, work_s)};
  setting.days = 0.2;
  return setting;
}

Production::Options with(const Cadence& cadence) {
  return {.cadence = cadence};
}

/// By the node's number in the row.
std::vector<std::string> starts_of(const std::vector<std::string>& rows) {
  std::vector<std::string> nodes;
  for (const std::string& row : rows) {
    if (row.find(",started,") == std::string::npos) continue;
    std::size_t at = 0;
    for (int comma = 0; comma < 4; ++comma) at = row.find(',', at) + 1;
    nodes.push_back(row.substr(at, row.find(',', at) - at));
  }
  return nodes;
}

class ProductionTest : public testing::TestWithParam<bool> {
 protected:
  Cadence cadence() const { return GetParam() ? Cadence::daemons() : Cadence::skipping(); }

  std::vector<std::string> rows;
};

TEST_P(ProductionTest, a_job_that_nobody_disturbs_computes_and_ends) {
  Production policy(with(cadence()));
  const auto world = played(a_job_among(2, 1000), policy, &rows);
  const Figures figures = world->figures();
  EXPECT_EQ(figures.finished, 1u);
  EXPECT_NEAR(figures.useful_gpu_s, 1000, 1e-3);
  EXPECT_EQ(policy.counts().metrics.jobs_succeeded, 1u);
}

TEST_P(ProductionTest, a_guest_goes_on_elsewhere_from_what_it_saved_at_the_notice) {
  Setting setting = a_job_among(3, 6000);
  setting.campus.nodes[0].gpu_memory_mib = 8'000;
  Production first(with(Cadence::skipping()));
  played(setting, first, &rows);
  const auto node = static_cast<std::size_t>(std::stoul(starts_of(rows).at(0)));
  rows.clear();
  setting.interruptions = {{node, ReclaimKind::kNotice, 2000, 2060, 40'000}};
  Production policy(with(cadence()));
  const auto world = played(setting, policy, &rows);
  const Figures figures = world->figures();
  EXPECT_EQ(figures.finished, 1u);
  ASSERT_EQ(figures.by_end.at("notice").displaced, 1u);
  EXPECT_LT(figures.all.lost_gpu_s, 5) << "what it does while its last save is made";
  EXPECT_LT(figures.all.downtime_s, 60);
  EXPECT_EQ(figures.overstays, 0u);
  EXPECT_NE(starts_of(rows).at(1), starts_of(rows).at(0));
}

TEST_P(ProductionTest, at_an_emergency_it_goes_on_from_what_is_durable) {
  Setting setting = a_job_among(3, 7'000);
  Production first(with(Cadence::skipping()));
  played(setting, first, &rows);
  const auto node = static_cast<std::size_t>(std::stoul(starts_of(rows).at(0)));
  setting.interruptions = {{node, ReclaimKind::kEmergency, 4000, 4000, 40'000}};
  Production policy(with(cadence()));
  const auto world = played(setting, policy);
  const Figures figures = world->figures();
  ASSERT_EQ(figures.by_end.at("emergency").displaced, 1u);
  EXPECT_GT(figures.all.lost_gpu_s, 0);
  EXPECT_LT(figures.all.lost_gpu_s, 2000) << "it has been saved since";
  EXPECT_EQ(figures.finished, 1u);
  EXPECT_GT(policy.counts().copies, 1u);
}

TEST_P(ProductionTest, a_machine_without_power_is_missed_and_may_come_back) {
  Setting setting = a_job_among(3, 7'000);
  Production first(with(Cadence::skipping()));
  played(setting, first, &rows);
  const auto node = static_cast<std::size_t>(std::stoul(starts_of(rows).at(0)));
  setting.interruptions = {{node, ReclaimKind::kLost, 4000, 4000, 5000}};
  Production policy(with(cadence()));
  const auto world = played(setting, policy);
  const Figures figures = world->figures();
  ASSERT_EQ(figures.by_end.at("lost").displaced, 1u);
  EXPECT_EQ(figures.finished, 1u);
}

INSTANTIATE_TEST_SUITE_P(Cadences, ProductionTest, testing::Bool(), [](const auto& cadence) {
  return cadence.param ? "as_daemons" : "skipping";
});

/// 12 GB: 3 s until they have left the GPU, 22 s to make a generation of them, 96 s over the line.
TEST(ProductionSite, what_is_saved_is_on_its_way_while_a_generation_is_made_of_it) {
  Setting setting = a_job_among(2, 800);
  setting.days = 0.01;
  setting.jobs[0].kind = 2;
  ASSERT_EQ(state_kinds()[2].bytes, 12e9);
  std::map<std::string, std::int64_t> first_ms;
  Production::Options options = with(Cadence::daemons());
  options.on_event = [&](const coordinator::EventRow& row) {
    first_ms.emplace(row.kind, row.at_wall_ms);
  };
  Production policy(options);
  played(setting, policy);
  ASSERT_TRUE(first_ms.contains("generation.durable"));
  const std::int64_t took_ms = first_ms.at("generation.durable") - first_ms.at("attempt.running");
  EXPECT_GT(took_ms, 30'000 + 99'000) << "it is told to save after half a minute";
  EXPECT_LT(took_ms, 30'000 + 121'000);
}

/// Until Monday's evening.
Setting four_nodes(std::uint64_t seed) {
  constexpr double kDays = 0.75;
  Setting setting;
  setting.days = kDays;
  setting.campus = make_campus({.nodes = 4, .labs = 2, .buildings = 2, .days = kDays}, seed);
  setting.jobs = make_jobs({.days = kDays, .users = 8, .labs = 2, .most_gpus = 1}, seed);
  setting.interruptions = interruptions_of(
      make_owner_uses(setting.campus, {.days = kDays}, seed), find_notices("mixed").value(), seed
  );
  return setting;
}

TEST(ProductionSite, the_same_setting_gives_the_same_rows) {
  std::vector<std::string> first;
  std::vector<std::string> second;
  for (auto* rows : {&first, &second}) {
    Production policy({});
    const auto world = played(four_nodes(1), policy, rows);
    EXPECT_GT(world->figures().all.displaced, 3u);
    EXPECT_EQ(world->figures().overstays, 0u);
  }
  EXPECT_EQ(first, second);
}

TEST(ProductionSite, agents_that_rest_come_to_exactly_the_same_as_looking_into_them) {
  std::vector<std::string> looking;
  std::vector<std::string> resting;
  Cadence cadence = Cadence::skipping();
  cadence.lets_rest = false;
  Production looked_into(with(cadence));
  played(four_nodes(1), looked_into, &looking);
  Production rests(with(Cadence::skipping()));
  played(four_nodes(1), rests, &resting);
  EXPECT_EQ(resting, looking);
  // The rows are the same; of 4,297 heartbeats one was seen more where agents rest (why: unknown).
  const auto beats = static_cast<double>(looked_into.counts().metrics.heartbeats);
  EXPECT_NEAR(static_cast<double>(rests.counts().metrics.heartbeats), beats, 1);
  EXPECT_LT(rests.counts().agent_events, looked_into.counts().agent_events);
}

/// Every tick and heartbeat of the daemons, and ticks that become rarer: what people would read off
/// the two is the same. Single moments differ, for a save that comes ten seconds later is another
/// save.
TEST(ProductionSite, skipping_comes_to_the_same_as_ticking) {
  constexpr double kOneSave_s = 10;
  Figures ticking;
  Figures skipping;
  const auto play = [](const Cadence& cadence, std::uint64_t seed, Figures& sum) {
    Production policy({.cadence = cadence});
    const Figures one = played(four_nodes(seed), policy)->figures();
    sum.useful_gpu_s += one.useful_gpu_s;
    sum.used_gpu_s += one.used_gpu_s;
    sum.finished += one.finished;
    sum.all.displaced += one.all.displaced;
    sum.all.lost_gpu_s += one.all.lost_gpu_s;
    sum.all.downtime_s += one.all.downtime_s;
  };
  for (const std::uint64_t seed : {1, 2}) {
    play(Cadence::daemons(), seed, ticking);
    play(Cadence::skipping(), seed, skipping);
  }
  EXPECT_GT(ticking.all.displaced, 3u);
  RecordProperty("displaced", std::to_string(ticking.all.displaced));
  RecordProperty("lost_ticking", std::to_string(ticking.all.lost_gpu_s));
  RecordProperty("lost_skipping", std::to_string(skipping.all.lost_gpu_s));
  EXPECT_NEAR(skipping.useful_gpu_s, ticking.useful_gpu_s, 0.01 * ticking.useful_gpu_s);
  EXPECT_NEAR(skipping.used_gpu_s, ticking.used_gpu_s, 0.01 * ticking.used_gpu_s);
  EXPECT_LE(
      skipping.finished > ticking.finished ? skipping.finished - ticking.finished
                                           : ticking.finished - skipping.finished,
      1u
  );
  const double moments = kOneSave_s * static_cast<double>(ticking.all.displaced);
  EXPECT_NEAR(skipping.all.lost_gpu_s, ticking.all.lost_gpu_s, moments);
}

}  // namespace
}  // namespace rn::evaluate
