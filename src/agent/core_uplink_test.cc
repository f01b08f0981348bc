// SPDX-License-Identifier: Apache-2.0
#include "agent/core_uplink_fixture.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST_F(CoreUplink, without_a_known_owner_each_generation_goes_at_once) {
  run();
  for (std::uint32_t number = 1; number <= 4; ++number) {
    if (number == 2) expect_owner(2, 4.3);  // a band that wide is a guess
    advance(seconds(20));
    safe(number);
    ASSERT_THAT(copying(), testing::ElementsAre("j-1/" + std::to_string(number)));
    EXPECT_THAT(saving(), IsEmpty());
    durable(number);
  }
  EXPECT_THAT(replaced(), IsEmpty());
}

TEST_F(CoreUplink, the_first_goes_at_once_and_what_comes_before_its_time_waits_and_is_replaced) {
  run();
  expect_owner(500);
  advance(minutes(5));
  safe(1);
  ASSERT_THAT(copying(), testing::ElementsAre("j-1/1"));
  durable(1);

  advance(minutes(5));
  safe(2);
  EXPECT_THAT(copying(), IsEmpty());
  EXPECT_THAT(saving(), HasSubstr("for an owner who comes back every"));
  EXPECT_THAT(saving(), HasSubstr("5 min of its work are nowhere else"));
  EXPECT_THAT(saving(), HasSubstr("generation 2 waits: not due (in "));

  advance(minutes(5));
  safe(3);
  EXPECT_THAT(copying(), IsEmpty());
  EXPECT_THAT(replaced(), testing::ElementsAre(2));
  EXPECT_GT(waits_for(), 600);
  EXPECT_THAT(copying(), testing::ElementsAre("j-1/3"));
  EXPECT_THAT(saving(), HasSubstr("generation 3 is on its way"));
}

TEST_F(CoreUplink, an_owner_who_is_hardly_ever_back_lets_it_wait_for_half_an_hour) {
  const std::int64_t waited_s = second_waits_with_owner(500);
  EXPECT_GT(waited_s, 1200);
  EXPECT_LT(waited_s, 4000);
}

TEST_F(CoreUplink, one_who_comes_each_day_for_some_minutes) {
  const std::int64_t waited_s = second_waits_with_owner(20);
  EXPECT_GT(waited_s, 250);
  EXPECT_LT(waited_s, 800);
}

TEST_F(CoreUplink, one_who_comes_every_two_hours_for_hardly_any) {
  const std::int64_t waited_s = second_waits_with_owner(2);
  EXPECT_GT(waited_s, 50);
  EXPECT_LT(waited_s, 240);
}

TEST_F(CoreUplink, a_copy_that_is_measured_as_cheap_lets_the_next_go_sooner) {
  a_copy_takes = milliseconds(100);  // of a core, and not eight seconds
  EXPECT_LT(second_waits_with_owner(20), 150);
  EXPECT_THAT(saving(), HasSubstr(", at 0.5 s of a core for each GiB; "));
}

TEST_F(CoreUplink, one_that_is_measured_as_dear_lets_it_wait_and_hours_are_not_believed) {
  a_copy_takes = std::chrono::hours(10);
  const std::int64_t waited_s = second_waits_with_owner(20);
  EXPECT_GT(waited_s, 600);
  EXPECT_LT(waited_s, 1300);
}

TEST_F(CoreUplink, where_the_clock_says_nothing_a_copy_keeps_a_core_busy) {
  a_copy_takes = -seconds(3);
  const std::int64_t waited_s = second_waits_with_owner(20);
  EXPECT_GT(waited_s, 250);
  EXPECT_LT(waited_s, 800);
  EXPECT_THAT(saving(), Not(HasSubstr("of a core")));
}

TEST_F(CoreUplink, what_a_generation_takes_to_make_is_spent_whether_it_is_copied_or_not) {
  taking_takes = seconds(200);
  EXPECT_LT(second_waits_with_owner(20), 800);
}

/// A first generation of 100 MB takes so long to make and then so long to arrive, while this much
/// goes ahead of it and with it.
class CoreLine : public CoreUplink {
 protected:
  std::int64_t second_waits(seconds making, seconds rest, std::uint64_t bytes) {
    run();
    expect_owner(20);
    advance(minutes(5));
    feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
    EXPECT_TRUE(work_body<CopyGeneration>().is_ahead);
    advance(making);
    GenerationRef ref = a_generation(1);
    ref.bytes = ref.new_bytes = kSaveBytes;
    finish<TakeSnapshot>(SnapshotTaken{ref});
    advance(rest);
    finish<CopyGeneration>(GenerationCopied{a_receipt("n-2", 1), bytes});
    committed(1);
    safe(2);
    return waits_for();
  }
};

TEST_F(CoreLine, is_as_fast_as_what_crossed_it_also_ahead_of_its_generation) {
  EXPECT_LT(second_waits(seconds(1), seconds(1), kSaveBytes), 400) << "2 s for each save, not 8";
}

TEST_F(CoreLine, is_as_fast_as_what_crossed_it_also_to_a_holder_that_lacked_more_than_is_new) {
  EXPECT_LT(second_waits(seconds(0), seconds(10), 10 * kSaveBytes), 300) << "1 s for each save";
}

TEST_F(CoreLine, that_waited_for_what_is_made_is_not_taken_for_a_slow_one) {
  const std::int64_t waited_s = second_waits(seconds(99), seconds(1), kSaveBytes);
  EXPECT_GT(waited_s, 100);
  EXPECT_LT(waited_s, 300) << "8 s for each save as assumed, and not 100";
}

TEST_F(CoreLine, that_is_slow_is_known_to_be) {
  EXPECT_GT(second_waits(seconds(1), seconds(99), kSaveBytes), 1000) << "100 s for each save";
}

TEST_F(CoreUplink, before_a_certain_end_each_goes_at_once) {
  run();
  expect_owner(500, 1.5, 7200);
  advance(minutes(5));
  safe(1);
  durable(1);
  advance(minutes(5));
  safe(2);
  EXPECT_THAT(copying(), IsEmpty());

  expect_owner(500, 1.5, 90);
  EXPECT_THAT(copying(), testing::ElementsAre("j-1/2"));
}

TEST_F(CoreUplink, at_a_notice_nothing_waits_any_longer) {
  run();
  expect_owner(500);
  advance(minutes(5));
  safe(1);
  durable(1);
  advance(minutes(5));
  safe(2);
  ASSERT_THAT(copying(), IsEmpty());

  warden.reclaims = {a_reclaim(ReclaimKind::kNotice)};
  push_state();
  EXPECT_THAT(copying(), testing::ElementsAre("j-1/2"));
}

TEST_F(CoreUplink, what_waits_goes_at_once_when_the_coordinator_says_no_more_of_the_owner) {
  run();
  expect_owner(500);
  advance(minutes(5));
  safe(1);
  durable(1);
  advance(minutes(5));
  safe(2);
  ASSERT_THAT(copying(), IsEmpty());

  expect_owner(500, 4.3);
  EXPECT_THAT(copying(), testing::ElementsAre("j-1/2"));
}

TEST_F(CoreUplink, one_upload_at_a_time_and_who_has_more_to_lose_goes_first) {
  run();
  advance(minutes(60));
  run_another();
  expect_owner(2);
  advance(minutes(5));

  safe(1, "j-2");
  ASSERT_THAT(copying(), testing::ElementsAre("j-2/1"));
  safe(1, "j-1");
  EXPECT_THAT(copying(), testing::ElementsAre("j-1/1")) << "an hour of work against five minutes";
  EXPECT_EQ(cancelled.size(), 1u);
  EXPECT_THAT(saving("j-2"), HasSubstr("generation 1 waits for another one on the uplink"));

  durable(1, "j-1");
  EXPECT_THAT(copying(), testing::ElementsAre("j-2/1"));
  durable(1, "j-2");
  EXPECT_THAT(copying(), IsEmpty());
}

TEST_F(CoreUplink, who_has_nobody_to_send_to_keeps_nobody_waiting) {
  run();
  advance(minutes(60));
  run_another();
  expect_owner(2);
  advance(minutes(5));
  safe(1, "j-1");
  for (int peers = 0; peers < 2; ++peers)
    finish<CopyGeneration>(Error{ErrorCode::kUnavailable, "no answer", ""});
  ASSERT_THAT(copying(), IsEmpty());
  EXPECT_FALSE(sent<wire::GrantRequest>().empty());

  safe(1, "j-2");
  EXPECT_THAT(copying(), testing::ElementsAre("j-2/1"));
}

TEST_F(CoreUplink, a_copy_that_began_before_there_was_a_plan_goes_to_its_end) {
  run();
  advance(minutes(5));
  safe(1);
  durable(1);
  advance(seconds(20));
  safe(2);
  ASSERT_THAT(copying(), testing::ElementsAre("j-1/2"));
  expect_owner(500);
  EXPECT_THAT(copying(), testing::ElementsAre("j-1/2"));
  messages.clear();
  finish<CopyGeneration>(GenerationCopied{a_receipt("n-2", 2)});
  ASSERT_EQ(sent<wire::CommitGeneration>().size(), 1u);
  EXPECT_EQ(sent<wire::CommitGeneration>().front().generation.generation, 2u);
}

TEST_F(CoreUplink, an_evacuation_has_the_uplink_before_the_others) {
  run();
  advance(minutes(60));
  run_another();
  expect_owner(2);
  advance(minutes(5));
  safe(1, "j-1");
  ASSERT_THAT(copying(), testing::ElementsAre("j-1/1"));
  safe(1, "j-2");

  wire::StopAttempt home;
  home.job = JobId("j-2");
  home.epoch = kEpoch;
  home.mode = StopMode::kSaveFirst;
  home.end = AttemptEnd::kMigrated;
  home.deadline_ms = 60'000;
  tell(home);
  advance(seconds(1));
  EXPECT_THAT(copying(), testing::ElementsAre("j-2/1"));
  durable(1, "j-2");
  advance(seconds(1));
  EXPECT_THAT(copying(), testing::ElementsAre("j-1/1"));
}

TEST_F(CoreUplink, while_the_coordinator_is_away_a_copy_that_is_made_keeps_no_newer_one_waiting) {
  run();
  expect_owner(2);
  advance(minutes(5));
  safe(1);
  finish<CopyGeneration>(GenerationCopied{a_receipt("n-2", 1)});
  is_acking = false;
  feed(CoordinatorDisconnected{"cable"});
  advance(minutes(5));
  safe(2);
  EXPECT_THAT(copying(), testing::ElementsAre("j-1/2"));
}

/// A study's agent: none of the joint rules.
class CoreUplinkAlone : public CoreUplink {
 protected:
  CoreUplinkAlone() {
    config.plans_saves_together = false;
    make_core();
  }
};

TEST_F(CoreUplinkAlone, copies_of_several_guests_go_beside_each_other) {
  run();
  advance(minutes(60));
  run_another();
  expect_owner(2);
  advance(minutes(5));
  safe(1, "j-2");
  safe(1, "j-1");
  EXPECT_THAT(copying(), testing::UnorderedElementsAre("j-1/1", "j-2/1"));
  EXPECT_THAT(cancelled, IsEmpty());
}

}  // namespace
}  // namespace rn::agent
