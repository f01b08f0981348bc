// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

/// What owners are told of machines "a" and "b".
class Owners : public CoreSite {
 protected:
  void SetUp() override {
    start();
    for (const char* name : {"a", "b"}) {
      FakeAgent& agent = add_node(name, std::string("lab-") + name);
      agent.hello.facts.images = {a_image("base").digest};
      agent.hello.facts.gpus = {{.index = 0, .memory_mib = 24'000}, {.index = 1}};
      connect(agent);
    }
    settle();
  }

  void say_of_gpu(std::uint32_t index, const std::string& sickness) {
    node("a").telemetry.gpus = {{.index = index, .sickness = sickness}};
    beat(node("a"));
  }

  /// Node "a", of its wall clock.
  void say_it_is_ahead(std::int64_t ms) {
    wire::Heartbeat heartbeat;
    heartbeat.seq = ++node("a").beat;
    heartbeat.lending = node("a").lending;
    heartbeat.wall_ms = to_ms(clock.now().wall) + ms;
    tell(node("a"), heartbeat);
  }
};

TEST_F(Owners, hear_of_a_gpu_that_is_sick_and_well_again_once_each) {
  say_of_gpu(1, "it has fallen off the bus");
  say_of_gpu(1, "it has fallen off the bus");

  EXPECT_EQ(count_events("gpu.sick"), 1U);
  EXPECT_EQ(last_event("gpu.sick").message, "GPU 1 is sick: it has fallen off the bus");
  EXPECT_EQ(last_event("gpu.sick").node, node("a").id);
  EXPECT_EQ(last_event("gpu.sick").lab, LabId("lab-a"));
  pass(61'000);
  say_of_gpu(1, "");
  EXPECT_EQ(count_events("gpu.well"), 1U);
  EXPECT_EQ(last_event("gpu.well").message, "GPU 1 is well again");
}

TEST_F(Owners, hear_of_it_once_also_when_the_coordinator_starts_again) {
  say_of_gpu(0, "it has been slowed by heat");
  restart();
  connect(node("a"));
  settle();
  beat(node("a"));

  EXPECT_EQ(count_events("gpu.sick"), 1U);
}

TEST_F(Owners, are_not_flooded_by_a_node_that_changes_its_mind) {
  for (int i = 0; i < 50; ++i) say_of_gpu(1, i % 2 == 0 ? "x" : "");
  say_of_gpu(7, "it has no such GPU");

  EXPECT_EQ(count_events("gpu.sick") + count_events("gpu.well"), 1U);
}

TEST_F(Owners, hear_that_a_clock_is_apart_from_ours_and_that_it_is_right_again) {
  FakeAgent& a = node("a");
  a.hello.contract.windows = {{{"mon"}, "20:00", "24:00"}};
  connect(a);
  say_it_is_ahead(119'000);
  EXPECT_EQ(count_events("node.clock_apart"), 0U);

  say_it_is_ahead(5 * 3'600'000);
  say_it_is_ahead(5 * 3'600'000);

  ASSERT_EQ(count_events("node.clock_apart"), 1U);
  const EventRow told = last_event("node.clock_apart");
  EXPECT_EQ(told.node, a.id);
  EXPECT_EQ(told.lab, LabId("lab-a"));
  EXPECT_EQ(told.data.at("clock_offset_ms"), "-18000000");
  EXPECT_EQ(
      told.message,
      "its clock is 5 h ahead of the coordinator's: the hours of its contract are counted by its "
      "own clock, and by the coordinator's guests leave and come 5 h too early; next: see which of "
      "the two is wrong (`date`, `timedatectl`), and set it"
  );
  say_it_is_ahead(0);
  EXPECT_EQ(count_events("node.clock_right"), 1U);
}

TEST_F(Owners, are_not_flooded_by_a_clock_that_jumps) {
  for (int i = 0; i < 50; ++i) say_it_is_ahead(i % 2 == 0 ? -7'200'000 : 0);
  EXPECT_EQ(count_events("node.clock_apart"), 1U);
  EXPECT_EQ(count_events("node.clock_right"), 1U);
  pass(3'600'000);
  say_it_is_ahead(-7'200'000);
  EXPECT_EQ(count_events("node.clock_apart"), 2U);
}

TEST_F(Owners, a_sick_gpu_gets_no_job) {
  node("a").telemetry.gpus = {{.index = 0, .sickness = "x"}, {.index = 1, .sickness = "x"}};
  beat(node("a"));
  JobSpec spec = a_spec();
  spec.resources.gpus = 1;
  const JobId id = running(spec);

  EXPECT_EQ(where(id), "b");
}

TEST_F(Owners, hear_that_a_machine_is_lent_when_its_first_guest_runs) {
  node("b").to_probe = FakeAgent::Answer::kRefuse;
  const JobId id = running();
  const std::string first = where(id);
  beat(node(first));
  beat(node(first));

  EXPECT_EQ(count_events("node.lent"), 1U);
  EXPECT_EQ(last_event("node.lent").node, node(first).id);
  EXPECT_EQ(last_event("node.lent").message, "job 1 of ann (lab-x) runs on it");
  say(node(first), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kSucceeded);
  pass(600'000);
  const JobId next = running();
  ASSERT_EQ(where(next), first);
  beat(node(first));
  EXPECT_EQ(count_events("node.lent"), 1U) << "one job after the other";
  say(node(first), next, job(next).epoch, AttemptState::kEnded, AttemptEnd::kSucceeded);
  pass(910'000);
  const JobId last = running();
  beat(node(where(last)));
  EXPECT_EQ(count_events("node.lent"), 2U);
}

TEST_F(Owners, hear_of_a_job_that_only_their_machines_could_take) {
  node("b").hello.contract.allow_labs = {"lab-z"};
  connect(node("b"));
  node("a").lending = LendingState::kOutsideWindow;
  beat(node("a"));
  const JobId id = submit();
  pass(590'000);
  EXPECT_EQ(count_events("node.wanted"), 0U);
  pass(120'000);

  EXPECT_EQ(count_events("node.wanted"), 1U);
  EXPECT_EQ(last_event("node.wanted").node, node("a").id);
  EXPECT_NE(
      last_event("node.wanted").message.find("job 1 of ann (lab-x) has waited"), std::string::npos
  );
  pass(600'000);
  EXPECT_EQ(count_events("node.wanted"), 1U) << "once for a job";
  EXPECT_EQ(state(id), JobState::kQueued);
}

class PatientOwners : public Owners {
 protected:
  PatientOwners() { config.wanted_after_s = 3600; }
};

TEST_F(PatientOwners, hear_of_a_job_when_it_has_waited_as_long_as_the_site_says) {
  node("b").hello.contract.allow_labs = {"lab-z"};
  connect(node("b"));
  node("a").lending = LendingState::kOutsideWindow;
  beat(node("a"));
  submit();
  pass(3'500'000);
  EXPECT_EQ(count_events("node.wanted"), 0U);
  pass(200'000);

  EXPECT_EQ(count_events("node.wanted"), 1U);
}

TEST_F(Owners, are_not_asked_for_what_others_could_take_too) {
  for (const char* name : {"a", "b"}) {
    node(name).lending = LendingState::kOutsideWindow;
    beat(node(name));
  }
  submit();
  pass(1'200'000);

  EXPECT_EQ(count_events("node.wanted"), 0U);
}

}  // namespace
}  // namespace rn::coordinator
