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

  /// For so long its guest takes this much of one core.
  void work(const JobId& id, double cores, std::int64_t ms) {
    for (std::int64_t done = 0; done < ms; done += 5000) {
      node("a").attempts.at({id, job(id).epoch}).cpu_ms += static_cast<std::uint64_t>(cores * 5000);
      pass(5000);
    }
  }

  void set_lab_stop(std::uint32_t after_s) {
    SetQuota set{.subject = "lab:*", .request = {}};
    set.request.idle_stop_s = after_s;
    ASSERT_TRUE(run(admin(), set)) << run(admin(), set).error().describe();
  }

  const LabId job_lab = user().lab;

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

TEST_F(Idle, a_job_without_gpus_is_judged_by_the_cores_that_it_has) {
  const JobId idle = running(a_spec());
  const JobId busy = running(a_spec());
  node("a").telemetry.cpu_percent = 90;
  for (int minute = 0; minute < 12; ++minute) {
    node("a").attempts.at({idle, job(idle).epoch}).cpu_ms += 60;  // a notebook that waits
    work(busy, 0.9, kMinutesMs);
  }

  EXPECT_TRUE(is_marked(idle)) << "others are at work, it is not";
  EXPECT_FALSE(is_marked(busy));
  EXPECT_EQ(
      last_event("job.idle").message,
      "used 0.1 % of 1.0 cores of lab-a/a in the last 10 min: `reclaim stop 1` leaves them to "
      "others"
  );
  EXPECT_NE(why(idle).find("it has used next to nothing of its cores for 1"), std::string::npos)
      << why(idle);
  work(idle, 0.9, 3 * kMinutesMs);
  EXPECT_FALSE(is_marked(idle));
}

TEST_F(Idle, who_computes_on_one_of_many_cores_is_not_idle) {
  JobSpec spec = a_spec();
  spec.resources.cpu_milli = spec.resources.cpu_milli_min = 16'000;
  node("a").hello.facts.cpu_milli = 32'000;
  connect(node("a"));
  const JobId id = running(spec);
  work(id, 0.6, 15 * kMinutesMs);
  EXPECT_FALSE(is_marked(id)) << "4 % of its cores, but more than half of one";

  work(id, 0.4, 15 * kMinutesMs);
  EXPECT_TRUE(is_marked(id));
}

TEST_F(Idle, one_in_which_somebody_is_does_something) {
  const JobId id = running(a_spec());
  wire::AttemptReport& report = node("a").attempts.at({id, job(id).epoch});
  report.cpu_ms = 100;
  report.is_visited = true;
  pass(15 * kMinutesMs);
  EXPECT_FALSE(is_marked(id));

  report.is_visited = false;
  pass(15 * kMinutesMs);
  EXPECT_TRUE(is_marked(id));
}

TEST_F(Idle, what_the_guest_itself_does_counts_for_one_with_gpus_where_that_is_known) {
  node("a").telemetry.cpu_percent = 90;
  const JobId idle = on_gpu(0);
  const JobId loads = on_gpu(1);
  node("a").attempts.at({idle, job(idle).epoch}).cpu_ms = 100;
  work(loads, 0.9, 13 * kMinutesMs);

  EXPECT_TRUE(is_marked(idle));
  EXPECT_FALSE(is_marked(loads)) << "it is at work on its data";
}

TEST_F(Idle, a_laboratory_has_those_stopped_that_do_not_say_it_themselves) {
  set_lab_stop(1200);
  const JobId id = running(a_spec());
  JobSpec patient = a_spec();
  patient.idle_stop_s = 7200;
  const JobId own = running(patient);
  for (const JobId& one : {id, own}) node("a").attempts.at({one, job(one).epoch}).cpu_ms = 100;
  EXPECT_NE(
      why(id).find(
          "it is stopped when it uses next to nothing of its cores for 20 min, by the "
          "quota of lab " +
          job_lab.str()
      ),
      std::string::npos
  ) << why(id);
  EXPECT_EQ(why(own).find("by the quota"), std::string::npos) << why(own);

  pass(15 * kMinutesMs);
  EXPECT_TRUE(is_marked(id)) << "it is told before";
  EXPECT_NE(
      why(id).find(", and is stopped after 20 min of that (by the quota of lab "), std::string::npos
  ) << why(id);
  EXPECT_TRUE(node("a").received<wire::StopAttempt>().empty());
  pass(7 * kMinutesMs);

  EXPECT_EQ(node("a").last<wire::StopAttempt>().job, id);
  for (const wire::StopAttempt& stop : node("a").received<wire::StopAttempt>())
    EXPECT_EQ(stop.job, id) << "the other has a word of its own";
  EXPECT_EQ(
      last_event("job.idle_stop").message,
      "used 0.0 % of its cores for 20 min (idle_stop of lab " + job_lab.str() + ")"
  );
}

TEST_F(Idle, who_is_stopped_soon_is_told_sooner) {
  set_lab_stop(300);
  const JobId id = running(a_spec());
  node("a").attempts.at({id, job(id).epoch}).cpu_ms = 100;
  pass(4 * kMinutesMs);

  EXPECT_TRUE(is_marked(id));
  EXPECT_TRUE(node("a").received<wire::StopAttempt>().empty());
}

TEST_F(Idle, a_quota_of_the_users_own_counts_before_the_labs) {
  set_lab_stop(1200);
  SetQuota set{.subject = "user:*", .request = {}};
  set.request.idle_stop_s = 36'000;
  ASSERT_TRUE(run(admin(), set));
  const JobId id = running(a_spec());

  EXPECT_NE(why(id).find("for 10.0 h, by the quota of "), std::string::npos) << why(id);
  set.request.idle_stop_s = 59;
  EXPECT_EQ(run(admin(), set).error().message, "idle_stop_s: less than a minute");
  set.request.idle_stop_s = 60;
  set.request.gpu_model = "H100";
  EXPECT_FALSE(run(admin(), set)) << "jobs are not bounded by a model";
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
  spec.idle_stop_s = 59;
  const auto early = run(user(), SubmitJob{.spec = spec});
  ASSERT_FALSE(early.has_value());
  EXPECT_EQ(early.error().message, "idle_stop_s: less than a minute");
}

}  // namespace
}  // namespace rn::coordinator
