// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_quota.h"

#include <algorithm>

#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

constexpr std::int64_t kAnHourMs = 3'600'000;

class Quotas : public CoreSite {
 protected:
  void SetUp() override {
    start();
    for (const char* name : {"ann", "bob"})
      run(admin(), CreateUserToken{.user = UserId(name), .lab = LabId("lab-x")});
    run(admin(), CreateUserToken{.user = UserId("eve"), .lab = LabId("lab-y")});
    add_gpus("a", "NVIDIA H100 80GB HBM3", 4);
    settle();
  }

  void add_gpus(const std::string& name, const std::string& model, std::uint32_t count) {
    FakeAgent& agent = add_node(name, "lab-" + name);
    for (std::uint32_t i = 0; i < count; ++i)
      agent.hello.facts.gpus.push_back({.index = i, .model = model, .memory_mib = 40'000});
    connect(agent);
  }

  Status set(const std::string& subject, const api::QuotaRequest& request) {
    const auto answer = run(admin(), SetQuota{.subject = subject, .request = request});
    return answer ? Status() : fail(answer.error());
  }

  void must_set(const std::string& subject, const api::QuotaRequest& request) {
    const Status done = set(subject, request);
    ASSERT_TRUE(done.has_value()) << done.error().describe();
  }

  static JobSpec on_gpus(std::uint32_t gpus) {
    JobSpec spec = a_spec();
    spec.resources.gpus = gpus;
    spec.resources.cpu_milli = 500;
    return spec;
  }

  std::string why(const JobId& id) { return core->why(id, clock.now()).value(); }

  std::string refusal(const JobSpec& spec, const Caller& caller = user()) {
    const auto answer = run(caller, SubmitJob{.spec = spec});
    if (answer) return {};
    EXPECT_EQ(answer.error().code, ErrorCode::kExhausted);
    EXPECT_FALSE(answer.error().hint.empty());
    return answer.error().message;
  }

  void end(const JobId& id) {
    say(node(where(id)), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kSucceeded);
  }

  void set_lending(const std::string& name, LendingState lending) {
    node(name).lending = lending;
    beat(node(name));
  }

  std::size_t count_of(const std::vector<JobId>& all, JobState wanted) {
    return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [&](const JobId& id) {
      return state(id) == wanted;
    }));
  }

  /// The first of them that is in this state.
  JobId one_in(const std::vector<JobId>& all, JobState wanted) {
    for (const JobId& id : all)
      if (state(id) == wanted) return id;
    ADD_FAILURE() << "none is " << to_string(wanted);
    return all.front();
  }

  api::QuotaUse use_by(const std::string& subject, const Caller& caller = admin()) {
    for (const api::QuotaUse& use : core->quotas(caller, clock.now()).uses)
      if (use.subject == subject) return use;
    ADD_FAILURE() << subject << " is not seen";
    return {};
  }
};

TEST_F(Quotas, no_more_begin_than_may_though_they_wait_for_the_same_moment) {
  must_set("user:ann", {.gpus = 2});
  set_lending("a", LendingState::kPaused);
  const std::vector<JobId> all = {submit(on_gpus(1)), submit(on_gpus(1)), submit(on_gpus(1))};
  set_lending("a", LendingState::kOpen);
  pass(2000);

  ASSERT_EQ(count_of(all, JobState::kStarting), 2U);
  const JobId last = one_in(all, JobState::kQueued);
  EXPECT_EQ(job(last).reason, "waits: ann runs 2 of 2 GPUs");
  EXPECT_EQ(why(last), "number 1 of 1 in the queue: ann runs 2 of 2 GPUs");
  const JobId first = one_in(all, JobState::kStarting);
  say(node("a"), first, job(first).epoch, AttemptState::kRunning);
  end(first);
  pass(2000);
  EXPECT_EQ(state(last), JobState::kStarting);
}

TEST_F(Quotas, a_job_that_takes_exactly_what_is_left_begins_and_others_are_not_held_by_it) {
  must_set("user:ann", {.gpus = 3});
  const JobId first = running(on_gpus(1));
  const JobId too_much = submit(on_gpus(3));
  const JobId fits = submit(on_gpus(2));
  const JobId of_bob = submit(on_gpus(1), user("bob"));
  const JobId without = submit(on_gpus(0));
  pass(3000);

  EXPECT_EQ(state(first), JobState::kRunning);
  EXPECT_EQ(state(too_much), JobState::kQueued);
  EXPECT_NE(why(too_much).find("ann runs 3 of 3 GPUs"), std::string::npos) << why(too_much);
  for (const JobId& id : {fits, of_bob, without}) EXPECT_EQ(state(id), JobState::kStarting);
}

TEST_F(Quotas, a_laboratory_is_bounded_as_a_whole) {
  must_set("lab:lab-x", {.running = 2});
  running(a_spec(), user("ann"));
  running(a_spec(), user("bob"));
  const JobId third = submit(a_spec(), user("ann"));
  const JobId other_lab = submit(a_spec(), user("eve", "lab-y"));
  pass(2000);

  EXPECT_EQ(job(third).reason, "waits: lab lab-x runs 2 of 2 jobs");
  EXPECT_EQ(state(other_lab), JobState::kStarting);
}

TEST_F(Quotas, who_has_one_of_their_own_has_it_in_place_of_everybodys) {
  must_set("user:*", {.running = 1});
  must_set("user:ann", {.running = 2});
  running(a_spec(), user("ann"));
  running(a_spec(), user("ann"));
  running(a_spec(), user("bob"));
  const JobId of_ann = submit(a_spec(), user("ann"));
  const JobId of_bob = submit(a_spec(), user("bob"));
  pass(2000);

  EXPECT_EQ(job(of_ann).reason, "waits: ann runs 2 of 2 jobs");
  EXPECT_EQ(job(of_bob).reason, "waits: bob runs 1 of 1 job");
  ASSERT_TRUE(run(admin(), RemoveQuota{.subject = "user:ann"}).has_value());
  pass(2000);
  EXPECT_EQ(job(of_ann).reason, "waits: ann runs 2 of 1 job") << "what runs goes on";
}

TEST_F(Quotas, what_can_never_begin_is_refused_when_it_is_submitted) {
  must_set("user:ann", {.gpus = 2, .gpu_hours = 10});
  EXPECT_EQ(refusal(on_gpus(3)), "ann may have 2 GPUs at once, and this job asks for 3");
  EXPECT_EQ(refusal(on_gpus(3), user("bob")), "");
  JobSpec longer = on_gpus(2);
  longer.max_duration_s = 5 * 3600;
  EXPECT_EQ(refusal(longer), "");
  longer.max_duration_s += 60;
  EXPECT_EQ(refusal(longer), "ann may use 10 GPU-hours in 7 d, and this job may use 10.0");
}

TEST_F(Quotas, no_more_jobs_wait_and_run_than_may_and_an_array_is_taken_whole_or_not_at_all) {
  must_set("user:ann", {.jobs = 3});
  const JobId first = running(a_spec());
  api::ArrayRequest array{.spec = a_spec(), .indices = {1, 2, 3}};
  const auto refused = run(user(), SubmitArray{.request = array});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(
      refused.error().message, "ann has 1 of 3 jobs that may wait and run, and asks for 3 more"
  );
  EXPECT_EQ(core->metrics().jobs_submitted, 1U);
  array.indices = {1, 2};
  ASSERT_TRUE(run(user(), SubmitArray{.request = array}).has_value());
  EXPECT_EQ(refusal(a_spec()), "ann has 3 of 3 jobs that may wait and run");
  end(first);
  EXPECT_EQ(refusal(a_spec()), "");
}

TEST_F(Quotas, an_array_with_a_throttle_takes_turns_within_the_quota) {
  must_set("user:ann", {.running = 2});
  const api::ArrayRequest array{.spec = a_spec(), .indices = {1, 2, 3, 4}, .at_most = 3};
  const auto made = run(user(), SubmitArray{.request = array});
  ASSERT_TRUE(made.has_value());
  pass(2000);

  std::vector<JobId> all;
  for (const api::ArrayJob& one : std::get<api::ArrayAnswer>(*made).tasks) all.push_back(one.job);
  EXPECT_EQ(count_of(all, JobState::kStarting), 2U);
  EXPECT_NE(job(all[3]).reason.find("waits for its turn"), std::string::npos);
  all.pop_back();
  EXPECT_EQ(job(one_in(all, JobState::kQueued)).reason, "waits: ann runs 2 of 2 jobs");
  const JobId first = one_in(all, JobState::kStarting);
  say(node("a"), first, job(first).epoch, AttemptState::kRunning);
  end(first);
  pass(2000);
  EXPECT_EQ(use_by("user:ann").running_used, 2U);
  EXPECT_EQ(use_by("user:ann").jobs_used, 3U);
}

TEST_F(Quotas, one_that_was_lowered_ends_nothing_and_holds_nobody_back_who_lost_the_node) {
  add_gpus("b", "NVIDIA H100 80GB HBM3", 4);
  const JobId id = running(on_gpus(1));
  const std::string from = where(id);
  must_set("user:ann", {.gpus = 0, .running = 0});
  pass(10'000);
  EXPECT_EQ(state(id), JobState::kRunning);
  EXPECT_EQ(refusal(a_spec()), "ann may run no job");

  disconnect(node(from));
  pass(40'000);

  EXPECT_EQ(state(id), JobState::kStarting) << why(id);
  EXPECT_NE(where(id), from);
}

TEST_F(Quotas, a_job_that_lost_its_node_has_its_part_of_the_quota_while_it_waits) {
  must_set("user:ann", {.running = 1});
  const JobId first = running(a_spec());
  const JobId second = submit(a_spec());
  disconnect(node("a"));
  pass(40'000);
  ASSERT_EQ(state(first), JobState::kQueued);
  EXPECT_EQ(use_by("user:ann").running_used, 1U);
  connect(node("a"));
  pass(4000);

  EXPECT_NE(state(first), JobState::kQueued);
  EXPECT_EQ(state(second), JobState::kQueued);
  EXPECT_EQ(job(second).reason, "waits: ann runs 1 of 1 job");
}

TEST_F(Quotas, they_are_there_after_a_restart) {
  must_set("user:ann", {.running = 1});
  must_set("user:ann", {.gpu_model = "A100", .gpus = 7});
  const JobId first = running(a_spec());
  const JobId second = submit(a_spec());
  restart();
  connect(node("a"));
  settle();

  EXPECT_EQ(state(first), JobState::kRunning);
  EXPECT_EQ(job(second).reason, "waits: ann runs 1 of 1 job");
  EXPECT_EQ(core->quotas(admin(), clock.now()).quotas.size(), 2U);
}

TEST_F(Quotas, hours_that_are_used_up_come_back_when_they_are_long_ago) {
  must_set("user:ann", {.gpu_hours = 2, .window_s = 7200});
  const JobId first = running(on_gpus(2));
  pass(kAnHourMs + 60'000);
  const JobId second = submit(on_gpus(1));
  const JobId without = submit(on_gpus(0));
  pass(2000);
  EXPECT_EQ(job(second).reason, "waits: ann has used 2.0 of 2 GPU-hours of the last 2 h");
  EXPECT_EQ(state(without), JobState::kStarting);
  say(node("a"), without, job(without).epoch, AttemptState::kRunning);
  EXPECT_EQ(state(first), JobState::kRunning) << "it goes on, whatever it uses";
  EXPECT_NEAR(use_by("user:ann").gpu_hours_used, 2.03, 0.02);
  EXPECT_NEAR(use_by("lab:lab-x").gpu_hours_used, 2.03, 0.02);
  end(first);
  restart();
  connect(node("a"));
  settle();
  EXPECT_NEAR(use_by("user:ann").gpu_hours_used, 2.03, 0.03) << "a crash forgets seconds";
  EXPECT_EQ(state(second), JobState::kQueued);

  for (int minutes = 0; minutes < 120 && state(second) == JobState::kQueued; ++minutes)
    pass(60'000);
  EXPECT_EQ(state(second), JobState::kStarting);
}

TEST_F(Quotas, what_runs_and_says_how_long_is_weighed_before_the_next_begins) {
  must_set("user:ann", {.gpu_hours = 3});
  JobSpec two_hours = on_gpus(1);
  two_hours.max_duration_s = 7200;
  running(two_hours);
  const JobId too_much = submit(two_hours);
  JobSpec one_hour = on_gpus(1);
  one_hour.max_duration_s = 3600;
  const JobId fits = submit(one_hour);
  pass(2000);

  EXPECT_EQ(state(fits), JobState::kStarting);
  EXPECT_EQ(state(too_much), JobState::kQueued);
  EXPECT_NE(job(too_much).reason.find("and this job may use 2"), std::string::npos)
      << job(too_much).reason;
}

TEST_F(Quotas, gpus_of_a_model_are_bounded_and_others_are_given_in_their_place) {
  add_gpus("b", "NVIDIA A100-SXM4-40GB", 2);
  must_set("user:*", {.gpu_model = "h100", .gpus = 1});
  std::vector<JobId> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(submit(on_gpus(1)));
    pass(2000);
  }

  std::map<std::string, int> at;
  for (const JobId& id : all) ++at[where(id)];
  EXPECT_EQ(at["a"], 1);
  EXPECT_EQ(at["b"], 2);
  ASSERT_EQ(count_of(all, JobState::kQueued), 1U);
  EXPECT_EQ(state(all[3]), JobState::kQueued);
  EXPECT_NE(job(all[3]).reason.find("ann runs 1 of 1 h100 GPU"), std::string::npos)
      << job(all[3]).reason;
  EXPECT_NE(job(all[3]).reason.find("GPUs busy with other jobs"), std::string::npos)
      << job(all[3]).reason;
  const JobId of_bob = submit(on_gpus(1), user("bob"));
  pass(2000);
  EXPECT_EQ(where(of_bob), "a") << "it is each user's own";
}

TEST_F(Quotas, a_plan_says_what_a_quota_would_do) {
  must_set("user:ann", {.gpus = 2});
  running(on_gpus(2));
  const auto waits = core->plan(user(), on_gpus(1), clock.now());
  ASSERT_TRUE(waits.has_value());
  EXPECT_EQ(waits->verdict, PlanVerdict::kWaits);
  EXPECT_NE(waits->sentence.find("ann runs 2 of 2 GPUs; then "), std::string::npos);
  EXPECT_FALSE(waits->starts_in_s.has_value());
  const auto never = core->plan(user(), on_gpus(3), clock.now());
  ASSERT_TRUE(never.has_value());
  EXPECT_EQ(never->verdict, PlanVerdict::kNever);
  EXPECT_TRUE(never->is_over_quota);
  EXPECT_EQ(never->sentence, "ann may have 2 GPUs at once, and this job asks for 3");
  EXPECT_EQ(core->plan(user("bob"), on_gpus(1), clock.now())->verdict, PlanVerdict::kNow);
}

TEST_F(Quotas, a_submit_that_has_to_wait_for_one_is_told_so) {
  must_set("user:ann", {.running = 1});
  running(a_spec());
  const auto answer = run(user(), SubmitJob{.spec = a_spec()});
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(
      std::get<JobSubmitted>(*answer).warnings,
      std::vector<std::string>{"it waits for its quota: ann runs 1 of 1 job"}
  );
}

TEST_F(Quotas, administrators_alone_set_and_remove_them) {
  const std::vector<Caller> others = {
      user(),
      {UserId("oli"), LabId("lab-x"), Role::kOwner},
      {UserId("vic"), {}, Role::kViewer},
      {}};
  must_set("user:ann", {.running = 1});
  for (const Caller& caller : others) {
    const auto made = run(caller, SetQuota{.subject = "user:ann", .request = {.running = 9}});
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code, ErrorCode::kDenied);
    const auto removed = run(caller, RemoveQuota{.subject = "user:ann"});
    ASSERT_FALSE(removed.has_value());
    EXPECT_EQ(removed.error().code, ErrorCode::kDenied);
  }
  EXPECT_EQ(tables.quotas.at({"user:ann", ""}).running, 1U);
  EXPECT_EQ(count_events("quota.set"), 1U);
  EXPECT_EQ(last_event("quota.set").message, "user:ann: 1 job at once");
  ASSERT_TRUE(run(admin(), RemoveQuota{.subject = "user:ann"}).has_value());
  EXPECT_TRUE(tables.quotas.empty());
  const auto again = run(admin(), RemoveQuota{.subject = "user:ann"});
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().message, "there is no quota of user:ann");
}

TEST_F(Quotas, each_sees_their_own_and_an_owner_their_laboratorys) {
  must_set("user:*", {.jobs = 5});
  must_set("lab:lab-x", {.gpus = 8});
  must_set("lab:lab-y", {.gpus = 9});
  running(a_spec(), user("ann"));
  const auto subjects = [&](const Caller& caller) {
    std::set<std::string> all;
    for (const api::QuotaUse& use : core->quotas(caller, clock.now()).uses) all.insert(use.subject);
    return all;
  };
  using Names = std::set<std::string>;

  EXPECT_EQ(subjects(user("bob")), (Names{"lab:lab-x", "user:bob"})) << "the lab's sum counts";
  EXPECT_EQ(use_by("user:ann", user()).jobs_used, 1U);
  EXPECT_EQ(use_by("user:ann", user()).rule, "user:*");
  EXPECT_EQ(core->quotas(user(), clock.now()).quotas.size(), 2U) << "what counts for them";
  EXPECT_EQ(
      subjects({UserId("oli"), LabId("lab-x"), Role::kOwner}),
      (Names{"lab:lab-x", "user:ann", "user:bob", "user:oli"})
  );
  EXPECT_TRUE(subjects(admin()).contains("lab:lab-y"));
  EXPECT_EQ(core->quotas(admin(), clock.now()).quotas.size(), 3U);
  EXPECT_TRUE(run(admin(), RemoveQuota{.subject = "lab:lab-x"}).has_value());
  EXPECT_EQ(subjects(user("bob")), Names{"user:bob"}) << "what bounds nobody is not told";
}

TEST_F(Quotas, what_makes_no_sense_is_refused_with_what_would) {
  const auto said = [&](const std::string& subject, const api::QuotaRequest& request) {
    const Status done = set(subject, request);
    return done ? std::string() : done.error().message;
  };
  EXPECT_EQ(said("ann", {.gpus = 1}), "subject: expected user:NAME or lab:NAME");
  EXPECT_EQ(said("user:a b", {.gpus = 1}), "subject: expected user:NAME or lab:NAME");
  EXPECT_EQ(said("user:anan", {.gpus = 1}), "no user anan is known here");
  EXPECT_EQ(said("lab:lab-z", {.gpus = 1}), "no lab lab-z is known here");
  EXPECT_EQ(said("user:ann", {}), "the quota bounds nothing");
  EXPECT_EQ(said("user:ann", {.gpu_hours = -1}), "gpu_hours: expected 0 to 1000000000");
  EXPECT_EQ(
      said("user:ann", {.gpu_hours = 1, .window_s = 60}),
      "window_s: expected an hour to 31 days (3600 to 2678400)"
  );
  EXPECT_NE(said("user:ann", {.gpu_model = "H100", .jobs = 1}), "");
  EXPECT_NE(said("user:ann", {.gpu_model = std::string(65, 'x'), .gpus = 1}), "");
  EXPECT_TRUE(tables.quotas.empty());
  EXPECT_EQ(said("lab:lab-a", {.gpus = 1}), "") << "a lab that has a node";
}

}  // namespace
}  // namespace rn::coordinator
