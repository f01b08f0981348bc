// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// What a lease grants, and what becomes of it.
class CoreLease : public CoreTest {
 protected:
  void come_back() {
    feed(WardenConnected{});
    answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
    connect();
  }

  wire::ProbeReply probe(const char* job, const Resources& resources) {
    wire::Probe probe;
    probe.job = JobId(job);
    probe.resources = resources;
    tell(probe);
    return sent<wire::ProbeReply>().back();
  }

  void detect() { feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}}); }

  Resources wanted;
};

TEST_F(CoreLease, the_highest_generation_of_epochs_is_told_also_after_a_crash) {
  start();
  wire::Welcome welcome;
  welcome.generation = 5;
  tell(welcome);
  crash_and_restart();
  come_back();
  EXPECT_EQ(sent<wire::Hello>().back().highest_generation, 5u);

  wire::Commit commit = a_commit();
  commit.epoch = {7, 1};
  commit.hold = probe("j-1", {}).hold;
  tell(commit);
  ASSERT_TRUE(sent<wire::CommitReply>().back().is_granted);
  crash_and_restart();
  come_back();
  EXPECT_EQ(sent<wire::Hello>().back().highest_generation, 7u);
}

TEST_F(CoreLease, a_guest_gets_what_was_granted_and_no_way_out_that_the_contract_does_not_open) {
  facts.gpus = {Gpu{.index = 4, .memory_mib = 1000}, Gpu{.index = 6, .memory_mib = 1000}};
  contract.guest_cpu_milli = 2000;
  contract.max_pids = 77;
  contract.network = {{"10.1.2.0/24", 443, "tcp"}};
  spec.peers = {{"10.1.2.3/32", 443, "tcp"}, {"10.9.9.9/32", 443, "tcp"}};
  start();
  warden.images = {"sha256:img"};
  push_state();
  wanted.gpus = 2;
  wanted.cpu_milli = 3000;
  wanted.memory_mib = 500;
  wire::Commit commit = a_commit();
  commit.hold = probe("j-1", wanted).hold;
  ASSERT_FALSE(commit.hold.empty()) << sent<wire::ProbeReply>().back().reason;
  commit.restart_count = 3;
  tell(commit);
  answer<warden_wire::PrepareDisk>([](warden_wire::Answer& a) { a.disk = "/disk/1"; });
  finish<PrepareWork>(WorkPrepared{});
  answer<warden_wire::AdoptDisk>();

  ASSERT_TRUE(has_asked<warden_wire::StartGuest>());
  const auto request = asked<warden_wire::StartGuest>().front();
  EXPECT_THAT(request.gpus, ElementsAre(4u, 6u));
  EXPECT_THAT(sent<wire::AttemptEvent>().back().report.gpus, ElementsAre(4u, 6u));
  EXPECT_EQ(request.env.at("CUDA_VISIBLE_DEVICES"), "0,1");
  EXPECT_EQ(request.env.at("RECLAIM_RESTART_COUNT"), "3");
  EXPECT_EQ(request.cpu_milli, 2000u);
  EXPECT_EQ(request.memory_mib, 500u);
  EXPECT_EQ(request.max_pids, 77u);
  ASSERT_THAT(request.network, SizeIs(1));
  EXPECT_EQ(request.network.front().prefix, "10.1.2.3/32");
  EXPECT_EQ(
      core->view(clock.now()).attempts.front().report.detail,
      "this node's owner opens no way to 10.9.9.9/32 port 443 tcp"
  );
}

TEST_F(CoreLease, a_gpu_that_the_owner_took_or_that_is_wedged_is_not_granted) {
  facts.gpus = {Gpu{.index = 0, .memory_mib = 1000}, Gpu{.index = 1, .memory_mib = 1000}};
  start();
  ReclaimRecord record = a_reclaim(ReclaimKind::kNotice);
  record.gpus = {0};
  warden.reclaims = {record};
  push_state();
  wanted.gpus = 2;
  EXPECT_TRUE(probe("j-1", wanted).hold.empty());
  wanted.gpus = 1;
  EXPECT_FALSE(probe("j-1", wanted).hold.empty());

  TelemetrySampled seen;
  seen.telemetry.disk_free_mib = 50'000;
  seen.telemetry.gpus = {{.index = 0}, {.index = 1}};
  seen.idle_s = 100'000;
  feed(seen);
  warden.gpus = {{.index = 1, .is_wedged = true}};
  push_state();
  EXPECT_TRUE(probe("j-1", wanted).hold.empty());
}

TEST_F(CoreLease, what_an_attempt_had_is_free_when_it_has_ended) {
  start();
  run();
  wanted.cpu_milli = wanted.cpu_milli_min = facts.cpu_milli;
  EXPECT_TRUE(probe("j-2", wanted).hold.empty());
  set_guest(GuestState::kExited, 0);
  push_state();
  finish<UploadOutputs>(OutputsUploaded{});
  log_is_empty();
  ASSERT_EQ(phase(), "ended");

  EXPECT_FALSE(probe("j-2", wanted).hold.empty()) << sent<wire::ProbeReply>().back().reason;
}

TEST_F(CoreLease, a_gpu_that_an_attempt_had_is_free_when_the_warden_has_removed_its_guest) {
  facts.gpus = {Gpu{.index = 0, .memory_mib = 1000}};
  start();
  wanted.gpus = 1;
  wire::Commit commit = a_commit();
  commit.hold = probe("j-1", wanted).hold;
  ASSERT_FALSE(commit.hold.empty()) << sent<wire::ProbeReply>().back().reason;
  tell(commit);
  order_stop(StopMode::kAtOnce, AttemptEnd::kCancelled);
  ASSERT_EQ(phase(), "ended");
  EXPECT_TRUE(probe("j-2", wanted).hold.empty()) << "the warden would start nobody there";
  answer<warden_wire::RemoveGuest>();

  EXPECT_FALSE(probe("j-2", wanted).hold.empty()) << sent<wire::ProbeReply>().back().reason;
}

TEST_F(CoreLease, the_most_memory_that_a_guest_was_seen_to_hold_is_reported) {
  start();
  run();
  warden.guests.front().container = "c-1";
  push_state();
  TelemetrySampled seen;
  seen.telemetry.disk_free_mib = 50'000;
  seen.idle_s = 100'000;
  seen.guest_memory_mib = {{"c-1", 300}, {"another", 9000}};
  feed(seen);
  seen.guest_memory_mib = {{"c-1", 200}};
  feed(seen);
  set_guest(GuestState::kExited, 0);
  push_state();
  finish<UploadOutputs>(OutputsUploaded{});
  log_is_empty();
  ASSERT_EQ(phase(), "ended");

  const wire::AttemptReport report = sent<wire::AttemptEvent>().back().report;
  EXPECT_EQ(report.memory_peak_mib, 300u);
  EXPECT_EQ(report.gpu_memory_peak_mib, 0u);
}

TEST_F(CoreLease, what_a_guest_does_and_whether_somebody_is_in_it_is_reported) {
  start();
  run();
  warden.guests.front().container = "c-1";
  push_state();
  TelemetrySampled seen;
  seen.telemetry.disk_free_mib = 50'000;
  seen.idle_s = 100'000;
  seen.guest_cpu_ms = {{"c-1", 1500}, {"another", 9000}};
  seen.visited = {"j-1 " + to_string(kEpoch)};
  feed(seen);
  wire::AttemptReport report = core->view(clock.now()).attempts.front().report;
  EXPECT_EQ(report.cpu_ms, 1500u);
  EXPECT_TRUE(report.is_visited);

  seen.visited = {"another 1.1"};
  feed(seen);
  report = core->view(clock.now()).attempts.front().report;
  EXPECT_FALSE(report.is_visited);

  clock.advance(CoreConfig{}.telemetry_trusted);
  feed(Tick{});
  report = core->view(clock.now()).attempts.front().report;
  EXPECT_EQ(report.cpu_ms, 0u) << "measured too long ago to say that it stands still";
}

TEST_F(CoreLease, what_a_guest_holds_on_its_gpus_is_reported_without_what_others_hold_there) {
  facts.gpus = {Gpu{.index = 4, .memory_mib = 1000}, Gpu{.index = 6, .memory_mib = 1000}};
  start();
  warden.images = {"sha256:img"};
  push_state();
  wanted.gpus = 2;
  wire::Commit commit = a_commit();
  commit.hold = probe("j-1", wanted).hold;
  ASSERT_FALSE(commit.hold.empty()) << sent<wire::ProbeReply>().back().reason;
  tell(commit);
  answer<warden_wire::PrepareDisk>([](warden_wire::Answer& a) { a.disk = "/disk/1"; });
  finish<PrepareWork>(WorkPrepared{});
  answer<warden_wire::AdoptDisk>();
  answer<warden_wire::StartGuest>();
  set_guest(GuestState::kRunning);
  push_state();
  TelemetrySampled seen;
  seen.telemetry.disk_free_mib = 50'000;
  seen.idle_s = 100'000;
  seen.telemetry.gpus = {
      {.index = 4, .memory_used_mib = 700, .foreign_vram_mib = 100},
      {.index = 5, .memory_used_mib = 900},
      {.index = 6, .memory_used_mib = 50, .foreign_vram_mib = 60}};
  feed(seen);
  set_guest(GuestState::kExited, 0);
  push_state();

  EXPECT_EQ(sent<wire::AttemptEvent>().back().report.gpu_memory_peak_mib, 600u);
}

TEST_F(CoreLease, a_lease_counts_after_a_crash_too) {
  start();
  run();
  crash_and_restart();
  come_back();
  wanted.cpu_milli = wanted.cpu_milli_min = facts.cpu_milli;

  EXPECT_TRUE(probe("j-2", wanted).hold.empty());
}

TEST_F(CoreLease, a_node_that_keeps_many_attempts_takes_no_more) {
  config.attempts_max = 1;
  make_core();
  start();
  run();
  wire::Commit commit = a_commit();
  commit.job = JobId("j-2");
  const wire::ProbeReply refused = probe("j-2", {});
  EXPECT_TRUE(refused.hold.empty()) << "no place is promised that no commit would get";
  EXPECT_THAT(refused.reason, HasSubstr("still keeps 1 attempts"));
  EXPECT_FALSE(refused.is_permanent);
  tell(commit);

  EXPECT_FALSE(sent<wire::CommitReply>().back().is_granted);
  EXPECT_THAT(sent<wire::CommitReply>().back().reason, HasSubstr("still keeps 1 attempts"));
}

TEST_F(CoreLease, a_hold_counts_as_an_attempt_that_is_kept) {
  config.attempts_max = 2;
  make_core();
  start();
  EXPECT_FALSE(probe("j-1", {}).hold.empty());
  EXPECT_FALSE(probe("j-2", {}).hold.empty());

  EXPECT_THAT(probe("j-3", {}).reason, HasSubstr("still keeps 2 attempts"));
}

TEST_F(CoreLease, a_disk_waits_for_the_room_that_an_ended_attempt_gives_back) {
  const auto is_full = [](warden_wire::Answer& a) {
    a.code = to_string(ErrorCode::kExhausted);
    a.message = "the disk has 10 MiB free";
  };
  start();
  run();
  log_is_empty();
  order_stop(StopMode::kAtOnce, AttemptEnd::kCancelled);
  answer<warden_wire::KillGuest>();
  log_is_empty();
  ASSERT_EQ(last_end(), AttemptEnd::kCancelled);
  wire::Commit commit = a_commit();
  commit.job = JobId("j-2");
  commit.hold = probe("j-2", {}).hold;
  ASSERT_FALSE(commit.hold.empty()) << sent<wire::ProbeReply>().back().reason;
  tell(commit);

  answer<warden_wire::PrepareDisk>(is_full);
  EXPECT_NE(last_end(), AttemptEnd::kRefused);
  answer<warden_wire::RemoveGuest>();
  answer<warden_wire::ReleaseDisk>();
  advance(seconds(5));
  answer<warden_wire::PrepareDisk>(is_full);

  EXPECT_EQ(last_end(), AttemptEnd::kRefused) << "nothing is given back any more";
}

TEST_F(CoreLease, a_fenced_attempt_is_not_granted_again) {
  start();
  run();
  tell(wire::HeartbeatAck{1, {{JobId("j-1"), kEpoch, false, false}}, {}, 0});
  tell(a_commit());

  EXPECT_FALSE(sent<wire::CommitReply>().back().is_granted);
}

TEST_F(CoreLease, a_guest_whose_end_is_recorded_at_the_coordinator_runs_no_longer) {
  start();
  run();
  tell(wire::HeartbeatAck{1, {{JobId("j-1"), kEpoch, true, true}}, {}, 0});

  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreLease, a_newer_plan_for_copies_survives_a_crash) {
  start();
  run();
  wire::CopyPlan plan = a_plan();
  plan.copies = {a_peer("n-9")};
  tell(wire::HeartbeatAck{1, {}, {plan}, 0});
  crash_and_restart();
  feed(WardenConnected{});
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  save(1);

  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-9"));
}

TEST_F(CoreLease, what_was_restored_is_the_parent_and_a_condemned_number_is_not_taken_again) {
  start();
  warden.images = {"sha256:img"};
  push_state();
  resume = a_generation(5);
  lease();
  answer<warden_wire::PrepareDisk>([](warden_wire::Answer& a) { a.disk = "/disk/1"; });
  finish<PrepareWork>(WorkPrepared{a_generation(4), "generation 5 could not be restored"});
  answer<warden_wire::AdoptDisk>();
  const auto env = asked<warden_wire::StartGuest>().front().env;
  EXPECT_EQ(env.at("RECLAIM_RESUME_GENERATION"), "4");
  answer<warden_wire::StartGuest>();
  ASSERT_THAT(watches, SizeIs(1));
  EXPECT_EQ(watches.front().since.generation, 4u);
  detect();

  EXPECT_EQ(work_body<TakeSnapshot>().generation, 6u);
  EXPECT_EQ(work_body<TakeSnapshot>().parent.generation, 4u);
}

TEST_F(CoreLease, a_receipt_counts_for_the_generation_that_was_copied) {
  start();
  run();
  save(1);
  ASSERT_TRUE(has_work<CopyGeneration>());
  save(2);
  copied("n-2", 1);
  EXPECT_THAT(sent<wire::CommitGeneration>(), IsEmpty());
  copied("n-2", 2);

  ASSERT_THAT(sent<wire::CommitGeneration>(), SizeIs(1));
  EXPECT_EQ(sent<wire::CommitGeneration>().front().generation.generation, 2u);
}

TEST_F(CoreLease, an_answer_makes_the_generation_durable_that_it_names) {
  start();
  run();
  save(1);
  copied("n-2", 1);
  save(2);
  committed(1);

  EXPECT_EQ(core->view(clock.now()).attempts.front().durable_generation, 1u);
}

TEST_F(CoreLease, no_copy_goes_to_the_node_itself) {
  start();
  run();
  wire::CopyPlan plan = a_plan();
  plan.copies = {a_peer("n-1"), a_peer("n-3")};
  tell(wire::HeartbeatAck{1, {}, {plan}, 0});
  save(1);

  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-3"));
}

TEST_F(CoreLease, a_second_copy_does_not_go_where_the_first_is_going) {
  start();
  run();
  wire::CopyPlan plan = a_plan();
  plan.wanted = 2;
  plan.copies = {a_peer("n-2"), a_peer("n-3"), a_peer("n-4"), a_peer("n-5")};
  plan.copies[2].failure_domain = "domain-n-3";
  tell(wire::HeartbeatAck{1, {}, {plan}, 0});
  detect();
  finish<TakeSnapshot>(Error{ErrorCode::kUnavailable, "changed while it was read", ""});
  save(1);  // after one that failed: nothing has gone ahead
  finish<CopyGeneration>(Error{ErrorCode::kUnavailable, "no route", ""});  // to n-2

  std::vector<NodeId> peers;
  for (const Work& work : works) {
    if (const auto* copy = std::get_if<CopyGeneration>(&work.body))
      peers.push_back(copy->peer.node);
  }
  EXPECT_EQ(peers, (std::vector{NodeId("n-3"), NodeId("n-5")})) << "n-4 stands beside n-3";
}

TEST_F(CoreLease, a_place_beside_a_copy_is_no_place_for_the_second) {
  start();
  run();
  wire::CopyPlan plan = a_plan();
  plan.wanted = 2;
  plan.copies = {a_peer("n-2"), a_peer("n-3"), a_peer("n-4")};
  plan.copies[2].failure_domain = "domain-n-2";
  tell(wire::HeartbeatAck{1, {}, {plan}, 0});
  detect();
  finish<TakeSnapshot>(Error{ErrorCode::kUnavailable, "changed while it was read", ""});
  save(1);
  copied("n-2", 1);
  finish<CopyGeneration>(Error{ErrorCode::kUnavailable, "no route", ""});  // to n-3

  EXPECT_FALSE(has_work<CopyGeneration>()) << "n-4 stands beside n-2";
  EXPECT_THAT(sent<wire::GrantRequest>(), SizeIs(1)) << "others are asked for";
}

TEST_F(CoreLease, a_grant_is_a_reason_to_ask_a_peer_again_that_failed) {
  start();
  run();
  save(1);
  finish<CopyGeneration>(Error{ErrorCode::kUnavailable, "no route", ""});
  finish<CopyGeneration>(Error{ErrorCode::kUnavailable, "no route", ""});
  ASSERT_FALSE(has_work<CopyGeneration>());
  tell(wire::Grants{JobId("j-1"), kEpoch, TicketAction::kStore, {a_peer("n-2")}});

  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-2"));
}

TEST_F(CoreLease, while_nothing_becomes_durable_snapshots_are_seldom) {
  start();
  run();
  for (std::uint32_t n = 1; n <= 4; ++n) save(n);
  detect();
  EXPECT_FALSE(has_work<TakeSnapshot>());
  advance(seconds(31));

  EXPECT_TRUE(has_work<TakeSnapshot>());
}

TEST_F(CoreLease, an_orphan_runs_on_to_its_jobs_limit_where_that_is_the_smaller_one) {
  spec.orphan_limit_s = 100;
  contract.orphan_limit_s = 1800;
  start();
  run();
  feed(CoordinatorDisconnected{"down"});
  advance(seconds(99));
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
  advance(seconds(2));

  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreLease, a_question_that_the_warden_does_not_answer_is_asked_again) {
  feed(Started{facts, contract, 0});
  feed(WardenConnected{});
  ASSERT_THAT(asked<warden_wire::Query>(), SizeIs(1));
  advance(config.reply_timeout + seconds(1));

  EXPECT_THAT(asked<warden_wire::Query>(), SizeIs(2));
}

TEST_F(CoreLease, a_failed_answer_of_the_warden_says_nothing_about_guests) {
  start();
  run();
  crash_and_restart();
  feed(WardenConnected{});
  answer<warden_wire::Query>([](warden_wire::Answer& a) {
    a.code = to_string(ErrorCode::kInternal);
    a.message = "broken";
  });

  EXPECT_EQ(state(), AttemptState::kRunning);
}

TEST_F(CoreLease, a_start_that_timed_out_is_asked_for_again) {
  start();
  prepare();
  answer<warden_wire::StartGuest>([](warden_wire::Answer& a) {
    a.code = to_string(ErrorCode::kTimeout);
    a.message = "the engine does not answer";
  });
  EXPECT_EQ(phase(), "starting") << "it may have started";
  advance(seconds(5));

  EXPECT_TRUE(has_asked<warden_wire::StartGuest>());
}

TEST_F(CoreLease, a_guest_that_has_just_started_may_be_missing_in_the_wardens_list_for_a_while) {
  start();
  prepare();
  answer<warden_wire::StartGuest>();
  push_state();
  EXPECT_EQ(phase(), "running");
  advance(seconds(11));
  push_state();

  EXPECT_NE(phase(), "running");
}

TEST_F(CoreLease, a_guest_and_a_disk_that_the_warden_does_not_know_are_gone) {
  const auto not_found = [](warden_wire::Answer& a) {
    a.code = to_string(ErrorCode::kNotFound);
    a.message = "no such guest";
  };
  start();
  run();
  log_is_empty();
  order_stop(StopMode::kAtOnce, AttemptEnd::kCancelled);
  answer<warden_wire::KillGuest>(not_found);
  log_is_empty();
  EXPECT_EQ(last_end(), AttemptEnd::kCancelled);
  acknowledge();
  answer<warden_wire::RemoveGuest>(not_found);
  answer<warden_wire::ReleaseDisk>(not_found);

  EXPECT_EQ(phase(), "none");
  EXPECT_THAT(journal, testing::Not(testing::Contains(testing::Key(HasSubstr("attempt/")))));
  EXPECT_THAT(journal, testing::Not(testing::Contains(testing::Key(HasSubstr("commit/")))));
}

TEST_F(CoreLease, what_a_timed_out_or_lost_guest_had_saved_last_is_kept) {
  spec.max_duration_s = 60;
  start();
  run();
  log_is_empty();
  advance(seconds(61));
  answer<warden_wire::KillGuest>();

  ASSERT_TRUE(has_work<TakeSnapshot>());
  EXPECT_TRUE(work_body<TakeSnapshot>().is_final);
}

TEST_F(CoreLease, that_the_owner_leaves_is_known_after_a_crash) {
  start();
  run();
  feed(OwnerLeaves{"the lab moves"});
  crash_and_restart();
  come_back();

  EXPECT_EQ(core->view(clock.now()).lending, LendingState::kDraining);
}

TEST_F(CoreLease, a_leaving_node_goes_when_the_coordinator_knows_how_its_attempts_ended) {
  start();
  run();
  feed(OwnerLeaves{"the lab moves"});
  set_guest(GuestState::kExited, 0);
  push_state();
  finish<UploadOutputs>(OutputsUploaded{});
  log_is_empty();
  ASSERT_EQ(phase(), "ended");
  answer<warden_wire::RemoveGuest>();
  answer<warden_wire::ReleaseDisk>();
  advance(seconds(60));
  EXPECT_FALSE(has_left);
  acknowledge();
  advance(seconds(1));

  EXPECT_TRUE(has_left);
}

TEST_F(CoreLease, one_that_died_after_its_goodbye_has_left_when_the_coordinator_knows_it_no_more) {
  start();
  feed(OwnerLeaves{"the lab moves"});
  crash_and_restart();
  has_left = false;
  feed(WardenConnected{});
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  feed(CoordinatorConnected{});
  wire::Refused refused;
  refused.code = to_string(ErrorCode::kUnsupported);
  refused.message = "another protocol";
  tell(refused);
  EXPECT_FALSE(has_left) << "that says nothing of whether it knows";

  feed(CoordinatorConnected{});
  refused.code = to_string(ErrorCode::kDenied);
  refused.message = "the identity of n-1 was taken back";
  tell(refused);

  EXPECT_TRUE(has_left);
  EXPECT_TRUE(is_known_to_have_left);
}

TEST_F(CoreLease, a_crash_of_the_agent_on_a_machine_that_is_up_for_long_makes_no_orphans) {
  clock.advance(std::chrono::hours(20));
  start();
  run();
  crash_and_restart();
  come_back();

  EXPECT_EQ(phase(), "running");
}

TEST_F(CoreLease, a_guest_that_had_ended_before_its_start_was_seen_has_run) {
  start();
  prepare();
  set_guest(GuestState::kExited, 3);
  push_state();

  EXPECT_TRUE(has_work<TakeSnapshot>()) << "what it saved is on its disk";
  finish<TakeSnapshot>(NothingNew{});
  EXPECT_TRUE(has_work<ReadLog>());
  log_is_empty();
  EXPECT_EQ(last_end(), AttemptEnd::kCrashed);
}

TEST_F(CoreLease, a_reclaim_of_an_earlier_boot_closes_nothing_now) {
  contract.min_free_s = 30;
  start();
  ReclaimRecord record = a_reclaim(ReclaimKind::kNotice);
  record.boot_id = "boot-0";
  record.phase = ReclaimPhase::kReturned;
  record.returned_ns = to_ns(clock.now().boot + std::chrono::hours(5));
  warden.reclaims = {record};
  push_state();

  EXPECT_FALSE(probe("j-1", wanted).hold.empty()) << sent<wire::ProbeReply>().back().reason;
}

TEST_F(CoreLease, no_guest_comes_while_the_warden_searches_the_machine_or_has_no_engine) {
  start();
  warden.is_recovering = true;
  push_state();
  EXPECT_THAT(probe("j-1", wanted).reason, HasSubstr("still looking"));

  warden.is_recovering = false;
  warden.is_engine_up = false;
  push_state();
  EXPECT_THAT(probe("j-1", wanted).reason, HasSubstr("container engine is down"));
}

TEST_F(CoreLease, only_what_was_acknowledged_is_not_told_again) {
  start();
  run();
  set_guest(GuestState::kExited, 0);
  push_state();
  const auto ending = sent<wire::AttemptEvent>().back();
  finish<UploadOutputs>(OutputsUploaded{});
  log_is_empty();
  ASSERT_GT(sent<wire::AttemptEvent>().back().seq, ending.seq);
  messages.clear();
  wire::AttemptAck ack;
  ack.job = JobId("j-1");
  ack.epoch = kEpoch;
  ack.seq = ending.seq;
  tell(ack);
  advance(seconds(3));

  ASSERT_THAT(sent<wire::AttemptEvent>(), SizeIs(1));
  EXPECT_EQ(sent<wire::AttemptEvent>().front().report.state, AttemptState::kEnded);
}

TEST_F(CoreLease, a_log_that_cannot_be_read_keeps_no_attempt_open) {
  start();
  run();
  set_guest(GuestState::kExited, 0);
  push_state();
  finish<UploadOutputs>(OutputsUploaded{});
  for (int tries = 0; tries < 10 && phase() != "ended"; ++tries) {
    if (has_work<ReadLog>()) finish<ReadLog>(Error{ErrorCode::kInternal, "a bad block", ""});
    advance(seconds(3));
  }

  EXPECT_EQ(last_end(), AttemptEnd::kSucceeded);
}

TEST_F(CoreLease, a_workspace_that_cannot_be_laid_out_here_is_another_nodes_chance) {
  start();
  warden.images = {"sha256:img"};
  push_state();
  lease();
  answer<warden_wire::PrepareDisk>([](warden_wire::Answer& a) { a.disk = "/disk/1"; });
  finish<PrepareWork>(Error{ErrorCode::kExhausted, "the disk is full", ""});

  EXPECT_EQ(last_end(), AttemptEnd::kRefused);
  EXPECT_THAT(sent<wire::AttemptEvent>().back().report.detail, HasSubstr("the disk is full"));
}

TEST_F(CoreLease, outputs_that_can_never_be_brought_home_end_the_attempt) {
  start();
  run();
  set_guest(GuestState::kExited, 0);
  push_state();
  finish<UploadOutputs>(Error{ErrorCode::kDenied, "the coordinator takes no more", ""});
  log_is_empty();

  EXPECT_EQ(last_end(), AttemptEnd::kCrashed);
  EXPECT_THAT(sent<wire::AttemptEvent>().back().report.detail, HasSubstr("takes no more"));
}

TEST_F(CoreLease, a_leaving_node_stays_until_its_reclaims_are_known) {
  start();
  ReclaimRecord record = a_reclaim(ReclaimKind::kNotice);
  warden.reclaims = {record};
  push_state();
  feed(OwnerLeaves{"the lab moves"});
  advance(seconds(60));
  EXPECT_FALSE(has_left);
  tell(wire::ReclaimAck{record.id, record.phase});
  advance(seconds(1));

  EXPECT_TRUE(has_left);
}

TEST_F(CoreLease, a_last_snapshot_has_the_cores_that_the_owner_lends_and_any_other_has_one) {
  contract.guest_cpu_milli = 3000;
  start();
  run();
  log_is_empty();
  detect();
  EXPECT_EQ(work_body<TakeSnapshot>().lanes, 1u);
  finish<TakeSnapshot>(SnapshotTaken{a_generation(1)});
  copied("n-2", 1);
  order_stop(StopMode::kSaveFirst, AttemptEnd::kMigrated, 30'000);
  advance(seconds(1));
  detect();

  EXPECT_EQ(work_body<TakeSnapshot>().lanes, 3u);
}

TEST_F(CoreLease, what_is_evacuated_goes_before_the_start_of_another_job) {
  config.works_max = 1;
  make_core();
  start();
  run();
  log_is_empty();
  save(1);
  ASSERT_TRUE(has_work<CopyGeneration>()) << "it has the only place";
  wire::Commit commit = a_commit();
  commit.job = JobId("j-2");
  commit.image_digest = "sha256:other";
  commit.hold = probe("j-2", wanted).hold;
  tell(commit);
  order_stop(StopMode::kSaveFirst, AttemptEnd::kMigrated, 30'000);
  detect();
  copied("n-2", 1);

  EXPECT_TRUE(has_work<TakeSnapshot>());
  EXPECT_FALSE(has_work<FetchImage>());
}

}  // namespace
}  // namespace rn::agent
