// SPDX-License-Identifier: Apache-2.0
// Jobs whose node is lost or cut: nothing can be copied from it any more.

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "reclaim/evacuation.h"
#include "reclaim/evacuation_cases.h"

namespace rn::reclaim {
namespace {

constexpr double kLine = 125e6;

/// A lost node (0), places with a line each (1 …), and a store at the end.
struct Lost {
  EvacuationSite site;
  std::vector<EvacuatingJob> jobs;

  explicit Lost(std::size_t places) {
    for (std::size_t n = 0; n < places + 2; ++n) {
      EvacuationNode node;
      node.node = NodeId("n" + std::to_string(n));
      node.name = "n" + std::to_string(n);
      if (n > 0 && n <= places)
        node.free = {.guests = 1, .gpus = 1, .cpu_milli = 4000, .memory_mib = 16'000};
      node.stays = a_stay_curve(1e-5);
      site.nodes.push_back(node);
      site.links.push_back({.q10 = kLine, .median = kLine});
    }
    site.path = own_lines;
  }

  std::size_t store() const { return site.nodes.size() - 1; }

  /// Its newest durable generation lies at the holders, and nowhere else.
  EvacuatingJob& add_job(const std::set<std::size_t>& holders, double bytes = 10e9) {
    EvacuatingJob job;
    job.job = JobId("j" + std::to_string(jobs.size()));
    job.is_stranded = true;
    job.stored_bytes = bytes;
    job.needs = {.guests = 1, .gpus = 1, .cpu_milli = 1000, .memory_mib = 1000};
    for (std::size_t n = 0; n < site.nodes.size(); ++n)
      job.options.push_back(
          {.can_run = n > 0 && n < store(),
           .has_parent = holders.contains(n),
           .bytes = holders.contains(n) ? 0 : bytes}
      );
    return jobs.emplace_back(std::move(job));
  }

  std::vector<EvacuationChoice> choose() const { return choose_evacuation(site, jobs); }
};

TEST(Stranded, a_job_goes_on_where_its_copy_lies_and_the_choice_says_so) {
  Lost s(3);
  s.add_job({2, s.store()});

  const EvacuationChoice c = s.choose().at(0);

  EXPECT_EQ(c.way, EvacuationWay::kLastDurable);
  EXPECT_EQ(c.destination, 2U);
  EXPECT_EQ(c.holder, 2U);
  EXPECT_EQ(c.bytes, 0);
  EXPECT_DOUBLE_EQ(c.downtime_s, 10);
  EXPECT_GT(c.regret, 80) << "the fetch, at the least";
  EXPECT_EQ(c.sentence.find("goes on at n2, where what is durable lies; down 10 s"), 0U)
      << c.sentence;
}

TEST(Stranded, where_no_holder_takes_it_the_state_is_fetched_from_the_nearest_one) {
  Lost s(3);
  s.add_job({3, s.store()});
  s.jobs[0].options[3].can_run = false;
  s.site.links[3] = {.q10 = kLine / 5, .median = kLine / 5};

  const EvacuationChoice c = s.choose().at(0);

  EXPECT_EQ(c.holder, s.store());
  EXPECT_DOUBLE_EQ(c.arrives_s, 80);
  EXPECT_DOUBLE_EQ(c.downtime_s, 90);
  EXPECT_NE(
      c.sentence.find("which fetches 10000 MB from n4 at 125.0 MB/s in 80.0 s"), std::string::npos
  ) << c.sentence;
}

TEST(Stranded, two_jobs_with_copies_at_one_node_do_not_both_get_its_only_place) {
  Lost s(3);
  s.add_job({1}, 1e9);
  s.add_job({1}, 20e9);

  const auto choices = s.choose();

  EXPECT_EQ(choices[1].destination, 1U) << "which would fetch twenty times as much";
  ASSERT_TRUE(choices[0].destination);
  EXPECT_NE(*choices[0].destination, 1U);
}

TEST(Stranded, cpu_jobs_spread_over_nodes_as_the_cores_that_are_left_go_down) {
  Lost s(2);
  for (std::size_t n = 1; n <= 2; ++n)
    s.site.nodes[n].free = {.guests = 16, .gpus = 0, .cpu_milli = 1000, .memory_mib = 16'000};
  for (int i = 0; i < 2; ++i) {
    EvacuatingJob& job = s.add_job({s.store()}, 1e6);
    job.needs = {.guests = 1, .gpus = 0, .cpu_milli = 100, .memory_mib = 100};
    job.cpu_wanted_milli = 1000;
  }
  s.site.nodes[2].stays = a_stay_curve(2e-5);

  const auto choices = s.choose();

  ASSERT_TRUE(choices[0].destination && choices[1].destination);
  EXPECT_NE(*choices[0].destination, *choices[1].destination);
  for (const EvacuationChoice& c : choices) EXPECT_EQ(c.speed, 1);
}

TEST(Stranded, nothing_durable_starts_anew_and_no_place_waits) {
  Lost s(1);
  s.add_job({}, 0);
  EXPECT_NE(s.choose().at(0).sentence.find("from its beginning"), std::string::npos);
  s.add_job({}, 1e9);

  const auto choices = s.choose();

  const auto waits =
      std::find_if(choices.begin(), choices.end(), [](const auto& c) { return !c.destination; });
  ASSERT_NE(waits, choices.end());
  EXPECT_EQ(waits->sentence, "it waits with what is durable; nobody can take it now");
}

TEST(Stranded, beside_evacuations_with_notice_no_place_is_given_twice) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    EvacuationCase c = a_case(seed, 3, 9, 8);
    for (std::size_t j = 0; j < c.jobs.size(); j += 2) c.jobs[j].is_stranded = true;
    std::map<std::size_t, std::uint32_t> guests;
    const auto choices = choose_evacuation(c.site, c.jobs);
    for (std::size_t j = 0; j < choices.size(); ++j) {
      if (!choices[j].destination) continue;
      ++guests[*choices[j].destination];
      ASSERT_TRUE(c.jobs[j].options[*choices[j].destination].can_run);
      if (!c.jobs[j].is_stranded) continue;
      ASSERT_EQ(choices[j].way, EvacuationWay::kLastDurable);
      ASSERT_TRUE(!choices[j].holder || c.jobs[j].options[*choices[j].holder].has_parent);
    }
    for (const auto& [n, count] : guests) ASSERT_LE(count, c.site.nodes[n].free.guests);
  }
}

TEST(Stranded, of_a_gpu_that_is_taken_back_the_job_may_stay_on_its_node) {
  Lost s(1);
  EvacuatingJob& job = s.add_job({s.store()}, 1e9);
  job.is_stranded = false;
  job.notice_s = 60;
  job.options[0] = {.can_run = true, .can_store = true, .has_parent = true, .bytes = 0};
  s.site.nodes[0].room_bytes = 1e12;
  s.site.nodes[0].free = s.site.nodes[1].free;
  s.site.path = [](std::size_t from, std::size_t to) {
    return from == to ? std::vector<std::uint32_t>{} : own_lines(from, to);
  };

  const EvacuationChoice c = s.choose().at(0);

  EXPECT_EQ(c.destination, 0U);
  EXPECT_EQ(c.sentence.find("it stays on n0, where what it saves last lies"), 0U) << c.sentence;
}

}  // namespace
}  // namespace rn::reclaim
