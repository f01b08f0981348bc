// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_waiting.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/sanitizers.h"
#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

class Waiting : public CoreSite {
 protected:
  void SetUp() override {
    start();
    add_node("a", "lab-a");
    settle();
  }

  static JobSpec after(const std::string& job, AfterWhen when = AfterWhen::kOk) {
    JobSpec spec = a_spec();
    spec.after = {{.job = job, .when = when}};
    return spec;
  }

  static JobSpec after(const JobId& job, AfterWhen when = AfterWhen::kOk) {
    return after(job.str(), when);
  }

  std::string why(const JobId& id) { return core->why(id, clock.now()).value(); }

  bool is_held(const JobId& id) { return tables.jobs.at(id).is_held; }

  void end(const JobId& id, AttemptEnd how, std::int32_t exit_code = 0) {
    say(node(where(id)), id, job(id).epoch, AttemptState::kEnded, how, exit_code);
  }

  std::string refusal(const JobSpec& spec, const Caller& caller = user()) {
    const auto answer = run(caller, SubmitJob{.spec = spec});
    return answer ? "" : answer.error().describe();
  }
};

TEST_F(Waiting, a_job_is_not_placed_before_the_one_that_it_waits_for_has_succeeded) {
  JobSpec first_spec = a_spec();
  first_spec.name = "train";
  const JobId first = running(first_spec);
  const JobId second = submit(after(first));
  pass(5000);
  EXPECT_EQ(state(second), JobState::kQueued);
  EXPECT_EQ(why(second), "waits until job 1 (train) has succeeded (it is running now)");
  EXPECT_EQ(job(second).reason, "waits until job 1 (train) has succeeded");
  EXPECT_FALSE(core->queue_position(second, clock.now()).has_value());
  EXPECT_EQ(core->metrics().jobs_held, 1U);
  EXPECT_EQ(core->metrics().jobs_running, 1U);

  end(first, AttemptEnd::kSucceeded);
  pass(1000);

  EXPECT_EQ(state(second), JobState::kStarting);
  EXPECT_FALSE(is_held(second));
  EXPECT_EQ(count_events("job.released"), 1U);
  EXPECT_TRUE(node("a").last<wire::Commit>().spec.after.empty())
      << "other jobs are no node's business";
}

TEST_F(Waiting, each_condition_is_met_by_its_ends_alone) {
  enum class Then { kReleased, kCancelled };

  struct Case {
    AfterWhen when;
    Then succeeded;
    Then failed;
    Then cancelled;
  };

  const std::vector<Case> cases = {
      {AfterWhen::kOk, Then::kReleased, Then::kCancelled, Then::kCancelled},
      {AfterWhen::kFail, Then::kCancelled, Then::kReleased, Then::kReleased},
      {AfterWhen::kAny, Then::kReleased, Then::kReleased, Then::kReleased}};
  for (const Case& one : cases) {
    const auto then = [&](auto how) {
      const JobId first = running();
      const JobId second = submit(after(first, one.when));
      how(first);
      EXPECT_TRUE(is_terminal(state(first)));
      const bool is_cancelled = state(second) == JobState::kCancelled;
      EXPECT_EQ(is_held(second), is_cancelled) << "the row of one that never ran says so";
      run(user(), StopJob{second});
      pass(1000);
      for (auto& [key, report] : std::map(node("a").attempts))
        say(node("a"), key.first, key.second, AttemptState::kEnded, AttemptEnd::kCancelled);
      return is_cancelled ? Then::kCancelled : Then::kReleased;
    };
    const std::string name(to_string(one.when));
    EXPECT_EQ(then([&](JobId id) { end(id, AttemptEnd::kSucceeded); }), one.succeeded) << name;
    EXPECT_EQ(then([&](JobId id) { end(id, AttemptEnd::kCrashed, 1); }), one.failed) << name;
    const auto stop = [&](JobId id) {
      run(user(), StopJob{id});
      end(id, AttemptEnd::kCancelled);
    };
    EXPECT_EQ(then(stop), one.cancelled) << name;
  }
}

TEST_F(Waiting, a_job_may_wait_for_the_begin_of_another) {
  const JobId first = submit();
  const JobId second = submit(after(first, AfterWhen::kStarted));
  const JobId third = submit(after(second, AfterWhen::kStarted));
  pass(2000);
  ASSERT_EQ(state(first), JobState::kStarting);
  EXPECT_TRUE(is_held(second)) << "its guest does not run yet";
  say(node("a"), first, job(first).epoch, AttemptState::kRunning);
  EXPECT_FALSE(is_held(second));

  run(user(), StopJob{second});
  pass(1000);
  for (auto& [key, report] : std::map(node("a").attempts)) {
    if (key.first == second)
      say(node("a"), second, key.second, AttemptState::kEnded, AttemptEnd::kCancelled);
  }

  EXPECT_EQ(state(second), JobState::kCancelled);
  EXPECT_FALSE(is_held(third)) << "sbatch's rule: begun, or cancelled before";
}

TEST_F(Waiting, a_restart_of_its_own_or_a_reclaim_is_no_end) {
  const JobId first = running();
  const JobId second = submit(after(first, AfterWhen::kAny));
  end(first, AttemptEnd::kReclaimed);
  pass(2000);

  EXPECT_FALSE(is_terminal(state(first)));
  EXPECT_TRUE(is_held(second));
}

TEST_F(Waiting, who_waits_for_what_can_never_be_is_cancelled_with_the_reason) {
  const JobId first = running();
  const JobId second = submit(after(first));
  const JobId third = submit(after(second));
  const JobId cleanup = submit(after(second, AfterWhen::kFail));
  end(first, AttemptEnd::kCrashed, 3);

  EXPECT_EQ(state(first), JobState::kFailed);
  EXPECT_EQ(state(second), JobState::kCancelled);
  EXPECT_EQ(
      why(second),
      "cancelled: job 1 has failed, and this job waits until that has succeeded: it can never begin"
  );
  EXPECT_EQ(state(third), JobState::kCancelled);
  EXPECT_FALSE(is_held(cleanup));
  EXPECT_EQ(core->metrics().jobs_held, 0U);
}

TEST_F(Waiting, all_that_it_waits_for_must_have_happened) {
  const JobId one = running();
  const JobId two = running();
  JobSpec spec = a_spec();
  for (const JobId& id : {one, two}) spec.after.push_back({.job = id.str()});
  spec.after.push_back({.job = two.str(), .when = AfterWhen::kAny});
  const JobId third = submit(spec);
  end(two, AttemptEnd::kSucceeded);
  EXPECT_TRUE(is_held(third));
  EXPECT_EQ(why(third), "waits until job 1 has succeeded (it is running now)");
  EXPECT_EQ(tables.jobs.at(third).waits_for.size(), 1U);

  end(one, AttemptEnd::kSucceeded);

  EXPECT_FALSE(is_held(third));
  EXPECT_EQ(count_events("job.released"), 1U);
}

TEST_F(Waiting, only_own_jobs_that_exist_can_be_named_so_there_is_no_cycle) {
  const JobId anns = submit();
  const std::string number = std::to_string(job(anns).number);
  EXPECT_EQ(refusal(after(number)), "");
  const auto unknown = [](const std::string& name) {
    return "not_found: after[0]: no job " + name +
           " (`reclaim ps --all` lists the jobs; one waits for jobs of its own user that exist "
           "already)";
  };
  EXPECT_EQ(refusal(after("j-0000000000000000")), unknown("j-0000000000000000"));
  EXPECT_EQ(refusal(after("3")), unknown("3")) << "its own number, which it has not got yet";
  for (const Caller& other : {user("bob"), admin()}) {
    EXPECT_EQ(refusal(after(number), other), unknown(number)) << "as unknown as none";
    EXPECT_EQ(refusal(after(anns), other), unknown(anns.str()));
  }
  EXPECT_EQ(tables.jobs.size(), 2U) << "nothing of what was refused is there";
}

TEST_F(Waiting, what_is_over_counts_when_it_is_named) {
  const JobId good = running();
  end(good, AttemptEnd::kSucceeded);
  const JobId bad = running();
  end(bad, AttemptEnd::kCrashed, 1);

  EXPECT_FALSE(is_held(submit(after(good))));
  EXPECT_FALSE(is_held(submit(after(bad, AfterWhen::kFail))));
  const auto answer = run(user(), SubmitJob{.spec = after(bad)});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kConflict);
  EXPECT_EQ(
      answer.error().message,
      "after[0]: job 2 has failed, and this job would wait until that has succeeded: it could "
      "never "
      "begin"
  );
}

TEST_F(Waiting, a_submit_that_is_repeated_is_the_same_job_whatever_became_of_the_others) {
  const JobId first = running();
  const JobId second = submit(after(first), user(), "k");
  end(first, AttemptEnd::kCrashed, 1);

  EXPECT_EQ(submit(after(first), user(), "k"), second);
  EXPECT_EQ(state(second), JobState::kCancelled);
}

TEST_F(Waiting, names_that_make_no_sense_are_refused_with_their_place) {
  JobSpec spec = a_spec();
  spec.after = {{.job = "1"}, {.job = ""}};
  EXPECT_NE(refusal(spec).find("after[1].job: expected the id or number"), std::string::npos);
  spec.after = {{.job = "1"}, {.job = "1"}};
  EXPECT_NE(refusal(spec).find("after[1]: says the same as after[0]"), std::string::npos);
  spec.after.assign(kAfterMax + 1, AfterJob{.job = "1"});
  EXPECT_NE(refusal(spec).find("after: more than 64 jobs"), std::string::npos);
}

TEST_F(Waiting, a_held_job_is_stopped_at_once_and_forgets_whom_it_waited_for) {
  const JobId first = running();
  const JobId second = submit(after(first));
  ASSERT_TRUE(run(user(), StopJob{second}));
  EXPECT_EQ(state(second), JobState::kCancelled);

  end(first, AttemptEnd::kSucceeded);
  pass(2000);

  EXPECT_EQ(state(second), JobState::kCancelled);
  EXPECT_EQ(count_events("job.released"), 0U);
}

TEST_F(Waiting, a_restarted_coordinator_knows_who_waits) {
  const JobId first = running();
  const JobId second = submit(after(first));
  const JobId third = submit(after(second));
  restart();
  connect(node("a"));
  pass(20'000);
  EXPECT_EQ(state(second), JobState::kQueued);
  EXPECT_TRUE(is_held(second));

  end(first, AttemptEnd::kSucceeded);
  EXPECT_FALSE(is_held(second));
  restart();
  connect(node("a"));
  pass(20'000);

  EXPECT_EQ(state(second), JobState::kStarting);
  EXPECT_TRUE(is_held(third));
  EXPECT_EQ(count_events("job.released"), 1U);
}

TEST_F(Waiting, a_chain_of_thousands_ends_in_one_go_and_in_linear_time) {
  config.max_unfinished_jobs_per_user = 5000;
  restart();  // the core has the new configuration
  constexpr std::size_t kLinks = 3000;
  const JobId first = submit();
  JobId last = first;
  for (std::size_t i = 1; i < kLinks; ++i) last = submit(after(last));
  const std::uint64_t before = writes;

  ASSERT_TRUE(run(user(), StopJob{first}));

  EXPECT_EQ(state(last), JobState::kCancelled);
  EXPECT_EQ(writes - before, 2 * kLinks) << "a row and an event for each";
  EXPECT_EQ(core->metrics().jobs_cancelled, kLinks);
}

TEST_F(Waiting, a_plan_says_that_nobody_knows_when) {
  const JobId first = running();
  const auto plan = core->plan(user(), after(first), clock.now());

  ASSERT_TRUE(plan) << plan.error().describe();
  EXPECT_EQ(plan->verdict, PlanVerdict::kWaits);
  EXPECT_TRUE(plan->sentence.starts_with("waits until job 1 has succeeded; then "))
      << plan->sentence;
  EXPECT_FALSE(plan->starts_in_s.has_value());
  EXPECT_FALSE(core->plan(user("bob"), after(first), clock.now()));
}

class Arrays : public Waiting {
 protected:
  static api::ArrayRequest an_array(std::uint32_t tasks, std::uint32_t at_most = 0) {
    api::ArrayRequest request{.spec = a_spec(), .at_most = at_most};
    for (std::uint32_t i = 0; i < tasks; ++i) request.indices.push_back(i);
    return request;
  }

  api::ArrayAnswer submit_array(const api::ArrayRequest& request, const std::string& key = "") {
    const auto answer = run(user(), SubmitArray{.idempotency_key = key, .request = request});
    EXPECT_TRUE(answer) << answer.error().describe();
    return answer ? std::get<api::ArrayAnswer>(*answer) : api::ArrayAnswer{};
  }

  std::string refusal(const api::ArrayRequest& request) {
    const auto answer = run(user(), SubmitArray{.request = request});
    return answer ? "" : answer.error().describe();
  }

  std::size_t held_of(const api::ArrayAnswer& array) {
    return static_cast<std::size_t>(std::count_if(
        array.tasks.begin(),
        array.tasks.end(),
        [&](const api::ArrayJob& task) {
          return !is_terminal(state(task.job)) && is_held(task.job);
        }
    ));
  }
};

TEST_F(Arrays, each_task_is_a_job_that_knows_its_place) {
  api::ArrayRequest request = an_array(0, 2);
  request.indices = {3, 4, 9};
  const api::ArrayAnswer array = submit_array(request);

  ASSERT_EQ(array.tasks.size(), 3U);
  EXPECT_TRUE(array.array.starts_with("a-"));
  for (std::size_t i = 0; i < 3; ++i) {
    const Job& task = job(array.tasks[i].job);
    const std::uint32_t index = request.indices[i];
    EXPECT_EQ(task.array, (ArrayTask{array.array, index, 3, 2, 1}));
    EXPECT_EQ(task.number, i + 1);
    EXPECT_EQ(task.spec.env.at("SLURM_ARRAY_TASK_ID"), std::to_string(index));
    EXPECT_EQ(task.spec.env.at("SLURM_ARRAY_JOB_ID"), "1");
    EXPECT_EQ(task.spec.env.at("SLURM_ARRAY_TASK_COUNT"), "3");
    EXPECT_EQ(task.spec.env.at("SLURM_ARRAY_TASK_MIN"), "3");
    EXPECT_EQ(task.spec.env.at("SLURM_ARRAY_TASK_MAX"), "9");
  }
  EXPECT_EQ(tables.meta.at("next_job_number"), "4");
}

TEST_F(Arrays, no_more_of_it_run_than_may_and_the_next_one_goes_when_one_has_ended) {
  const api::ArrayAnswer array = submit_array(an_array(5, 2));
  pass(2000);
  EXPECT_EQ(held_of(array), 3U);
  EXPECT_EQ(state(array.tasks[1].job), JobState::kStarting);
  EXPECT_EQ(
      why(array.tasks[4].job),
      "waits for its turn: at most 2 of the 5 tasks of array 1 run at once, and 2 wait before it"
  );

  end(array.tasks[1].job, AttemptEnd::kCrashed, 1);
  EXPECT_EQ(held_of(array), 2U);
  EXPECT_FALSE(is_held(array.tasks[2].job)) << "in their order";
  run(user(), StopJob{array.tasks[3].job});
  EXPECT_EQ(held_of(array), 1U) << "one that waits has no place that becomes free";

  restart();
  connect(node("a"));
  pass(20'000);
  EXPECT_EQ(held_of(array), 1U);
  end(array.tasks[0].job, AttemptEnd::kSucceeded);
  EXPECT_EQ(held_of(array), 0U);
  EXPECT_EQ(count_events("job.released"), 2U);
}

TEST_F(Arrays, a_task_that_is_displaced_keeps_its_turn) {
  const api::ArrayAnswer array = submit_array(an_array(2, 1));
  pass(1000);
  say(node("a"), array.tasks[0].job, job(array.tasks[0].job).epoch, AttemptState::kRunning);
  end(array.tasks[0].job, AttemptEnd::kReclaimed);
  pass(5000);

  EXPECT_FALSE(is_terminal(state(array.tasks[0].job)));
  EXPECT_EQ(held_of(array), 1U);
}

TEST_F(Arrays, are_submitted_whole_or_not_at_all) {
  EXPECT_EQ(
      refusal(an_array(1'000'000)),
      "invalid: indices: more than 1000 tasks, each a job of its own (submit it in pieces, or let "
      "each task do a part of the work)"
  );
  EXPECT_NE(refusal(an_array(0)).find("indices: an array has a task at least"), std::string::npos);
  api::ArrayRequest twice = an_array(2);
  twice.indices = {3, 3};
  EXPECT_NE(refusal(twice).find("indices: 3 is not below the one behind it"), std::string::npos);
  api::ArrayRequest off_list = an_array(3);
  off_list.spec.image = "none";
  EXPECT_NE(refusal(off_list), "");
  for (int i = 0; i < 2; ++i) submit_array(an_array(999, 1));
  EXPECT_EQ(
      refusal(an_array(3)),
      "exhausted: you have 1998 unfinished jobs, and 3 more are over the limit of a user, 2000 "
      "(stop "
      "some, or wait)"
  );
  EXPECT_EQ(tables.jobs.size(), 1998U);
  EXPECT_EQ(refusal(an_array(2)), "");
  EXPECT_FALSE(
      run({UserId("v"), LabId("lab-x"), Role::kViewer}, SubmitArray{.request = an_array(1)})
  );
}

TEST_F(Arrays, the_same_key_gives_the_same_array_also_after_a_restart) {
  const api::ArrayAnswer array = submit_array(an_array(3, 1), "k");
  restart();
  connect(node("a"));

  const api::ArrayAnswer again = submit_array(an_array(3, 1), "k");
  EXPECT_TRUE(again.is_repeat);
  EXPECT_EQ(again.array, array.array);
  EXPECT_EQ(again.tasks, array.tasks);
  EXPECT_EQ(tables.jobs.size(), 3U);
  for (const api::ArrayRequest& other : {an_array(3, 2), an_array(4, 1)}) {
    const auto answer = run(user(), SubmitArray{.idempotency_key = "k", .request = other});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::kConflict);
  }
  const auto one = run(user(), SubmitJob{.idempotency_key = "k", .spec = a_spec()});
  ASSERT_FALSE(one);
  EXPECT_EQ(one.error().code, ErrorCode::kConflict);
}

TEST_F(Arrays, are_stopped_as_a_whole_by_whoever_may_stop_their_jobs) {
  const api::ArrayAnswer array = submit_array(an_array(4, 2));
  pass(2000);
  const JobId first = array.tasks[0].job;
  end(first, AttemptEnd::kSucceeded);
  for (const Caller& other : {user("bob"), Caller{UserId("o"), LabId("lab-y"), Role::kOwner}}) {
    const auto refused = run(other, StopArray{array.array});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
  }

  const auto stopped = run(user(), StopArray{array.array});

  ASSERT_TRUE(stopped) << stopped.error().describe();
  EXPECT_EQ(std::get<api::ArrayStopped>(*stopped), (api::ArrayStopped{array.array, 3, 1}));
  for (const auto& [key, report] : std::map(node("a").attempts))
    say(node("a"), key.first, key.second, AttemptState::kEnded, AttemptEnd::kCancelled);
  for (std::size_t i = 1; i < 4; ++i)
    EXPECT_EQ(state(array.tasks[i].job), JobState::kCancelled) << i;
  EXPECT_EQ(state(first), JobState::kSucceeded);
  EXPECT_TRUE(run(user(), StopArray{array.array})) << "stopping twice is fine";
  EXPECT_FALSE(run(user(), StopArray{"a-none"}));
}

TEST_F(Arrays, others_wait_for_all_of_its_tasks) {
  const api::ArrayAnswer array = submit_array(an_array(2));
  pass(2000);
  const JobId by_id = submit(after(array.array));
  const JobId by_number = submit(after("1"));
  const JobId of_one = submit(after(array.tasks[0].job));
  const JobId begun = submit(after(array.array, AfterWhen::kStarted));
  const JobId failed = submit(after(array.array, AfterWhen::kFail));
  say(node("a"), array.tasks[0].job, job(array.tasks[0].job).epoch, AttemptState::kRunning);
  EXPECT_TRUE(is_held(begun));
  end(array.tasks[0].job, AttemptEnd::kSucceeded);

  EXPECT_FALSE(is_held(of_one));
  EXPECT_TRUE(is_held(by_id));
  EXPECT_TRUE(is_held(by_number));
  EXPECT_EQ(why(by_number), "waits until array 1 has succeeded (1 of its 2 tasks have ended)");
  end(array.tasks[1].job, AttemptEnd::kSucceeded);
  for (const JobId& id : {by_id, by_number, begun}) EXPECT_FALSE(is_held(id));
  EXPECT_EQ(state(failed), JobState::kCancelled);
}

TEST_F(Arrays, one_task_that_fails_ends_who_waits_for_success_and_not_yet_who_waits_for_failure) {
  const api::ArrayAnswer array = submit_array(an_array(2));
  pass(2000);
  const JobId good = submit(after(array.array));
  const JobId bad = submit(after(array.array, AfterWhen::kFail));
  end(array.tasks[0].job, AttemptEnd::kCrashed, 1);
  EXPECT_EQ(state(good), JobState::kCancelled);
  EXPECT_EQ(
      job(good).reason,
      "array 1 has a task that did not succeed, and this job waits until that has succeeded: it "
      "can never begin"
  );
  EXPECT_TRUE(is_held(bad)) << "the other one runs yet";
  const JobId late = submit(after(array.array, AfterWhen::kFail));
  end(array.tasks[1].job, AttemptEnd::kSucceeded);

  EXPECT_FALSE(is_held(bad));
  EXPECT_FALSE(is_held(late));
}

TEST_F(Arrays, an_array_that_waits_for_a_job_takes_turns_afterwards) {
  const JobId first = running();
  api::ArrayRequest request = an_array(4, 1);
  request.spec.after = {{.job = first.str()}};
  const api::ArrayAnswer array = submit_array(request);
  EXPECT_EQ(held_of(array), 4U);
  end(first, AttemptEnd::kSucceeded);

  EXPECT_EQ(held_of(array), 3U);
  EXPECT_FALSE(is_held(array.tasks[0].job)) << "in their order";
  EXPECT_TRUE(tables.jobs.at(array.tasks[3].job).waits_for.empty());
  EXPECT_NE(job(array.tasks[3].job).reason.find("waits for its turn"), std::string::npos);
}

TEST_F(Arrays, an_array_that_is_forgotten_in_part_can_no_more_be_named) {
  config.max_finished_jobs_kept = 2;
  restart();
  connect(node("a"));
  pass(20'000);
  const api::ArrayAnswer array = submit_array(an_array(4));
  pass(2000);
  const JobId waiter = submit(after(array.array));
  for (std::size_t i = 0; i < 3; ++i) {
    end(array.tasks[i].job, AttemptEnd::kSucceeded);
    pass(2000);
  }
  ASSERT_EQ(core->find_job(array.tasks[0].job), nullptr);
  EXPECT_EQ(run(user(), SubmitJob{.spec = after(array.array)}).error().code, ErrorCode::kNotFound)
      << "nobody knows any more how that task ended";
  EXPECT_TRUE(is_held(waiter));

  end(array.tasks[3].job, AttemptEnd::kSucceeded);

  EXPECT_FALSE(is_held(waiter));
}

// ---- whatever happens

/// Chains and arrays with random ends, stops and restarts. After every step: no more of an array
/// are out of their hold than may be, a held job has no attempt, what a released one waited for has
/// happened, and nobody is released twice. In the end all of them are over.
class WaitingAtRandom : public Arrays, public ::testing::WithParamInterface<std::uint64_t> {
 protected:
  static constexpr AfterWhen kWhens[] = {
      AfterWhen::kOk, AfterWhen::kFail, AfterWhen::kAny, AfterWhen::kStarted};

  void SetUp() override {
    log::set_level(log::Level::kWarning);
    Arrays::SetUp();
  }

  void TearDown() override { log::set_level(log::Level::kInfo); }

  void add_conditions(JobSpec& spec) {
    for (std::uint64_t i = dice.below(3); i > 0 && !all.empty(); --i) {
      const JobId& named = all[dice.below(all.size())];
      const auto& array = tables.jobs.at(named).job.array;
      const bool is_whole = array && dice.below(2) == 0;
      const AfterJob one{
          .job = is_whole ? array->array : named.str(), .when = kWhens[dice.below(4)]};
      if (std::find(spec.after.begin(), spec.after.end(), one) == spec.after.end())
        spec.after.push_back(one);
    }
  }

  void submit_something() {
    if (dice.below(3) == 0) {
      api::ArrayRequest request = an_array(
          static_cast<std::uint32_t>(1 + dice.below(5)), static_cast<std::uint32_t>(dice.below(4))
      );
      add_conditions(request.spec);
      const auto answer = run(user(), SubmitArray{.request = request});
      if (!answer) return expect_too_late(answer.error());
      for (const api::ArrayJob& task : std::get<api::ArrayAnswer>(*answer).tasks)
        all.push_back(task.job);
      return;
    }
    JobSpec spec = a_spec();
    add_conditions(spec);
    const auto answer = run(user(), SubmitJob{.spec = spec});
    if (!answer) return expect_too_late(answer.error());
    all.push_back(std::get<JobSubmitted>(*answer).job.id);
  }

  static void expect_too_late(const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kConflict) << error.describe();
  }

  void end_something() {
    FakeAgent& agent = node("a");
    if (agent.connection == 0 || agent.attempts.empty()) return;
    auto at = agent.attempts.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(dice.below(agent.attempts.size())));
    const auto [id, epoch] = at->first;
    if (at->second.state < AttemptState::kRunning && dice.below(2) == 0) {
      say(agent, id, epoch, AttemptState::kRunning);
      return;
    }
    static constexpr AttemptEnd kEnds[] = {
        AttemptEnd::kSucceeded,
        AttemptEnd::kSucceeded,
        AttemptEnd::kCrashed,
        AttemptEnd::kReclaimed};
    const AttemptEnd how = kEnds[dice.below(4)];
    say(agent, id, epoch, AttemptState::kEnded, how, how == AttemptEnd::kCrashed ? 1 : 0);
  }

  void obey_stops() {
    for (const auto& stop : node("a").received<wire::StopAttempt>())
      if (node("a").attempts.contains({stop.job, stop.epoch}) && node("a").connection != 0)
        say(node("a"), stop.job, stop.epoch, AttemptState::kEnded, stop.end);
    node("a").inbox.clear();
  }

  void step() {
    const std::uint64_t what = dice.below(10);
    if (what < 3 && all.size() < 60) return submit_something();
    if (what < 8) return end_something();
    if (what == 8 && !all.empty() && dice.below(4) == 0)
      return void(run(user(), StopJob{all[dice.below(all.size())]}));
    if (dice.below(8) != 0) return pass(1000);
    restart();
    connect(node("a"));
  }

  static bool has_happened(AfterWhen when, const Job& it) {
    const bool has_ended = is_terminal(it.state);
    switch (when) {
      case AfterWhen::kOk:
        return it.state == JobState::kSucceeded;
      case AfterWhen::kFail:
        return has_ended && it.state != JobState::kSucceeded;
      case AfterWhen::kAny:
        return has_ended;
      case AfterWhen::kStarted:
        return has_ended || it.started_wall_ms != 0;
    }
    return false;
  }

  /// By the specification alone.
  bool may_begin(const JobRow& row) const {
    return std::all_of(
        row.job.spec.after.begin(),
        row.job.spec.after.end(),
        [&](const AfterJob& one) {
          std::vector<const Job*> named;
          for (const auto& [id, other] : tables.jobs) {
            const bool is_of_array = other.job.array && other.job.array->array == one.job;
            if (is_of_array || id.str() == one.job) named.push_back(&other.job);
          }
          const auto has = [&](AfterWhen when) {
            return [when](const Job* it) { return has_happened(when, *it); };
          };
          if (one.when != AfterWhen::kFail)
            return std::all_of(named.begin(), named.end(), has(one.when));
          return std::all_of(named.begin(), named.end(), has(AfterWhen::kAny)) &&
                 std::any_of(named.begin(), named.end(), has(AfterWhen::kFail));
        }
    );
  }

  void check() {
    std::map<std::string, std::uint32_t> out;
    for (const auto& [id, row] : tables.jobs) {
      const bool is_over = is_terminal(row.job.state);
      if (row.is_held) {
        EXPECT_TRUE(row.job.epoch.is_none()) << id.str() << " has an attempt, and is held";
        EXPECT_FALSE(was_released.contains(id)) << id.str() << " is held again";
        continue;
      }
      if (was_released.insert(id).second) {
        EXPECT_TRUE(may_begin(row)) << id.str() << " is released too early";
      }
      if (is_over || !row.job.array || row.job.array->at_most == 0) continue;
      EXPECT_LE(++out[row.job.array->array], row.job.array->at_most) << id.str();
    }
  }

  SeededRng dice{GetParam()};
  std::vector<JobId> all;
  std::set<JobId> was_released;
};

TEST_P(WaitingAtRandom, nobody_begins_too_early_or_twice_and_all_end) {
  for (int i = 0; i < 400; ++i) {
    step();
    obey_stops();
    check();
    if (HasFailure()) FAIL() << "seed " << GetParam() << ", step " << i;
  }
  if (node("a").connection == 0) connect(node("a"));
  const auto is_over = [&](const JobId& id) { return is_terminal(tables.jobs.at(id).job.state); };
  for (int i = 0; i < 600 && !std::all_of(all.begin(), all.end(), is_over); ++i) {
    end_something();
    obey_stops();
    pass(1000);
    check();
  }

  EXPECT_GT(all.size(), 20U);
  for (const JobId& id : all) EXPECT_TRUE(is_over(id)) << "seed " << GetParam() << ": " << why(id);
}

INSTANTIATE_TEST_SUITE_P(
    Seeds, WaitingAtRandom, ::testing::Range<std::uint64_t>(1, kIsSanitized ? 5 : 25)
);

}  // namespace
}  // namespace rn::coordinator
