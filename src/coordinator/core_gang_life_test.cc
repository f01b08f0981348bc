// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_gang_fixture.h"

namespace rn::coordinator {
namespace {

using AgentAnswer = FakeAgent::Answer;

class GangLifeTest : public GangSite {
 protected:
  /// By its owner's hand.
  void cut_transfers(FakeAgent& agent) {
    agent.hello.facts.are_transfers_cut = true;
    wire::NodeUpdate update;
    update.facts = agent.hello.facts;
    update.contract = agent.hello.contract;
    update.address = agent.hello.address;
    tell(agent, update);
  }
};

// ---- submit

TEST_F(GangLifeTest, a_gang_has_2_to_32_members_and_is_no_notebook) {
  const auto refused = [this](api::GangRequest request) {
    const auto answer = run(admin(), SubmitGang{.request = std::move(request)});
    return answer ? std::string("accepted") : answer.error().message;
  };
  EXPECT_EQ(refused(a_gang(1)), "size: 1: a gang has 2 to 32 members");
  EXPECT_EQ(refused(a_gang(33)), "size: 33: a gang has 2 to 32 members");
  api::GangRequest notebook = a_gang();
  notebook.spec.env["NOTEBOOK_PORT"] = "8888";
  EXPECT_EQ(refused(notebook), "spec.env.NOTEBOOK_PORT: a notebook is no gang");
  EXPECT_TRUE(tables.gangs.empty());
  EXPECT_TRUE(tables.jobs.empty());
}

TEST_F(GangLifeTest, only_administrators_submit_gangs) {
  const auto answer = run(user(), SubmitGang{.request = a_gang()});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kDenied);
}

TEST_F(GangLifeTest, a_gang_that_its_quota_never_admits_as_a_whole_is_refused) {
  const auto refusal = [this](std::uint32_t gpus) {
    api::GangRequest request = a_gang(3);
    request.spec.resources.gpus = gpus;
    const auto answer = run(admin(), SubmitGang{.request = std::move(request)});
    if (answer) return std::string();
    EXPECT_EQ(answer.error().code, ErrorCode::kExhausted);
    return answer.error().message;
  };
  ASSERT_TRUE(run(admin(), SetQuota{"user:*", {.gpus = 5}}));
  EXPECT_NE(refusal(2), "") << "two members have room, and three are needed at once";
  EXPECT_EQ(refusal(1), "");
  ASSERT_TRUE(run(admin(), SetQuota{"user:*", {.running = 2}}));
  const std::string words = refusal(0);
  EXPECT_NE(words.find("all 3 members of a gang run together"), std::string::npos) << words;
}

TEST_F(GangLifeTest, a_submit_that_is_repeated_is_the_same_gang) {
  const GangId id = submit_gang(a_gang(), "key");
  const auto again = run(admin(), SubmitGang{.idempotency_key = "key", .request = a_gang()});
  ASSERT_TRUE(again);
  EXPECT_EQ(std::get<api::GangAnswer>(*again).gang, id);
  EXPECT_TRUE(std::get<api::GangAnswer>(*again).is_repeat);
  EXPECT_EQ(std::get<api::GangAnswer>(*again).members.size(), 3U);
  const auto other = run(admin(), SubmitGang{.idempotency_key = "key", .request = a_gang(2)});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kConflict);
  EXPECT_EQ(tables.gangs.size(), 1U);
}

TEST_F(GangLifeTest, members_are_jobs_of_one_submit_with_one_key) {
  const GangId id = submit_gang();
  std::vector<crypto::Key256> keys_of;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const JobRow& row = tables.jobs.at(member(id, rank));
    ASSERT_TRUE(row.job.gang);
    EXPECT_EQ(row.job.gang->gang, id);
    EXPECT_EQ(row.job.gang->rank, rank);
    EXPECT_EQ(row.job.gang->size, 3U);
    EXPECT_EQ(row.job.gang->first_number, tables.jobs.at(member(id, 0)).job.number);
    EXPECT_EQ(row.job.spec.checkpoint.copies, 2U);
    const auto key = crypto::unseal(keys.wrapping_key, row.wrapped_key, as_bytes(row.job.id.str()));
    ASSERT_TRUE(key.has_value());
    keys_of.emplace_back();
    ASSERT_EQ(key->size(), keys_of.back().size());
    std::copy(key->begin(), key->end(), keys_of.back().begin());
  }
  EXPECT_EQ(keys_of[0], keys_of[1]);
  EXPECT_EQ(keys_of[0], keys_of[2]);
}

// ---- the barrier

TEST_F(GangLifeTest, all_begin_when_the_last_one_is_ready) {
  const GangId id = submit_gang();
  prepare(id);
  tell_phase(id, 0, AttemptState::kReady);
  tell_phase(id, 1, AttemptState::kReady);
  EXPECT_EQ(gang(id).state, GangState::kPreparing);
  EXPECT_TRUE(told<wire::GangGo>(id, 0).empty());
  const std::string why = core->why(member(id, 0), clock.now()).value();
  EXPECT_NE(why.find("waits for rank 2 on "), std::string::npos) << why;
  EXPECT_NE(why.find("(preparing)"), std::string::npos) << why;

  tell_phase(id, 2, AttemptState::kReady);
  EXPECT_EQ(gang(id).state, GangState::kRunning);
  EXPECT_TRUE(gang(id).is_go);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const auto go = told<wire::GangGo>(id, rank);
    ASSERT_EQ(go.size(), 1U);
    EXPECT_EQ(go.front().epoch, gang(id).epoch);
    ASSERT_EQ(go.front().members.size(), 3U);
    for (const wire::GangPeer& peer : go.front().members) {
      EXPECT_EQ(peer.node, host(id, peer.rank).id);
      if (peer.rank == rank) continue;
      EXPECT_EQ(peer.ticket_out.action, TicketAction::kLink);
      EXPECT_EQ(peer.ticket_out.from, host(id, rank).id);
      EXPECT_TRUE(verify_ticket(peer.ticket_out, keys.ticket_key.public_key));
    }
  }
}

TEST_F(GangLifeTest, a_member_that_was_not_told_to_go_is_told_again) {
  const GangId id = submit_gang();
  prepare(id);
  all_tell_phase(id, AttemptState::kReady);
  host(id, 1).inbox.clear();
  pass(2 * config.heartbeat_ms);

  EXPECT_FALSE(told<wire::GangGo>(id, 1).empty());
}

TEST_F(GangLifeTest, a_node_that_begins_without_word_is_noted_and_all_are_stopped) {
  const GangId id = submit_gang();
  prepare(id);
  const NodeId node = host(id, 1).id;
  tell_phase(id, 1, AttemptState::kRunning);

  EXPECT_EQ(gang(id).state, GangState::kStopping);
  EXPECT_EQ(last_event("gang.rogue_start").node, node);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const auto stops = told<wire::StopAttempt>(id, rank);
    ASSERT_FALSE(stops.empty());
    EXPECT_EQ(stops.back().mode, StopMode::kAtOnce);
  }
}

TEST_F(GangLifeTest, a_commit_that_is_lost_burns_the_epoch_of_all) {
  node("a").to_commit = node("b").to_commit = node("c").to_commit = AgentAnswer::kRefuse;
  const GangId id = submit_gang(a_gang(4));
  pass(1000);
  EXPECT_EQ(gang(id).state, GangState::kStopping);
  EXPECT_EQ(count_events("gang.preparing"), 1U);
  rest_ends(id);

  EXPECT_EQ(gang(id).state, GangState::kWaiting);
  const LeaseEpoch first{gang(id).epoch.generation, 1};
  for (const JobId& m : gang(id).members)
    EXPECT_EQ(tables.attempts.at({m, first}).attempt.state, AttemptState::kEnded);
  for (const JobId& m : gang(id).members) {
    EXPECT_EQ(job(m).restarts, 0U);
    EXPECT_EQ(job(m).displacements, 0U);
  }
}

TEST_F(GangLifeTest, a_member_that_cannot_be_started_stops_all_and_its_node_is_avoided) {
  const GangId id = submit_gang();
  prepare(id);
  const NodeId bad = host(id, 2).id;
  tell_phase(id, 0, AttemptState::kReady);
  tell_end(id, 2, AttemptEnd::kRefused);
  EXPECT_EQ(gang(id).state, GangState::kStopping);
  EXPECT_EQ(gang(id).cause.kind, GangCauseKind::kAbort);
  rest_ends(id);

  EXPECT_EQ(gang(id).state, GangState::kWaiting);
  EXPECT_TRUE(are_all(id, JobState::kQueued));
  EXPECT_GT(gang(id).not_before_wall_ms, to_ms(clock.now().wall));
  EXPECT_EQ(tables.jobs.at(member(id, 2)).avoid, bad);
  prepare(id, 10'000);
  EXPECT_EQ(gang(id).epoch.attempt, 2U);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_NE(host(id, rank).id, bad);
    EXPECT_EQ(job(member(id, rank)).epoch, gang(id).epoch);
    EXPECT_EQ(job(member(id, rank)).displacements, 0U);
  }
}

TEST_F(GangLifeTest, who_is_not_ready_in_time_stops_all) {
  config.start_timeout_ms = 30'000;
  restart();
  for (auto& [id, agent] : agents) connect(agent);
  settle();
  const GangId id = submit_gang();
  prepare(id);
  tell_phase(id, 0, AttemptState::kReady);
  tell_phase(id, 2, AttemptState::kReady);
  pass(32'000);

  EXPECT_EQ(gang(id).state, GangState::kStopping);
  EXPECT_EQ(gang(id).cause.rank, 1U);
}

TEST_F(GangLifeTest, who_is_slow_to_begin_costs_a_restart_and_is_left_out_for_a_while) {
  config.start_timeout_ms = 30'000;
  restart();
  for (auto& [id, agent] : agents) connect(agent);
  settle();
  const GangId id = submit_gang(a_gang(4));
  prepare(id);
  for (const std::uint32_t rank : {0U, 2U, 3U}) tell_phase(id, rank, AttemptState::kReady);
  pass(32'000);
  ASSERT_EQ(gang(id).state, GangState::kStopping);
  EXPECT_EQ(gang(id).cause.kind, GangCauseKind::kSlow);
  rest_ends(id);

  for (const JobId& m : gang(id).members) EXPECT_EQ(job(m).restarts, 1U);
  pass(300'000);
  EXPECT_EQ(gang(id).epoch.attempt, 1U) << "four nodes take members, and one is left out";
  pass(360'000);
  EXPECT_EQ(gang(id).epoch.attempt, 2U);
}

TEST_F(GangLifeTest, behind_many_gangs_that_cannot_begin_the_next_one_is_tried_too) {
  for (int i = 0; i < 16; ++i) submit_gang(a_gang(8));
  pass(250);
  const GangId last = submit_gang(a_gang(2));
  pass(5000);

  EXPECT_EQ(gang(last).state, GangState::kPreparing);
}

// ---- stops

TEST_F(GangLifeTest, a_notice_at_one_is_a_notice_at_all) {
  const GangId id = running_gang();
  const NodeId taken = host(id, 1).id;
  take_back(id, 1, ReclaimKind::kNotice, 90);
  EXPECT_EQ(gang(id).state, GangState::kStopping);
  EXPECT_EQ(gang(id).cause.kind, GangCauseKind::kNotice);
  EXPECT_TRUE(told<wire::StopAttempt>(id, 1).empty()) << "it goes by its own agent";
  for (const std::uint32_t rank : {0U, 2U}) {
    const auto stops = told<wire::StopAttempt>(id, rank);
    ASSERT_EQ(stops.size(), 1U);
    EXPECT_EQ(stops.front().mode, StopMode::kSaveFirst);
    EXPECT_EQ(stops.front().end, AttemptEnd::kMigrated);
    EXPECT_NEAR(stops.front().deadline_ms, 90'000, 1000);
  }
  tell_end(id, 1, AttemptEnd::kReclaimed);
  EXPECT_EQ(gang(id).state, GangState::kStopping) << "the others may still save";
  agents.at(taken).lending = LendingState::kReclaimed;
  beat(agents.at(taken));
  rest_ends(id);

  EXPECT_EQ(last_event("gang.waiting").data.at("cause"), "notice");
  EXPECT_EQ(count_events("gang.displaced"), 1U);
  for (const JobId& m : gang(id).members) {
    EXPECT_EQ(job(m).displacements, 1U);
    EXPECT_EQ(job(m).restarts, 0U);
  }
  begin(id, 20'000);
  EXPECT_EQ(gang(id).epoch.attempt, 2U);
}

TEST_F(GangLifeTest, of_two_owners_the_one_who_comes_first_says_when) {
  const GangId id = running_gang();
  take_back(id, 1, ReclaimKind::kNotice, 90);
  pass(1000);
  take_back(id, 2, ReclaimKind::kNotice, 20);

  const auto stops = told<wire::StopAttempt>(id, 0);
  ASSERT_GE(stops.size(), 2U);
  EXPECT_LE(stops.back().deadline_ms, 20'000U);
  EXPECT_EQ(count_events("gang.stopping"), 1U);
}

TEST_F(GangLifeTest, after_an_emergency_the_others_get_time_to_save) {
  const GangId id = running_gang();
  take_back(id, 0, ReclaimKind::kEmergency, 0);
  EXPECT_EQ(gang(id).cause.kind, GangCauseKind::kReclaim);
  const auto stops = told<wire::StopAttempt>(id, 1);
  ASSERT_FALSE(stops.empty());
  EXPECT_EQ(stops.front().mode, StopMode::kSaveFirst);
  EXPECT_EQ(stops.front().deadline_ms, config.gang_save_s * 1000);
}

TEST_F(GangLifeTest, a_crash_is_the_programs_own_when_all_machines_are_heard_after_it) {
  const GangId id = running_gang();
  tell_end(id, 1, AttemptEnd::kCrashed, 3);
  EXPECT_EQ(gang(id).cause.kind, GangCauseKind::kUnclear);
  tell_end(id, 0, AttemptEnd::kCrashed, 1);
  EXPECT_EQ(gang(id).cause.rank, 1U) << "the first one is the gang's";
  tell_end(id, 2, AttemptEnd::kMigrated);
  pass(config.lost_after * config.heartbeat_ms + config.heartbeat_ms);

  EXPECT_EQ(gang(id).state, GangState::kOver);
  EXPECT_TRUE(are_all(id, JobState::kFailed));
  EXPECT_EQ(job(member(id, 2)).exit_code, 3);
}

TEST_F(GangLifeTest, a_crash_beside_a_lost_machine_counts_nothing) {
  const GangId id = running_gang();
  FakeAgent& lost = host(id, 2);
  lost.beats = false;
  pass(config.heartbeat_ms);
  tell_end(id, 0, AttemptEnd::kCrashed, 1);
  tell_end(id, 1, AttemptEnd::kCrashed, 1);
  EXPECT_EQ(gang(id).cause.kind, GangCauseKind::kUnclear);
  pass(config.lost_after * config.heartbeat_ms + config.heartbeat_ms);

  EXPECT_EQ(last_event("gang.waiting").data.at("cause"), "lost");
  EXPECT_NE(gang(id).state, GangState::kOver);
  for (const JobId& m : gang(id).members) {
    EXPECT_EQ(job(m).restarts, 0U);
    EXPECT_EQ(job(m).displacements, 1U);
  }
}

TEST_F(
    GangLifeTest, who_has_crashed_on_a_machine_that_is_lost_then_is_no_proof_against_the_program
) {
  const GangId id = running_gang();
  host(id, 2).beats = false;
  tell_end(id, 0, AttemptEnd::kCrashed, 1);
  tell_end(id, 2, AttemptEnd::kCrashed, 1);
  tell_end(id, 1, AttemptEnd::kMigrated);
  EXPECT_EQ(gang(id).cause.kind, GangCauseKind::kUnclear);
  pass(config.lost_after * config.heartbeat_ms + 2 * config.heartbeat_ms);

  EXPECT_EQ(last_event("gang.waiting").data.at("cause"), "lost");
  for (const JobId& m : gang(id).members) EXPECT_EQ(job(m).restarts, 0U);
}

TEST_F(GangLifeTest, a_crash_is_not_judged_by_the_time_in_which_the_coordinator_stood_still) {
  const GangId id = running_gang();
  tell_end(id, 0, AttemptEnd::kCrashed, 1);
  clock.advance(seconds(60));
  handle(Tick{});
  EXPECT_EQ(gang(id).cause.kind, GangCauseKind::kUnclear) << "what the others said lies unread";
  host(id, 2).attempts.at({member(id, 2), gang(id).epoch}).links_broken = 1;
  pass(2 * config.heartbeat_ms);

  EXPECT_EQ(gang(id).cause.kind, GangCauseKind::kLinks);
}

TEST_F(GangLifeTest, a_crash_beside_links_that_a_machine_has_broken_is_a_restart_and_counts) {
  const GangId id = running_gang();
  tell_end(id, 0, AttemptEnd::kCrashed, 1);
  host(id, 2).attempts.at({member(id, 2), gang(id).epoch}).links_broken = 3;
  pass(2 * config.heartbeat_ms);
  EXPECT_EQ(gang(id).cause.kind, GangCauseKind::kLinks);
  rest_ends(id);

  EXPECT_EQ(last_event("gang.waiting").data.at("cause"), "links");
  EXPECT_NE(last_event("gang.restart").message.find("could not open 3 links"), std::string::npos);
  for (const JobId& m : gang(id).members) EXPECT_EQ(job(m).restarts, 1U);
}

TEST_F(GangLifeTest, a_crash_after_an_agent_came_anew_is_a_restart_and_counts) {
  const GangId id = running_gang();
  FakeAgent& anew = host(id, 2);
  disconnect(anew);
  connect(anew);
  pass(config.heartbeat_ms);
  tell_end(id, 0, AttemptEnd::kCrashed, 1);
  pass(2 * config.heartbeat_ms);
  EXPECT_EQ(gang(id).cause.kind, GangCauseKind::kLinks);
  rest_ends(id);

  EXPECT_EQ(count_events("gang.restart"), 1U);
  for (const JobId& m : gang(id).members) EXPECT_EQ(job(m).restarts, 1U);
}

TEST_F(GangLifeTest, long_after_an_agent_came_anew_a_crash_is_the_programs_own) {
  const GangId id = running_gang();
  FakeAgent& anew = host(id, 2);
  disconnect(anew);
  connect(anew);
  pass(15 * 60'000);
  tell_end(id, 0, AttemptEnd::kCrashed, 1);
  rest_ends(id);
  pass(2 * config.heartbeat_ms);

  EXPECT_EQ(gang(id).state, GangState::kOver);
}

TEST_F(GangLifeTest, a_crash_beside_an_owner_who_cuts_transfers_is_a_restart_and_counts) {
  const GangId id = running_gang();
  tell_end(id, 0, AttemptEnd::kCrashed, 1);
  ASSERT_EQ(gang(id).cause.kind, GangCauseKind::kUnclear);
  cut_transfers(host(id, 1));
  pass(2 * config.heartbeat_ms);
  EXPECT_EQ(gang(id).cause.kind, GangCauseKind::kLinks);
  EXPECT_NE(gang(id).cause.reason.find("has cut transfers"), std::string::npos);
  rest_ends(id);

  for (const JobId& m : gang(id).members) EXPECT_EQ(job(m).restarts, 1U);
}

TEST_F(GangLifeTest, where_the_owner_cuts_transfers_no_member_stays) {
  const GangId id = running_gang();
  FakeAgent& one = host(id, 1);
  cut_transfers(one);
  pass(2000);
  EXPECT_EQ(gang(id).state, GangState::kStopping);
  EXPECT_EQ(gang(id).cause.rank, 1U);
  rest_ends(id);
  begin(id, 20'000);

  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_NE(host(id, rank).id, one.id);
}

TEST_F(GangLifeTest, a_lost_machine_stops_all_and_burns_its_epoch) {
  const GangId id = running_gang();
  FakeAgent& lost = host(id, 2);
  const LeaseEpoch first = gang(id).epoch;
  const JobId m = member(id, 2);
  disconnect(lost);
  pass(config.lost_after * config.heartbeat_ms + config.heartbeat_ms);
  EXPECT_EQ(gang(id).state, GangState::kStopping);
  EXPECT_EQ(gang(id).cause.kind, GangCauseKind::kLost);
  tell_end(id, 0, AttemptEnd::kMigrated);
  tell_end(id, 1, AttemptEnd::kMigrated);

  EXPECT_EQ(tables.attempts.at({m, first}).attempt.end, AttemptEnd::kLost);
  connect(lost);
  EXPECT_TRUE(lost.last<wire::Welcome>().verdicts.front().is_end_known);
}

TEST_F(GangLifeTest, who_asks_for_a_restart_restarts_all) {
  const GangId id = running_gang();
  tell_end(id, 0, AttemptEnd::kMigrated, 99);
  EXPECT_EQ(gang(id).cause.kind, GangCauseKind::kRestart);
  rest_ends(id);

  EXPECT_EQ(gang(id).state, GangState::kWaiting);
  EXPECT_EQ(count_events("gang.restart"), 1U);
  EXPECT_EQ(count_events("gang.displaced"), 0U);
  for (const JobId& m : gang(id).members) EXPECT_EQ(job(m).restarts, 1U);
}

TEST_F(GangLifeTest, all_are_told_when_all_have_saved) {
  const GangId id = running_gang();
  take_back(id, 1, ReclaimKind::kNotice, 90);
  pass(1000);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    auto& report = host(id, rank).attempts.at({member(id, rank), gang(id).epoch});
    report.safe_generation = 1;
    report.since_save_ms = 0;
    report.step = 100;
    EXPECT_TRUE(told<wire::GangSaved>(id, 0).empty());
    pass(config.heartbeat_ms);
    report.since_save_ms = 500;
  }
  EXPECT_FALSE(told<wire::GangSaved>(id, 0).empty());
  EXPECT_FALSE(told<wire::GangSaved>(id, 2).empty());
}

TEST_F(GangLifeTest, a_contract_that_admits_members_no_more_stops_all) {
  const GangId id = running_gang();
  FakeAgent& one = host(id, 1);
  wire::NodeUpdate update;
  update.facts = one.hello.facts;
  update.contract = one.hello.contract;
  update.contract.gangs = false;
  update.contract.notice_s = 30;
  update.address = one.hello.address;
  tell(one, update);
  pass(2000);

  EXPECT_EQ(gang(id).state, GangState::kStopping);
  EXPECT_EQ(gang(id).cause.rank, 1U);
}

// ---- ends

TEST_F(GangLifeTest, who_has_finished_waits_for_the_others) {
  const GangId id = running_gang();
  tell_end(id, 1, AttemptEnd::kSucceeded);
  tell_end(id, 0, AttemptEnd::kSucceeded);
  EXPECT_EQ(state(member(id, 1)), JobState::kDraining);
  EXPECT_EQ(gang(id).state, GangState::kRunning);
  tell_end(id, 2, AttemptEnd::kSucceeded);

  EXPECT_EQ(gang(id).state, GangState::kOver);
  EXPECT_TRUE(are_all(id, JobState::kSucceeded));
}

TEST_F(GangLifeTest, who_has_finished_begins_again_with_those_who_have_not) {
  const GangId id = running_gang();
  tell_end(id, 1, AttemptEnd::kSucceeded);
  take_back(id, 0, ReclaimKind::kNotice, 30);
  rest_ends(id, AttemptEnd::kReclaimed);

  EXPECT_EQ(count_events("gang.waiting"), 1U);
  EXPECT_NE(state(member(id, 1)), JobState::kSucceeded);
  EXPECT_EQ(job(member(id, 1)).displacements, 1U);
}

TEST_F(GangLifeTest, with_ends_first_rank_0_ends_all) {
  api::GangRequest request = a_gang();
  request.ends = GangEnds::kFirst;
  const GangId id = running_gang(request);
  tell_end(id, 1, AttemptEnd::kSucceeded);
  EXPECT_EQ(gang(id).state, GangState::kRunning);
  tell_end(id, 0, AttemptEnd::kSucceeded);
  EXPECT_EQ(gang(id).state, GangState::kStopping);
  EXPECT_EQ(told<wire::StopAttempt>(id, 2).back().mode, StopMode::kAtOnce);
  rest_ends(id);

  EXPECT_EQ(gang(id).state, GangState::kOver);
  EXPECT_TRUE(are_all(id, JobState::kSucceeded));
}

TEST_F(GangLifeTest, a_stop_of_one_member_stops_the_gang) {
  const GangId id = running_gang();
  ASSERT_TRUE(run(admin(), StopJob{.job = member(id, 2), .saves_first = true}));
  EXPECT_EQ(gang(id).state, GangState::kStopping);
  EXPECT_EQ(told<wire::StopAttempt>(id, 0).back().end, AttemptEnd::kCancelled);
  rest_ends(id, AttemptEnd::kCancelled);

  EXPECT_EQ(gang(id).state, GangState::kOver);
  EXPECT_TRUE(are_all(id, JobState::kCancelled));
}

TEST_F(GangLifeTest, a_gang_that_waits_is_stopped_at_once) {
  const GangId id = submit_gang(a_gang(8));
  pass(2000);
  ASSERT_TRUE(run(admin(), StopGang{.gang = id}));

  EXPECT_EQ(gang(id).state, GangState::kOver);
  EXPECT_TRUE(are_all(id, JobState::kCancelled));
  // Again: the same answer.
  const auto again = run(admin(), StopGang{.gang = id});
  ASSERT_TRUE(again);
  EXPECT_EQ(std::get<api::GangStopped>(*again).state, GangState::kOver);
}

TEST_F(GangLifeTest, strangers_stop_no_gang) {
  const GangId id = submit_gang();
  const auto answer = run(user("bob", "lab-z"), StopGang{.gang = id});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kNotFound);
}

TEST_F(GangLifeTest, a_member_whose_time_is_up_ends_all_as_failed) {
  const GangId id = running_gang();
  tell_end(id, 0, AttemptEnd::kTimedOut);
  rest_ends(id);

  EXPECT_EQ(gang(id).state, GangState::kOver);
  EXPECT_TRUE(are_all(id, JobState::kFailed));
}

// ---- restarts of the coordinator

TEST_F(GangLifeTest, after_a_restart_who_is_ready_is_told_to_go) {
  const GangId id = submit_gang();
  prepare(id);
  all_tell_phase(id, AttemptState::kReady);
  for (auto& [node_id, agent] : agents) agent.inbox.clear();
  restart();
  for (auto& [node_id, agent] : agents) connect(agent);
  pass(2 * config.heartbeat_ms);

  EXPECT_EQ(gang(id).state, GangState::kRunning);
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_FALSE(told<wire::GangGo>(id, rank).empty());
}

TEST_F(GangLifeTest, after_a_restart_a_stop_goes_on) {
  const GangId id = running_gang();
  take_back(id, 1, ReclaimKind::kNotice, 90);
  for (auto& [node_id, agent] : agents) agent.inbox.clear();
  pass(10'000);
  restart();
  for (auto& [node_id, agent] : agents) connect(agent);
  pass(2 * config.heartbeat_ms);

  EXPECT_EQ(gang(id).state, GangState::kStopping);
  const auto stops = told<wire::StopAttempt>(id, 0);
  ASSERT_FALSE(stops.empty());
  EXPECT_LE(stops.back().deadline_ms, 80'000U);
  rest_ends(id, AttemptEnd::kMigrated);
  EXPECT_EQ(last_event("gang.waiting").data.at("cause"), "notice");
}

TEST_F(GangLifeTest, after_a_restart_what_was_saved_since_the_stop_counts) {
  const GangId id = running_gang();
  take_back(id, 1, ReclaimKind::kNotice, 90);
  pass(2000);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    auto& report = host(id, rank).attempts.at({member(id, rank), gang(id).epoch});
    report.safe_generation = 1;
    report.since_save_ms = 500;
    report.step = 100;
  }
  for (auto& [node_id, agent] : agents) agent.inbox.clear();
  restart();
  for (auto& [node_id, agent] : agents) connect(agent);

  EXPECT_FALSE(told<wire::GangSaved>(id, 0).empty());
}

TEST_F(GangLifeTest, after_a_restart_a_commit_that_no_node_knows_burns_the_epoch_of_all) {
  for (const char* name : {"a", "b", "c", "d"}) node(name).to_commit = AgentAnswer::kSilent;
  const GangId id = submit_gang();
  pass(3000);
  ASSERT_EQ(gang(id).state, GangState::kPreparing);
  restart();
  for (auto& [node_id, agent] : agents) {
    agent.to_commit = AgentAnswer::kOffer;
    connect(agent);
  }
  settle();
  pass(4000);

  EXPECT_EQ(gang(id).state, GangState::kPreparing);
  EXPECT_GT(gang(id).epoch.generation, 1U) << "in a new epoch";
  for (const JobId& m : gang(id).members) EXPECT_EQ(job(m).epoch, gang(id).epoch);
}

}  // namespace
}  // namespace rn::coordinator
