// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "coordinator/core_evacuation_fixture.h"
#include "coordinator/core_paths.h"

namespace rn::coordinator {
namespace {

TEST_F(Evacuations, a_reclaim_with_notice_is_answered_by_a_choice_with_its_numbers) {
  const JobId id = saved("a");
  take_back("a", 60);

  ASSERT_EQ(count_events("evacuation.chosen"), 1U);
  const EventRow& event = last_event("evacuation.chosen");
  EXPECT_EQ(event.job, id);
  EXPECT_EQ(event.data.at("way"), "destination");
  EXPECT_EQ(event.data.at("destination"), event.data.at("holder"));
  EXPECT_EQ(event.data.at("bytes"), "200000000");  // the state and what is new since
  EXPECT_EQ(event.data.at("rate_q10"), "7500000");
  EXPECT_EQ(event.data.at("because"), "lab-a/a is taken back");
  EXPECT_NE(event.message.find("straight to lab-"), std::string::npos) << event.message;
  EXPECT_NE(core->why(id, clock.now()).value().find("straight to"), std::string::npos);
}

TEST_F(Evacuations, the_agent_is_told_at_once_that_its_copies_go_to_the_destination_first) {
  const JobId id = saved("a");
  ASSERT_EQ(plan("a").front(), "store");
  take_back("a", 60);

  EXPECT_EQ(plan("a").front(), chosen(id));
  EXPECT_NE(plan("a").front(), "store");
}

TEST_F(Evacuations, it_is_placed_at_its_destination_which_is_asked_alone) {
  const JobId id = saved("a");
  take_back("a", 60);
  notice(id);
  const std::string there = chosen(id);
  const std::string other = there == "b" ? "c" : "b";
  const std::size_t asked = node(other).received<wire::Probe>().size();
  leave(id);
  pass(1000);

  EXPECT_EQ(where(id), there);
  EXPECT_EQ(node(other).received<wire::Probe>().size(), asked);
  EXPECT_FALSE(core->evacuation(id));
  EXPECT_NE(last_event("job.placed").message.find("where its evacuation went"), std::string::npos);
}

TEST_F(Evacuations, a_stranger_does_not_get_the_place_that_is_kept) {
  node("c").lending = LendingState::kPaused;
  connect(node("c"));
  const JobId id = saved("a");
  take_back("a", 60);
  ASSERT_EQ(chosen(id), "b");
  const JobId stranger = submit();
  pass(3000);

  EXPECT_EQ(state(stranger), JobState::kQueued);
  leave(id);
  pass(1000);
  EXPECT_EQ(where(id), "b");
}

TEST_F(
    Evacuations, a_place_that_nobody_comes_to_is_kept_no_longer_than_the_deadline_and_the_drain
) {
  node("c").lending = LendingState::kPaused;
  connect(node("c"));
  config.drain_wait_ms = 20'000;
  restart();
  for (auto& [name, id] : names) connect(node(name));
  settle();
  const JobId id = saved("a");
  take_back("a", 30);
  ASSERT_EQ(chosen(id), "b");
  const JobId stranger = submit();
  pass(40'000);
  EXPECT_EQ(state(stranger), JobState::kQueued);
  pass(20'000);
  EXPECT_EQ(where(stranger), "b");
}

TEST_F(Evacuations, two_labs_at_once_do_not_get_the_same_slot) {
  const JobId one = saved("a");
  const JobId two = saved("b");
  take_back("a", 60, "r-1");
  take_back("b", 60, "r-2");

  const std::set<std::string> places = {chosen(one), chosen(two)};
  EXPECT_TRUE(places.contains("c"));
  EXPECT_EQ(places.size(), 2U);
  EXPECT_FALSE(places.contains("a"));
  EXPECT_FALSE(places.contains("b"));
}

/// A study's coordinator.
class StudiedEvacuations : public Evacuations {
 protected:
  StudiedEvacuations() { config.study.chooses_alone = config.study.ignores_groups = true; }
};

TEST_F(StudiedEvacuations, one_by_one_they_do_not_get_the_same_slot_either) {
  const JobId one = saved("a");
  const JobId two = saved("b");
  take_back("a", 60, "r-1");
  take_back("b", 60, "r-2");
  EXPECT_EQ((std::set<std::string>{chosen(one), chosen(two)}).count("c"), 1U);
  EXPECT_NE(chosen(one), chosen(two));
}

TEST_F(StudiedEvacuations, group_risk_counts_for_nothing) {
  add_node("d", "lab-b");
  connect(node("d"));
  settle();
  saved("d");
  node("c").lending = LendingState::kPaused;
  connect(node("c"));
  saved("a");
  take_back("a", 60);
  const EventRow& event = last_event("evacuation.chosen");
  ASSERT_GT(std::stod(event.data.at("group_risk")), 0);
  const double utility = std::stod(event.data.at("utility"));
  const double stay = std::stod(event.data.at("stay_s")) * std::stod(event.data.at("speed"));
  EXPECT_NEAR(utility, stay - std::stod(event.data.at("downtime_s")), 2);
}

TEST_F(Evacuations, when_the_destination_refuses_another_one_is_chosen_and_told_why) {
  const JobId id = saved("a");
  take_back("a", 60);
  const std::string first = chosen(id);
  node(first).to_probe = FakeAgent::Answer::kRefuse;
  leave(id);
  pass(1000);

  EXPECT_EQ(where(id), first == "b" ? "c" : "b");
  const EventRow& event = last_event("evacuation.chosen");
  EXPECT_NE(event.data.at("because").find("its owner is at the keyboard"), std::string::npos);
  EXPECT_EQ(count_events("evacuation.chosen"), 2U);
  const auto& ways = core->metrics().choices;
  EXPECT_EQ(ways.at(0), 1U) << "straight to the first one";
  EXPECT_EQ(ways.at(3), 1U) << "it has left by then: the second one goes on with what is durable";
}

TEST_F(Evacuations, a_destination_that_is_taken_back_itself_is_left_at_once) {
  const JobId id = saved("a");
  take_back("a", 60, "r-1");
  const std::string first = chosen(id);
  take_back(first, 60, "r-2");

  EXPECT_EQ(chosen(id), first == "b" ? "c" : "b");
  EXPECT_EQ(plan("a").front(), chosen(id));
}

TEST_F(Evacuations, a_destination_that_takes_no_copy_is_left) {
  const JobId id = saved("a");
  take_back("a", 60);
  notice(id);
  const std::string first = chosen(id);
  tell(
      node("a"),
      wire::GrantRequest{
          .job = id,
          .epoch = job(id).epoch,
          .action = TicketAction::kStore,
          .tried = {node(first).id}}
  );

  EXPECT_NE(core->evacuation(id)->holder, node(first).id.str());
  EXPECT_NE(
      last_event("evacuation.chosen").data.at("because").find("takes no copy"), std::string::npos
  );
}

TEST_F(Evacuations, too_short_for_the_state_but_not_for_what_is_new_goes_to_who_has_the_rest) {
  const JobId id = saved("a");
  GenerationRef ref = generation(id, 2);
  ref.bytes = 3'000'000'000;
  ref.new_bytes = 10'000'000;
  ASSERT_TRUE(commit_generation(node("a"), ref, {receipt(node("store"), ref)}).is_accepted);
  take_back("a", 60);

  const EventRow& event = last_event("evacuation.chosen");
  EXPECT_EQ(event.data.at("way"), "delta");
  EXPECT_EQ(name_of(event.data.at("holder")), "store");
  EXPECT_NE(chosen(id), "none");
  EXPECT_NE(chosen(id), "");
}

TEST_F(Evacuations, no_notice_to_speak_of_leaves_the_last_durable_generation) {
  const JobId id = saved("a");
  take_back("a", 2);

  EXPECT_EQ(core->evacuation(id)->way, "last_durable");
  EXPECT_EQ(core->evacuation(id)->holder, "");
  EXPECT_EQ(core->metrics().choices.at(3), 1U);
  EXPECT_EQ(core->metrics().evacuations, 1U);
}

TEST_F(Evacuations, what_an_owner_grants_to_copies_bounds_the_way_and_a_change_is_chosen_for_anew) {
  const JobId id = saved("a");
  take_back("a", 60);
  ASSERT_EQ(core->evacuation(id)->way, "destination");
  ASSERT_EQ(core->evacuation(id)->rate_q10, 7.5e6);

  grant("a", 40'000'000);  // in 52 s and nine times of ten enough for 100 MB, but not for 200

  EXPECT_EQ(core->evacuation(id)->rate_q10, 3e6);
  EXPECT_EQ(core->evacuation(id)->way, "delta");
  EXPECT_EQ(name_of(core->evacuation(id)->holder), "store");
  EXPECT_NE(core->evacuation(id)->because.find("lets its copies send otherwise"), std::string::npos)
      << core->evacuation(id)->because;
  grant("a", 0);
  EXPECT_EQ(core->evacuation(id)->way, "destination");
}

TEST_F(Evacuations, nothing_is_sent_from_or_to_whose_owner_has_cut_copies) {
  const JobId id = saved("a");
  for (const char* other : {"b", "store"}) cut(other, true);
  take_back("a", 60);
  ASSERT_EQ(core->evacuation(id)->way, "destination");
  EXPECT_EQ(chosen(id), "c");
  EXPECT_EQ(plan("a").front(), "c");

  cut("a", true);

  EXPECT_EQ(core->evacuation(id)->way, "last_durable");
}

TEST_F(Evacuations, both_ends_at_once_lose_nothing_durable) {
  const JobId id = saved("a");
  take_back("a", 60, "r-1");
  const std::string first = chosen(id);
  take_back(first, 0, "r-2");
  leave(id);
  pass(1000);

  EXPECT_EQ(where(id), first == "b" ? "c" : "b");
  EXPECT_EQ(job(id).durable.generation, 1U);
  EXPECT_EQ(tables.attempts.at({id, job(id).epoch}).attempt.resumed_generation, 1U);
}

TEST_F(Evacuations, what_is_given_back_in_time_stays_where_it_is) {
  const JobId id = saved("a");
  take_back("a", 60);
  ReclaimRecord over = record("a", 60);
  over.phase = ReclaimPhase::kReturned;
  tell(node("a"), wire::ReclaimReport{over});

  EXPECT_FALSE(core->evacuation(id));
  EXPECT_EQ(where(id), "a");
}

TEST_F(Evacuations, after_a_restart_it_is_chosen_anew) {
  const JobId id = saved("a");
  take_back("a", 600);
  restart();
  for (auto& [name, agent_id] : names) connect(node(name));
  pass(12'000);

  ASSERT_TRUE(core->evacuation(id));
  EXPECT_EQ(core->evacuation(id)->way, "destination");
}

TEST_F(Evacuations, an_owner_who_moves_the_deadline_without_end_does_not_fill_the_history) {
  const JobId id = saved("a");
  for (int i = 0; i < 200; ++i) {
    take_back("a", 60 + 10 * (i % 7));
    node("b").lending = i % 2 == 0 ? LendingState::kPaused : LendingState::kOpen;
    node("c").lending = i % 2 == 0 ? LendingState::kOpen : LendingState::kPaused;
    beat(node("b"));
    beat(node("c"));
    pass(1500);
  }
  EXPECT_LE(count_events("evacuation.chosen"), 32U);
  EXPECT_GE(count_events("evacuation.chosen"), 4U);
  EXPECT_TRUE(core->evacuation(id));
}

TEST(PathRatesTest, a_path_counts_when_four_transfers_that_are_not_tiny_were_seen) {
  PathRates rates;
  const NodeId a("a");
  const NodeId b("b");
  for (int i = 0; i < 3; ++i) rates.add(a, b, 10e6, 1, Instant{});
  for (int i = 0; i < 9; ++i) rates.add(a, b, 1e6, 0.001, Instant{});
  EXPECT_FALSE(rates.find(a, b));
  rates.add(a, b, 20e6, 1, Instant{});

  ASSERT_TRUE(rates.find(a, b));
  EXPECT_EQ(rates.find(a, b)->q10, 10e6);
  EXPECT_EQ(rates.find(a, b)->median, 10e6);
  EXPECT_FALSE(rates.find(b, a));
  EXPECT_EQ(rates.best().at(b), 10e6);
}

TEST(PathRatesTest, only_the_newest_sixteen_and_so_many_paths_are_kept) {
  PathRates rates;
  const NodeId a("a");
  for (int i = 0; i < 32; ++i) rates.add(a, NodeId("b"), i < 16 ? 5e6 : 50e6, 1, Instant{});
  EXPECT_EQ(rates.find(a, NodeId("b"))->q10, 50e6);
  for (std::size_t i = 0; i < PathRates::kPaths + 10; ++i)
    rates.add(a, NodeId("n" + std::to_string(i)), 5e6, 1, Instant{} + seconds(1 + i));

  EXPECT_EQ(rates.size(), PathRates::kPaths);
  EXPECT_FALSE(rates.find(a, NodeId("b")));
}

TEST_F(Evacuations, what_past_copies_took_counts_for_the_path) {
  const JobId id = saved("a");
  for (std::uint32_t number = 2; number < 8; ++number) {
    GenerationRef ref = generation(id, number);
    ref.bytes = 100'000'000;
    ref.new_bytes = 100'000'000;
    ref.created_wall_ms = to_ms(clock.now().wall);
    clock.advance(seconds(2));
    Receipt r = receipt(node("store"), ref);
    r.verified_wall_ms = to_ms(clock.now().wall);
    r = signed_receipt(r, node("store").signing);
    ASSERT_TRUE(commit_generation(node("a"), ref, {r}).is_accepted);
  }
  for (const char* other : {"b", "c"}) {
    node(other).lending = LendingState::kPaused;
    node(other).hello.address.peer.clear();
    connect(node(other));
  }
  take_back("a", 60);

  const auto view = core->evacuation(id);
  ASSERT_TRUE(view);
  EXPECT_EQ(name_of(view->holder), "store");
  EXPECT_NEAR(view->rate_q10, 50e6 * 0.6, 1e6);  // of the best that its line was seen to do
}

}  // namespace
}  // namespace rn::coordinator
