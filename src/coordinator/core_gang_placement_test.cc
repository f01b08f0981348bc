// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>
#include <vector>

#include "coordinator/core_harness.h"
#include "model/gang.h"

namespace rn::coordinator {
namespace {

using AgentAnswer = FakeAgent::Answer;

class GangPlacementTest : public CoreSite {
 protected:
  void SetUp() override { start(); }

  /// A node that lends to gangs.
  FakeAgent& add_lender(
      const std::string& name,
      AgentAnswer answer = AgentAnswer::kOffer,
      LendingState lending = LendingState::kOpen
  ) {
    FakeAgent& agent = add_node(name, "lab-" + name);
    agent.hello.facts.features = {kGangsFeature};
    agent.hello.contract.gangs = true;
    agent.to_probe = answer;
    agent.lending = lending;
    connect(agent);
    return agent;
  }

  /// One that fills a node.
  static JobSpec a_big() {
    JobSpec spec = a_spec();
    spec.resources.cpu_milli = spec.resources.cpu_milli_min = 4000;
    return spec;
  }

  /// Its rows are there, as a submit leaves them, and the coordinator starts on them. No node
  /// takes anything meanwhile.
  GangId gang_of_jobs(std::uint32_t size, const JobSpec& spec = a_spec(), const char* id = "g-1") {
    GangRow made{.id = GangId(id), .owner = user().user, .lab = user().lab, .size = size};
    for (std::uint32_t rank = 0; rank < size; ++rank) made.members.push_back(submit(spec));
    const std::uint64_t first = tables.jobs.at(made.members.front()).job.number;
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      tables.jobs.at(made.members[rank]).job.gang =
          GangPlace{.gang = made.id, .rank = rank, .size = size, .first_number = first};
    }
    made.queued_wall_ms = to_ms(clock.now().wall);
    tables.gangs[made.id] = made;
    restart();
    return made.id;
  }

  /// The same beside these nodes, which are open when all of them are back. Of those that are worth
  /// the same, the first has the image.
  GangId gang_beside(const std::vector<std::string>& nodes, std::uint32_t size) {
    for (const std::string& name : nodes)
      add_lender(name, AgentAnswer::kOffer, LendingState::kPaused);
    const GangId id = gang_of_jobs(size);
    for (const std::string& name : nodes) node(name).lending = LendingState::kOpen;
    node(nodes.front()).hello.facts.images = {a_image("base").digest};
    return id;
  }

  void connect_all() {
    for (auto& [id, agent] : agents) connect(agent);
  }

  const GangRow& row(const GangId& id) { return tables.gangs.at(id); }

  JobId member(const GangId& id, std::size_t rank) { return row(id).members.at(rank); }

  std::string why(const GangId& id) { return core->why(member(id, 0), clock.now()).value(); }

  std::size_t probes(const std::string& name) { return node(name).received<wire::Probe>().size(); }

  std::size_t commits() {
    std::size_t all = 0;
    for (const auto& [id, agent] : agents) all += agent.received<wire::Commit>().size();
    return all;
  }
};

TEST_F(GangPlacementTest, nobody_is_asked_before_there_is_room_for_all_and_then_all_are) {
  const GangId id = gang_of_jobs(3);
  add_lender("a");
  add_lender("b");
  pass(3000);
  EXPECT_EQ(probes("a") + probes("b"), 0u);
  EXPECT_NE(why(id).find("there is room for 2 of its 3 members at once"), std::string::npos)
      << why(id);

  add_lender("c");
  pass(2000);

  EXPECT_EQ(row(id).state, GangState::kPreparing);
  EXPECT_EQ(commits(), 3u);
  std::set<NodeId> nodes;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const Job& one = job(member(id, rank));
    EXPECT_EQ(one.state, JobState::kStarting) << rank;
    EXPECT_EQ(one.epoch, row(id).epoch) << rank;
    nodes.insert(one.node);
    const auto commit = agents.at(one.node).last<wire::Commit>();
    ASSERT_TRUE(commit.gang.has_value());
    EXPECT_EQ(commit.gang->rank, rank);
    EXPECT_EQ(commit.gang->gang, id);
    EXPECT_EQ(agents.at(one.node).last<wire::Probe>().gang, id);
    EXPECT_EQ(agents.at(one.node).last<wire::Probe>().hold_ms, 10'000u);
  }
  EXPECT_EQ(nodes.size(), 3u);
}

TEST_F(GangPlacementTest, all_attempts_and_the_gangs_row_are_there_when_the_first_commit_leaves) {
  const GangId id = gang_of_jobs(2);
  add_lender("a").to_commit = AgentAnswer::kSilent;
  FakeAgent& last = add_node("b", "lab-b");
  last.hello.facts.features = {kGangsFeature};
  last.hello.contract.gangs = true;
  last.to_commit = AgentAnswer::kSilent;
  connect(last);

  EXPECT_EQ(commits(), 2u);
  EXPECT_EQ(row(id).state, GangState::kPreparing);
  EXPECT_EQ(tables.attempts.size(), 2u);
  for (const auto& [key, attempt] : tables.attempts) EXPECT_EQ(key.second, row(id).epoch);
}

TEST_F(GangPlacementTest, the_epoch_is_above_the_highest_of_any_member) {
  const GangId id = gang_of_jobs(2);
  tables.jobs.at(member(id, 1)).job.epoch = {1, 7};
  restart();
  add_lender("a");
  add_lender("b");
  pass(2000);

  EXPECT_EQ(row(id).epoch.attempt, 8u);
  EXPECT_EQ(job(member(id, 0)).epoch, row(id).epoch);
  EXPECT_EQ(job(member(id, 1)).epoch, row(id).epoch);
}

TEST_F(GangPlacementTest, while_one_is_silent_nothing_is_written_and_a_restart_begins_anew) {
  const GangId id = gang_of_jobs(2);
  add_lender("a", AgentAnswer::kSilent);
  add_lender("b");
  pass(500);
  ASSERT_EQ(probes("b"), 1u);
  EXPECT_EQ(row(id).state, GangState::kWaiting);
  EXPECT_TRUE(tables.attempts.empty());
  EXPECT_NE(why(id).find("which asks 2 nodes together: 1 hold a place"), std::string::npos)
      << why(id);

  restart();
  EXPECT_EQ(state(member(id, 0)), JobState::kQueued);
  node("a").to_probe = AgentAnswer::kOffer;
  connect_all();
  settle();
  EXPECT_EQ(row(id).state, GangState::kPreparing);
}

TEST_F(GangPlacementTest, for_one_that_refuses_another_is_asked_and_the_others_holds_stay) {
  const GangId id = gang_beside({"a", "b", "c"}, 2);
  node("a").to_probe = AgentAnswer::kRefuse;
  connect_all();

  EXPECT_EQ(row(id).state, GangState::kPreparing) << "no time has passed";
  EXPECT_EQ(probes("a"), 1u);
  EXPECT_EQ(node("b").received<wire::CancelHold>().size(), 0u);
  EXPECT_EQ(node("c").received<wire::CancelHold>().size(), 0u);
}

TEST_F(GangPlacementTest, with_nobody_else_to_ask_all_holds_go_back_and_it_is_tried_later) {
  const GangId id = gang_of_jobs(2);
  add_lender("a");
  add_lender("b", AgentAnswer::kRefuse);
  ASSERT_EQ(probes("a"), 1u);
  EXPECT_EQ(node("a").received<wire::CancelHold>().size(), 1u);
  EXPECT_EQ(row(id).state, GangState::kWaiting);
  node("b").to_probe = AgentAnswer::kOffer;
  pass(4000);
  EXPECT_EQ(probes("a"), 1u) << "not before five seconds";
  pass(3000);
  EXPECT_EQ(row(id).state, GangState::kPreparing);
}

TEST_F(GangPlacementTest, a_silent_one_is_replaced_and_its_late_hold_given_back) {
  const GangId id = gang_beside({"a", "b", "c"}, 2);
  node("a").to_probe = AgentAnswer::kSilent;
  connect_all();
  ASSERT_EQ(probes("a"), 1u);
  EXPECT_EQ(row(id).state, GangState::kWaiting);
  pass(2000);

  EXPECT_EQ(row(id).state, GangState::kPreparing);
  for (std::size_t rank = 0; rank < 2; ++rank)
    EXPECT_NE(job(member(id, rank)).node, node("a").id) << rank;
  const auto probe = node("a").last<wire::Probe>();
  tell(
      node("a"),
      wire::ProbeReply{
          .probe = probe.probe, .job = probe.job, .hold = HoldId("h-late"), .ttl_ms = 10'000}
  );
  EXPECT_EQ(node("a").last<wire::CancelHold>().hold, HoldId("h-late"));
}

TEST_F(GangPlacementTest, one_that_vanishes_in_the_round_is_replaced) {
  const GangId id = gang_beside({"a", "b", "c"}, 2);
  node("a").to_probe = AgentAnswer::kSilent;
  connect_all();
  ASSERT_EQ(row(id).state, GangState::kWaiting);
  disconnect(node("a"));

  EXPECT_EQ(row(id).state, GangState::kPreparing) << "no time has passed";
}

TEST_F(GangPlacementTest, a_hold_that_ends_soon_is_renewed_before_all_are_committed) {
  const GangId id = gang_of_jobs(2);
  add_lender("a", AgentAnswer::kSilent);
  add_lender("b", AgentAnswer::kSilent);
  const auto answer = [&](const char* name, const char* hold, std::uint32_t ttl_ms) {
    const auto probe = node(name).last<wire::Probe>();
    tell(
        node(name),
        wire::ProbeReply{
            .probe = probe.probe, .job = probe.job, .hold = HoldId(hold), .ttl_ms = ttl_ms}
    );
  };
  answer("a", "h-a", 500);
  answer("b", "h-b", 10'000);
  EXPECT_EQ(row(id).state, GangState::kWaiting) << "a's hold might be over before its commit";
  pass(250);
  ASSERT_EQ(probes("a"), 2u);
  answer("a", "h-a", 10'000);

  EXPECT_EQ(row(id).state, GangState::kPreparing);
  EXPECT_EQ(node("a").received<wire::CancelHold>().size(), 0u);
}

TEST_F(GangPlacementTest, one_gang_at_a_time_is_asked_for) {
  const GangId first = gang_of_jobs(2);
  pass(1000);
  const GangId second = gang_of_jobs(2, a_spec(), "g-2");
  for (const char* name : {"a", "b", "c", "d"}) add_lender(name, AgentAnswer::kSilent);
  pass(500);

  std::size_t asked = 0;
  for (const char* name : {"a", "b", "c", "d"}) asked += probes(name);
  EXPECT_EQ(asked, 2u);
  EXPECT_NE(why(second).find("gang g-1 is placed first"), std::string::npos) << why(second);
  EXPECT_EQ(row(first).state, GangState::kWaiting);
}

TEST_F(GangPlacementTest, all_members_together_have_room_in_the_quota_or_none_begins) {
  ASSERT_TRUE(run(admin(), CreateUserToken{.user = UserId("ann"), .lab = LabId("lab-x")}));
  const GangId id = gang_of_jobs(3);
  ASSERT_TRUE(run(admin(), SetQuota{"user:ann", {.running = 2}}));
  for (const char* name : {"a", "b", "c"}) add_lender(name);
  pass(3000);
  EXPECT_EQ(commits(), 0u);
  EXPECT_NE(why(id).find("2 of 2 jobs"), std::string::npos) << why(id);

  ASSERT_TRUE(run(admin(), SetQuota{"user:ann", {.running = 3}}));
  pass(2000);
  EXPECT_EQ(row(id).state, GangState::kPreparing);
}

TEST_F(GangPlacementTest, where_a_quota_of_some_gpus_is_full_the_rest_gets_others_beside_them) {
  ASSERT_TRUE(run(admin(), CreateUserToken{.user = UserId("ann"), .lab = LabId("lab-x")}));
  JobSpec spec = a_spec();
  spec.resources.gpus = 1;
  const GangId id = gang_of_jobs(3, spec);
  ASSERT_TRUE(run(admin(), SetQuota{"user:ann", {.gpu_model = "H100", .gpus = 2}}));
  for (const std::string name : {"a", "b", "c", "d", "e"}) {
    FakeAgent& agent = add_lender(name, AgentAnswer::kOffer, LendingState::kPaused);
    const bool is_best = name != "e";
    agent.hello.facts.gpus = {
        {.index = 0, .model = is_best ? "NVIDIA H100" : "Tesla T4", .memory_mib = 16'000}};
    agent.telemetry.gpus = {{.index = 0}};
    if (is_best) agent.hello.facts.images = {a_image("base").digest};
    agent.lending = LendingState::kOpen;
    connect(agent);
  }
  pass(2000);

  ASSERT_EQ(row(id).state, GangState::kPreparing) << why(id);
  std::size_t others = 0;
  for (std::size_t rank = 0; rank < 3; ++rank)
    others += job(member(id, rank)).node == node("e").id ? 1 : 0;
  EXPECT_EQ(others, 1u);
}

TEST_F(GangPlacementTest, members_are_not_placed_alone_and_do_not_count_as_running) {
  gang_of_jobs(2);
  add_lender("a");
  pass(3000);

  EXPECT_EQ(probes("a"), 0u);
  EXPECT_EQ(core->metrics().jobs_queued, 2u);
  EXPECT_EQ(core->metrics().jobs_running, 0u);
}

TEST_F(GangPlacementTest, a_place_that_becomes_free_is_kept_for_who_waits_for_long) {
  config.gang_patience_s = 20;
  const GangId id = gang_of_jobs(2, a_big());
  add_lender("b", AgentAnswer::kOffer, LendingState::kPaused);
  add_lender("a");
  const JobId short_one = running(a_big());
  ASSERT_EQ(where(short_one), "a");
  pass(25'000);
  EXPECT_EQ(count_events("gang.gathers"), 1u);
  const JobId other = submit(a_big());
  say(node("a"), short_one, job(short_one).epoch, AttemptState::kEnded, AttemptEnd::kCrashed, 1);
  pass(3000);
  EXPECT_EQ(state(other), JobState::kQueued) << "the place is kept";
  node("b").lending = LendingState::kOpen;
  pass(7000);

  EXPECT_EQ(row(id).state, GangState::kPreparing);
  EXPECT_EQ(state(other), JobState::kQueued);
}

TEST_F(GangPlacementTest, others_keep_half_of_the_site_and_are_told_what_is_kept) {
  config.gang_patience_s = 10;
  const GangId id = gang_of_jobs(3, a_big());
  for (const char* name : {"a", "b", "c"})
    add_lender(name, AgentAnswer::kOffer, LendingState::kPaused);
  pass(15'000);
  ASSERT_EQ(count_events("gang.gathers"), 1u);
  const JobId first = submit(a_big());
  const JobId second = submit(a_big());
  node("a").lending = node("b").lending = LendingState::kOpen;
  pass(7000);

  const bool is_first = state(first) == JobState::kStarting;
  EXPECT_NE(is_first, state(second) == JobState::kStarting) << "of two free places one is kept";
  const std::string left = core->why(is_first ? second : first, clock.now()).value();
  EXPECT_NE(left.find("1 place is kept for gang g-1, which waits for 3 at once"), std::string::npos)
      << left;
  EXPECT_EQ(row(id).state, GangState::kWaiting);
}

TEST_F(GangPlacementTest, while_it_is_asked_for_no_other_places_are_kept_for_it) {
  config.gang_patience_s = 10;
  const GangId id = gang_of_jobs(2, a_big());
  for (const char* name : {"a", "b", "c", "d"})
    add_lender(name, AgentAnswer::kSilent, LendingState::kPaused);
  pass(15'000);
  ASSERT_EQ(count_events("gang.gathers"), 1u);
  for (const char* name : {"a", "b", "c", "d"}) {
    node(name).lending = LendingState::kOpen;
    beat(node(name));
  }
  ASSERT_NE(why(id).find("asks 2 nodes together"), std::string::npos) << why(id);
  const JobId other = submit(a_big());

  EXPECT_EQ(state(other), JobState::kPlacing);
}

TEST_F(GangPlacementTest, what_is_gathered_in_vain_is_given_back_and_the_author_is_told) {
  config.gang_patience_s = 10;
  config.gang_gather_s = 60;
  const GangId id = gang_of_jobs(2, a_big());
  add_lender("b", AgentAnswer::kOffer, LendingState::kPaused);
  add_lender("a");
  pass(15'000);
  ASSERT_EQ(count_events("gang.gathers"), 1u);
  const JobId other = submit(a_big());
  pass(10'000);
  ASSERT_EQ(state(other), JobState::kQueued);
  pass(50'000);

  EXPECT_EQ(count_events("gang.gathered_in_vain"), 1u);
  EXPECT_EQ(last_event("gang.gathered_in_vain").data.at("most"), "1");
  EXPECT_GT(row(id).gathered_wall_ms, 0);
  EXPECT_EQ(state(other), JobState::kStarting);
}

TEST_F(GangPlacementTest, a_plan_says_for_how_many_members_there_is_room) {
  for (const char* name : {"a", "b", "c"}) add_lender(name);
  node("c").lending = LendingState::kPaused;
  beat(node("c"));
  const auto plan = [&](std::uint32_t members) {
    return core->plan(user(), a_spec(), clock.now(), members).value();
  };

  EXPECT_EQ(plan(2).verdict, PlanVerdict::kNow);
  EXPECT_EQ(plan(2).members_now, 2u);
  EXPECT_EQ(plan(3).verdict, PlanVerdict::kWaits);
  EXPECT_EQ(plan(3).members_now, 2u);
  EXPECT_FALSE(plan(3).starts_in_s.has_value());
  EXPECT_EQ(plan(4).verdict, PlanVerdict::kNever);
  EXPECT_EQ(
      plan(4).sentence.find("nodes for 3 of its 4 members are there, whoever runs on them"), 0u
  ) << plan(4).sentence;
  EXPECT_EQ(plan(0).members, 0u);
}

TEST_F(GangPlacementTest, one_that_can_never_fit_keeps_nobody_waiting) {
  config.gang_patience_s = 10;
  gang_of_jobs(2, a_big());
  add_lender("a");
  pass(30'000);
  EXPECT_EQ(count_events("gang.gathers"), 0u);
  const JobId other = submit(a_big());
  EXPECT_EQ(where(other), "a");
}

}  // namespace
}  // namespace rn::coordinator
