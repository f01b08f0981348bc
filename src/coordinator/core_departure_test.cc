// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "coordinator/core_evacuation_fixture.h"

namespace rn::coordinator {
namespace {

constexpr const char* kNobody = "nobody can take it now";

/// Machines that nobody else can use at the moment, and an owner who says when they come.
class Departures : public Evacuations {
 protected:
  void open(const std::string& at, bool is_open = true) {
    node(at).lending = is_open ? LendingState::kOpen : LendingState::kPaused;
    beat(node(at));
  }

  JobId announced(std::int64_t notice_s, const JobSpec& spec = a_spec()) {
    const JobId id = saved("a", spec);
    for (const char* other : {"b", "c"}) open(other, false);
    announce(notice_s);
    return id;
  }

  void announce(std::int64_t notice_s) {
    ReclaimRecord r = record("a", notice_s);
    r.kind = ReclaimKind::kAnnounced;
    tell(node("a"), wire::ReclaimReport{r});
  }

  /// The newest word on the job that its node was told.
  Departure word(const JobId& id) {
    Departure newest = Departure::kUntold;
    for (const auto& ack : node("a").received<wire::HeartbeatAck>()) {
      for (const wire::AttemptVerdict& verdict : ack.verdicts)
        if (verdict.job == id) newest = verdict.departure;
    }
    return newest;
  }

  /// Its guest has left; what it saved last is on its way to the store.
  void sends_its_last_save(const JobId& id) {
    notice(id);
    say(node("a"), id, job(id).epoch, AttemptState::kSaving);
    say(node("a"), id, job(id).epoch, AttemptState::kDraining);
    wire::TransferReport report;
    report.id = 7;
    report.job = id;
    report.epoch = job(id).epoch;
    report.peer = node("store").id;
    report.kind = TransferKind::kEvacuation;
    report.bytes_left = 1'000'000;
    report.is_size_known = true;
    report.deadline_ms = 50'000;
    tell(node("a"), wire::Transfers{{report}, 0});
    pass(500);
  }
};

TEST_F(Departures, of_a_node_that_stays_say_nothing) {
  const JobId id = saved("a");
  beat(node("a"));

  EXPECT_EQ(word(id), Departure::kUntold);
}

TEST_F(Departures, of_who_has_somewhere_to_go_are_told_at_once) {
  const JobId id = saved("a");
  announce(600);

  EXPECT_EQ(word(id), Departure::kGoes);
}

TEST_F(Departures, of_who_has_nowhere_to_go_are_told_at_once_and_with_each_heartbeat) {
  const JobId id = announced(600);
  EXPECT_EQ(word(id), Departure::kStays);

  node("a").inbox.clear();
  beat(node("a"));
  EXPECT_EQ(word(id), Departure::kStays);
}

TEST_F(Departures, are_told_of_a_job_that_saves_nothing_and_has_no_plan_of_copies) {
  JobSpec spec = a_spec();
  spec.checkpoint = {.is_stateless = true};
  for (const char* other : {"b", "c"}) node(other).to_probe = FakeAgent::Answer::kRefuse;
  const JobId id = running(spec);
  ASSERT_EQ(where(id), "a");
  for (const char* other : {"b", "c"}) open(other, false);
  announce(600);

  EXPECT_EQ(word(id), Departure::kStays);
}

TEST_F(Departures, change_as_soon_as_a_place_is_free) {
  const JobId id = announced(600);
  open("b");
  pass(config.heartbeat_ms + 1000);

  EXPECT_EQ(chosen(id), "b");
  EXPECT_EQ(word(id), Departure::kGoes);
}

TEST_F(Departures, change_when_the_place_is_gone_again) {
  const JobId id = announced(600);
  open("b");
  pass(config.heartbeat_ms + 1000);
  ASSERT_EQ(word(id), Departure::kGoes);
  open("b", false);
  pass(config.heartbeat_ms + 1000);

  EXPECT_EQ(word(id), Departure::kStays);
}

TEST_F(Departures, over_when_the_owner_calls_it_off) {
  const JobId id = announced(600);
  ReclaimRecord over = record("a", 600);
  over.kind = ReclaimKind::kAnnounced;
  over.phase = ReclaimPhase::kReturned;
  tell(node("a"), wire::ReclaimReport{over});
  beat(node("a"));

  EXPECT_EQ(word(id), Departure::kUntold);
}

TEST_F(Departures, to_a_free_place_come_before_strangers_who_wait) {
  const JobId id = announced(600);
  const JobId stranger = submit();
  pass(3000);
  ASSERT_EQ(state(stranger), JobState::kQueued);
  open("b");
  pass(1000);

  EXPECT_EQ(chosen(id), "b");
  EXPECT_EQ(state(stranger), JobState::kQueued);
}

TEST_F(Departures, keep_a_place_that_became_free_an_hour_later) {
  const JobId id = announced(7200);
  pass(3'600'000);
  open("b");
  pass(config.heartbeat_ms + 1000);
  ASSERT_EQ(chosen(id), "b");
  const JobId stranger = submit();
  pass(30'000);

  EXPECT_EQ(state(stranger), JobState::kQueued) << "its place is kept from when it got it";
}

TEST_F(Departures, are_told_in_one_event_that_promises_no_loss) {
  const JobId id = announced(600);
  pass(60'000);

  EXPECT_EQ(count_events("evacuation.chosen"), 1U);
  const std::string words = last_event("evacuation.chosen").message;
  EXPECT_NE(words.find(kNobody), std::string::npos) << words;
  EXPECT_NE(words.find("until its last save is due"), std::string::npos) << words;
  EXPECT_EQ(words.find("no destination can be reached in time"), std::string::npos) << words;
  const std::string why = core->why(id, clock.now()).value();
  EXPECT_NE(why.find(core->evacuation(id)->sentence), std::string::npos) << why;
}

TEST_F(Departures, of_an_owner_who_waits_promise_no_stay) {
  const JobId id = saved("a");
  for (const char* other : {"b", "c"}) open(other, false);
  take_back("a", 600);

  const std::string words = core->evacuation(id)->sentence;
  EXPECT_NE(words.find(kNobody), std::string::npos) << words;
  EXPECT_EQ(words.find("last save is due"), std::string::npos) << words;
}

TEST_F(Departures, what_is_promised_and_what_was_guessed_before_are_one_story) {
  const JobId id = saved("a");
  for (const char* other : {"b", "c"}) open(other, false);
  node("store").hello.contract.store_mib = 150;  // less than 200 MB, which it is guessed to need
  node("b").hello.contract.store_mib = node("c").hello.contract.store_mib = 0;
  for (const char* other : {"b", "c", "store"}) update(other);
  take_back("a", 60);
  ASSERT_EQ(core->evacuation(id)->way, "last_durable");
  EXPECT_EQ(last_event("evacuation.chosen").message.find("nothing arrives"), std::string::npos)
      << "it is a guess";

  sends_its_last_save(id);

  ASSERT_EQ(count_events("evacuation.admitted"), 1U);
  const auto view = core->evacuation(id);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->way, "store");
  EXPECT_EQ(name_of(view->holder), "store");
  EXPECT_NE(view->sentence.find("arrives in time at storage/store"), std::string::npos)
      << view->sentence;
  const std::string why = core->why(id, clock.now()).value();
  EXPECT_EQ(why.find("nobody is sure to get"), std::string::npos) << why;
  EXPECT_NE(why.find("arrives in time"), std::string::npos) << why;
  pass(10'000);
  EXPECT_EQ(core->evacuation(id)->way, "store") << "it is chosen for again and again";
  EXPECT_EQ(count_events("evacuation.chosen"), 2U);
}

}  // namespace
}  // namespace rn::coordinator
