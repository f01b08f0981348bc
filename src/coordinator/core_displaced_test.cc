// SPDX-License-Identifier: Apache-2.0
// Where jobs go that have lost their node: after an emergency, a loss, and with a GPU.
#include <set>

#include "coordinator/core_evacuation.h"
#include "coordinator/core_evacuation_fixture.h"

namespace rn::coordinator {
namespace {

class Displaced : public Evacuations {
 protected:
  void places(const std::string& at, std::uint32_t count) {
    node(at).hello.contract.max_guests = count;
    say_facts(at);
  }

  void say_facts(const std::string& at) {
    const wire::Hello& hello = node(at).hello;
    tell(
        node(at),
        wire::NodeUpdate{.facts = hello.facts, .contract = hello.contract, .address = hello.address}
    );
  }

  void add_place(const std::string& name) {
    FakeAgent& agent = add_node(name, "lab-" + name);
    agent.hello.contract.max_guests = 1;
    connect(agent);
  }

  /// The owner's button: guests are cut before anybody else hears of it.
  void emergency(const std::string& at) {
    ReclaimRecord r = record(at, 0, "r-now");
    r.kind = ReclaimKind::kEmergency;
    r.phase = ReclaimPhase::kCut;
    r.cut_ns = r.declared_ns;
    tell(node(at), wire::ReclaimReport{r});
  }

  std::size_t probes(const std::string& at) { return node(at).received<wire::Probe>().size(); }
};

TEST_F(Displaced, jobs_of_a_lost_node_are_chosen_for_together_and_go_where_their_copies_lie) {
  places("a", 2);
  const JobId one = saved("a", a_spec(), "c");
  const JobId two = saved("a", a_spec(), "b");
  const std::size_t asked = probes("b") + probes("c");
  lose({"a"});

  EXPECT_EQ(where(one), "c");
  EXPECT_EQ(where(two), "b");
  EXPECT_EQ(probes("b") + probes("c"), asked + 2) << "each destination is asked alone";
  const EventRow& event = last_event("evacuation.chosen");
  EXPECT_EQ(event.data.at("together"), "2");
  EXPECT_EQ(event.data.at("way"), "last_durable");
  EXPECT_EQ(event.data.at("holder"), event.data.at("destination"));
  EXPECT_EQ(event.data.at("bytes"), "0");
  EXPECT_EQ(event.data.at("because"), "lab-a/a is lost");
  EXPECT_EQ(event.data.at("beyond"), "0");
  EXPECT_NE(event.message.find("where what is durable lies"), std::string::npos) << event.message;
}

TEST_F(Displaced, nothing_is_fetched_from_the_lost_node_and_a_far_holder_gives_what_it_has) {
  const JobId id = saved("a");
  lose({"a"});

  const EventRow& event = last_event("evacuation.chosen");
  EXPECT_EQ(event.job, id);
  EXPECT_EQ(name_of(event.data.at("holder")), "store");
  EXPECT_EQ(event.data.at("bytes"), "100000000");
  EXPECT_NE(event.message.find("which fetches 100 MB from storage/store"), std::string::npos)
      << event.message;
}

TEST_F(Displaced, two_nodes_lost_at_once_do_not_send_both_jobs_to_the_last_place) {
  add_place("d");
  const JobId one = saved("a", a_spec(), "d");
  const JobId two = saved("b", a_spec(), "d");
  lose({"a", "b"});

  EXPECT_EQ((std::set<std::string>{where(one), where(two)}), (std::set<std::string>{"c", "d"}));
  EXPECT_EQ(last_event("evacuation.chosen").data.at("together"), "2");
}

TEST_F(Displaced, an_emergency_is_answered_for_all_guests_before_the_first_of_them_has_ended) {
  places("a", 2);
  const JobId one = saved("a", a_spec(), "c");
  const JobId two = saved("a", a_spec(), "b");
  emergency("a");

  ASSERT_EQ(count_events("evacuation.chosen"), 2U);
  EXPECT_EQ(last_event("evacuation.chosen").data.at("because"), "lab-a/a is taken back at once");
  EXPECT_EQ(chosen(one), "c");
  EXPECT_EQ(chosen(two), "b");
  EXPECT_NE(core->why(one, clock.now()).value().find("evacuation: goes on at"), std::string::npos);
  const JobId stranger = submit();
  leave(one);
  leave(two);
  pass(1000);
  EXPECT_EQ(where(one), "c");
  EXPECT_EQ(where(two), "b");
  EXPECT_EQ(state(stranger), JobState::kQueued) << "their places were kept";
  EXPECT_EQ(count_events("evacuation.chosen"), 2U);
}

TEST_F(
    Displaced, until_nobody_is_asked_a_second_emergency_may_still_change_the_answer_to_the_first
) {
  add_place("d");
  JobSpec picky = a_spec();
  picky.only_labs = {"lab-b", "lab-c"};
  const JobId one = saved("a", a_spec(), "c");
  const JobId two = saved("b", picky, "store");
  emergency("a");
  ASSERT_EQ(chosen(one), "c");
  emergency("b");

  EXPECT_EQ(chosen(one), "d");
  EXPECT_EQ(chosen(two), "c") << "there is no other place for it";
}

TEST_F(Displaced, an_end_that_comes_before_word_of_its_reclaim_is_chosen_for_as_well) {
  const JobId id = saved("a", a_spec(), "c");
  leave(id);
  pass(1000);

  EXPECT_EQ(where(id), "c");
  EXPECT_EQ(last_event("evacuation.chosen").data.at("because"), "lab-a/a is taken back");
}

TEST_F(Displaced, a_node_that_is_back_before_its_job_was_placed_keeps_it) {
  for (const char* other : {"b", "c"}) {
    node(other).lending = LendingState::kPaused;
    beat(node(other));
  }
  const JobId id = saved("a");
  lose({"a"});
  ASSERT_TRUE(core->evacuation(id));
  EXPECT_EQ(core->evacuation(id)->destination, "");
  EXPECT_EQ(
      last_event("evacuation.chosen").message,
      "it waits with what is durable; nobody can take it now"
  );
  node("a").beats = true;
  connect(node("a"));

  EXPECT_EQ(where(id), "a");
  EXPECT_FALSE(core->evacuation(id));
}

TEST_F(Displaced, whose_destination_does_not_answer_goes_to_the_next_best) {
  const JobId id = saved("a", a_spec(), "c");
  node("c").to_probe = FakeAgent::Answer::kSilent;
  lose({"a"});
  pass(3000);

  EXPECT_EQ(where(id), "b");
  const EventRow& event = last_event("evacuation.chosen");
  EXPECT_EQ(event.data.at("tries"), "1");
  EXPECT_NE(event.data.at("because").find("did not answer"), std::string::npos);
  EXPECT_EQ(name_of(event.data.at("holder")), "c") << "its copy is still the nearest";
}

TEST_F(Displaced, whose_destination_is_taken_back_or_lost_before_the_lease_goes_on_elsewhere) {
  const JobId id = saved("a", a_spec(), "c");
  const GenerationRef ref = generation(id, 2);
  const std::vector both = {receipt(node("c"), ref), receipt(node("store"), ref)};
  ASSERT_TRUE(commit_generation(node("a"), ref, both).is_accepted);
  node("c").to_commit = FakeAgent::Answer::kSilent;
  lose({"a"});
  ASSERT_EQ(where(id), "c");
  lose({"c"});
  pass(1000);

  EXPECT_EQ(where(id), "b");
}

TEST_F(Displaced, what_three_nodes_refused_is_placed_as_any_other) {
  for (const char* more : {"d", "e"}) add_place(more);
  const JobId id = saved("a", a_spec(), "c");
  for (const char* other : {"b", "c", "d", "e"}) node(other).to_probe = FakeAgent::Answer::kRefuse;
  lose({"a"});
  pass(1000);

  EXPECT_EQ(count_events("evacuation.chosen"), 3U);
  ASSERT_EQ(count_events("evacuation.given_up"), 1U);
  EXPECT_EQ(last_event("evacuation.given_up").message.find("3 nodes did not take it (lab-"), 0U);
  EXPECT_FALSE(core->evacuation(id));
  EXPECT_EQ(state(id), JobState::kQueued);
  for (const char* other : {"b", "c", "d", "e"}) node(other).to_probe = FakeAgent::Answer::kOffer;
  pass(10'000);
  EXPECT_NE(where(id), "");
  EXPECT_EQ(count_events("evacuation.chosen"), 3U);
}

TEST_F(Displaced, an_evacuation_with_notice_that_nobody_takes_waits_and_says_so) {
  const JobId id = saved("a");
  take_back("a", 60);
  for (const char* other : {"b", "c"}) node(other).to_probe = FakeAgent::Answer::kRefuse;
  leave(id);
  pass(1000);

  EXPECT_EQ(count_events("evacuation.chosen"), 3U) << "one with notice, one other, none";
  const std::string words = "it waits with what is durable; nobody can take it now";
  EXPECT_EQ(last_event("evacuation.chosen").message, words);
  EXPECT_NE(core->why(id, clock.now()).value().find(words), std::string::npos);
  node("b").to_probe = FakeAgent::Answer::kOffer;
  pass(10'000);
  EXPECT_EQ(where(id), "b");
}

TEST_F(Displaced, the_choice_is_not_in_the_store_and_is_made_anew_after_the_grace_of_a_start) {
  for (const char* other : {"b", "c"}) {
    node(other).lending = LendingState::kPaused;
    beat(node(other));
  }
  const JobId id = saved("a", a_spec(), "c");
  lose({"a"});
  ASSERT_EQ(chosen(id), "");
  const std::size_t before = count_events("evacuation.chosen");
  restart();
  for (const char* other : {"b", "c", "store"}) {
    node(other).lending = LendingState::kOpen;
    EXPECT_EQ(count_events("evacuation.chosen"), before) << "not before all are back";
    connect(node(other));
  }
  pass(1000);

  EXPECT_EQ(where(id), "c");
  EXPECT_EQ(
      last_event("evacuation.chosen").data.at("because"), "the coordinator has started again"
  );
}

TEST_F(Displaced, an_emergency_while_the_coordinator_is_away_is_chosen_for_when_it_is_told) {
  const JobId id = saved("a", a_spec(), "c");
  restart();
  ReclaimRecord r = record("a", 0, "r-now");
  r.kind = ReclaimKind::kEmergency;
  r.phase = ReclaimPhase::kCleared;
  node("a").lending = LendingState::kReclaimed;
  node("a").hello.reclaims = {r};
  for (auto& [name, at] : names) connect(node(name));
  EXPECT_EQ(chosen(id), "c");
  leave(id);
  pass(1000);

  EXPECT_EQ(where(id), "c");
}

TEST_F(Displaced, more_jobs_than_can_be_chosen_for_go_as_always_and_are_told_so) {
  constexpr std::size_t kMore = 4;
  for (const char* at : {"a", "b"}) {
    node(at).hello.facts.cpu_milli = 1'000'000;
    node(at).hello.facts.memory_mib = 1'000'000;
    places(at, 400);
  }
  node("b").lending = node("c").lending = LendingState::kPaused;
  for (const char* other : {"b", "c"}) beat(node(other));
  JobSpec spec = a_spec();
  spec.resources.memory_mib = 100;
  std::vector<JobId> jobs;
  for (std::size_t i = 0; i < kPlannedAtOnce + kMore; ++i)
    jobs.push_back(submit(spec, user(("u" + std::to_string(i % 30)).c_str())));
  pass(20'000);
  for (const JobId& id : jobs) {
    ASSERT_EQ(where(id), "a");
    say(node("a"), id, job(id).epoch, AttemptState::kRunning);
  }
  node("b").lending = LendingState::kOpen;
  lose({"a"});
  pass(20'000);

  EXPECT_EQ(count_events("evacuation.chosen"), kPlannedAtOnce);
  EXPECT_EQ(count_events("evacuation.not_chosen"), kMore);
  EXPECT_EQ(last_event("evacuation.not_chosen").data.at("beyond"), std::to_string(kMore));
  EXPECT_NE(
      last_event("evacuation.chosen").data.at("because").find("; 4 more are placed as always"),
      std::string::npos
  );
  for (const JobId& id : jobs) EXPECT_EQ(where(id), "b");
}

/// Nodes `a` and `b` lend GPUs.
class DisplacedGpus : public Displaced {
 protected:
  void SetUp() override {
    Displaced::SetUp();
    lend_gpus("a", 2);
    lend_gpus("b", 1);
  }

  void lend_gpus(const std::string& at, std::uint32_t count) {
    FakeAgent& agent = node(at);
    agent.hello.facts.gpus.clear();
    for (std::uint32_t i = 0; i < count; ++i)
      agent.hello.facts.gpus.push_back({.index = i, .model = "A100", .memory_mib = 40'000});
    places(at, 4);
  }

  JobId on_gpu(std::uint32_t gpu, const std::string& holder) {
    JobSpec spec = a_spec();
    spec.resources.gpus = 1;
    const JobId id = saved("a", spec, holder);
    report(id).gpus = {gpu};
    beat(node("a"));
    return id;
  }

  wire::AttemptReport& report(const JobId& id) {
    return node("a").attempts.at({id, job(id).epoch});
  }

  ReclaimRecord gpu_record(std::uint32_t gpu, std::int64_t notice_s) {
    ReclaimRecord r = record("a", notice_s, "r-gpu");
    r.gpus = {gpu};
    if (notice_s > 0) return r;
    r.kind = ReclaimKind::kEmergency;
    r.phase = ReclaimPhase::kCut;
    return r;
  }

  void take_gpu(std::uint32_t gpu, std::int64_t notice_s) {
    tell(node("a"), wire::ReclaimReport{gpu_record(gpu, notice_s)});
  }

  void leave_gpu(const JobId& id) {
    say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kReclaimed);
  }
};

TEST_F(DisplacedGpus, of_a_gpu_taken_back_only_its_guest_is_sent_elsewhere) {
  const JobId one = on_gpu(0, "store");
  const JobId two = on_gpu(1, "store");
  take_gpu(1, 60);

  EXPECT_EQ(chosen(one), "none");
  EXPECT_EQ(chosen(two), "b");
  EXPECT_EQ(last_event("evacuation.chosen").data.at("because"), "lab-a/a: a GPU is taken back");
  leave_gpu(two);
  pass(1000);
  EXPECT_EQ(where(two), "b");
  EXPECT_EQ(where(one), "a");
}

TEST_F(DisplacedGpus, a_free_gpu_of_the_same_node_will_do_where_nobody_better_has_one) {
  lend_gpus("b", 0);
  const JobId id = on_gpu(0, "store");
  take_gpu(0, 60);

  EXPECT_EQ(chosen(id), "a");
  EXPECT_NE(last_event("evacuation.chosen").message.find("it stays on lab-a/a"), std::string::npos);
  leave_gpu(id);
  pass(1000);
  EXPECT_EQ(where(id), "a");
}

TEST_F(DisplacedGpus, a_gpu_outside_its_own_window_is_no_destination) {
  FakeAgent& b = node("b");
  b.telemetry.gpus = {{.index = 0, .is_outside_window = true}};
  beat(b);
  const JobId id = on_gpu(1, "store");
  take_gpu(1, 60);

  EXPECT_NE(chosen(id), "b");
}

TEST_F(DisplacedGpus, a_desktop_that_its_contract_tolerates_keeps_nobody_away) {
  FakeAgent& b = node("b");
  b.hello.contract.idle.foreign_vram_mib = 500;
  update("b");
  b.telemetry.gpus = {{.index = 0, .foreign_processes = 1, .foreign_vram_mib = 300}};
  beat(b);
  const JobId id = on_gpu(1, "store");
  take_gpu(1, 60);

  EXPECT_EQ(chosen(id), "b");
}

TEST_F(DisplacedGpus, a_gpu_on_which_its_owner_computes_is_no_destination) {
  FakeAgent& b = node("b");
  b.hello.contract.idle.foreign_vram_mib = 500;
  update("b");
  b.telemetry.gpus = {{.index = 0, .foreign_processes = 1, .foreign_vram_mib = 501}};
  beat(b);
  const JobId id = on_gpu(1, "store");
  take_gpu(1, 60);

  EXPECT_EQ(chosen(id), "a") << "its other GPU";
}

TEST_F(DisplacedGpus, a_gpu_that_is_cut_at_once_sends_its_guest_where_its_copy_lies) {
  lend_gpus("a", 1);
  lend_gpus("c", 1);
  const JobId id = on_gpu(0, "c");
  take_gpu(0, 0);

  EXPECT_EQ(chosen(id), "c");
  EXPECT_EQ(core->evacuation(id)->way, "last_durable");
  leave_gpu(id);
  pass(1000);
  EXPECT_EQ(where(id), "c");
}

TEST_F(DisplacedGpus, a_gpu_that_is_given_back_in_time_lets_its_guest_stay) {
  const JobId id = on_gpu(1, "store");
  on_gpu(0, "store");
  take_gpu(1, 60);
  ASSERT_EQ(chosen(id), "b");
  ReclaimRecord over = gpu_record(1, 60);
  over.phase = ReclaimPhase::kReturned;
  tell(node("a"), wire::ReclaimReport{over});

  EXPECT_EQ(chosen(id), "none");
  EXPECT_EQ(where(id), "a");
}

TEST_F(
    DisplacedGpus, an_agent_that_does_not_tell_its_guests_gpus_is_understood_by_whom_it_notices
) {
  const JobId one = on_gpu(0, "store");
  const JobId two = on_gpu(1, "store");
  report(one).gpus = report(two).gpus = {};
  beat(node("a"));
  take_gpu(1, 60);
  EXPECT_EQ(chosen(two), "none");
  notice(two);

  EXPECT_EQ(chosen(one), "none");
  EXPECT_EQ(chosen(two), "b");
}

TEST_F(DisplacedGpus, after_a_restart_the_hello_tells_whose_gpu_it_is) {
  const JobId one = on_gpu(0, "store");
  const JobId two = on_gpu(1, "store");
  take_gpu(1, 600);
  restart();
  node("a").hello.reclaims = {gpu_record(1, 600)};
  for (auto& [name, id] : names) connect(node(name));
  pass(6000);

  EXPECT_EQ(chosen(one), "none");
  EXPECT_EQ(chosen(two), "b");
}

}  // namespace
}  // namespace rn::coordinator
