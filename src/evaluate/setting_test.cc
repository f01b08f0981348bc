// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/campus.h"
#include "evaluate/dice.h"
#include "evaluate/interruptions.h"
#include "evaluate/people.h"
#include "evaluate/trace_fixture.h"
#include "evaluate/workload.h"

namespace rn::evaluate {
namespace {

using testing::ElementsAre;

bool same(const Campus& a, const Campus& b) {
  return std::equal(
             a.nodes.begin(),
             a.nodes.end(),
             b.nodes.begin(),
             b.nodes.end(),
             [](const CampusNode& x, const CampusNode& y) {
               return x.name == y.name && x.lab == y.lab && x.gpus == y.gpus && x.line == y.line;
             }
         ) &&
         std::equal(
             a.changes.begin(),
             a.changes.end(),
             b.changes.begin(),
             b.changes.end(),
             [](const LineChange& x, const LineChange& y) {
               return x.at_s == y.at_s && x.node == y.node && x.rate == y.rate;
             }
         );
}

// ---- draws

TEST(Dice, draws_of_one_name_do_not_depend_on_those_of_another) {
  Dice alone(1, "notice", 3);
  Dice other(1, "notice", 4);
  Dice again(1, "notice", 3);
  (void)other.between(0, 1);
  const double first = alone.between(0, 1);
  EXPECT_EQ(first, again.between(0, 1));
  EXPECT_NE(first, Dice(2, "notice", 3).between(0, 1));
  EXPECT_NE(first, Dice(1, "people", 3).between(0, 1));
}

TEST(Dice, triangular_draws_lie_within_their_ends_and_have_their_mean) {
  Dice dice(1, "triangle");
  double sum = 0;
  for (int i = 0; i < 20'000; ++i) {
    const double drawn = dice.triangular(2, 3, 7);
    ASSERT_GE(drawn, 2);
    ASSERT_LE(drawn, 7);
    sum += drawn;
  }
  EXPECT_NEAR(sum / 20'000, 4.0, 0.03);
}

// ---- campus

TEST(Campus, has_nodes_of_all_lines_in_all_buildings_and_a_topology_that_is_one) {
  const Campus campus = make_campus({}, 1);
  EXPECT_EQ(campus.nodes.size(), 54u);
  std::map<double, int> lines;
  std::map<std::string, int> buildings;
  std::map<std::string, std::string> building_of;
  std::map<std::string, int> models;
  for (const CampusNode& node : campus.nodes) {
    ++lines[node.line];
    ++buildings[node.building];
    ++models[node.gpu_model];
    EXPECT_EQ(building_of.try_emplace(node.lab, node.building).first->second, node.building);
  }
  EXPECT_EQ(lines.size(), 4u) << "1, 2.5 and 10 Gbit/s, and wireless";
  EXPECT_EQ(buildings.size(), 4u);
  EXPECT_GE(models.size(), 3u);
  const auto topology = reclaim::Topology::make(campus.topology);
  ASSERT_TRUE(topology) << topology.error().describe();
  const auto path = topology->path(topology->find("node-1", ""), topology->find("node-2", ""));
  EXPECT_EQ(path.links.size(), 4u) << "two machines in two buildings";
}

TEST(Campus, wireless_lines_change_all_the_time_and_are_slower_by_day) {
  const Campus campus = make_campus({.days = 14}, 1);
  double day_sum = 0;
  double night_sum = 0;
  int days = 0;
  int nights = 0;
  double last = 0;
  for (const LineChange& change : campus.changes) {
    EXPECT_TRUE(campus.nodes[change.node].is_wireless);
    EXPECT_GE(change.at_s, last) << "by time";
    last = change.at_s;
    const double hour = std::fmod(change.at_s, kDay) / 3600;
    (hour >= 8 && hour < 20 ? day_sum : night_sum) += change.rate;
    ++(hour >= 8 && hour < 20 ? days : nights);
  }
  ASSERT_GT(days, 100);
  ASSERT_GT(nights, 50);
  EXPECT_LT(day_sum / days, 0.8 * night_sum / nights);
}

TEST(Campus, is_the_same_for_the_same_seed_and_another_for_another) {
  EXPECT_TRUE(same(make_campus({}, 7), make_campus({}, 7)));
  EXPECT_FALSE(same(make_campus({}, 7), make_campus({}, 8)));
}

// ---- synthetic owners

class People : public testing::Test {
 protected:
  const Campus campus = make_campus({}, 3);
  const OwnerUses uses = make_owner_uses(campus, {}, 3);

  /// Share of the hours of that day or night in which machines are needed.
  double needed(double from_h, double to_h, bool at_weekends) const {
    double sum = 0;
    double all = 0;
    for (const auto& of_node : uses) {
      for (int day = 0; day < 56; ++day) {
        if ((day % 7 >= 5) != at_weekends) continue;
        const double from = (day * 24 + from_h) * 3600;
        const double to = (day * 24 + to_h) * 3600;
        all += to - from;
        for (const OwnerUse& use : of_node)
          sum += std::max(0.0, std::min(to, use.to_s) - std::max(from, use.from_s));
      }
    }
    return sum / all;
  }
};

TEST_F(People, uses_of_a_machine_ascend_and_do_not_overlap) {
  ASSERT_EQ(uses.size(), 54u);
  for (const auto& of_node : uses) {
    double free_from = -1;
    for (const OwnerUse& use : of_node) {
      ASSERT_GT(use.from_s, free_from);
      ASSERT_GT(use.to_s, use.from_s);
      ASSERT_LE(use.to_s, 56 * kDay);
      free_from = use.to_s;
    }
  }
}

TEST_F(People, need_machines_by_day_more_than_by_night_and_on_workdays_more_than_at_weekends) {
  EXPECT_GT(needed(11, 17, false), 1.5 * needed(1, 7, false));
  EXPECT_GT(needed(11, 17, false), 1.5 * needed(11, 17, true));
}

TEST_F(People, leave_their_machines_idle_most_of_the_time) {
  EXPECT_GT(needed(0, 24, false), 0.1);
  EXPECT_LT(needed(0, 24, false), 0.6);
}

TEST_F(People, take_machines_back_as_often_as_owners_of_the_papers_do) {
  const auto notices = find_notices("mixed").value();
  const auto all = interruptions_of(uses, notices, 3);
  const double a_day = static_cast<double>(all.size()) / 54 / 56;
  EXPECT_GT(a_day, 0.5);
  EXPECT_LT(a_day, 3.5);
}

/// A spell that is memoryless has a coefficient of variation of 1.
TEST_F(People, free_spells_are_far_from_exponential) {
  std::vector<double> spells;
  for (const auto& of_node : uses) {
    for (std::size_t i = 1; i < of_node.size(); ++i)
      spells.push_back(of_node[i].from_s - of_node[i - 1].to_s);
  }
  const auto n = static_cast<double>(spells.size());
  const double mean = std::accumulate(spells.begin(), spells.end(), 0.0) / n;
  double square = 0;
  for (const double spell : spells) square += (spell - mean) * (spell - mean);
  EXPECT_GT(std::sqrt(square / n) / mean, 1.3);
}

TEST_F(People, are_the_same_for_the_same_seed_and_others_for_another) {
  EXPECT_EQ(make_owner_uses(campus, {}, 3), uses);
  EXPECT_NE(make_owner_uses(campus, {}, 4), uses);
}

// ---- notices

TEST(Interruptions, deadlines_are_the_same_in_every_mix_and_only_notices_differ) {
  const OwnerUses uses = make_owner_uses(make_campus({}, 5), {.days = 14}, 5);
  const auto mixed = interruptions_of(uses, find_notices("mixed").value(), 5);
  const auto sudden = interruptions_of(uses, find_notices("emergency-heavy").value(), 5);
  ASSERT_EQ(mixed.size(), sudden.size());
  for (std::size_t i = 0; i < mixed.size(); ++i) {
    ASSERT_EQ(mixed[i].deadline_s, sudden[i].deadline_s);
    ASSERT_EQ(mixed[i].returns_s, sudden[i].returns_s);
    ASSERT_LE(mixed[i].declared_s, mixed[i].deadline_s);
    ASSERT_LT(mixed[i].deadline_s, mixed[i].returns_s);
  }
}

TEST(Interruptions, kinds_have_the_shares_of_the_mix) {
  OwnerUses uses(1);
  for (int i = 0; i < 10'000; ++i) uses[0].push_back({i * 10'000.0 + 5000, i * 10'000.0 + 6000});
  std::map<ReclaimKind, int> count;
  for (const Interruption& one : interruptions_of(uses, find_notices("mixed").value(), 1)) {
    ++count[one.kind];
    const double notice = one.deadline_s - one.declared_s;
    if (one.kind == ReclaimKind::kNotice) {
      EXPECT_EQ(notice, 30);
    }
    if (one.kind == ReclaimKind::kEmergency) {
      EXPECT_EQ(notice, 0);
    }
    if (one.kind == ReclaimKind::kAnnounced) {
      EXPECT_GE(notice, 60);
      EXPECT_LE(notice, 600);
    }
  }
  EXPECT_NEAR(count[ReclaimKind::kAnnounced], 6000, 200);
  EXPECT_NEAR(count[ReclaimKind::kNotice], 3000, 200);
  EXPECT_NEAR(count[ReclaimKind::kEmergency], 1000, 150);
}

TEST(Interruptions, uses_with_less_than_the_idle_time_between_them_are_one) {
  const auto all = interruptions_of(
      {{{1000, 2000}, {2500, 3000}, {5000, 6000}}}, {.name = "emergencies"}, 1, 600
  );
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].returns_s, 3600);
  EXPECT_EQ(all[1].deadline_s, 5000);
}

TEST(Interruptions, nothing_is_declared_before_the_node_was_lent) {
  const auto all = interruptions_of(
      {{{1000, 2000}, {2700, 3000}}},
      {.name = "long", .announced = 1, .announced_min_s = 500},
      1,
      600
  );
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].declared_s, 2600) << "lent again at 2600, needed at 2700";
}

TEST(Interruptions, an_unknown_mix_is_refused_with_the_known_ones) {
  const auto found = find_notices("nice");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().hint, "known: emergency-heavy, mixed, generous");
}

TEST(Interruptions, of_gpunion_have_its_range_and_kinds) {
  const auto all = gpunion_interruptions(54, 56, 1);
  std::vector<int> count(54);
  std::map<ReclaimKind, int> kinds;
  for (const Interruption& one : all) {
    ++count[one.node];
    ++kinds[one.kind];
    EXPECT_LE(one.declared_s, one.deadline_s);
    EXPECT_LT(one.deadline_s, one.returns_s);
    if (one.kind == ReclaimKind::kLost) {
      EXPECT_LE(one.returns_s - one.deadline_s, 1800);
    }
  }
  for (const int n : count) {
    EXPECT_LE(n / 56.0, 3.3);
    EXPECT_GT(n / 56.0, 0.3) << "what falls into a time in which it is away is left out";
  }
  EXPECT_GT(*std::max_element(count.begin(), count.end()) / 56.0, 2);
  for (const auto kind : {ReclaimKind::kAnnounced, ReclaimKind::kEmergency, ReclaimKind::kLost})
    EXPECT_GT(kinds[kind], static_cast<int>(all.size()) / 5);
}

// ---- traces as owners

TEST(Interruptions, recorded_owners_need_their_machine_where_it_was_not_free) {
  // Busy for an hour, free for three, busy for the rest of the day.
  const auto lab =
      parse_owner_trace(MinutesOf(8).idle(0, 60).idle(8, 180).idle(0, 1200).text(), "f", "lab", {});
  ASSERT_TRUE(lab) << lab.error().describe();
  const auto uses = uses_of({*lab}, 2, 2, 1);
  ASSERT_TRUE(uses) << uses.error().describe();
  ASSERT_EQ(uses->size(), 2u);
  EXPECT_THAT(
      (*uses)[0],
      ElementsAre(
          OwnerUse{0, 3600}, OwnerUse{4 * 3600, kDay + 3600}, OwnerUse{kDay + 4 * 3600, 2 * kDay}
      )
  );
  const auto all = interruptions_of(*uses, {.name = "emergencies"}, 1);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[1].deadline_s, 4 * 3600) << "the minute in which it stopped being free";
}

TEST(Interruptions, spot_machines_take_the_nodes_that_are_free) {
  const auto trace = parse_spot_trace(
      "ms,event,node\n0,add,a\n10000,add,b\n20000,remove,a\n30000,add,c\n40000,remove,c\n", "s"
  );
  ASSERT_TRUE(trace);
  EXPECT_THAT(
      by_time(interruptions_of(*trace, 2)),
      ElementsAre(
          Interruption{1, ReclaimKind::kEmergency, 0, 0, 10},
          Interruption{0, ReclaimKind::kEmergency, 20, 20, 30},
          Interruption{0, ReclaimKind::kEmergency, 40, 40, 41}
      )
  );
}

// ---- jobs

TEST(Workload, shares_of_the_kinds_add_up_and_states_go_from_1_to_40_gb) {
  double sum = 0;
  for (const StateKind& kind : state_kinds()) {
    sum += kind.share;
    EXPECT_GE(kind.bytes, 1e9);
    EXPECT_LE(kind.bytes, 40e9);
    EXPECT_LE(kind.hot_bytes, kind.bytes);
  }
  EXPECT_NEAR(sum, 1, 1e-9);
}

TEST(Workload, a_dense_state_differs_whole_and_a_sparse_one_by_what_was_touched) {
  const StateKind dense{"dense", 1, 1e9, 1e9, 0, 1e9, 0};
  const StateKind sparse{"sparse", 1, 20e9, 2e9, 1e6, 1e9, 0};
  EXPECT_EQ(differing_bytes(dense, 0), 0);
  EXPECT_EQ(differing_bytes(dense, 1), 1e9);
  EXPECT_EQ(differing_bytes(sparse, 1000), 3e9);
  EXPECT_EQ(differing_bytes(sparse, -1000), 3e9) << "an older one lacks as much as a newer one";
  EXPECT_EQ(differing_bytes(sparse, 1e9), 20e9);
}

TEST(Workload, states_twice_as_large_differ_by_twice_as_much) {
  const std::vector<StateKind> twice = state_kinds_times(2);
  ASSERT_EQ(twice.size(), state_kinds().size());
  for (std::size_t i = 0; i < twice.size(); ++i) {
    const StateKind& once = state_kinds()[i];
    EXPECT_EQ(twice[i].bytes, 2 * once.bytes);
    EXPECT_EQ(differing_bytes(twice[i], 300), 2 * differing_bytes(once, 300));
  }
}

TEST(Campus, lines_of_a_quarter_are_those_of_the_same_campus) {
  const Campus whole = make_campus({}, 7);
  Campus quarter = make_campus({}, 7);
  scale_lines(quarter, 0.25);
  ASSERT_FALSE(whole.changes.empty());
  EXPECT_EQ(quarter.changes[0].rate, whole.changes[0].rate / 4);
  EXPECT_EQ(quarter.nodes[3].line, whole.nodes[3].line / 4);
  EXPECT_EQ(quarter.topology.nodes[4].line.up, whole.topology.nodes[4].line.up / 4);
  EXPECT_EQ(quarter.topology.switches[1].line.down, whole.topology.switches[1].line.down / 4);
  EXPECT_EQ(quarter.topology.nodes[4].line.latency_s, whole.topology.nodes[4].line.latency_s);
}

TEST(Workload, users_submit_by_day_and_have_one_kind_of_state_each) {
  const auto jobs = make_jobs({}, 1);
  ASSERT_GT(jobs.size(), 2000u);
  std::map<std::string, std::size_t> kinds;
  double last = 0;
  for (const SubmittedJob& job : jobs) {
    EXPECT_EQ(kinds.try_emplace(job.user, job.kind).first->second, job.kind);
    EXPECT_GE(job.at_s, last);
    last = job.at_s;
    EXPECT_GT(job.work_s, 0);
    EXPECT_LE(job.gpus, 4u);
  }
  EXPECT_GT(kinds.size(), 50u);
}

TEST(Workload, is_the_same_for_the_same_seed_and_another_for_another) {
  EXPECT_EQ(make_jobs({}, 1), make_jobs({}, 1));
  EXPECT_NE(make_jobs({}, 1), make_jobs({}, 2));
}

TEST(Workload, recorded_jobs_come_at_their_hours_over_and_over_again) {
  const auto recorded = parse_job_trace(
      "submit_time,duration_s,gpus\n2017-10-02 06:00:00,100,16\n2017-10-03 07:00:00,50,1\n", "j"
  );
  ASSERT_TRUE(recorded);
  const auto jobs = jobs_of(*recorded, {.days = 9, .most_gpus = 4}, 1);
  ASSERT_EQ(jobs.size(), 4u);
  EXPECT_EQ(jobs[0].at_s, 6 * 3600);
  EXPECT_EQ(jobs[0].gpus, 4u);
  EXPECT_EQ(jobs[1].at_s, kDay + 7 * 3600);
  EXPECT_EQ(jobs[2].at_s, 7 * kDay + 6 * 3600);
}

}  // namespace
}  // namespace rn::evaluate
