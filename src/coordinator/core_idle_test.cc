// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_idle.h"

#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

constexpr std::int64_t kMinutesMs = 60'000;

class Idle : public CoreSite {
 protected:
  Idle() { config.idle_after_s = 600; }

  void SetUp() override {
    start();
    FakeAgent& agent = add_node("a", "lab-a");
    for (std::uint32_t i = 0; i < 2; ++i)
      agent.hello.facts.gpus.push_back({.index = i, .model = "A100", .memory_mib = 40'000});
    connect(agent);
    agent.telemetry.cpu_percent = 1;
    agent.telemetry.gpus = {{.index = 0}, {.index = 1}};
    settle();
  }

  JobId on_gpu(std::uint32_t gpu, JobSpec spec = a_spec()) {
    spec.resources.gpus = 1;
    const JobId id = running(spec);
    node("a").attempts.at({id, job(id).epoch}).gpus = {gpu};
    return id;
  }

  void set_use(std::uint32_t gpu, std::uint32_t percent) {
    node("a").telemetry.gpus[gpu].utilisation_percent = percent;
  }

  bool is_marked(const JobId& id) { return job(id).idle_since_wall_ms != 0; }

  std::string why(const JobId& id) { return core->why(id, clock.now()).value(); }
};

TEST_F(Idle, a_job_that_uses_none_of_its_gpus_is_marked_and_told_once) {
  const JobId id = on_gpu(0);
  pass(9 * kMinutesMs);
  EXPECT_FALSE(is_marked(id));
  pass(2 * kMinutesMs);

  ASSERT_TRUE(is_marked(id));
  EXPECT_GT(tables.jobs.at(id).job.idle_since_wall_ms, 0) << "also on the disk";
  EXPECT_NE(why(id).find("it has used next to nothing of its GPUs for 1"), std::string::npos)
      << why(id);
  const EventRow& event = last_event("job.idle");
  EXPECT_EQ(event.user, UserId("ann"));
  EXPECT_EQ(
      event.message,
      "used 0.0 % of 1 GPU of lab-a/a in the last 10 min: `reclaim stop 1` leaves them to others"
  );
  pass(30 * kMinutesMs);
  EXPECT_EQ(count_events("job.idle"), 1U);
  EXPECT_EQ(state(id), JobState::kRunning) << "it did not ask to be stopped";
}

TEST_F(Idle, a_short_burst_does_not_hide_that_it_does_nothing_and_work_takes_the_mark_away) {
  const JobId id = on_gpu(0);
  pass(8 * kMinutesMs);
  set_use(0, 100);
  pass(10'000);
  set_use(0, 0);
  pass(3 * kMinutesMs);
  EXPECT_TRUE(is_marked(id));

  set_use(0, 90);
  pass(3 * kMinutesMs);
  EXPECT_FALSE(is_marked(id));
  EXPECT_EQ(why(id).find("next to nothing"), std::string::npos);
  set_use(0, 0);
  pass(12 * kMinutesMs);
  EXPECT_TRUE(is_marked(id));
  EXPECT_EQ(count_events("job.idle"), 2U) << "it had worked in between";
}

TEST_F(Idle, what_its_neighbour_does_is_not_its_own) {
  const JobId idle = on_gpu(0);
  const JobId busy = on_gpu(1);
  set_use(1, 80);
  pass(12 * kMinutesMs);

  EXPECT_TRUE(is_marked(idle));
  EXPECT_FALSE(is_marked(busy));
}

TEST_F(Idle, who_may_be_at_work_on_processors_is_not_called_idle) {
  node("a").telemetry.cpu_percent = 40;
  const JobId id = on_gpu(0);
  pass(15 * kMinutesMs);

  EXPECT_FALSE(is_marked(id));
}

TEST_F(Idle, nothing_is_said_where_nothing_is_known) {
  const JobId without = running(a_spec());
  const JobId unseen = on_gpu(0);
  node("a").telemetry.gpus.clear();
  pass(30 * kMinutesMs);

  EXPECT_FALSE(is_marked(without));
  EXPECT_FALSE(is_marked(unseen));
  node("a").telemetry.gpus = {{.index = 0, .closes_in_s = 7200, .is_unseen = true}};
  pass(30 * kMinutesMs);
  EXPECT_FALSE(is_marked(unseen)) << "only its windows are known";
}

TEST_F(Idle, one_that_asked_for_it_is_stopped_after_a_last_save) {
  JobSpec spec = a_spec();
  spec.idle_stop_s = 1200;
  const JobId id = on_gpu(0, spec);
  pass(15 * kMinutesMs);
  EXPECT_NE(why(id).find(", and is stopped after 20 min of that"), std::string::npos) << why(id);
  EXPECT_TRUE(node("a").received<wire::StopAttempt>().empty());
  pass(6 * kMinutesMs);

  const auto stop = node("a").last<wire::StopAttempt>();
  EXPECT_EQ(stop.job, id);
  EXPECT_EQ(stop.end, AttemptEnd::kCancelled);
  EXPECT_EQ(stop.mode, StopMode::kSaveFirst);
  EXPECT_EQ(last_event("job.idle_stop").message, "used 0.0 % of its GPUs for 20 min (idle_stop)");
  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kCancelled);
  EXPECT_EQ(state(id), JobState::kCancelled);
  EXPECT_NE(job(id).reason.find("idle_stop"), std::string::npos) << job(id).reason;
}

TEST_F(Idle, a_restart_neither_forgets_the_mark_nor_tells_it_again) {
  const JobId id = on_gpu(0);
  pass(12 * kMinutesMs);
  ASSERT_TRUE(is_marked(id));
  restart();
  connect(node("a"));
  pass(15 * kMinutesMs);

  EXPECT_TRUE(is_marked(id));
  EXPECT_EQ(count_events("job.idle"), 1U);
}

TEST_F(Idle, another_node_begins_with_a_clean_slate) {
  const JobId id = on_gpu(0);
  pass(12 * kMinutesMs);
  ASSERT_TRUE(is_marked(id));
  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kReclaimed);
  pass(2000);

  ASSERT_EQ(state(id), JobState::kStarting);
  EXPECT_FALSE(is_marked(id));
}

TEST_F(Idle, a_stop_that_makes_no_sense_is_refused_at_submit) {
  JobSpec spec = a_spec();
  spec.idle_stop_s = 7200;
  const auto without = run(user(), SubmitJob{.spec = spec});
  ASSERT_FALSE(without.has_value());
  EXPECT_NE(without.error().message.find("this job asks for none"), std::string::npos);
  spec.resources.gpus = 1;
  spec.idle_stop_s = 59;
  const auto early = run(user(), SubmitJob{.spec = spec});
  ASSERT_FALSE(early.has_value());
  EXPECT_EQ(early.error().message, "idle_stop_s: less than a minute");
}

}  // namespace
}  // namespace rn::coordinator
