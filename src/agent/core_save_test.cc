// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class CoreSave : public CoreTest {
 protected:
  void SetUp() override {
    start();
    run();
  }
};

TEST_F(CoreSave, a_generation_is_copied_to_the_first_peer_and_committed_with_its_receipt) {
  save(1);
  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-2"));
  copied("n-2", 1);

  ASSERT_THAT(sent<wire::CommitGeneration>(), SizeIs(1));
  EXPECT_EQ(sent<wire::CommitGeneration>().front().receipts, std::vector{a_receipt("n-2", 1)});
  EXPECT_EQ(core->view(clock.now()).attempts.front().durable_generation, 0u);
  committed(1);
  EXPECT_EQ(core->view(clock.now()).attempts.front().durable_generation, 1u);
}

TEST_F(CoreSave, chunks_go_ahead_while_the_snapshot_is_taken_and_the_generation_is_told_after_it) {
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  ASSERT_TRUE(has_work<CopyGeneration>());
  EXPECT_TRUE(work_body<CopyGeneration>().is_ahead);
  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-2"));
  EXPECT_EQ(work_body<CopyGeneration>().generation.generation, 1u);
  EXPECT_EQ(work_body<CopyGeneration>().generation.manifest, Digest{});

  finish<TakeSnapshot>(SnapshotTaken{a_generation(1, 10)});
  EXPECT_FALSE(work_body<CopyGeneration>().is_ahead);
  EXPECT_EQ(work_body<CopyGeneration>().generation.manifest, a_generation(1).manifest);
  EXPECT_THAT(sent<wire::CommitGeneration>(), IsEmpty());

  copied("n-2", 1);
  EXPECT_THAT(sent<wire::CommitGeneration>(), SizeIs(1));
  EXPECT_FALSE(has_work<CopyGeneration>());
}

TEST_F(CoreSave, a_copy_ahead_ends_with_a_snapshot_that_finds_nothing_new) {
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  finish<TakeSnapshot>(NothingNew{});

  EXPECT_FALSE(has_work<CopyGeneration>());
  EXPECT_THAT(cancelled, SizeIs(1));
}

TEST_F(CoreSave, after_a_torn_snapshot_nothing_goes_ahead_until_one_is_whole) {
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  finish<TakeSnapshot>(Error{ErrorCode::kUnavailable, "changed while it was read", ""});
  EXPECT_FALSE(has_work<CopyGeneration>());
  EXPECT_THAT(cancelled, SizeIs(1));

  advance(seconds(1));
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  EXPECT_FALSE(has_work<CopyGeneration>());
  finish<TakeSnapshot>(SnapshotTaken{a_generation(1)});
  EXPECT_FALSE(work_body<CopyGeneration>().is_ahead);
  copied("n-2", 1);
  committed(1);

  advance(seconds(1));
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  EXPECT_TRUE(work_body<CopyGeneration>().is_ahead);
}

TEST_F(CoreSave, what_is_not_durable_yet_goes_before_chunks_of_the_next) {
  save(1);
  advance(seconds(1));
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  ASSERT_TRUE(has_work<TakeSnapshot>());
  EXPECT_FALSE(work_body<CopyGeneration>().is_ahead);
  EXPECT_EQ(work_body<CopyGeneration>().generation.generation, 1u);

  copied("n-2", 1);
  EXPECT_TRUE(work_body<CopyGeneration>().is_ahead);
  EXPECT_EQ(work_body<CopyGeneration>().generation.generation, 2u);
}

TEST_F(CoreSave, a_peer_that_fails_ahead_is_replaced_while_the_snapshot_goes_on) {
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  finish<CopyGeneration>(Error{ErrorCode::kUnavailable, "no route", ""});

  EXPECT_TRUE(work_body<CopyGeneration>().is_ahead);
  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-3"));
}

TEST_F(CoreSave, copies_ahead_go_to_different_failure_domains) {
  wire::CopyPlan plan = a_plan();
  plan.wanted = 2;
  plan.copies = {a_peer("n-2"), a_peer("n-3"), a_peer("n-4")};
  plan.copies[1].failure_domain = "domain-n-2";
  tell(wire::HeartbeatAck{1, {}, {plan}, 0});
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});

  std::vector<NodeId> peers;
  for (const Work& work : works) {
    if (const auto* copy = std::get_if<CopyGeneration>(&work.body))
      peers.push_back(copy->peer.node);
  }
  EXPECT_EQ(peers, (std::vector{NodeId("n-2"), NodeId("n-4")}));
}

class CorePrecopy : public CoreSave {
 protected:
  void SetUp() override {
    CoreSave::SetUp();
    plan = a_plan();
    plan.precopies = {a_peer("n-9")};
    tell(wire::HeartbeatAck{.plans = {plan}});
  }

  wire::CopyPlan plan;
};

TEST_F(CorePrecopy, what_is_durable_goes_to_the_next_destination_and_the_coordinator_hears_of_it) {
  save(1);
  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-2"));
  copied("n-2", 1);
  EXPECT_FALSE(has_work<CopyGeneration>());
  committed(1);

  ASSERT_TRUE(has_work<CopyGeneration>());
  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-9"));
  EXPECT_FALSE(work_body<CopyGeneration>().is_ahead);
  const std::size_t before = sent<wire::CommitGeneration>().size();
  copied("n-9", 1);
  ASSERT_THAT(sent<wire::CommitGeneration>(), SizeIs(before + 1));
  EXPECT_EQ(
      sent<wire::CommitGeneration>().back().receipts,
      (std::vector{a_receipt("n-2", 1), a_receipt("n-9", 1)})
  );
  EXPECT_FALSE(has_work<CopyGeneration>());
}

TEST_F(CorePrecopy, it_gives_way_to_the_next_save) {
  save(1);
  copied("n-2", 1);
  committed(1);
  ASSERT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-9"));
  advance(seconds(1));
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});

  EXPECT_THAT(cancelled, SizeIs(1));
  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-2"));
}

class CorePrecopies : public CorePrecopy {
 protected:
  void is_durable(std::uint32_t number) {
    save(number);
    copied("n-2", number);
    committed(number);
  }

  void was_sent_ahead_before() {
    is_durable(1);
    copied("n-9", 1);
    advance(seconds(5));
  }
};

TEST_F(CorePrecopies, of_a_guest_that_saves_all_the_time_one_goes_ahead_in_a_minute) {
  was_sent_ahead_before();
  is_durable(2);
  EXPECT_FALSE(has_work<CopyGeneration>());
  advance(seconds(40));
  is_durable(3);
  EXPECT_FALSE(has_work<CopyGeneration>());
  advance(seconds(20));

  ASSERT_TRUE(has_work<CopyGeneration>());
  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-9"));
  EXPECT_EQ(work_body<CopyGeneration>().generation.generation, 3U);
}

TEST_F(CorePrecopies, of_a_node_that_is_about_to_go_each_save_goes_ahead) {
  was_sent_ahead_before();
  wire::HazardForecast told{.step_s = 3600, .low = 0.6, .high = 1.5, .leaves_in_s = 500};
  told.per_day.assign(48, 24);
  tell(wire::HeartbeatAck{.seq = 1, .plans = {plan}, .hazard = told});
  is_durable(2);

  ASSERT_TRUE(has_work<CopyGeneration>());
  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-9"));
}

TEST_F(CorePrecopy, a_peer_that_takes_none_is_left_alone_for_a_while) {
  save(1);
  copied("n-2", 1);
  committed(1);
  finish<CopyGeneration>(Error{ErrorCode::kUnavailable, "no room", ""});

  EXPECT_FALSE(has_work<CopyGeneration>());
  advance(std::chrono::minutes(5));
  EXPECT_TRUE(has_work<CopyGeneration>());
}

TEST_F(CoreSave, a_commit_is_repeated_until_it_is_answered) {
  save(1);
  copied("n-2", 1);
  advance(seconds(3));
  EXPECT_THAT(sent<wire::CommitGeneration>(), SizeIs(2));
  committed(1);
  advance(seconds(3));

  EXPECT_THAT(sent<wire::CommitGeneration>(), SizeIs(2));
}

TEST_F(CoreSave, a_peer_that_fails_is_replaced_by_the_next_of_the_plan) {
  save(1);
  finish<CopyGeneration>(Error{ErrorCode::kUnavailable, "no route", ""});

  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-3"));
}

TEST_F(CoreSave, when_no_peer_of_the_plan_works_others_are_asked_for) {
  save(1);
  finish<CopyGeneration>(Error{ErrorCode::kUnavailable, "no route", ""});
  finish<CopyGeneration>(Error{ErrorCode::kExhausted, "full", ""});
  ASSERT_THAT(sent<wire::GrantRequest>(), SizeIs(1));
  EXPECT_THAT(sent<wire::GrantRequest>().front().tried, SizeIs(2));

  tell(wire::Grants{JobId("j-1"), kEpoch, TicketAction::kStore, {a_peer("n-4")}});

  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-4"));
}

TEST_F(CoreSave, two_copies_go_to_two_failure_domains) {
  wire::CopyPlan plan = a_plan();
  plan.wanted = 2;
  plan.copies = {a_peer("n-2"), a_peer("n-3"), a_peer("n-4")};
  plan.copies[1].failure_domain = "domain-n-2";
  tell(wire::HeartbeatAck{1, {}, {plan}, 0});
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  finish<TakeSnapshot>(Error{ErrorCode::kUnavailable, "changed while it was read", ""});
  save(1);  // after one that failed: nothing has gone ahead
  ASSERT_TRUE(has_work<CopyGeneration>());
  copied("n-2", 1);

  // n-3 stands in n-2's room: its copy would not count.
  EXPECT_EQ(work_body<CopyGeneration>().peer.node, NodeId("n-4"));
  EXPECT_THAT(sent<wire::CommitGeneration>(), IsEmpty());
  copied("n-4", 1);
  EXPECT_THAT(sent<wire::CommitGeneration>(), SizeIs(1));
}

TEST_F(CoreSave, generations_count_on_from_the_one_that_was_resumed) {
  save(1);
  save(2);

  EXPECT_EQ(core->reports(clock.now()).front().safe_generation, 2u);
  EXPECT_EQ(core->reports(clock.now()).front().step, 20);
}

TEST_F(CoreSave, the_last_two_durable_generations_stay_and_older_ones_are_collected) {
  for (std::uint32_t n = 1; n <= 3; ++n) {
    save(n);
    copied("n-2", n);
    committed(n);
  }

  EXPECT_EQ(work_body<CollectGarbage>().keep_from, 2u);
}

TEST_F(CoreSave, garbage_collection_by_the_coordinator_never_takes_what_a_live_attempt_needs) {
  for (std::uint32_t n = 1; n <= 2; ++n) {
    save(n);
    copied("n-2", n);
    committed(n);
  }
  works.clear();
  tell(wire::CollectGarbage{JobId("j-1"), kEpoch, 9, true});

  EXPECT_EQ(work_body<CollectGarbage>().keep_from, 1u);
  EXPECT_FALSE(work_body<CollectGarbage>().is_job_over);
  EXPECT_EQ(work_body<CollectGarbage>().epoch, kEpoch);
}

TEST_F(CoreSave, garbage_collection_with_a_stale_epoch_is_ignored) {
  tell(wire::CollectGarbage{JobId("j-1"), {0, 1}, 9, true});

  EXPECT_FALSE(has_work<CollectGarbage>());
}

TEST_F(CoreSave, a_snapshot_that_did_not_hold_still_waits_for_the_watch) {
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  finish<TakeSnapshot>(Error{ErrorCode::kUnavailable, "changed while it was read", ""});
  advance(seconds(5));
  EXPECT_FALSE(has_work<TakeSnapshot>());

  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  EXPECT_TRUE(has_work<TakeSnapshot>());
}

TEST_F(
    CoreSave, a_snapshot_that_came_too_late_for_what_the_watch_saw_is_owed_whatever_the_interval
) {
  wire::CopyPlan plan = a_plan();
  plan.min_interval_s = 60;
  tell(wire::HeartbeatAck{1, {}, {plan}, 0});
  save(1);
  advance(seconds(61));
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  finish<TakeSnapshot>(Error{ErrorCode::kUnavailable, "changed since it was found whole", ""});

  advance(seconds(3));
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  ASSERT_TRUE(has_work<TakeSnapshot>());
  finish<TakeSnapshot>(SnapshotTaken{a_generation(2)});

  advance(seconds(3));
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  EXPECT_FALSE(has_work<TakeSnapshot>()) << "nothing is owed any more";
}

TEST_F(CoreSave, a_full_disk_is_tried_again_and_loses_nothing_durable) {
  save(1);
  copied("n-2", 1);
  committed(1);
  advance(seconds(1));
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  finish<TakeSnapshot>(Error{ErrorCode::kExhausted, "no space left", ""});
  EXPECT_FALSE(has_work<TakeSnapshot>());
  advance(seconds(3));

  EXPECT_TRUE(has_work<TakeSnapshot>());
  EXPECT_EQ(core->view(clock.now()).attempts.front().durable_generation, 1u);
}

TEST_F(CoreSave, a_guest_that_says_without_end_that_it_saved_is_taken_once_a_second) {
  save(1);
  copied("n-2", 1);
  committed(1);
  for (int i = 0; i < 9; ++i) {
    feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
    EXPECT_FALSE(has_work<TakeSnapshot>());
    advance(milliseconds(100));
  }
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  advance(milliseconds(200));

  EXPECT_TRUE(has_work<TakeSnapshot>());
}

TEST_F(CoreSave, a_detection_during_a_snapshot_is_not_forgotten) {
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  finish<TakeSnapshot>(SnapshotTaken{a_generation(1)});
  advance(seconds(1));

  EXPECT_EQ(work_body<TakeSnapshot>().generation, 2u);
}

TEST_F(CoreSave, what_a_killed_guest_wrote_last_may_be_torn) {
  set_guest(GuestState::kExited, 137);
  push_state();
  EXPECT_EQ(
      work_body<TakeSnapshot>().torn_after_ns, to_ms(clock.now().wall - seconds(4)) * 1'000'000
  );
}

TEST_F(CoreSave, what_a_guest_that_left_by_itself_wrote_is_written) {
  set_guest(GuestState::kExited, 85);
  push_state();
  EXPECT_TRUE(work_body<TakeSnapshot>().is_final);
  EXPECT_EQ(work_body<TakeSnapshot>().torn_after_ns, 0);
}

TEST_F(CoreSave, a_refused_generation_is_not_sent_again) {
  save(1);
  copied("n-2", 1);
  committed(1, false);
  advance(seconds(5));

  EXPECT_THAT(sent<wire::CommitGeneration>(), SizeIs(1));
}

TEST_F(CoreSave, receipts_gathered_while_the_coordinator_is_away_are_committed_after_a_crash) {
  save(1);
  feed(CoordinatorDisconnected{"gone"});
  copied("n-2", 1);
  EXPECT_THAT(sent<wire::CommitGeneration>(), IsEmpty());

  crash_and_restart();
  feed(WardenConnected{});
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  connect();

  ASSERT_THAT(sent<wire::CommitGeneration>(), SizeIs(1));
  EXPECT_EQ(sent<wire::CommitGeneration>().front().receipts, std::vector{a_receipt("n-2", 1)});
}

class CoreLog : public CoreSave {};

TEST_F(CoreLog, log_bytes_go_one_append_at_a_time_and_go_on_from_the_acknowledged_offset) {
  advance(milliseconds(600));
  finish<ReadLog>(LogRead{0, {'a', 'b'}, 4});
  ASSERT_THAT(sent<wire::LogAppend>(), SizeIs(1));
  EXPECT_EQ(sent<wire::LogAppend>().back().offset, 0u);
  advance(milliseconds(600));
  log_is_empty();
  EXPECT_THAT(sent<wire::LogAppend>(), SizeIs(1));

  tell(wire::LogAck{JobId("j-1"), kEpoch, 2, true});
  advance(milliseconds(600));

  EXPECT_EQ(work_body<ReadLog>().offset, 2u);
}

TEST_F(CoreLog, an_append_that_is_not_acknowledged_is_read_and_sent_again) {
  advance(milliseconds(600));
  finish<ReadLog>(LogRead{0, {'a', 'b'}, 2});
  advance(seconds(3));
  EXPECT_EQ(work_body<ReadLog>().offset, 0u);
  finish<ReadLog>(LogRead{0, {'a', 'b'}, 2});

  EXPECT_THAT(sent<wire::LogAppend>(), SizeIs(2));
}

TEST_F(CoreLog, the_log_is_spooled_while_the_coordinator_is_away) {
  log_is_empty();
  feed(CoordinatorDisconnected{"gone"});
  advance(milliseconds(600));

  EXPECT_EQ(work_body<ReadLog>().max_bytes, 0u);
}

/// What the newest heartbeat says of the only attempt.
class CoreSaveTrouble : public CoreSave {
 protected:
  std::string told() {
    advance(seconds(5));
    const auto beats = sent<wire::Heartbeat>();
    if (beats.empty() || beats.back().attempts.empty()) return "no heartbeat";
    return beats.back().attempts.front().save_trouble;
  }
};

TEST_F(CoreSaveTrouble, a_file_that_the_watch_gives_up_is_told_until_something_is_saved) {
  EXPECT_EQ(told(), "");
  const GuestName guest{JobId("j-1"), kEpoch};
  feed(SaveTrouble{guest, "model\x1b[2J.bin", "it never holds still"});
  EXPECT_THAT(
      told(),
      testing::AllOf(
          HasSubstr("model?[2J.bin is not saved: it never holds still"),
          HasSubstr("rename it into place"),
          HasSubstr("leave it alone for 3 s")
      )
  );

  save(1);
  EXPECT_EQ(told(), "");
}

TEST_F(CoreSaveTrouble, a_job_that_runs_for_long_and_saves_nothing_is_told) {
  advance(seconds(590));
  EXPECT_EQ(told(), "");
  advance(seconds(10));

  EXPECT_THAT(told(), testing::AllOf(HasSubstr("more than 10 min"), HasSubstr("--checkpoint")));
  save(1);
  EXPECT_EQ(told(), "");
  advance(seconds(700));
  EXPECT_EQ(told(), "") << "its save is old, and it has one";
}

TEST_F(CoreSaveTrouble, snapshots_that_fail_for_long_are_told_with_their_reason) {
  for (int i = 0; i < 14; ++i) {
    feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
    ASSERT_TRUE(has_work<TakeSnapshot>());
    finish<TakeSnapshot>(Error{
        ErrorCode::kUnavailable, "it changed after its structure was checked", ""});
    if (i < 10) {
      EXPECT_EQ(told(), "") << i;
    }
    advance(seconds(5));
  }

  EXPECT_THAT(
      told(), testing::AllOf(HasSubstr("it changed after"), HasSubstr("rename it into place"))
  );
}

TEST_F(CoreSaveTrouble, copies_that_fail_everywhere_for_long_are_told_until_one_succeeds) {
  const auto refuse = [&](std::size_t free_mib) {
    for (int holder = 0; holder < 2 && has_work<CopyGeneration>(); ++holder)
      finish<CopyGeneration>(Error{
          ErrorCode::kExhausted, "the disk has " + std::to_string(free_mib) + " MiB free", ""});
  };
  save(1);
  refuse(9);
  EXPECT_EQ(told(), "") << "it may be for a moment";
  for (std::size_t round = 0; round < 6; ++round) {
    refuse(8);
    advance(seconds(6));
  }
  const std::string trouble = told();
  EXPECT_THAT(
      trouble,
      testing::AllOf(
          HasSubstr("no copy of what it saves can be made"),
          HasSubstr("n-2 says: the disk has "),
          HasSubstr("n-3 says: the disk has "),
          HasSubstr("next: make room on these nodes")
      )
  );
  refuse(7);
  advance(seconds(11));
  EXPECT_EQ(told(), trouble) << "other numbers are no other trouble";

  ASSERT_TRUE(has_work<CopyGeneration>());
  copied(work_body<CopyGeneration>().peer.node.str(), 1);
  EXPECT_EQ(told(), "");
}

TEST_F(CoreSaveTrouble, a_holder_that_fails_beside_one_that_works_is_no_trouble) {
  for (std::uint32_t n = 1; n <= 9; ++n) {
    save(n);
    if (work_body<CopyGeneration>().peer.node == NodeId("n-2"))
      finish<CopyGeneration>(Error{ErrorCode::kUnavailable, "no route", ""});
    copied("n-3", n);
    committed(n);
    EXPECT_EQ(told(), "") << n;
  }
}

class StatelessSave : public CoreSaveTrouble {
 protected:
  StatelessSave() { spec.checkpoint.is_stateless = true; }
};

TEST_F(StatelessSave, a_stateless_job_has_nothing_to_save) {
  advance(seconds(1000));
  EXPECT_EQ(told(), "");
}

}  // namespace
}  // namespace rn::agent
