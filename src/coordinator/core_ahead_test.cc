// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "coordinator/core_evacuation_fixture.h"

namespace rn::coordinator {
namespace {

/// A window that ends in an hour: the node will be taken back for certain.
class Precopies : public Evacuations {
 protected:
  JobId closing() {
    const JobId id = saved("a");
    node("a").closes_in_s = 3600;
    beat(node("a"));
    pass(35'000);  // the plan is made anew
    return id;
  }

  std::vector<std::string> precopies() {
    std::vector<std::string> peers;
    for (const auto& ack : node("a").received<wire::HeartbeatAck>()) {
      if (ack.plans.empty()) continue;
      peers.clear();
      for (const PeerGrant& peer : ack.plans.front().precopies)
        peers.push_back(name_of(peer.node.str()));
    }
    return peers;
  }

  /// 100 MB, durable in the store.
  void saves(const JobId& id, std::uint32_t number, std::uint64_t fresh) {
    GenerationRef ref = generation(id, number);
    ref.bytes = 100'000'000;
    ref.new_bytes = fresh;
    ref.created_wall_ms = to_ms(clock.now().wall);
    EXPECT_TRUE(commit_generation(node("a"), ref, {receipt(node("store"), ref)}).is_accepted);
  }

  /// The first generation that it is to keep, as far as it was told; 0: it is to keep all.
  std::uint32_t deletes_before(const std::string& at) {
    const auto told = node(at).received<wire::CollectGarbage>();
    return told.empty() ? 0 : told.back().keep_from;
  }

  void hold_ahead(const JobId& id, const std::string& at, std::uint64_t bytes) {
    GenerationRef ref = job(id).durable;
    ref.bytes = bytes;
    const auto answer =
        commit_generation(node("a"), ref, {receipt(node("store"), ref), receipt(node(at), ref)});
    EXPECT_TRUE(answer.is_accepted);
  }
};

TEST_F(Precopies, a_node_that_will_be_taken_back_sends_ahead_to_where_its_job_would_go) {
  const JobId id = saved("a");
  pass(35'000);
  EXPECT_TRUE(precopies().empty());  // nobody expects its owner
  node("a").closes_in_s = 3600;
  beat(node("a"));
  pass(35'000);

  ASSERT_EQ(precopies().size(), 1U);
  EXPECT_TRUE(precopies().front() == "b" || precopies().front() == "c");
  EXPECT_EQ(job(id).durable.generation, 1U);
}

TEST_F(Precopies, what_is_held_ahead_is_known_and_an_evacuation_moves_only_what_is_new) {
  const JobId id = closing();
  const std::string next = precopies().front();
  hold_ahead(id, next, 100'000'000);
  EXPECT_EQ(tables.generations.at({id, 1}).receipts.size(), 2U);
  take_back("a", 60);

  EXPECT_EQ(chosen(id), next);
  EXPECT_EQ(core->evacuation(id)->bytes, 100'000'000U);  // of 200
}

TEST_F(Precopies, what_is_held_ahead_stays_until_there_is_something_newer_and_is_built_upon) {
  const JobId id = closing();
  const std::string next = precopies().front();
  hold_ahead(id, next, 100'000'000);
  for (std::uint32_t number = 2; number < 5; ++number) {
    pass(10'000);
    saves(id, number, 1'000'000);
  }

  EXPECT_EQ(deletes_before("store"), 3U);
  EXPECT_LE(deletes_before(next), 1U) << "although three saves are newer";
  take_back("a", 60);
  EXPECT_EQ(chosen(id), next);
  EXPECT_EQ(core->evacuation(id)->bytes, 4'000'000U) << "three saves and the one to come";
}

TEST_F(Precopies, what_a_node_was_told_to_delete_is_not_counted_upon) {
  const JobId id = closing();
  const std::string next = precopies().front();
  const std::string other = next == "b" ? "c" : "b";
  hold_ahead(id, other, 100'000'000);  // as when it was expected there
  for (std::uint32_t number = 2; number < 5; ++number) {
    pass(10'000);
    saves(id, number, 1'000'000);
  }
  ASSERT_GE(deletes_before(other), 2U);
  node(next).lending = LendingState::kPaused;
  beat(node(next));
  take_back("a", 60);

  EXPECT_EQ(chosen(id), other);
  EXPECT_EQ(core->evacuation(id)->bytes, 101'000'000U);
}

TEST_F(Precopies, what_the_job_will_have_rewritten_by_then_does_not_go_ahead) {
  const JobId id = closing();
  for (std::uint32_t number = 2; number < 4; ++number) {
    pass(60'000);
    saves(id, number, 95'000'000);  // 1.6 MB/s, of 7.5 that the way carries
  }
  pass(35'000);
  EXPECT_TRUE(precopies().empty());

  pass(25'000);
  saves(id, 4, 5'000'000);
  pass(35'000);
  EXPECT_FALSE(precopies().empty());
}

TEST_F(Precopies, guests_of_one_machine_are_expected_at_different_places) {
  node("a").hello.contract.max_guests = 2;
  update("a");
  const JobId first = saved("a");
  const JobId second = saved("a");
  node("a").closes_in_s = 3600;
  beat(node("a"));
  pass(70'000);

  std::map<JobId, std::string> places;
  for (const auto& ack : node("a").received<wire::HeartbeatAck>()) {
    for (const wire::CopyPlan& one : ack.plans)
      if (!one.precopies.empty()) places[one.job] = name_of(one.precopies.front().node.str());
  }
  ASSERT_EQ(places.size(), 2U);
  EXPECT_NE(places.at(first), places.at(second)) << "each has one place";
}

TEST_F(Precopies, a_forged_word_of_a_holder_is_not_written_down) {
  const JobId id = closing();
  const GenerationRef ref = job(id).durable;
  Receipt forged = receipt(node("b"), ref);
  forged = signed_receipt(forged, node("a").signing);
  commit_generation(node("a"), ref, {receipt(node("store"), ref), forged});

  EXPECT_EQ(tables.generations.at({id, 1}).receipts.size(), 1U);
}

TEST_F(Precopies, the_budget_of_an_hour_ends_them) {
  config.precopy_mib_per_hour = 50;
  restart();
  for (auto& [name, id] : names) connect(node(name));
  settle();
  const JobId id = closing();
  const std::string next = precopies().front();
  hold_ahead(id, next, 100'000'000);
  GenerationRef ref = generation(id, 2);
  ref.bytes = 100'000'000;
  ref.new_bytes = 1000;
  ref.created_wall_ms = to_ms(clock.now().wall);
  ASSERT_TRUE(commit_generation(node("a"), ref, {receipt(node("store"), ref)}).is_accepted);
  pass(35'000);
  EXPECT_TRUE(precopies().empty());
  node("a").closes_in_s = 7000;
  pass(3'600'000);
  EXPECT_FALSE(precopies().empty());
}

TEST_F(Precopies, a_job_that_changes_faster_than_the_way_carries_sends_nothing_ahead) {
  const JobId id = saved("a");
  for (std::uint32_t number = 2; number < 4; ++number) {
    GenerationRef ref = generation(id, number);
    ref.bytes = ref.new_bytes = 100'000'000;
    ref.created_wall_ms = to_ms(clock.now().wall);
    pass(5000);
    ASSERT_TRUE(commit_generation(node("a"), ref, {receipt(node("store"), ref)}).is_accepted);
  }
  node("a").closes_in_s = 3600;
  beat(node("a"));
  pass(35'000);

  EXPECT_TRUE(precopies().empty());
}

}  // namespace
}  // namespace rn::coordinator
