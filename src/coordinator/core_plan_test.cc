// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_plan.h"

#include <cmath>

#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

class Planning : public CoreSite {
 protected:
  void SetUp() override {
    start();
    // The image is on a: of two equal nodes it is the better one.
    add_node("a", "lab-a").hello.facts.images = {a_image("base").digest};
    add_node("b", "lab-b");
    connect(node("a"));
    settle();
  }

  Result<api::Plan> ask(const JobSpec& spec, const Caller& caller = user()) {
    return core->plan(caller, spec, clock.now());
  }

  api::Plan plan(const JobSpec& spec = a_spec(), const Caller& caller = user()) {
    const auto answer = ask(spec, caller);
    EXPECT_TRUE(answer) << answer.error().describe();
    return answer ? *answer : api::Plan{};
  }

  /// All cores of a node, for as long as it says.
  static JobSpec a_whole_node(std::uint32_t max_duration_s = 0) {
    JobSpec spec = a_spec();
    spec.resources.cpu_milli = spec.resources.cpu_milli_min = 4000;
    spec.max_duration_s = max_duration_s;
    return spec;
  }

  void leave_only(const std::string& kept) {
    FakeAgent& other = node(kept == "a" ? "b" : "a");
    other.lending = LendingState::kPaused;
    beat(other);
  }
};

TEST_F(Planning, a_job_that_fits_would_start_now_where_placement_then_takes_it) {
  const api::Plan seen = plan();

  EXPECT_EQ(seen.verdict, PlanVerdict::kNow);
  EXPECT_EQ(seen.sentence, "2 of 2 nodes fit and will be asked");
  ASSERT_EQ(seen.candidates.size(), 2U);
  const api::PlanCandidate& best = seen.candidates.front();
  EXPECT_EQ(best.fit, PlanFit::kFits);
  EXPECT_EQ(best.rank, 1U);
  EXPECT_EQ(best.cpu_milli, 1000U);
  EXPECT_GT(best.score, seen.candidates.back().score);
  EXPECT_EQ(seen.queue_position, 1U);
  EXPECT_EQ(seen.starts_in_s, best.starts_in_s);
  ASSERT_TRUE(best.starts_in_s);
  EXPECT_GT(*best.starts_in_s, 0);

  const JobId id = submit();
  EXPECT_EQ(where(id), best.hostname);
  EXPECT_EQ(tables.attempts.at({id, {1, 1}}).attempt.placed_because, best.reason);
}

TEST_F(Planning, nothing_is_kept_and_nobody_is_asked) {
  const std::uint64_t before = writes;
  plan();

  EXPECT_EQ(writes, before);
  EXPECT_TRUE(core->jobs(true).empty());
  EXPECT_TRUE(node("a").received<wire::Probe>().empty());
  EXPECT_EQ(job(submit()).number, 1U);
}

TEST_F(Planning, a_start_is_expected_when_guests_that_say_how_long_they_run_must_have_ended) {
  leave_only("a");
  running(a_whole_node(600));
  pass(60'000);
  const api::Plan seen = plan(a_whole_node());

  EXPECT_EQ(seen.verdict, PlanVerdict::kWaits);
  EXPECT_NE(seen.sentence.find("none can now"), std::string::npos) << seen.sentence;
  ASSERT_TRUE(seen.starts_in_s);
  EXPECT_GT(*seen.starts_in_s, 540) << "it ran for a minute of ten";
  EXPECT_LT(*seen.starts_in_s, 551) << "and a start takes some seconds";
  EXPECT_EQ(seen.candidates.front().hostname, "a");
  EXPECT_EQ(seen.candidates.front().reason, "cores busy with other jobs");
  EXPECT_EQ(seen.candidates.front().rank, 0U);
  EXPECT_EQ(seen.candidates.back().reason, "paused by its owner");
  EXPECT_FALSE(seen.candidates.back().starts_in_s) << "nobody knows when its owner goes on";
}

TEST_F(Planning, where_a_guest_may_run_for_ever_nothing_says_when_a_job_would_start) {
  leave_only("a");
  running(a_whole_node());
  const api::Plan seen = plan(a_whole_node());

  EXPECT_EQ(seen.verdict, PlanVerdict::kWaits);
  EXPECT_FALSE(seen.starts_in_s);
}

TEST_F(Planning, a_gpu_is_expected_to_be_free_of_what_its_guest_holds_when_that_must_have_ended) {
  FakeAgent& a = node("a");
  a.hello.facts.gpus = {{.index = 0, .model = "A100", .memory_mib = 40'000}};
  a.telemetry.gpus = {{.index = 0}};
  connect(a);
  beat(a);
  JobSpec spec = a_spec();
  spec.resources.gpus = 1;
  spec.resources.gpu_memory_mib = 24'000;
  spec.max_duration_s = 600;
  const JobId id = running(spec);
  a.attempts.at({id, job(id).epoch}).gpus = {0};
  a.telemetry.gpus = {{.index = 0, .memory_used_mib = 30'000}};
  beat(a);
  const api::Plan seen = plan(spec);

  EXPECT_EQ(seen.verdict, PlanVerdict::kWaits);
  EXPECT_EQ(seen.candidates.front().reason, "GPUs busy with other jobs");
  ASSERT_TRUE(seen.starts_in_s);
  EXPECT_LT(*seen.starts_in_s, 611);
}

TEST_F(Planning, what_no_node_can_ever_run_is_said_with_the_nearest_first) {
  node("b").hello.contract.guest_cpu_milli = 2000;
  connect(node("b"));
  JobSpec spec = a_spec();
  spec.resources.cpu_milli = spec.resources.cpu_milli_min = 5000;
  const api::Plan seen = plan(spec);

  EXPECT_EQ(seen.verdict, PlanVerdict::kNever);
  EXPECT_EQ(seen.sentence.find("0 of 2 nodes can ever match; closest: lab-a/a"), 0U)
      << seen.sentence;
  ASSERT_EQ(seen.candidates.size(), 2U);
  EXPECT_EQ(seen.candidates.front().hostname, "a");
  EXPECT_EQ(seen.candidates.front().fit, PlanFit::kNever);
  EXPECT_FALSE(seen.starts_in_s);
}

TEST_F(CoreSite, a_site_without_nodes_can_never_run_a_job) {
  start();
  const auto seen = core->plan(user(), a_spec(), clock.now());

  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->verdict, PlanVerdict::kNever);
  EXPECT_EQ(seen->sentence, "no node has joined yet");
}

TEST_F(Planning, a_contract_that_does_not_admit_who_asks_is_never) {
  node("a").hello.contract.allow_labs = {"lab-y"};
  connect(node("a"));

  EXPECT_EQ(plan().candidates.back().reason, "its contract does not admit lab lab-x");
  EXPECT_EQ(plan().candidates.back().fit, PlanFit::kNever);
  EXPECT_EQ(plan(a_spec(), user("bob", "lab-y")).candidates.front().hostname, "a");
}

TEST_F(Planning, interruptions_are_forecast_over_the_jobs_own_run) {
  JobSpec spec = a_spec();
  const api::Plan assumed = plan(spec);
  EXPECT_TRUE(assumed.is_horizon_assumed);
  EXPECT_EQ(assumed.horizon_s, 4 * 3600);
  spec.max_duration_s = 10 * 3600;
  const api::Plan told = plan(spec);
  EXPECT_FALSE(told.is_horizon_assumed);

  EXPECT_NEAR(told.interruptions_most, 10.0 / 35, 0.02) << "nothing is known of the owners yet";
  EXPECT_NEAR(assumed.interruptions_most, 4.0 / 35, 0.01);
  const api::PlanCandidate& best = told.candidates.front();
  EXPECT_GT(best.stays, std::exp(-best.interruptions)) << "the rate is known badly";
  EXPECT_LT(best.stays, 0.9);
  EXPECT_LT(best.stays_low, best.stays);
  EXPECT_GT(best.stays_high, best.stays);

  spec.max_duration_s = 60 * 86'400;
  EXPECT_EQ(plan(spec).horizon_s, 14 * 86'400) << "no further can be looked ahead";
}

TEST_F(Planning, what_jobs_like_it_took_and_saved_is_told_when_there_are_enough) {
  const auto run_for = [&](std::int64_t ms, std::uint64_t bytes) {
    const JobId id = running();
    FakeAgent& source = node(where(id));
    GenerationRef ref = generation(id, 1);
    ref.bytes = bytes;
    commit_generation(source, ref, {receipt(node(where(id) == "a" ? "b" : "a"), ref)});
    pass(ms);
    source.attempts[{id, job(id).epoch}].memory_peak_mib =
        100 + static_cast<std::uint64_t>(ms) / 1000;
    say(source, id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kSucceeded);
    EXPECT_EQ(state(id), JobState::kSucceeded);
  };
  const JobId stopped = running();
  ASSERT_TRUE(run(user(), StopJob{stopped}));
  FakeAgent& its = node(where(stopped));
  say(its, stopped, job(stopped).epoch, AttemptState::kEnded, AttemptEnd::kCancelled);
  for (std::uint32_t i = 0; i < 18; ++i) run_for(10'000 + 1000 * i, (1 + i % 3) << 20);
  const api::Plan few = plan();
  run_for(90'000, 3 << 20);
  const api::Plan enough = plan();

  ASSERT_EQ(few.estimates.size(), 4U);
  EXPECT_EQ(few.estimates[0].jobs, 18U) << "the one that was stopped tells nothing";
  EXPECT_EQ(few.estimates[0].jobs_needed, 19U);
  EXPECT_FALSE(few.estimates[0].high);
  EXPECT_FALSE(few.is_horizon_estimated);
  EXPECT_EQ(few.horizon_s, 4 * 3600);

  ASSERT_TRUE(enough.estimates[0].low && enough.estimates[0].high);
  EXPECT_EQ(enough.estimates[0].of, Estimated::kDuration);
  EXPECT_EQ(enough.estimates[0].likeness, Likeness::kCommand);
  EXPECT_EQ(enough.estimates[0].jobs, 19U);
  EXPECT_NEAR(*enough.estimates[0].low, 10, 0.01);
  EXPECT_NEAR(*enough.estimates[0].high, 90, 0.01);
  EXPECT_TRUE(enough.is_horizon_estimated);
  EXPECT_NEAR(enough.horizon_s, 90, 0.01);
  EXPECT_EQ(enough.estimates[1].of, Estimated::kCheckpoint);
  ASSERT_TRUE(enough.estimates[1].typical);
  EXPECT_NEAR(*enough.estimates[1].typical, 2, 0.01);
  EXPECT_EQ(enough.estimates[2].of, Estimated::kMemory);
  ASSERT_TRUE(enough.estimates[2].low && enough.estimates[2].high);
  EXPECT_NEAR(*enough.estimates[2].low, 110, 0.5);
  EXPECT_NEAR(*enough.estimates[2].high, 190, 0.5);
  EXPECT_EQ(enough.estimates[3].of, Estimated::kGpuMemory);
  EXPECT_EQ(enough.estimates[3].jobs, 0U) << "none had a GPU";

  JobSpec limited = a_spec();
  limited.max_duration_s = 3600;
  EXPECT_EQ(plan(limited).horizon_s, 3600) << "it says itself how long it may run";
  EXPECT_EQ(plan(a_spec(), user("bob")).estimates[0].likeness, Likeness::kImage);
}

TEST_F(Planning, the_end_of_a_lending_window_is_told_and_counts_as_one_interruption) {
  leave_only("a");
  node("a").closes_in_s = 1800;
  beat(node("a"));
  const api::PlanCandidate best = plan().candidates.front();

  ASSERT_TRUE(best.leaves_in_s);
  EXPECT_NEAR(*best.leaves_in_s, 1800, 5);
  EXPECT_GT(best.interruptions, 1);
  EXPECT_LT(best.interruptions, 1.1) << "what comes after half an hour it meets elsewhere";
  EXPECT_EQ(best.stays, 0);

  JobSpec brief = a_spec();
  brief.max_duration_s = 600;
  EXPECT_LT(plan(brief).candidates.front().interruptions, 0.1) << "it is over before";
}

TEST_F(Planning, the_notice_is_what_the_owners_of_the_nodes_that_are_asked_grant) {
  add_node("c", "lab-c");
  node("a").hello.contract.notice_s = 300;
  node("b").hello.contract.notice_s = 120;
  node("c").hello.contract.notice_s = 900;
  node("c").hello.contract.guest_cpu_milli = 200;
  for (const char* name : {"a", "b", "c"}) connect(node(name));
  JobSpec spec = a_spec();
  spec.notice_s = 300;
  api::Plan seen = plan(spec);

  EXPECT_EQ(seen.notice_wanted_s, 300U);
  EXPECT_EQ(seen.notice_least_s, 120U);
  EXPECT_EQ(seen.notice_most_s, 300U) << "c is not asked";
  EXPECT_EQ(seen.candidates.back().notice_s, 900U);
  EXPECT_TRUE(seen.warnings.empty());

  spec.resources.cpu_milli = 6000;
  seen = plan(spec);
  ASSERT_EQ(seen.warnings.size(), 1U);
  EXPECT_EQ(seen.warnings.front().find("it asks for 6 cores, and no guest gets more than 4"), 0U)
      << seen.warnings.front();
}

TEST_F(Planning, its_place_in_the_queue_is_the_one_that_it_would_get) {
  for (const char* name : {"a", "b"}) {
    node(name).lending = LendingState::kPaused;
    beat(node(name));
  }
  submit();
  submit();
  JobSpec urgent = a_spec();
  urgent.priority = 0;

  EXPECT_EQ(plan().queue_position, 3U);
  EXPECT_EQ(plan(urgent).queue_position, 1U);
}

TEST_F(Planning, while_running_attempts_are_taken_over_after_a_start_a_job_would_wait) {
  restart();
  connect(node("a"));
  const api::Plan seen = plan();

  EXPECT_EQ(seen.verdict, PlanVerdict::kWaits);
  EXPECT_EQ(seen.sentence.find("the coordinator has just started and first waits "), 0U)
      << seen.sentence;
  ASSERT_TRUE(seen.starts_in_s);
  EXPECT_GT(*seen.starts_in_s, 15) << "three heartbeats and a start";
  settle();
  EXPECT_EQ(plan().verdict, PlanVerdict::kNow);
}

TEST_F(Planning, what_a_submit_would_refuse_is_refused_in_the_same_words) {
  const auto both = [&](const JobSpec& spec) {
    const auto planned = ask(spec);
    const auto submitted = run(user(), SubmitJob{.spec = spec});
    EXPECT_FALSE(planned);
    EXPECT_FALSE(submitted);
    if (planned || submitted) return std::string();
    EXPECT_EQ(planned.error(), submitted.error());
    return planned.error().message;
  };
  JobSpec off_list = a_spec();
  off_list.image = "evil";
  JobSpec senseless = a_spec();
  senseless.priority = 8;

  EXPECT_EQ(both(off_list), "image: 'evil' is not on the allow list");
  EXPECT_EQ(both(senseless), "priority: expected 0 (highest) to 7");
}

TEST_F(Planning, who_has_no_room_for_another_job_is_told_so) {
  config.max_unfinished_jobs_per_user = 1;
  restart();
  submit();

  const auto answer = ask(a_spec());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(ask(a_spec(), user("bob")));
}

TEST_F(Planning, a_node_shows_what_of_it_is_used_and_how_likely_it_stays) {
  JobSpec spec = a_spec();
  spec.resources.memory_mib = 2048;
  const JobId id = running(spec);
  const NodeView seen = *core->node(job(id).node, clock.now());

  EXPECT_EQ(seen.used_gpus, 0U);
  EXPECT_EQ(seen.used_cpu_milli, 1000U);
  EXPECT_EQ(seen.used_memory_mib, 2048U);
  EXPECT_EQ(core->node(node("b").id, clock.now())->used_memory_mib, 0U);
}

}  // namespace
}  // namespace rn::coordinator
