// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

using std::chrono::minutes;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::uint64_t kSaveBytes = 100'000'000;

/// Two guests on four cores, whose uplink nobody has measured yet (12.5 MB/s): eight seconds for
/// each save of 100 MB.
class CoreUplink : public CoreTest {
 protected:
  void SetUp() override {
    spec.orphan_limit_s = contract.orphan_limit_s = 100'000;
    start();
  }

  void expect_owner(double hours, double high = 1.5, std::uint32_t leaves_in_s = 0) {
    wire::HazardForecast told{.step_s = 3600, .low = 0.6, .high = high, .leaves_in_s = leaves_in_s};
    told.per_day.assign(48, 24 / hours);
    tell(wire::HeartbeatAck{.seq = 1, .hazard = told});
    advance(seconds(2));  // it is planned once a second
  }

  /// The guest has saved, and it became generation `number` in the own store.
  void safe(std::uint32_t number, const std::string& job = "j-1") {
    feed(GenerationDetected{GuestName{JobId(job), kEpoch}});
    if (!has_work<TakeSnapshot>()) advance(seconds(1));
    GenerationRef ref = a_generation(number);
    ref.job = JobId(job);
    ref.bytes = ref.new_bytes = kSaveBytes;
    finish<TakeSnapshot>(SnapshotTaken{ref, taking_takes});
  }

  /// Its copies are made, and the coordinator knows.
  void durable(std::uint32_t number, const std::string& job = "j-1") {
    Receipt receipt = a_receipt("n-2", number);
    receipt.job = JobId(job);
    finish<CopyGeneration>(GenerationCopied{receipt, kSaveBytes, a_copy_takes});
    wire::GenerationCommitted answer;
    answer.job = JobId(job);
    answer.epoch = kEpoch;
    answer.generation = number;
    answer.is_accepted = true;
    tell(answer);
  }

  /// "JOB/GENERATION" of what is on its way to peers.
  std::vector<std::string> copying() const {
    std::vector<std::string> out;
    for (const Work& one : works) {
      if (const auto* copy = std::get_if<CopyGeneration>(&one.body))
        out.push_back(one.guest.job.str() + "/" + std::to_string(copy->generation.generation));
    }
    return out;
  }

  std::vector<std::uint32_t> replaced() const {
    std::vector<std::uint32_t> out;
    for (const Work& one : works) {
      const auto* garbage = std::get_if<CollectGarbage>(&one.body);
      if (garbage != nullptr && garbage->replaced != 0) out.push_back(garbage->replaced);
    }
    return out;
  }

  std::string saving(const std::string& job = "j-1") const {
    for (const auto& report : core->reports(clock.now()))
      if (report.job == JobId(job)) return report.saving;
    return "no such job";
  }

  std::string trouble() const { return core->reports(clock.now()).front().save_trouble; }

  /// How long until a generation that waits goes, in seconds; it is complete all the time.
  std::int64_t waits_for() {
    const Instant began = clock.now().boot;
    while (copying().empty() && clock.now().boot - began < minutes(150)) advance(seconds(5));
    return (clock.now().boot - began) / seconds(1);
  }

  std::int64_t second_waits_with_owner(double hours) {
    run();
    expect_owner(hours);
    advance(minutes(5));
    safe(1);
    durable(1);
    advance(seconds(5));
    safe(2);
    return waits_for();
  }

  nanoseconds taking_takes{0};  ///< of a core; 0: nobody measures it
  nanoseconds a_copy_takes{0};

  void run_another() {
    wire::Probe probe;
    probe.job = JobId("j-2");
    probe.resources.disk_mib = 1000;
    tell(probe);
    wire::Commit commit = a_commit();
    commit.job = commit.plan.job = JobId("j-2");
    commit.hold = sent<wire::ProbeReply>().back().hold;
    tell(commit);
    answer<warden_wire::PrepareDisk>([](warden_wire::Answer& a) { a.disk = "/disk/2"; });
    finish<PrepareWork>(WorkPrepared{resume, ""});
    answer<warden_wire::AdoptDisk>();
    answer<warden_wire::StartGuest>();
    warden_wire::GuestReport report;
    report.guest = GuestName{JobId("j-2"), kEpoch};
    report.state = GuestState::kRunning;
    report.disk = "/disk/2";
    report.started_boot_ns = to_ns(clock.now().boot);
    warden.guests.push_back(report);
    push_state();
    acknowledge();
  }
};

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

class CoreTold : public CoreUplink {
 protected:
  void SetUp() override {
    spec.checkpoint.signal = SaveSignal::kUsr1;
    spec.checkpoint.is_told = true;
    CoreUplink::SetUp();
    run();
  }

  std::size_t tells() const { return asked<warden_wire::SignalGuest>().size(); }

  /// How long until it is told.
  minutes tell_comes_after() {
    const Instant began = clock.now().boot;
    while (tells() == 0 && clock.now().boot - began < minutes(150)) advance(seconds(10));
    return std::chrono::floor<minutes>(clock.now().boot - began);
  }

  void heard(std::uint32_t processes) {
    answer<warden_wire::SignalGuest>([&](warden_wire::Answer& a) { a.signalled = processes; });
  }
};

TEST_F(CoreTold, it_is_told_when_a_save_is_due_and_not_before) {
  expect_owner(2);
  advance(seconds(20));
  EXPECT_EQ(tells(), 0u) << "it has hardly begun";
  advance(seconds(20));
  ASSERT_EQ(tells(), 1u);
  EXPECT_EQ(asked<warden_wire::SignalGuest>().front().signal, SaveSignal::kUsr1);
  heard(1);
  advance(seconds(2));
  safe(1);
  durable(1);
  EXPECT_EQ(state(), AttemptState::kRunning);

  advance(seconds(50));
  EXPECT_EQ(tells(), 0u) << "too soon for what a save costs";
  EXPECT_LT(tell_comes_after(), minutes(20));
  heard(1);
  EXPECT_THAT(trouble(), IsEmpty());
}

TEST_F(CoreTold, it_is_told_also_where_nobody_knows_the_owner) {
  advance(seconds(35));
  ASSERT_EQ(tells(), 1u);
  heard(1);
  safe(1);
  durable(1);
  advance(minutes(1));
  EXPECT_EQ(tells(), 0u);
  EXPECT_LT(tell_comes_after(), minutes(60));
}

TEST_F(CoreTold, who_saves_because_it_is_told_to_pays_for_the_generation_as_well) {
  expect_owner(2);
  advance(seconds(40));
  heard(1);
  advance(seconds(2));
  taking_takes = seconds(200);
  safe(1);
  durable(1);
  EXPECT_GT(tell_comes_after(), minutes(20)) << "as for any other, and fifty seconds of four cores";
}

TEST_F(CoreTold, who_does_not_listen_is_told_ever_more_seldom_and_its_author_hears_of_it) {
  expect_owner(2);
  std::size_t told = 0;
  for (int i = 0; i < 60 * 4; ++i) {
    advance(seconds(15));
    if (tells() == 0) continue;
    ++told;
    heard(1);
  }
  EXPECT_GE(told, 4u);
  EXPECT_LE(told, 8u);
  EXPECT_THAT(trouble(), HasSubstr("times to save (usr1), and saved nothing; next: let it save"));
}

TEST_F(CoreTold, a_signal_that_nobody_catches_is_said) {
  expect_owner(2);
  advance(minutes(1));
  heard(0);
  EXPECT_THAT(trouble(), HasSubstr("no process of it catches usr1"));
}

TEST_F(CoreTold, one_that_was_told_and_ends_well_has_succeeded) {
  expect_owner(2);
  advance(minutes(1));
  heard(1);
  set_guest(GuestState::kExited, 0);
  push_state();
  EXPECT_EQ(phase(), "publishing");
}

}  // namespace
}  // namespace rn::agent
