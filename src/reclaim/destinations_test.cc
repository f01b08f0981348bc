// SPDX-License-Identifier: Apache-2.0
#include "reclaim/destinations.h"

#include <set>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace rn::reclaim {
namespace {

CopyCandidate a_node(const char* id, const char* lab) {
  return {
      .node = NodeId(id),
      .lab = LabId(lab),
      .failure_domain = lab,
      .room_bytes = 1u << 30,
      .survival = 0.87};
}

CopySource a_source(std::uint32_t wanted = 1) {
  return {
      .node = NodeId("n-src"), .lab = LabId("lab-a"), .failure_domain = "lab-a", .wanted = wanted};
}

std::vector<std::string> chosen(
    const CopySource& source, const std::vector<CopyCandidate>& candidates, std::size_t spares = 0
) {
  std::vector<std::string> result;
  for (const ChosenCopy& copy : choose_copies(source, candidates, spares).copies)
    result.push_back(candidates[copy.index].node.str());
  return result;
}

using Ids = std::vector<std::string>;

TEST(ChooseCopies, storage_goes_before_a_workstation_and_another_lab_before_the_own) {
  std::vector<CopyCandidate> candidates = {
      a_node("n-own", "lab-a"), a_node("n-b", "lab-b"), a_node("n-store", "storage")};
  candidates[0].failure_domain = "rack-2";
  candidates[2].is_storage = true;

  EXPECT_EQ(chosen(a_source(), candidates, 2), (Ids{"n-store", "n-b", "n-own"}));
  EXPECT_EQ(choose_copies(a_source(), candidates, 2).quality, CopyQuality::kFull);
}

TEST(ChooseCopies, a_source_that_will_soon_be_taken_has_its_copy_where_the_job_goes_on) {
  std::vector<CopyCandidate> candidates = {a_node("n-next", "lab-b"), a_node("n-store", "storage")};
  candidates[0].is_next = true;
  candidates[1].is_storage = true;
  CopySource source = a_source();

  EXPECT_EQ(chosen(source, candidates), (Ids{"n-store"}));
  source.departs = 0.5;
  EXPECT_EQ(chosen(source, candidates), (Ids{"n-store"}));
  source.departs = 0.9;
  EXPECT_EQ(chosen(source, candidates), (Ids{"n-next"}));
}

TEST(ChooseCopies, what_hangs_at_the_same_switches_comes_later) {
  std::vector<CopyCandidate> candidates = {a_node("n-b", "lab-b"), a_node("n-c", "lab-c")};
  candidates[0].shares_switches = 1;

  EXPECT_EQ(chosen(a_source(), candidates), (Ids{"n-c"}));
}

TEST(ChooseCopies, whoever_has_the_parent_is_preferred_because_only_a_delta_moves) {
  std::vector<CopyCandidate> candidates = {a_node("n-b", "lab-b"), a_node("n-c", "lab-c")};
  candidates[1].has_parent = true;

  EXPECT_EQ(chosen(a_source(), candidates), (Ids{"n-c"}));
}

TEST(ChooseCopies, where_the_jobs_data_is_goes_first_and_without_any_such_node_the_others_serve) {
  std::vector<CopyCandidate> candidates = {a_node("n-b", "lab-b"), a_node("n-c", "lab-c")};
  candidates[1].has_data = true;

  EXPECT_EQ(chosen(a_source(), candidates), (Ids{"n-c"}));
  candidates.pop_back();
  EXPECT_EQ(chosen(a_source(), candidates), (Ids{"n-b"}));
}

TEST(ChooseCopies, the_sources_own_failure_domain_is_never_taken) {
  EXPECT_EQ(chosen(a_source(), {a_node("n-x", "lab-a")}), Ids{});
  EXPECT_EQ(choose_copies(a_source(), {a_node("n-x", "lab-a")}, 2).quality, CopyQuality::kNone);
}

TEST(ChooseCopies, the_users_destinations_are_obeyed_even_if_that_means_none) {
  CopySource source = a_source();
  source.destinations = {"lab-c", "n-b"};

  EXPECT_EQ(
      chosen(source, {a_node("n-b", "lab-b"), a_node("n-b2", "lab-b"), a_node("n-c", "lab-c")}, 5),
      (Ids{"n-b", "n-c"})
  );
  source.destinations = {"lab-z"};
  EXPECT_EQ(chosen(source, {a_node("n-b", "lab-b")}), Ids{});
}

TEST(ChooseCopies, fewer_domains_than_wanted_is_said) {
  const CopyChoice choice =
      choose_copies(a_source(2), {a_node("n-b", "lab-b"), a_node("n-b2", "lab-b")}, 1);

  EXPECT_EQ(choice.quality, CopyQuality::kFewerCopies);
  EXPECT_EQ(choice.shortfall, "1 copy place instead of 2 in other failure domains");
}

TEST(ChooseCopies, a_copy_in_the_own_lab_is_better_than_none_and_said) {
  std::vector<CopyCandidate> candidates = {a_node("n-own", "lab-a")};
  candidates[0].failure_domain = "other-room";

  const CopyChoice choice = choose_copies(a_source(), candidates, 0);

  EXPECT_EQ(choice.quality, CopyQuality::kSameLab);
  EXPECT_EQ(choice.copies.size(), 1U);
}

TEST(ChooseCopies, holds_its_rules_for_random_sites) {
  SeededRng rng(11);
  for (int round = 0; round < 2000; ++round) {
    CopySource source = a_source(static_cast<std::uint32_t>(1 + rng.below(3)));
    source.bytes = rng.below(100);
    std::vector<CopyCandidate> candidates;
    std::set<std::string> usable;
    for (std::uint64_t i = 0, n = rng.below(10); i < n; ++i) {
      const std::string lab = "lab-" + std::string(1, static_cast<char>('a' + rng.below(4)));
      CopyCandidate c = a_node(("n-" + std::to_string(i)).c_str(), lab.c_str());
      c.failure_domain = "d" + std::to_string(rng.below(5));
      if (rng.below(5) == 0) c.failure_domain = source.failure_domain;
      c.is_reachable = rng.below(4) != 0;
      c.room_bytes = rng.below(150);
      c.survival = rng.unit();
      if (c.failure_domain != source.failure_domain && c.is_reachable && c.room_bytes > 0 &&
          c.room_bytes >= source.bytes)
        usable.insert(c.failure_domain);
      candidates.push_back(c);
    }

    const CopyChoice choice = choose_copies(source, candidates, 2);

    ASSERT_LE(choice.copies.size(), source.wanted + 2U);
    std::set<std::string> first;
    for (std::size_t i = 0; i < choice.copies.size(); ++i) {
      const CopyCandidate& c = candidates[choice.copies[i].index];
      ASSERT_NE(c.failure_domain, source.failure_domain);
      ASSERT_TRUE(c.is_reachable);
      ASSERT_GE(c.room_bytes, source.bytes);
      if (i < source.wanted) first.insert(c.failure_domain);
    }
    ASSERT_EQ(first.size(), std::min<std::size_t>(usable.size(), source.wanted));
    ASSERT_EQ(choice.quality == CopyQuality::kNone, usable.empty());
    ASSERT_EQ(choice.shortfall.empty(), choice.quality == CopyQuality::kFull);
  }
}

TEST(ChooseCopies, who_stays_longer_and_holds_less_is_preferred_and_who_has_no_room_is_not_asked) {
  std::vector<CopyCandidate> candidates = {a_node("n-b", "lab-b"), a_node("n-c", "lab-c")};
  candidates[1].survival = 0.95;
  EXPECT_EQ(chosen(a_source(), candidates), (Ids{"n-c"}));

  candidates[1].survival = candidates[0].survival;
  candidates[0].copies_held = 3;
  EXPECT_EQ(chosen(a_source(), candidates), (Ids{"n-c"}));

  candidates[1].room_bytes = 0;  // and nothing is known of what will come
  EXPECT_EQ(chosen(a_source(), candidates), (Ids{"n-b"}));
}

}  // namespace
}  // namespace rn::reclaim
