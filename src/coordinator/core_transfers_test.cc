// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_transfers.h"

#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

constexpr std::uint64_t kMb = 1'000'000;

/// Two laboratories' machines behind one line of 100 Mbit/s out of their building, and a store at
/// the campus' root.
class SharedLine : public CoreSite {
 protected:
  SharedLine() {
    declared.switches = {{"campus", "", {}}, {"building-a", "campus", {12.5e6, 12.5e6, 0.001}}};
    declared.nodes = {
        {"a", "building-a", {125e6, 125e6, 0}}, {"b", "building-a", {125e6, 125e6, 0}}};
    config.topology = *reclaim::Topology::make(declared);
  }

  void build() {
    start();
    add_node("a", "lab-a");
    add_node("b", "lab-b");
    FakeAgent& store = add_node("store", "lab-s");
    store.hello.contract.lends = false;
    update(store);
    store.lending = LendingState::kNotLending;
    settle();
    JobSpec spec = a_spec();
    spec.only_labs = {"lab-a"};
    job_a_ = running(spec);
    spec.only_labs = {"lab-b"};
    job_b_ = running(spec);
    pass(config.heartbeat_ms + 500);
    clear_inboxes();
  }

  void clear_inboxes() {
    for (auto& [id, agent] : agents) agent.inbox.clear();
  }

  void notice(const JobId& id) { say(node(where(id)), id, job(id).epoch, AttemptState::kNoticed); }

  void report(const JobId& id, std::uint64_t bytes, std::uint32_t deadline_ms) {
    tell(node(where(id)), wire::Transfers{{copy_report(id, bytes, deadline_ms)}, 0});
  }

  void update(FakeAgent& agent) {
    tell(agent, wire::NodeUpdate{agent.hello.facts, agent.hello.contract, agent.hello.address});
  }

  /// What the owner of the job's node has its kernel let through.
  void grant(const JobId& id, std::uint64_t bps) {
    node(where(id)).hello.facts.transfers_bps = bps;
    update(node(where(id)));
  }

  void cut(FakeAgent& agent, bool is_cut) {
    agent.hello.facts.are_transfers_cut = is_cut;
    update(agent);
  }

  /// The rate that the node of the job was told last, in Mbit/s; 0 = nothing bounds it.
  double rate_of(const JobId& id) {
    const auto told = node(where(id)).last<wire::TransferRates>();
    EXPECT_EQ(told.rates.size(), 1u);
    return told.rates.empty() ? -1 : static_cast<double>(told.rates[0].rate_bps) / 1e6;
  }

  bool is_promised(const JobId& id) {
    const auto told = node(where(id)).last<wire::TransferRates>();
    return !told.rates.empty() && told.rates[0].is_promised;
  }

  std::string why(const JobId& id) { return core->why(id, clock.now()).value(); }

  reclaim::TopologyDeclaration declared;
  JobId job_a_;
  JobId job_b_;
};

TEST_F(SharedLine, two_evacuations_are_planned_together_and_both_promised) {
  build();
  notice(job_a_);
  notice(job_b_);

  report(job_a_, 60 * kMb, 20'000);
  report(job_b_, 60 * kMb, 20'000);
  pass(250);

  EXPECT_TRUE(is_promised(job_a_));
  EXPECT_TRUE(is_promised(job_b_));
  EXPECT_LE(rate_of(job_a_) + rate_of(job_b_), 95.1);
  EXPECT_GE(rate_of(job_a_) + rate_of(job_b_), 90);
  EXPECT_EQ(count_events("evacuation.admitted"), 2u);
  EXPECT_EQ(last_event("evacuation.admitted").data.at("bytes"), "60000000");
  EXPECT_NE(why(job_a_).find("arrives in time: 60 MB"), std::string::npos) << why(job_a_);
  EXPECT_EQ(core->metrics().evacuations_admitted, 2u);
}

TEST_F(SharedLine, what_does_not_fit_beside_a_promise_is_refused_and_told_why) {
  build();
  notice(job_a_);
  notice(job_b_);
  report(job_a_, 100 * kMb, 10'000);
  pass(250);
  ASSERT_TRUE(is_promised(job_a_));

  report(job_b_, 100 * kMb, 10'000);
  pass(250);

  EXPECT_FALSE(is_promised(job_b_));
  EXPECT_TRUE(is_promised(job_a_)) << "what was promised keeps its place";
  EXPECT_EQ(count_events("evacuation.refused"), 1u);
  EXPECT_NE(why(job_b_).find("\"building-a up\" has"), std::string::npos) << why(job_b_);
  EXPECT_NE(why(job_b_).find("left beside what is promised"), std::string::npos) << why(job_b_);
}

TEST_F(SharedLine, of_two_that_do_not_fit_together_the_one_with_less_to_lose_is_refused) {
  build();
  // What a holds is durable since a moment ago; b would lose all that it has done.
  const GenerationRef ref = generation(job_a_, 1);
  ASSERT_TRUE(commit_generation(node(where(job_a_)), ref, {receipt(node("store"), ref)}).is_accepted
  );
  pass(20'000);
  const GenerationRef newer = generation(job_a_, 2);
  ASSERT_TRUE(
      commit_generation(node(where(job_a_)), newer, {receipt(node("store"), newer)}).is_accepted
  );
  notice(job_a_);
  notice(job_b_);

  report(job_b_, kMb, 0);  // planned at once; what comes in the next 0.1 s is planned together
  report(job_a_, 100 * kMb, 10'000);
  report(job_b_, 100 * kMb, 10'000);
  pass(250);

  EXPECT_TRUE(is_promised(job_b_));
  EXPECT_FALSE(is_promised(job_a_));
  EXPECT_EQ(last_event("evacuation.refused").job, job_a_);
}

TEST_F(
    SharedLine, where_more_comes_than_it_carries_room_is_kept_for_what_is_worth_more_and_it_is_told
) {
  build();
  // What b holds is durable since a moment ago; a would lose all that it has done.
  pass(20'000);
  for (const std::uint32_t number : {1u, 2u}) {
    const GenerationRef ref = generation(job_b_, number);
    ASSERT_TRUE(
        commit_generation(node(where(job_b_)), ref, {receipt(node("store"), ref)}).is_accepted
    );
  }
  notice(job_a_);
  notice(job_b_);
  report(job_a_, 1400 * kMb, 300'000);  // two minutes of the line
  pass(250);
  ASSERT_TRUE(is_promised(job_a_));

  report(job_b_, 100 * kMb, 300'000);
  pass(250);

  EXPECT_TRUE(is_promised(job_a_));
  EXPECT_FALSE(is_promised(job_b_));
  EXPECT_NE(why(job_b_).find("kept for what is worth more per byte"), std::string::npos)
      << why(job_b_);
}

TEST_F(SharedLine, a_checkpoint_goes_by_what_evacuations_leave) {
  build();
  notice(job_a_);

  report(job_b_, 500 * kMb, 0);
  pass(250);
  EXPECT_NEAR(rate_of(job_b_), 95, 0.1);

  report(job_a_, 100 * kMb, 10'000);
  report(job_b_, 500 * kMb, 0);
  pass(250);

  EXPECT_TRUE(is_promised(job_a_));
  EXPECT_LT(rate_of(job_b_), 15);
}

TEST_F(SharedLine, an_evacuation_that_nobody_ordered_is_a_checkpoint) {
  build();

  report(job_a_, 50 * kMb, 10'000);
  pass(250);

  EXPECT_FALSE(is_promised(job_a_));
  EXPECT_EQ(count_events("evacuation.admitted"), 0u);
}

TEST_F(SharedLine, a_node_speaks_of_its_own_attempts_only) {
  build();
  notice(job_a_);
  notice(job_b_);
  FakeAgent& liar = node(where(job_b_));

  tell(liar, wire::Transfers{{copy_report(job_a_, ~std::uint64_t{0}, 1)}, ~std::uint64_t{0}});
  report(job_a_, 60 * kMb, 10'000);
  pass(250);

  EXPECT_TRUE(is_promised(job_a_));
  EXPECT_GE(rate_of(job_a_), 48) << "I15";
  EXPECT_TRUE(liar.received<wire::TransferRates>().empty());
}

TEST_F(SharedLine, a_state_is_believed_no_larger_than_its_disk) {
  build();
  notice(job_a_);
  notice(job_b_);
  report(job_a_, 60 * kMb, 20'000);
  pass(250);
  ASSERT_TRUE(is_promised(job_a_));

  report(job_b_, ~std::uint64_t{0}, 20'000);
  report(job_a_, 60 * kMb, 20'000);
  pass(250);

  EXPECT_TRUE(is_promised(job_a_));
  EXPECT_FALSE(is_promised(job_b_));
  const auto bytes = std::stod(last_event("evacuation.refused").data.at("bytes"));
  EXPECT_LT(bytes, 1e13);
}

TEST_F(SharedLine, a_peer_that_nobody_named_is_no_destination) {
  build();
  notice(job_a_);
  wire::TransferReport odd = copy_report(job_a_, 60 * kMb, 10'000);
  odd.peer = NodeId("n-nobody");

  tell(node(where(job_a_)), wire::Transfers{{odd}, 0});
  pass(500);

  EXPECT_TRUE(node(where(job_a_)).received<wire::TransferRates>().empty());
}

TEST_F(SharedLine, a_copy_that_gets_nothing_loses_its_promise_and_its_author_is_told) {
  build();
  notice(job_a_);

  for (int i = 0; i < 40; ++i) {  // ten seconds, in which not one byte arrives
    report(job_a_, 60 * kMb, static_cast<std::uint32_t>(20'000 - 250 * i));
    pass(250);
  }

  EXPECT_EQ(count_events("evacuation.admitted"), 1u);
  EXPECT_EQ(count_events("evacuation.refused"), 1u);
  EXPECT_EQ(core->metrics().evacuations_withdrawn, 1u);
  EXPECT_NE(why(job_a_).find("no longer promised"), std::string::npos) << why(job_a_);
}

TEST_F(SharedLine, what_a_copy_got_while_it_made_way_is_no_measure_of_its_evacuation) {
  build();
  std::uint64_t left = 60 * kMb;
  for (int i = 0; i < 16; ++i) {
    report(job_a_, left -= 50'000, 0);
    pass(250);
  }
  ASSERT_LT(rate_of(job_a_), 5) << "what it does not use is for others";

  notice(job_a_);
  report(job_a_, left, 20'000);
  pass(250);

  EXPECT_TRUE(is_promised(job_a_));
  EXPECT_GE(rate_of(job_a_), 89);
}

TEST_F(SharedLine, a_promise_is_kept_when_the_generation_is_durable) {
  build();
  notice(job_a_);
  report(job_a_, 60 * kMb, 20'000);
  pass(250);

  const GenerationRef ref = generation(job_a_, 1);
  ASSERT_TRUE(commit_generation(node(where(job_a_)), ref, {receipt(node("store"), ref)}).is_accepted
  );
  tell(node(where(job_a_)), wire::Transfers{});
  pass(1000);

  EXPECT_EQ(core->metrics().evacuations_in_time, 1u);
  EXPECT_EQ(core->metrics().evacuations_missed, 0u);
  ASSERT_EQ(count_events("evacuation.in_time"), 1u);
  const EventRow told = last_event("evacuation.in_time");
  EXPECT_EQ(told.data.at("to"), node("store").id.str());
  EXPECT_EQ(told.data.at("bytes"), std::to_string(60 * kMb));
  EXPECT_EQ(told.message.find("generation 1 is durable 1"), 0u) << told.message;
  EXPECT_NE(told.message.find(" s before the deadline of its evacuation to "), std::string::npos);
  EXPECT_NE(told.message.find(" s after the promise: 60 MB, "), std::string::npos) << told.message;
  EXPECT_GT(std::stol(told.data.at("deadline_ms")), 15'000);
  EXPECT_GT(std::stol(told.data.at("rate_bps")), 0);
}

TEST_F(SharedLine, a_promise_that_was_not_kept_is_told) {
  build();
  notice(job_a_);
  report(job_a_, 60 * kMb, 8'000);
  pass(250);
  tell(node(where(job_a_)), wire::Transfers{});  // the copy broke off

  pass(12'000);

  EXPECT_EQ(count_events("evacuation.missed"), 1u);
  EXPECT_EQ(core->metrics().evacuations_missed, 1u);
}

TEST_F(SharedLine, the_contract_of_the_sender_bounds_what_it_is_given) {
  build();
  FakeAgent& sender = node(where(job_a_));
  sender.hello.contract.uplink_bps_normal = 10'000'000;
  sender.hello.contract.uplink_bps_evacuation = 40'000'000;
  update(sender);

  report(job_a_, 500 * kMb, 0);
  pass(250);
  EXPECT_NEAR(rate_of(job_a_), 9.5, 0.1);

  notice(job_a_);
  report(job_a_, 20 * kMb, 20'000);
  pass(500);
  EXPECT_NEAR(rate_of(job_a_), 38, 0.1);
}

TEST_F(SharedLine, a_promise_that_the_line_would_hold_and_the_owners_grant_does_not_is_not_made) {
  build();
  grant(job_a_, 40'000'000);
  notice(job_a_);

  report(job_a_, 60 * kMb, 10'000);  // 48 Mbit/s, of a line of 100
  pass(250);

  EXPECT_FALSE(is_promised(job_a_));
  EXPECT_LE(rate_of(job_a_), 38.1);
  EXPECT_EQ(count_events("evacuation.admitted"), 0u);
  EXPECT_NE(
      why(job_a_).find("\"what the owner of lab-a/a grants to transfers\" has 38 Mbit/s"),
      std::string::npos
  ) << why(job_a_);
}

TEST_F(SharedLine, a_grant_that_shrinks_withdraws_a_promise_and_one_that_grows_gives_it_again) {
  build();
  grant(job_a_, 90'000'000);
  notice(job_a_);
  report(job_a_, 60 * kMb, 10'000);
  pass(250);
  ASSERT_TRUE(is_promised(job_a_));

  grant(job_a_, 20'000'000);
  report(job_a_, 59 * kMb, 9'700);
  pass(250);
  EXPECT_FALSE(is_promised(job_a_));
  EXPECT_LE(rate_of(job_a_), 19.1);
  EXPECT_EQ(core->metrics().evacuations_withdrawn, 1u);

  grant(job_a_, 90'000'000);
  for (std::uint32_t i = 0; i < 10; ++i) {
    report(job_a_, 59 * kMb - i * kMb * 5 / 2, static_cast<std::uint32_t>(9'400 - 250 * i));
    pass(250);
  }
  EXPECT_TRUE(is_promised(job_a_));
}

TEST_F(SharedLine, transfers_that_an_owner_has_cut_are_promised_nothing_at_either_end) {
  build();
  notice(job_a_);
  const auto keep_telling = [&](int times) {
    for (int i = 0; i < times; ++i) {
      report(job_a_, kMb, 20'000);
      pass(250);
    }
  };
  cut(node("store"), true);
  report(job_a_, kMb, 20'000);
  pass(250);
  EXPECT_FALSE(is_promised(job_a_));

  EXPECT_NE(
      why(job_a_).find("\"the transfers of lab-s/store, cut by its owner,\" has 0.0 Mbit/s"),
      std::string::npos
  ) << why(job_a_);

  cut(node("store"), false);
  cut(node(where(job_a_)), true);
  keep_telling(12);
  EXPECT_FALSE(is_promised(job_a_));

  cut(node(where(job_a_)), false);
  keep_telling(12);
  EXPECT_TRUE(is_promised(job_a_));
}

TEST_F(SharedLine, a_grant_that_no_line_has_is_bounded_and_said) {
  build();
  grant(job_a_, ~std::uint64_t{0});
  notice(job_a_);

  report(job_a_, 60 * kMb, 10'000);
  pass(250);

  EXPECT_TRUE(is_promised(job_a_));
  const NodeFacts& facts = tables.nodes.at(node(where(job_a_)).id).facts;
  EXPECT_EQ(facts.transfers_bps, kMostGranted_bps);
  ASSERT_EQ(facts.warnings.size(), 1u);
  EXPECT_NE(facts.warnings[0].find("which no line carries"), std::string::npos);
}

TEST_F(SharedLine, what_others_send_by_the_nodes_uplink_is_left_to_them) {
  build();
  FakeAgent& sender = node(where(job_a_));
  const std::uint64_t foreign = 930'000'000;  // of its line of 1 Gbit/s

  tell(sender, wire::Transfers{{copy_report(job_a_, 500 * kMb, 0)}, foreign});
  pass(250);

  EXPECT_NEAR(rate_of(job_a_), 20, 0.5);
}

TEST_F(SharedLine, what_others_send_over_a_declared_line_is_left_to_them) {
  declared.switches[1].line.background = 40e6 / 8;
  config.topology = *reclaim::Topology::make(declared);
  build();

  report(job_a_, 500 * kMb, 0);
  pass(250);
  EXPECT_NEAR(rate_of(job_a_), 55, 0.1) << "of 100 Mbit/s, 5 % of which stay free";

  notice(job_a_);
  report(job_a_, 160 * kMb, 20'000);
  pass(250);
  EXPECT_TRUE(is_promised(job_a_)) << "an owner waits: for two minutes others may be pressed";
}

TEST_F(SharedLine, a_site_at_rest_hears_nothing_of_rates) {
  build();

  pass(60'000);

  for (const auto& [id, agent] : agents) EXPECT_TRUE(agent.received<wire::TransferRates>().empty());
}

TEST_F(SharedLine, more_reports_than_there_can_be_are_not_looked_at) {
  build();
  wire::Transfers many;
  many.transfers.assign(wire::kMaxTransfers + 1, copy_report(job_a_, kMb, 0));

  tell(node(where(job_a_)), many);
  pass(500);

  EXPECT_TRUE(node(where(job_a_)).received<wire::TransferRates>().empty());
}

}  // namespace
}  // namespace rn::coordinator
