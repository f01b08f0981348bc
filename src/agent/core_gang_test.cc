// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

/// A node with rank 1 of a gang of three.
class CoreGang : public CoreTest {
 protected:
  CoreGang() {
    gang = GangPlace{GangId("g-1"), 1, 3, 5, GangEnds::kAll, GangRuns::kCommand};
    spec.checkpoint.quiet_ms = 1;
    contract.gangs = true;
  }

  void change_contract(bool gangs) {
    contract.gangs = gangs;
    feed(ContractChanged{contract, 0});
  }

  static wire::GangGo a_go(LeaseEpoch epoch = kEpoch) {
    wire::GangGo go;
    go.job = JobId("j-1");
    go.epoch = epoch;
    for (std::uint32_t rank = 0; rank < 3; ++rank)
      go.members.push_back({rank, JobId("j-" + std::to_string(rank)), NodeId("n-1"), "", {}});
    return go;
  }

  void all_have_saved() { tell(wire::GangSaved{JobId("j-1"), kEpoch}); }

  void fill() {
    start();
    prepare();
    acknowledge();
  }

  void run_member() {
    fill();
    tell(a_go());
    answer<warden_wire::StartGuest>();
    set_guest(GuestState::kRunning);
    push_state();
    ASSERT_EQ(state(), AttemptState::kRunning);
    acknowledge();
  }

  void restart_agent() {
    crash_and_restart();
    feed(WardenConnected{});
    answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
    connect();
  }

  void stop_by(std::uint32_t deadline_ms) {
    order_stop(StopMode::kSaveFirst, AttemptEnd::kMigrated, deadline_ms);
  }
};

TEST_F(CoreGang, a_member_that_is_filled_says_so_and_waits) {
  start();
  prepare();
  EXPECT_EQ(state(), AttemptState::kReady);
  EXPECT_EQ(sent<wire::AttemptEvent>().back().report.state, AttemptState::kReady);
  advance(seconds(60));
  EXPECT_FALSE(has_asked<warden_wire::StartGuest>());
}

TEST_F(CoreGang, a_job_of_its_own_waits_for_nobody) {
  gang.reset();
  start();
  prepare();
  EXPECT_EQ(state(), AttemptState::kStarting);
  EXPECT_TRUE(has_asked<warden_wire::StartGuest>());
}

TEST_F(CoreGang, a_member_begins_at_the_word_and_knows_its_rank) {
  fill();
  tell(a_go());
  EXPECT_EQ(state(), AttemptState::kStarting);
  const auto asked_for = asked<warden_wire::StartGuest>();
  ASSERT_EQ(asked_for.size(), 1u);
  EXPECT_EQ(asked_for.front().env.at("RECLAIM_GANG"), "g-1");
  EXPECT_EQ(asked_for.front().env.at("RECLAIM_NODE_RANK"), "1");
  EXPECT_EQ(asked_for.front().env.at("RECLAIM_NODES_NUM"), "3");
}

TEST_F(CoreGang, a_second_word_to_go_starts_nothing_twice) {
  run_member();
  forget_outputs();
  tell(a_go());
  advance(seconds(10));
  EXPECT_FALSE(has_asked<warden_wire::StartGuest>());
  EXPECT_EQ(state(), AttemptState::kRunning);
}

TEST_F(CoreGang, a_word_to_another_epoch_starts_nothing) {
  fill();
  tell(a_go({1, 2}));
  tell(a_go({0, 1}));
  EXPECT_EQ(state(), AttemptState::kReady);
  EXPECT_FALSE(has_asked<warden_wire::StartGuest>());
}

TEST_F(CoreGang, a_word_before_it_is_filled_does_not_count) {
  start();
  warden.images = {"sha256:img"};
  push_state();
  lease();
  tell(a_go());
  answer<warden_wire::PrepareDisk>([](warden_wire::Answer& a) { a.disk = "/disk/1"; });
  finish<PrepareWork>(WorkPrepared{resume, ""});
  answer<warden_wire::AdoptDisk>();
  EXPECT_EQ(state(), AttemptState::kReady);
  tell(a_go());  // as the coordinator repeats it
  EXPECT_EQ(state(), AttemptState::kStarting);
}

TEST_F(CoreGang, ready_outlives_the_agent_and_is_told_again) {
  fill();
  restart_agent();
  EXPECT_EQ(state(), AttemptState::kReady);
  const auto hellos = sent<wire::Hello>();
  ASSERT_FALSE(hellos.empty());
  ASSERT_EQ(hellos.back().attempts.size(), 1u);
  EXPECT_EQ(hellos.back().attempts.front().state, AttemptState::kReady);
  EXPECT_FALSE(has_asked<warden_wire::StartGuest>());
  tell(a_go());
  EXPECT_TRUE(has_asked<warden_wire::StartGuest>());
}

TEST_F(CoreGang, the_word_to_go_outlives_the_agent) {
  fill();
  tell(a_go());
  restart_agent();
  EXPECT_EQ(state(), AttemptState::kStarting);
  EXPECT_TRUE(has_asked<warden_wire::StartGuest>());
}

TEST_F(CoreGang, a_stop_in_ready_ends_it_without_a_guest) {
  fill();
  order_stop(StopMode::kAtOnce, AttemptEnd::kMigrated);
  EXPECT_EQ(last_end(), AttemptEnd::kMigrated);
  EXPECT_EQ(state(), AttemptState::kEnded);
  tell(a_go());
  EXPECT_FALSE(has_asked<warden_wire::StartGuest>());
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreGang, a_notice_in_ready_ends_it) {
  fill();
  warden.reclaims = {a_reclaim(ReclaimKind::kNotice)};
  push_state();
  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
  EXPECT_FALSE(has_asked<warden_wire::StartGuest>());
}

TEST_F(CoreGang, a_member_that_nobody_tells_to_go_keeps_its_place_as_long_as_an_orphan) {
  fill();
  feed(CoordinatorDisconnected{"gone"});
  advance(seconds(std::min(spec.orphan_limit_s, contract.orphan_limit_s)) - seconds(60));
  EXPECT_EQ(state(), AttemptState::kReady);
  advance(seconds(120));
  EXPECT_EQ(state(), AttemptState::kEnded);
}

TEST_F(CoreGang, a_member_stays_with_what_it_has_saved_until_all_have) {
  run_member();
  stop_by(60'000);
  ASSERT_EQ(state(), AttemptState::kNoticed);
  save(1);
  copied("n-2", 1);
  committed(1);
  advance(seconds(5));
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
  all_have_saved();
  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreGang, a_member_that_saves_nothing_stays_for_the_others_too) {
  spec.checkpoint.is_stateless = true;
  run_member();
  stop_by(60'000);
  EXPECT_EQ(state(), AttemptState::kNoticed);
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
  all_have_saved();
  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreGang, without_a_word_the_deadlines_margin_stops_it) {
  run_member();
  stop_by(60'000);
  save(1);
  advance(seconds(56));
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
  advance(seconds(3));
  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreGang, that_all_have_saved_counts_for_the_stop_it_is_said_of_alone) {
  run_member();
  all_have_saved();  // of what? nobody stops
  stop_by(60'000);
  tell(wire::GangSaved{JobId("j-1"), {0, 9}});
  save(1);
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreGang, an_older_generation_is_nothing_to_fall_back_to) {
  resume = a_generation(4);
  resume_previous = a_generation(3);
  start();
  warden.images = {"sha256:img"};
  push_state();
  lease();
  answer<warden_wire::PrepareDisk>([](warden_wire::Answer& a) { a.disk = "/disk/1"; });
  EXPECT_EQ(work_body<PrepareWork>().resume.generation, 4u);
  EXPECT_EQ(work_body<PrepareWork>().resume_previous.generation, 0u);
  finish<PrepareWork>(Error{ErrorCode::kNotFound, "nobody has it", ""});
  EXPECT_EQ(last_end(), AttemptEnd::kRefused);
}

TEST_F(CoreGang, what_the_others_saved_is_laid_beside_its_own) {
  shares = {{0, a_generation(7), {a_peer("n-3")}}};
  spec.checkpoint.paths = {"step-*/"};
  start();
  warden.images = {"sha256:img"};
  push_state();
  lease();
  answer<warden_wire::PrepareDisk>([](warden_wire::Answer& a) { a.disk = "/disk/1"; });
  EXPECT_EQ(work_body<PrepareWork>().shares, shares);
  EXPECT_EQ(work_body<PrepareWork>().checkpoint_paths, spec.checkpoint.paths);
}

TEST_F(CoreGang, a_member_says_whether_it_was_seen_to_save) {
  run_member();
  EXPECT_EQ(core->reports(clock.now()).front().checkpoints_found, 0u);
  save(1);
  EXPECT_EQ(core->reports(clock.now()).front().checkpoints_found, 1u);
  restart_agent();
  EXPECT_EQ(core->reports(clock.now()).front().checkpoints_found, 1u);
}

TEST_F(CoreGang, generations_that_a_set_needs_are_not_collected) {
  start();
  wire::CollectGarbage order;
  order.job = JobId("j-9");
  order.epoch = kEpoch;
  order.keep_from = 12;
  order.also_keep = {5, 7};
  tell(order);
  EXPECT_EQ(work_body<CollectGarbage>().keep_from, 12u);
  EXPECT_EQ(work_body<CollectGarbage>().also_keep, order.also_keep);
}

TEST_F(CoreGang, a_member_leaves_with_the_notice_of_a_contract_that_admits_it_no_more) {
  run_member();
  const std::int64_t notice_ms = std::int64_t{contract.notice_s} * 1000;
  feed(CoordinatorDisconnected{"away"});

  change_contract(false);

  EXPECT_EQ(core->reports(clock.now()).front().state, AttemptState::kNoticed);
  const NodeView view = core->view(clock.now());
  ASSERT_EQ(view.attempts.size(), 1u);
  EXPECT_LE(view.attempts.front().deadline_left_ms, notice_ms);
  EXPECT_GT(view.attempts.front().deadline_left_ms, 0);
  advance(seconds(contract.notice_s));
  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreGang, a_member_without_a_guest_ends_at_once_where_it_is_not_wanted) {
  fill();

  change_contract(false);

  EXPECT_NE(state(), AttemptState::kReady);
  EXPECT_FALSE(has_asked<warden_wire::StartGuest>());
}

TEST_F(CoreGang, a_job_of_its_own_stays_whatever_the_contract_says_of_gangs) {
  gang.reset();
  start();
  prepare();
  answer<warden_wire::StartGuest>();
  set_guest(GuestState::kRunning);
  push_state();

  change_contract(false);

  EXPECT_EQ(state(), AttemptState::kRunning);
}

}  // namespace
}  // namespace rn::agent
