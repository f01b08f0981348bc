// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

class Copies : public CoreSite {
 protected:
  void SetUp() override { start_with_a_store(); }

  wire::GenerationCommitted commit(const JobId& id, std::uint32_t number) {
    const GenerationRef ref = generation(id, number);
    return commit_generation(node("a"), ref, {receipt(node("store"), ref)});
  }
};

TEST_F(Copies, a_generation_is_durable_by_one_row_with_its_receipts) {
  const JobId id = running();
  EXPECT_TRUE(commit(id, 1).is_accepted);

  const GenerationRow& row = tables.generations.at({id, 1});
  EXPECT_EQ(row.receipts.at(0).holder, node("store").id);
  EXPECT_EQ(row.source, node("a").id);
  EXPECT_EQ(tables.jobs.at(id).job.durable.generation, 1U);
  EXPECT_EQ(count_events("generation.durable"), 1U);
}

TEST_F(Copies, the_same_commit_again_is_accepted_again_and_written_once) {
  const JobId id = running();
  commit(id, 1);
  const std::uint64_t before = writes;

  EXPECT_TRUE(commit(id, 1).is_accepted);
  EXPECT_EQ(writes, before);
}

TEST_F(Copies, an_older_generation_is_refused) {
  const JobId id = running();
  commit(id, 2);
  const auto answer = commit(id, 1);

  EXPECT_FALSE(answer.is_accepted);
  EXPECT_EQ(answer.reason, "generation 2 is durable already");
}

TEST_F(Copies, a_receipt_that_was_tampered_with_does_not_count) {
  const JobId id = running();
  const GenerationRef ref = generation(id, 1);
  Receipt forged = receipt(node("store"), ref);
  forged.verified_wall_ms = 77;

  const auto answer = commit_generation(node("a"), ref, {forged});
  EXPECT_FALSE(answer.is_accepted);
  EXPECT_NE(answer.reason.find("does not verify"), std::string::npos);
  EXPECT_EQ(job(id).durable.generation, 0U);
}

TEST_F(Copies, a_receipt_signed_by_somebody_else_does_not_count) {
  const JobId id = running();
  const GenerationRef ref = generation(id, 1);
  Receipt forged = receipt(node("store"), ref);
  forged = signed_receipt(forged, node("a").signing);

  EXPECT_FALSE(commit_generation(node("a"), ref, {forged}).is_accepted);
}

TEST_F(Copies, a_receipt_for_another_manifest_generation_or_epoch_does_not_count) {
  const JobId id = running();
  const GenerationRef ref = generation(id, 1);
  GenerationRef other = ref;
  other.manifest.fill(1);
  EXPECT_FALSE(commit_generation(node("a"), ref, {receipt(node("store"), other)}).is_accepted);
  other = ref;
  other.generation = 2;
  EXPECT_FALSE(commit_generation(node("a"), ref, {receipt(node("store"), other)}).is_accepted);
  other = ref;
  other.epoch = {1, 9};
  EXPECT_FALSE(commit_generation(node("a"), ref, {receipt(node("store"), other)}).is_accepted);
}

TEST_F(Copies, the_sources_own_receipt_and_one_from_its_failure_domain_do_not_count) {
  add_node("a2", "lab-a");
  const JobId id = running();
  FakeAgent& here = node(where(id));
  FakeAgent& neighbour = node(where(id) == "a" ? "a2" : "a");
  const GenerationRef ref = generation(id, 1);
  Receipt claims_elsewhere = receipt(neighbour, ref);
  claims_elsewhere.failure_domain = "another-building";
  claims_elsewhere = signed_receipt(claims_elsewhere, neighbour.signing);

  EXPECT_FALSE(commit_generation(here, ref, {receipt(here, ref)}).is_accepted);
  EXPECT_FALSE(commit_generation(here, ref, {claims_elsewhere}).is_accepted)
      << "the registry's word counts, not the receipt's";
}

TEST_F(Copies, more_than_the_site_can_ever_give_are_not_waited_for) {
  JobSpec spec = a_spec();
  spec.checkpoint.copies = 5;
  const JobId id = running(spec);
  const GenerationRef ref = generation(id, 1);
  const auto plan = [&] { return node("a").last<wire::HeartbeatAck>().plans.at(0); };
  pass(31'000);

  EXPECT_EQ(node("a").last<wire::Commit>().plan.wanted, 2U) << "store and b, and none is left";
  EXPECT_FALSE(commit_generation(node("a"), ref, {receipt(node("store"), ref)}).is_accepted);
  const auto both = {receipt(node("store"), ref), receipt(node("b"), ref)};
  EXPECT_TRUE(commit_generation(node("a"), ref, both).is_accepted);
  EXPECT_NE(
      core->why(id, clock.now())
          .value()
          .find("2 copy places instead of 5 in other failure domains: a generation counts as "
                "durable with "
                "2"),
      std::string::npos
  ) << core->why(id, clock.now()).value();

  disconnect(node("b"));
  pass(40'000);
  EXPECT_EQ(plan().wanted, 2U) << "who is away is waited for";
  add_node("c", "lab-c");
  pass(40'000);
  EXPECT_EQ(plan().wanted, 3U);
}

TEST_F(Copies, a_generation_whose_holders_have_left_is_not_called_durable) {
  const JobId id = running();
  const GenerationRef ref = generation(id, 1);
  const auto both = {receipt(node("store"), ref), receipt(node("b"), ref)};
  ASSERT_TRUE(commit_generation(node("a"), ref, both).is_accepted);
  const auto why = [&] { return core->why(id, clock.now()).value(); };

  tell(node("b"), wire::Leave{"moving house"});
  EXPECT_NE(why().find("; durable: generation 1"), std::string::npos) << why();
  EXPECT_EQ(count_events("copies.left"), 0U);
  tell(node("store"), wire::Leave{"moving house"});

  EXPECT_EQ(why().find("durable: generation"), std::string::npos) << why();
  EXPECT_NE(
      why().find(
          "all who held copies of generation 1 have left the site: only lab-a/a, which made it"
      ),
      std::string::npos
  ) << why();
  EXPECT_EQ(count_events("copies.left"), 1U);
}

TEST_F(Copies, two_copies_mean_two_failure_domains) {
  add_node("store2", "storage");
  JobSpec spec = a_spec();
  spec.checkpoint.copies = 2;
  const JobId id = running(spec);
  const GenerationRef ref = generation(id, 1);

  const auto one_domain = commit_generation(
      node("a"), ref, {receipt(node("store"), ref), receipt(node("store2"), ref)}
  );
  EXPECT_FALSE(one_domain.is_accepted);
  EXPECT_EQ(one_domain.reason, "1 verified copies in other failure domains, 2 needed");
  EXPECT_TRUE(
      commit_generation(node("a"), ref, {receipt(node("store"), ref), receipt(node("b"), ref)})
          .is_accepted
  );
}

TEST_F(Copies, a_node_cannot_commit_for_another_ones_attempt) {
  const JobId id = running();
  const GenerationRef ref = generation(id, 1);

  EXPECT_FALSE(commit_generation(node("b"), ref, {receipt(node("store"), ref)}).is_accepted);
}

TEST_F(Copies, garbage_is_told_only_after_the_successor_is_durable_and_keeps_two) {
  const JobId id = running();
  commit(id, 1);
  commit(id, 2);
  EXPECT_TRUE(node("store").received<wire::CollectGarbage>().empty());
  commit(id, 3);

  const auto garbage = node("store").last<wire::CollectGarbage>();
  EXPECT_EQ(garbage.keep_from, 2U);
  EXPECT_FALSE(garbage.is_job_over);
  EXPECT_EQ(garbage.epoch, job(id).epoch);
}

TEST_F(Copies, who_was_only_named_as_a_place_hears_of_garbage_with_every_eighth_generation) {
  const JobId id = running();
  for (std::uint32_t number = 1; number <= 8; ++number) commit(id, number);
  EXPECT_EQ(node("store").received<wire::CollectGarbage>().size(), 6U);
  EXPECT_EQ(node("a").received<wire::CollectGarbage>().size(), 6U);
  EXPECT_TRUE(node("b").received<wire::CollectGarbage>().empty());

  commit(id, 9);
  EXPECT_EQ(node("b").last<wire::CollectGarbage>().keep_from, 8U);
}

TEST_F(Copies, who_goes_on_with_a_job_hears_that_what_it_went_on_from_is_garbage) {
  const JobId id = running();
  commit(id, 1);
  commit(id, 2);
  node("a").lending = LendingState::kReclaimed;
  beat(node("a"));
  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kReclaimed);
  pass(2000);
  ASSERT_EQ(where(id), "b");
  say(node("b"), id, job(id).epoch, AttemptState::kRunning);
  for (std::uint32_t number = 3; number <= 4; ++number) {
    const GenerationRef ref = generation(id, number);
    commit_generation(node("b"), ref, {receipt(node("store"), ref)});
  }

  EXPECT_EQ(node("a").last<wire::CollectGarbage>().keep_from, 3U);
  EXPECT_EQ(node("b").last<wire::CollectGarbage>().keep_from, 3U) << "it went on from generation 2";
}

TEST_F(
    Copies, a_node_whose_generations_never_became_durable_deletes_them_too_when_the_job_is_over
) {
  const JobId id = running();

  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kSucceeded);

  ASSERT_FALSE(node("a").received<wire::CollectGarbage>().empty());
  EXPECT_TRUE(node("a").last<wire::CollectGarbage>().is_job_over);
}

TEST_F(Copies, when_the_job_is_over_its_holders_delete_everything_also_those_that_were_away) {
  const JobId id = running();
  commit(id, 1);
  disconnect(node("store"));
  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kSucceeded);
  EXPECT_TRUE(node("a").last<wire::CollectGarbage>().is_job_over);
  connect(node("store"));
  EXPECT_TRUE(node("store").last<wire::CollectGarbage>().is_job_over);
  pass(30'000);
  node("store").inbox.clear();
  connect(node("store"));

  EXPECT_TRUE(node("store").received<wire::CollectGarbage>().empty()) << "told, and it was there";
  EXPECT_TRUE(tables.generations.at({id, 1}).is_collected);
}

TEST_F(
    Copies,
    a_holder_that_a_dead_coordinator_had_named_is_told_what_to_delete_when_it_says_what_it_keeps
) {
  const JobId id = running();
  tell(
      node("a"), wire::GrantRequest{.job = id, .epoch = job(id).epoch, .tried = {node("store").id}}
  );
  ASSERT_EQ(node("a").last<wire::Grants>().peers.at(0).node, node("b").id);
  const LeaseEpoch epoch = job(id).epoch;
  restart();
  for (const char* name : {"a", "b", "store"}) connect(node(name));
  say(node("a"), id, epoch, AttemptState::kEnded, AttemptEnd::kSucceeded);
  ASSERT_TRUE(node("b").received<wire::CollectGarbage>().empty()) << "no receipt names it";

  tell(node("b"), wire::Holdings{{JobId("j-unknown"), id}});

  const auto orders = node("b").received<wire::CollectGarbage>();
  ASSERT_EQ(orders.size(), 1U);
  EXPECT_EQ(orders[0].job, id);
  EXPECT_TRUE(orders[0].is_job_over);
}

TEST_F(Copies, a_holder_that_says_what_it_keeps_of_a_living_job_deletes_nothing_before_the_end) {
  const JobId id = running();
  commit(id, 1);
  node("b").inbox.clear();
  tell(node("b"), wire::Holdings{{id}});
  EXPECT_TRUE(node("b").received<wire::CollectGarbage>().empty());

  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kSucceeded);

  EXPECT_TRUE(node("b").last<wire::CollectGarbage>().is_job_over);
}

TEST_F(Copies, plans_come_with_the_commit_and_heartbeats_with_tickets_good_for_an_hour) {
  const JobId id = running();
  const wire::CopyPlan plan = node("a").last<wire::Commit>().plan;
  ASSERT_FALSE(plan.copies.empty());
  EXPECT_EQ(plan.copies[0].node, node("store").id) << "storage first";
  EXPECT_EQ(plan.copies[0].address, "store:7445");
  EXPECT_TRUE(verify_ticket(plan.copies[0].ticket, keys.ticket_key.public_key));
  EXPECT_EQ(plan.copies[0].ticket.from, node("a").id);
  EXPECT_EQ(plan.copies[0].ticket.epoch, job(id).epoch);

  for (int hour = 0; hour < 3; ++hour) {
    pass(3'600'000);
    const auto now = node("a").last<wire::HeartbeatAck>().plans.at(0);
    EXPECT_GE(now.copies.at(0).ticket.expiry_wall_ms - to_ms(clock.now().wall), 3'600'000 - 10'000);
  }
}

TEST_F(Copies, a_place_that_stays_keeps_its_ticket_wherever_it_stands_in_the_plan) {
  add_node("c", "lab-c");
  const JobId id = running();
  const auto plan = [&] { return node("a").last<wire::HeartbeatAck>().plans.at(0); };
  pass(31'000);
  const auto before = plan().copies;
  ASSERT_EQ(before.size(), 3U);
  FakeAgent& last = agents.at(before[2].node);
  const GenerationRef ref = generation(id, 1);
  commit_generation(node("a"), ref, {receipt(node("store"), ref), receipt(last, ref)});

  pass(40'000);
  EXPECT_EQ(plan().copies, (std::vector<PeerGrant>{before[0], before[2], before[1]}))
      << "who has the generation before comes first";

  disconnect(agents.at(before[1].node));
  add_node("d", "lab-d");
  pass(40'000);
  const auto after = plan().copies;
  ASSERT_EQ(after.size(), 3U);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[1], before[2]);
  EXPECT_EQ(after[2].node, node("d").id);
  EXPECT_TRUE(verify_ticket(after[2].ticket, keys.ticket_key.public_key));
  EXPECT_GT(after[2].ticket.expiry_wall_ms, after[0].ticket.expiry_wall_ms);

  const std::int64_t half_ms = std::int64_t{config.ticket_valid_s} * 500;
  pass(half_ms);
  for (const PeerGrant& copy : plan().copies)
    EXPECT_GE(copy.ticket.expiry_wall_ms - to_ms(clock.now().wall), half_ms - 10'000);
}

TEST_F(Copies, a_destination_that_vanishes_is_replaced_in_the_plan) {
  const JobId id = running();
  disconnect(node("store"));
  pass(12'000);
  const auto plan = node("a").last<wire::HeartbeatAck>().plans.at(0);

  ASSERT_FALSE(plan.copies.empty());
  EXPECT_EQ(plan.copies[0].node, node("b").id);
  EXPECT_EQ(plan.job, id);
}

TEST_F(Copies, destinations_of_the_submitter_are_obeyed_and_a_shortfall_is_said) {
  JobSpec spec = a_spec();
  spec.checkpoint.destinations = {"lab-nowhere"};
  const JobId id = running(spec);

  EXPECT_TRUE(node("a").last<wire::Commit>().plan.copies.empty());
  EXPECT_EQ(count_events("copies.short"), 1U);
  EXPECT_NE(
      core->why(id, clock.now()).value().find("checkpoints stay on the machine"), std::string::npos
  );
}

TEST_F(Copies, a_grant_request_names_others_than_those_tried_and_only_for_the_holder) {
  const JobId id = running();
  tell(
      node("a"), wire::GrantRequest{.job = id, .epoch = job(id).epoch, .tried = {node("store").id}}
  );
  const auto grants = node("a").last<wire::Grants>();
  ASSERT_EQ(grants.peers.size(), 1U);
  EXPECT_EQ(grants.peers[0].node, node("b").id);

  tell(node("b"), wire::GrantRequest{.job = id, .epoch = job(id).epoch});
  EXPECT_TRUE(node("b").received<wire::Grants>().empty());
}

TEST_F(Copies, a_stateless_job_has_no_plan_and_starts_over) {
  JobSpec spec = a_spec();
  spec.checkpoint = {};
  spec.checkpoint.is_stateless = true;
  const JobId id = running(spec);
  EXPECT_TRUE(node("a").last<wire::Commit>().plan.copies.empty());
  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kReclaimed);
  pass(2000);

  EXPECT_EQ(node(where(id)).last<wire::Commit>().resume.generation, 0U);
}

TEST_F(Copies, images_come_from_peers_that_have_them) {
  node("a").lending = LendingState::kPaused;
  beat(node("a"));
  const JobId id = submit();
  ASSERT_EQ(where(id), "b");
  const auto commit = node("b").last<wire::Commit>();

  ASSERT_EQ(commit.image_peers.size(), 1U);
  EXPECT_EQ(commit.image_peers[0].node, node("a").id);
  EXPECT_EQ(commit.image_peers[0].ticket.action, TicketAction::kFetchImage);
  EXPECT_EQ(commit.image_peers[0].ticket.image, a_image("base").digest);
}

TEST_F(Copies, a_copy_goes_where_the_jobs_data_is_so_that_it_can_go_on_there) {
  for (const char* name : {"a", "b"}) {
    FakeAgent& agent = node(name);
    agent.hello.facts.data_sets = {"digits"};
    tell(agent, wire::NodeUpdate{agent.hello.facts, agent.hello.contract, agent.hello.address});
  }
  JobSpec spec = a_spec();
  spec.data = {"digits"};
  const JobId id = running(spec);
  ASSERT_EQ(where(id), "a");

  EXPECT_EQ(node("a").last<wire::Commit>().plan.copies.at(0).node, node("b").id);
}

TEST_F(Copies, a_number_that_is_durable_already_is_no_other_generation) {
  const JobId id = running();
  commit(id, 1);
  GenerationRef other = generation(id, 1);
  other.manifest.fill(7);

  EXPECT_FALSE(commit_generation(node("a"), other, {receipt(node("store"), other)}).is_accepted);
}

TEST_F(Copies, a_node_that_was_revoked_vouches_for_nothing_and_is_asked_for_nothing) {
  const JobId id = running();
  commit(id, 1);
  const GenerationRef next = generation(id, 2);
  const Receipt late = receipt(node("store"), next);
  ASSERT_TRUE(run(admin(), RevokeNode{node("store").id}));

  EXPECT_FALSE(commit_generation(node("a"), next, {late}).is_accepted);
  node("a").lending = LendingState::kReclaimed;
  beat(node("a"));
  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kReclaimed);
  pass(2000);
  ASSERT_EQ(where(id), "b");
  for (const PeerGrant& peer : node("b").last<wire::Commit>().resume_from)
    EXPECT_NE(peer.node, node("store").id);
}

TEST_F(Copies, the_node_that_made_a_generation_is_asked_for_it_too) {
  const JobId id = running();
  commit(id, 1);
  node("a").lending = LendingState::kReclaimed;
  beat(node("a"));
  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kReclaimed);
  pass(2000);
  ASSERT_EQ(where(id), "b");

  std::set<NodeId> asked;
  for (const PeerGrant& peer : node("b").last<wire::Commit>().resume_from) asked.insert(peer.node);
  EXPECT_EQ(asked, (std::set{node("a").id, node("store").id}));
}

TEST_F(Copies, who_has_lost_a_job_gets_no_tickets_for_it) {
  const JobId id = running();
  const LeaseEpoch old = job(id).epoch;
  node("a").lending = LendingState::kReclaimed;
  beat(node("a"));
  say(node("a"), id, old, AttemptState::kEnded, AttemptEnd::kReclaimed);
  pass(2000);
  ASSERT_EQ(where(id), "b");
  node("a").inbox.clear();
  tell(node("a"), wire::GrantRequest{.job = id, .epoch = old});

  EXPECT_TRUE(node("a").received<wire::Grants>().empty());
}

}  // namespace
}  // namespace rn::coordinator
