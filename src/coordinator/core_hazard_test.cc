// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_hazard.h"

#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

constexpr std::int64_t kMinuteMs = 60'000;
constexpr std::int64_t kHourMs = 60 * kMinuteMs;

class Hazard : public CoreSite {
 protected:
  void SetUp() override { start(); }

  reclaim::HazardExplanation why(const FakeAgent& agent) {
    return *core->hazard(agent.id, clock.now());
  }

  double per_hour(const FakeAgent& agent) { return why(agent).rate_per_hour; }

  double chance(const FakeAgent& agent, std::size_t horizon) {
    return why(agent).reclaimed_within.at(horizon).probability;
  }

  ReclaimRecord a_record(ReclaimKind kind, std::int64_t notice_s = 60) {
    ReclaimRecord record;
    record.id = ReclaimId("r-" + std::to_string(++records_));
    record.kind = kind;
    record.declared_ns = 1'000'000'000;
    record.deadline_ns = record.declared_ns + notice_s * 1'000'000'000;
    record.declared_wall_ms = to_ms(clock.now().wall);
    return record;
  }

  /// As agents do it: the beat that says "closed" comes before the record.
  void take_back(FakeAgent& agent, ReclaimKind kind, std::int64_t notice_s = 60) {
    agent.lending = LendingState::kReclaimed;
    beat(agent);
    tell(agent, wire::ReclaimReport{a_record(kind, notice_s)});
  }

  void give_back(FakeAgent& agent) {
    agent.lending = LendingState::kOpen;
    beat(agent);
  }

  double learnt_departures(const FakeAgent& agent) {
    return tables.node_hazards.at(agent.id).rate.events;
  }

 private:
  int records_ = 0;
};

TEST_F(Hazard, a_new_site_has_the_prior_and_says_so) {
  FakeAgent& a = add_node("a", "lab-a");

  EXPECT_NEAR(per_hour(a), 1.0 / 35, 1e-4);
  EXPECT_NE(why(a).prior.find("the prior stands for it"), std::string::npos) << why(a).prior;
  EXPECT_TRUE(why(a).is_lent);
  EXPECT_NEAR(core->node(a.id, clock.now())->departures_per_day, 24.0 / 35, 1e-2);
  EXPECT_FALSE(core->hazard(NodeId("n-none"), clock.now()).has_value());
}

TEST_F(Hazard, an_owner_who_takes_the_node_back_counts_once_whichever_word_comes_first) {
  FakeAgent& a = add_node("a", "lab-a");
  FakeAgent& b = add_node("b", "lab-b");
  const double before = per_hour(a);
  pass(10 * kMinuteMs);

  take_back(a, ReclaimKind::kNotice);
  tell(b, wire::ReclaimReport{a_record(ReclaimKind::kEmergency)});
  b.lending = LendingState::kReclaimed;
  beat(b);
  pass(kMinuteMs);

  for (FakeAgent* agent : {&a, &b}) {
    EXPECT_NEAR(learnt_departures(*agent), 1, 0.01);
    EXPECT_FALSE(why(*agent).is_lent);
    EXPECT_GT(per_hour(*agent), 2 * before);
  }
  EXPECT_EQ(why(a).history.notice, 1U);
  EXPECT_EQ(why(b).history.emergency, 1U);
}

TEST_F(Hazard, the_lengths_of_notices_are_kept) {
  FakeAgent& a = add_node("a", "lab-a");
  for (const std::int64_t notice_s : {60, 20, 40}) {
    take_back(a, ReclaimKind::kNotice, notice_s);
    give_back(a);
  }

  EXPECT_EQ(why(a).history.notice_s_min, 20U);
  EXPECT_EQ(why(a).history.notice_s_max, 60U);
}

TEST_F(Hazard, a_pause_or_a_window_that_ends_is_no_departure) {
  FakeAgent& a = add_node("a", "lab-a");
  pass(30 * kMinuteMs);
  const double before = per_hour(a);
  for (const LendingState closed : {LendingState::kPaused, LendingState::kOutsideWindow}) {
    a.lending = closed;
    beat(a);
    pass(kMinuteMs);
    EXPECT_FALSE(why(a).is_lent);
    give_back(a);
    pass(10 * kMinuteMs);
    EXPECT_TRUE(why(a).is_lent);
  }

  EXPECT_EQ(learnt_departures(a), 0);
  EXPECT_LE(per_hour(a), before * 1.01);
}

TEST_F(Hazard, the_owners_return_to_an_idle_machine_is_a_departure) {
  FakeAgent& a = add_node("a", "lab-a");
  pass(kMinuteMs);
  a.lending = LendingState::kOwnerPresent;
  beat(a);
  tell(a, wire::ReclaimReport{a_record(ReclaimKind::kAnnounced)});
  pass(kMinuteMs);

  EXPECT_NEAR(learnt_departures(a), 1, 0.01);
}

TEST_F(Hazard, a_lost_node_has_departed_and_a_short_silence_has_not) {
  FakeAgent& a = add_node("a", "lab-a");
  FakeAgent& b = add_node("b", "lab-b");
  pass(kMinuteMs);
  disconnect(b);
  pass(2 * config.heartbeat_ms);
  connect(b);
  disconnect(a);
  pass(kMinuteMs);

  EXPECT_NEAR(learnt_departures(a), 1, 0.01);
  EXPECT_EQ(learnt_departures(b), 0);
}

TEST_F(Hazard, an_announced_reclaim_is_a_deadline_and_called_off_no_departure) {
  FakeAgent& a = add_node("a", "lab-a");
  ReclaimRecord record = a_record(ReclaimKind::kAnnounced, 3600);
  tell(a, wire::ReclaimReport{record});

  EXPECT_NEAR(why(a).leaves_in_s, 3600, 1);
  EXPECT_LT(chance(a, 1), 0.1) << "it stays for half an hour";
  EXPECT_EQ(chance(a, 2), 1) << "and not for two hours";
  EXPECT_EQ(sched::survival(core->node(a.id, clock.now())->outlook, 7200), 0);

  record.phase = ReclaimPhase::kReturned;  // called off
  tell(a, wire::ReclaimReport{record});
  EXPECT_LT(chance(a, 2), 0.5);
  EXPECT_EQ(learnt_departures(a), 0);
}

TEST_F(Hazard, an_owner_who_comes_as_announced_has_departed_unless_it_was_known_for_hours) {
  FakeAgent& soon = add_node("a", "lab-a");
  FakeAgent& foreseen = add_node("b", "lab-b");
  FakeAgent& early = add_node("c", "lab-c");
  const double before = per_hour(soon);
  tell(foreseen, wire::ReclaimReport{a_record(ReclaimKind::kAnnounced, 5 * 3600)});
  pass(5 * kHourMs - 10 * kMinuteMs);
  tell(soon, wire::ReclaimReport{a_record(ReclaimKind::kAnnounced, 600)});
  tell(early, wire::ReclaimReport{a_record(ReclaimKind::kAnnounced, 3600)});
  pass(5 * kMinuteMs);
  early.lending = LendingState::kPaused;
  beat(early);
  pass(5 * kMinuteMs);
  EXPECT_EQ(learnt_departures(soon), 0) << "it has not come yet";
  for (FakeAgent* agent : {&soon, &foreseen}) {
    agent->lending = LendingState::kReclaimed;
    beat(*agent);
  }
  pass(kMinuteMs);

  EXPECT_NEAR(learnt_departures(soon), 1, 0.01);
  EXPECT_GT(per_hour(soon), 2 * before);
  EXPECT_EQ(learnt_departures(foreseen), 0)
      << "whoever was placed there was placed by the deadline";
  EXPECT_EQ(learnt_departures(early), 0) << "a pause long before the deadline is a pause";
  EXPECT_EQ(why(foreseen).history.announced, 1U);
}

TEST_F(Hazard, hours_follow_the_campuss_clocks_when_they_change_while_it_runs) {
  add_node("a", "lab-a");
  const auto seen_s = [this](std::int32_t utc_offset_s) {
    const std::size_t hour = reclaim::hour_of_week(clock.now().wall, utc_offset_s);
    return tables.campus_hazard->hours.at(hour).exposure_s;
  };
  pass(6 * kMinuteMs);
  const double before_s = seen_s(0);
  ASSERT_GT(before_s, 100);
  ASSERT_EQ(seen_s(3600), 0);

  handle(Tick{.utc_offset_s = 3600});
  pass(10 * kMinuteMs);

  EXPECT_GT(seen_s(3600), 100) << "summer time has begun, and a Tick that does not tell keeps it";
  EXPECT_LT(seen_s(0), 400) << "what was seen before the change, and no more";
}

TEST_F(Hazard, the_end_of_a_lending_window_is_a_deadline_as_long_as_it_is_told) {
  FakeAgent& a = add_node("a", "lab-a");
  a.closes_in_s = 3600;
  beat(a);
  EXPECT_NEAR(why(a).leaves_in_s, 3600, 1);
  EXPECT_EQ(sched::survival(core->node(a.id, clock.now())->outlook, 7200), 0);

  tell(a, wire::ReclaimReport{a_record(ReclaimKind::kAnnounced, 7200)});
  EXPECT_NEAR(why(a).leaves_in_s, 3600, 1) << "the earlier one counts";
  a.closes_in_s = 0;
  beat(a);
  EXPECT_NEAR(why(a).leaves_in_s, 7200, 1);
}

TEST_F(Hazard, a_deadline_that_passed_without_a_departure_is_forgotten) {
  FakeAgent& a = add_node("a", "lab-a");
  tell(a, wire::ReclaimReport{a_record(ReclaimKind::kAnnounced, 60)});
  pass(3 * kMinuteMs);

  EXPECT_LT(why(a).leaves_in_s, 0);
  EXPECT_GT(sched::survival(core->node(a.id, clock.now())->outlook, 300), 0.9);
}

TEST_F(Hazard, the_owners_process_on_a_lent_gpu_is_told) {
  FakeAgent& a = add_node("a", "lab-a");
  const auto says_foreign = [&] {
    const auto factors = why(a).factors;
    return std::any_of(factors.begin(), factors.end(), [](const reclaim::HazardFactor& f) {
      return f.name == "foreign process";
    });
  };
  a.hello.contract.gpus = {1};
  tell(a, wire::NodeUpdate{a.hello.facts, a.hello.contract, a.hello.address});
  a.telemetry.gpus = {{.index = 0, .foreign_processes = 1}, {.index = 1}};
  beat(a);
  EXPECT_FALSE(says_foreign()) << "that GPU is not lent";

  a.telemetry.gpus[1].foreign_processes = 1;
  beat(a);
  EXPECT_TRUE(says_foreign());
  a.telemetry.gpus[1].foreign_processes = 0;
  beat(a);
  EXPECT_FALSE(says_foreign());
}

TEST_F(Hazard, what_the_contract_tolerates_of_the_owners_on_a_gpu_is_no_presence) {
  FakeAgent& a = add_node("a", "lab-a");
  const auto says_foreign = [&] {
    const auto factors = why(a).factors;
    return std::any_of(factors.begin(), factors.end(), [](const reclaim::HazardFactor& f) {
      return f.name == "foreign process";
    });
  };
  a.hello.contract.idle.foreign_vram_mib = 500;
  tell(a, wire::NodeUpdate{a.hello.facts, a.hello.contract, a.hello.address});
  a.telemetry.gpus = {{.index = 0, .foreign_processes = 1, .foreign_vram_mib = 300}};
  beat(a);
  EXPECT_FALSE(says_foreign()) << "a desktop";

  a.telemetry.gpus[0].foreign_vram_mib = 501;
  beat(a);
  EXPECT_TRUE(says_foreign());
}

TEST_F(Hazard, a_login_on_the_machine_is_told_beside_the_owners_process) {
  FakeAgent& a = add_node("a", "lab-a");
  const auto says = [&](const std::string& name) {
    const auto factors = why(a).factors;
    return std::any_of(factors.begin(), factors.end(), [&](const reclaim::HazardFactor& f) {
      return f.name == name;
    });
  };
  EXPECT_FALSE(says("owner login"));

  a.telemetry.logins = 1;
  beat(a);
  EXPECT_TRUE(says("owner login"));
  EXPECT_FALSE(says("foreign process"));
  a.telemetry.gpus = {{.index = 0, .foreign_processes = 1}};
  beat(a);
  EXPECT_TRUE(says("owner login"));
  EXPECT_TRUE(says("foreign process"));
  a.telemetry.logins = 0;
  beat(a);
  EXPECT_FALSE(says("owner login"));
  EXPECT_TRUE(says("foreign process"));
}

TEST_F(Hazard, departures_after_logins_are_learnt) {
  FakeAgent& a = add_node("a", "lab-a");
  const auto factor = [&] {
    for (const reclaim::HazardFactor& f : why(a).factors)
      if (f.name == "owner login") return f.value;
    return 0.0;
  };
  for (int day = 0; day < 6; ++day) {  // who logs in takes the machine back within minutes
    pass(4 * kHourMs);
    a.telemetry.logins = 1;
    beat(a);
    pass(5 * kMinuteMs);
    take_back(a, ReclaimKind::kNotice);
    a.telemetry.logins = 0;
    give_back(a);
  }
  a.telemetry.logins = 1;
  beat(a);

  EXPECT_GT(factor(), 2);
}

TEST_F(Hazard, departures_after_a_process_of_the_owners_on_a_gpu_are_learnt) {
  FakeAgent& a = add_node("a", "lab-a");
  const auto factor = [&] {
    for (const reclaim::HazardFactor& f : why(a).factors)
      if (f.name == "foreign process") return f.value;
    return 0.0;
  };
  const auto computes = [&](bool does) {
    a.telemetry.gpus = {{.index = 0, .foreign_processes = does ? 1U : 0U}};
    beat(a);
    return does ? factor() : 0;
  };
  const double before = computes(true);
  computes(false);
  for (int day = 0; day < 6; ++day) {  // who computes there takes the machine back within minutes
    pass(4 * kHourMs);
    computes(true);
    pass(5 * kMinuteMs);
    take_back(a, ReclaimKind::kNotice);
    computes(false);
    give_back(a);
  }
  EXPECT_GT(computes(true), 2);
  EXPECT_LT(before, 1.5);
}

TEST_F(Hazard, a_process_of_the_owners_after_which_they_stay_away_warns_of_nothing) {
  FakeAgent& a = add_node("a", "lab-a");
  const auto factor = [&] {
    for (const reclaim::HazardFactor& f : why(a).factors)
      if (f.name == "foreign process") return f.value;
    return 0.0;
  };
  for (int day = 0; day < 6; ++day) {  // they compute for hours, and take it back when they do not
    a.telemetry.gpus = {{.index = 0, .foreign_processes = 1}};
    beat(a);
    pass(12 * kHourMs);
    a.telemetry.gpus[0].foreign_processes = 0;
    beat(a);
    pass(5 * kMinuteMs);
    take_back(a, ReclaimKind::kNotice);
    give_back(a);
  }
  a.telemetry.gpus[0].foreign_processes = 1;
  beat(a);

  EXPECT_GT(factor(), 0);
  EXPECT_LT(factor(), 1);
}

TEST_F(Hazard, a_restart_forgets_no_departure_and_at_most_five_minutes_of_exposure) {
  FakeAgent& a = add_node("a", "lab-a");
  pass(2 * kHourMs);
  take_back(a, ReclaimKind::kNotice);
  give_back(a);
  pass(20 * kMinuteMs);
  const double before = per_hour(a);
  const double age_s = why(a).age_s;

  restart();
  connect(a);
  settle();

  EXPECT_NEAR(learnt_departures(a), 1, 0.01);
  EXPECT_NEAR(per_hour(a), before, before * 0.2);
  EXPECT_NEAR(why(a).age_s, age_s + 20, 2) << "it was lent all the time";
}

TEST_F(Hazard, a_reclaim_while_the_coordinator_was_away_counts_at_its_own_time) {
  FakeAgent& a = add_node("a", "lab-a");
  pass(10 * kMinuteMs);
  clock.advance(std::chrono::minutes(10));
  a.hello.reclaims = {a_record(ReclaimKind::kEmergency)};
  clock.advance(std::chrono::minutes(10));
  restart();
  a.lending = LendingState::kReclaimed;
  connect(a);

  EXPECT_NEAR(learnt_departures(a), 1, 0.01);
  const std::int64_t departed_ms = tables.node_hazards.at(a.id).seen_to_ms;
  EXPECT_NEAR(static_cast<double>(to_ms(clock.now().wall) - departed_ms), 10 * kMinuteMs, 1000);
}

TEST_F(Hazard, what_nodes_did_in_a_long_absence_is_not_guessed) {
  FakeAgent& a = add_node("a", "lab-a");
  pass(6 * kMinuteMs);
  const double exposed_s = tables.campus_hazard->base.exposure_s;
  clock.advance(std::chrono::hours(10));
  restart();
  connect(a);
  pass(6 * kMinuteMs);

  EXPECT_TRUE(why(a).is_lent);
  EXPECT_LT(tables.campus_hazard->base.exposure_s, exposed_s + 900);
  EXPECT_LT(why(a).age_s, 900);
}

TEST_F(Hazard, a_machine_that_was_restarted_had_departed) {
  FakeAgent& a = add_node("a", "lab-a");
  pass(10 * kMinuteMs);
  restart();
  a.hello.boot_id = "boot-2";
  connect(a);

  EXPECT_NEAR(learnt_departures(a), 1, 0.01);
  EXPECT_TRUE(why(a).is_lent);
  EXPECT_LT(why(a).age_s, 1);
}

TEST_F(Hazard, a_wall_clock_that_is_set_teaches_nothing) {
  FakeAgent& a = add_node("a", "lab-a");
  pass(6 * kMinuteMs);
  clock.set_wall(clock.now().wall + std::chrono::hours(24 * 365));
  pass(6 * kMinuteMs);

  EXPECT_NEAR(why(a).age_s, 720, 20);
  EXPECT_NEAR(per_hour(a), 1.0 / 35, 0.005) << "a year without a departure would be ten times less";
}

TEST_F(Hazard, counts_of_older_versions_are_where_it_begins) {
  FakeAgent& a = add_node("a", "lab-a");
  FakeAgent& b = add_node("b", "lab-b");
  FakeAgent& c = add_node("c", "lab-a");
  tables.nodes.at(a.id).history = {.exposure_s = 360'000, .notice = 30, .emergency = 10};
  tables.nodes.at(b.id).history = {.exposure_s = 3'600'000, .announced = 9, .lost = 1};
  tables.campus_hazard.reset();
  tables.lab_hazards.clear();
  tables.node_hazards.clear();
  restart();

  EXPECT_GT(per_hour(a), 20 * per_hour(b));
  EXPECT_GT(per_hour(c), 2 * per_hour(b)) << "its lab is known";
  EXPECT_TRUE(tables.campus_hazard.has_value()) << "and kept";
}

TEST_F(Hazard, rows_that_make_no_sense_begin_anew_and_are_said) {
  add_node("a", "lab-a");
  tables.campus_hazard->hours.resize(24);
  restart();

  EXPECT_EQ(count_events("hazard.unusable"), 1U);
  EXPECT_EQ(tables.campus_hazard->hours.size(), 168U);
}

TEST_F(Hazard, a_provider_that_lies_about_its_times_moves_only_its_own_figures) {
  FakeAgent& liar = add_node("a", "lab-a");
  FakeAgent& honest = add_node("b", "lab-b");
  pass(kMinuteMs);
  for (const std::int64_t far : {INT64_MIN, INT64_MAX}) {
    for (const ReclaimKind kind : {ReclaimKind::kAnnounced, ReclaimKind::kNotice}) {
      ReclaimRecord record = a_record(kind);
      record.declared_wall_ms = far;
      record.declared_ns = far;
      record.deadline_ns = INT64_MAX;
      tell(liar, wire::ReclaimReport{record});
      liar.closes_in_s = UINT32_MAX;
      beat(liar);
    }
  }
  pass(kMinuteMs);

  EXPECT_LE(why(liar).history.notice_s_max, 86'400U);
  EXPECT_NEAR(learnt_departures(liar), 2, 0.01);
  EXPECT_LT(per_hour(honest), 0.3);
  EXPECT_GE(chance(liar, 3), chance(liar, 0));
}

TEST_F(Hazard, a_node_that_left_is_at_risk_no_more) {
  FakeAgent& a = add_node("a", "lab-a");
  pass(kMinuteMs);
  tell(a, wire::Leave{"moving house"});

  EXPECT_FALSE(why(a).is_lent);
  EXPECT_EQ(learnt_departures(a), 0);
}

TEST_F(Hazard, a_volatile_node_is_avoided) {
  FakeAgent& restless = add_node("a-restless", "lab-a");
  add_node("b-calm", "lab-b");
  for (int day = 0; day < 4; ++day) {
    pass(20 * kMinuteMs);
    take_back(restless, ReclaimKind::kNotice);
    pass(kMinuteMs);
    give_back(restless);
  }
  pass(kHourMs);

  for (int i = 0; i < 3; ++i) EXPECT_EQ(where(running()), "b-calm");
}

TEST_F(Hazard, a_node_that_leaves_before_the_job_would_end_is_avoided) {
  FakeAgent& leaving = add_node("a-leaving", "lab-a");
  add_node("b-stays", "lab-b");
  tell(leaving, wire::ReclaimReport{a_record(ReclaimKind::kAnnounced, 1800)});
  JobSpec spec = a_spec();
  spec.max_duration_s = 3 * 3600;

  for (int i = 0; i < 3; ++i) EXPECT_EQ(where(running(spec)), "b-stays");
}

TEST_F(Hazard, a_node_is_told_what_is_expected_of_its_owner_once_and_again_when_it_changes) {
  FakeAgent& a = add_node("a", "lab-a");
  const auto told = [&] {
    std::vector<wire::HazardForecast> out;
    for (const auto& ack : a.received<wire::HeartbeatAck>())
      if (!ack.hazard.per_day.empty()) out.push_back(ack.hazard);
    return out;
  };
  pass(10'000);

  ASSERT_EQ(told().size(), 1U);
  const wire::HazardForecast first = told().front();
  EXPECT_EQ(first.step_s, 900U);
  ASSERT_EQ(first.per_day.size(), 8U);
  EXPECT_NEAR(first.per_day.front(), 24.0 / 35, 1e-2);
  EXPECT_LT(first.low, 1);
  EXPECT_GT(first.high, 3) << "nothing was seen yet: nobody can be sure";
  EXPECT_EQ(first.leaves_in_s, 0U);
  pass(5 * kMinuteMs);
  EXPECT_EQ(told().size(), 1U) << "nothing has changed";

  take_back(a, ReclaimKind::kNotice);
  pass(kMinuteMs);
  give_back(a);
  pass(2 * kMinuteMs);
  ASSERT_GE(told().size(), 2U);
  EXPECT_GT(told().back().per_day.front(), 1.5 * first.per_day.front());
}

TEST_F(Hazard, a_node_is_told_of_the_end_of_its_window_and_anew_after_a_reconnect) {
  FakeAgent& a = add_node("a", "lab-a");
  pass(10'000);
  a.inbox.clear();
  a.closes_in_s = 3600;
  beat(a);

  const auto acks = a.received<wire::HeartbeatAck>();
  ASSERT_FALSE(acks.empty());
  EXPECT_NEAR(acks.back().hazard.leaves_in_s, 3600, 1);

  beat(a);
  EXPECT_TRUE(a.received<wire::HeartbeatAck>().back().hazard.per_day.empty());
  connect(a);
  beat(a);
  EXPECT_FALSE(a.received<wire::HeartbeatAck>().back().hazard.per_day.empty());
}

TEST_F(Hazard, a_record_that_comes_a_moment_after_the_node_closed_is_a_departure) {
  FakeAgent& a = add_node("a", "lab-a");
  pass(10 * kMinuteMs);
  a.lending = LendingState::kReclaimed;
  beat(a);
  pass(config.heartbeat_ms);
  tell(a, wire::ReclaimReport{a_record(ReclaimKind::kNotice)});
  pass(kMinuteMs);

  EXPECT_NEAR(learnt_departures(a), 1, 0.01);
}

TEST_F(Hazard, a_node_that_closes_for_a_moment_has_been_lent_all_the_time) {
  FakeAgent& a = add_node("a", "lab-a");
  pass(10 * kMinuteMs);
  a.lending = LendingState::kPaused;
  beat(a);
  give_back(a);
  pass(kMinuteMs);

  EXPECT_GT(why(a).age_s, 600);
}

TEST_F(Hazard, what_a_departure_taught_of_its_lab_is_kept_at_once) {
  FakeAgent& a = add_node("a", "lab-a");
  pass(kMinuteMs);
  take_back(a, ReclaimKind::kNotice);

  EXPECT_NEAR(tables.lab_hazards.at(LabId("lab-a")).rate.events, 1, 0.01);
  EXPECT_NEAR(learnt_departures(a), 1, 0.01);
}

TEST_F(Hazard, a_departure_is_a_warning_for_the_labs_other_nodes_at_once) {
  FakeAgent& a = add_node("a", "lab-a");
  FakeAgent& mate = add_node("mate", "lab-a");
  pass(10 * kMinuteMs);
  const double before = core->node(mate.id, clock.now())->departures_per_day;
  take_back(a, ReclaimKind::kNotice);

  EXPECT_GT(core->node(mate.id, clock.now())->departures_per_day, 1.5 * before);
}

TEST_F(Hazard, what_is_announced_for_one_gpu_says_nothing_of_the_node) {
  FakeAgent& a = add_node("a", "lab-a");
  ReclaimRecord one = a_record(ReclaimKind::kAnnounced, 1800);
  one.gpus = {0};
  tell(a, wire::ReclaimReport{one});
  EXPECT_LT(why(a).leaves_in_s, 0);

  tell(a, wire::ReclaimReport{a_record(ReclaimKind::kAnnounced, 3600)});
  one.phase = ReclaimPhase::kReturned;
  tell(a, wire::ReclaimReport{one});
  beat(a);
  EXPECT_NEAR(why(a).leaves_in_s, 3600, 1) << "the node's own is not called off";
}

TEST_F(Hazard, an_announcement_is_known_after_a_restart) {
  FakeAgent& a = add_node("a", "lab-a");
  tell(a, wire::ReclaimReport{a_record(ReclaimKind::kAnnounced, 3600)});
  restart();
  connect(a);
  beat(a);

  EXPECT_NEAR(why(a).leaves_in_s, 3600, 1);
}

TEST_F(Hazard, a_contract_that_names_no_gpus_lends_them_all) {
  FakeAgent& a = add_node("a", "lab-a");
  a.telemetry.gpus = {{.index = 0, .foreign_processes = 1}};
  beat(a);

  const auto factors = why(a).factors;
  EXPECT_TRUE(std::any_of(factors.begin(), factors.end(), [](const reclaim::HazardFactor& f) {
    return f.name == "foreign process";
  }));
}

TEST_F(Hazard, agents_are_told_what_share_of_departures_came_with_notice_and_how_long_it_was) {
  FakeAgent& a = add_node("a", "lab-a");
  const auto told = [&] {
    wire::HazardForecast newest;
    for (const auto& ack : a.received<wire::HeartbeatAck>())
      if (!ack.hazard.per_day.empty()) newest = ack.hazard;
    return newest;
  };
  beat(a);
  EXPECT_EQ(told().noticed, 0) << "nothing is known: each may come suddenly";

  for (const std::int64_t notice_s : {120, 300, 180}) {
    pass(kHourMs);
    take_back(a, ReclaimKind::kNotice, notice_s);
    give_back(a);
  }
  pass(10'000);
  EXPECT_DOUBLE_EQ(told().noticed, 0.75);
  EXPECT_EQ(told().notice_s_min, 120u);
  EXPECT_EQ(told().notice_s_max, 300u);
}

TEST_F(Hazard, agents_are_told_of_departures_that_nobody_announces_and_placement_of_all) {
  FakeAgent& a = add_node("a", "lab-a");
  FakeAgent& b = add_node("b", "lab-b");
  const auto told = [](const FakeAgent& agent) {
    double newest = 0;
    for (const auto& ack : agent.received<wire::HeartbeatAck>())
      if (!ack.hazard.per_day.empty()) newest = ack.hazard.per_day.front();
    return newest;
  };
  for (int i = 0; i < 6; ++i) {
    pass(kHourMs);
    tell(a, wire::ReclaimReport{a_record(ReclaimKind::kAnnounced, 120)});
    pass(2 * kMinuteMs);
    a.lending = LendingState::kReclaimed;
    beat(a);
    take_back(b, ReclaimKind::kEmergency);
    pass(kMinuteMs);
    give_back(a);
    give_back(b);
  }
  pass(40 * kMinuteMs);

  EXPECT_NEAR(learnt_departures(a), 6, 0.1);
  EXPECT_NEAR(per_hour(a), per_hour(b), 0.1 * per_hour(b));
  EXPECT_LT(told(a), 0.5 * 24 * per_hour(a));
  EXPECT_LT(told(a), 0.6 * told(b));
  EXPECT_NEAR(why(a).announced, 1 - told(a) / (24 * per_hour(a)), 0.1);
}

TEST_F(Hazard, a_node_is_told_anew_now_and_then_and_when_its_window_no_longer_ends) {
  FakeAgent& a = add_node("a", "lab-a");
  a.closes_in_s = 7 * 86'400;
  pass(10'000);
  const auto told = [&] {
    std::vector<wire::HazardForecast> out;
    for (const auto& ack : a.received<wire::HeartbeatAck>())
      if (!ack.hazard.per_day.empty()) out.push_back(ack.hazard);
    return out;
  };
  ASSERT_FALSE(told().empty());
  EXPECT_NEAR(told().back().per_day.back(), told().back().per_day.front(), 0.05)
      << "per day, in each of its steps";
  a.inbox.clear();
  a.closes_in_s = 0;
  beat(a);
  ASSERT_EQ(told().size(), 1U);
  EXPECT_EQ(told().front().leaves_in_s, 0U);

  a.inbox.clear();
  pass(35 * kMinuteMs);
  EXPECT_GE(told().size(), 1U);
}

}  // namespace
}  // namespace rn::coordinator
