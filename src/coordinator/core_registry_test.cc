// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

class Registry : public CoreSite {
 protected:
  void SetUp() override { start(); }
};

TEST_F(Registry, a_node_that_joined_is_welcomed_with_the_measured_clock_offset) {
  FakeAgent& a = add_node("a", "lab-a");
  disconnect(a);
  a.connection = ++connections;
  handle(AgentConnected{a.connection, a.id, public_key_of(a), ""});
  a.hello.wall_ms = to_ms(clock.now().wall) - 7'200'000;
  tell(a, a.hello);

  EXPECT_EQ(a.last<wire::Welcome>().clock_offset_ms, 7'200'000);
  EXPECT_EQ(core->node(a.id, clock.now())->clock_offset_ms, 7'200'000);
  EXPECT_EQ(a.last<wire::Welcome>().generation, 1U);
}

TEST_F(Registry, an_agent_of_another_protocol_is_told_what_to_upgrade) {
  FakeAgent& a = add_node("a", "lab-a");
  a.hello.protocol = a.hello.oldest_protocol = wire::kProtocol + 5;
  a.hello.version = "9.0";
  connect(a);

  EXPECT_EQ(a.last<wire::Refused>().code, "unsupported");
  EXPECT_EQ(
      a.last<wire::Refused>().message,
      "agent 9.0 needs protocol 6 or newer, this coordinator speaks 1 to 1"
  );
  EXPECT_NE(a.last<wire::Refused>().hint.find("upgrade reclaim-coordinator"), std::string::npos);
  EXPECT_FALSE(a.closed.empty());

  a.hello.protocol = a.hello.oldest_protocol = 0;
  a.hello.version = "0.0.1";
  connect(a);
  EXPECT_NE(a.last<wire::Refused>().hint.find("upgrade reclaim-agent"), std::string::npos);
}

TEST_F(Registry, a_clock_at_the_end_of_time_is_far_off_and_no_more) {
  FakeAgent& a = add_node("a", "lab-a");
  for (const std::int64_t told : {INT64_MIN, INT64_MAX}) {
    wire::Heartbeat beat;
    beat.wall_ms = told;
    tell(a, beat);

    const std::int64_t offset = core->node(a.id, clock.now())->clock_offset_ms;
    EXPECT_EQ(offset > 0, told < 0);
    EXPECT_GT(std::abs(offset), 900'000'000'000'000);
  }
}

TEST_F(Registry, a_line_that_no_node_has_is_taken_as_not_known_and_said) {
  FakeAgent& a = add_node("a", "lab-a");
  for (const std::uint64_t bps : {std::uint64_t{1}, ~std::uint64_t{0}}) {
    a.hello.facts.uplink_bps = bps;
    tell(a, wire::NodeUpdate{a.hello.facts, a.hello.contract, a.hello.address});

    const NodeFacts& facts = tables.nodes.at(a.id).facts;
    EXPECT_EQ(facts.uplink_bps, 0U);
    ASSERT_EQ(facts.warnings.size(), 1U);
    EXPECT_EQ(
        facts.warnings[0],
        "its agent says that its line carries " + std::to_string(bps) +
            " bit/s, which none does: taken as not known"
    );
  }
  a.hello.facts.uplink_bps = 1'000'000'000;
  tell(a, wire::NodeUpdate{a.hello.facts, a.hello.contract, a.hello.address});
  EXPECT_EQ(tables.nodes.at(a.id).facts.uplink_bps, 1'000'000'000U);
  EXPECT_TRUE(tables.nodes.at(a.id).facts.warnings.empty());
}

TEST_F(Registry, a_machine_cloned_with_its_identity_is_refused_and_the_original_stays) {
  FakeAgent& a = add_node("a", "lab-a");
  const ConnectionId original = a.connection;
  FakeAgent clone = a;
  const ConnectionId second = ++connections;
  handle(AgentConnected{second, a.id, public_key_of(a), "10.9.9.9:1"});
  clone.hello.machine_id = "m-copy";
  handle(AgentMessage{second, clone.hello});

  EXPECT_EQ(a.connection, original);
  ASSERT_EQ(stray.size(), 1U);
  const auto refused = std::get<wire::Refused>(stray.front().message);
  EXPECT_EQ(refused.code, "conflict");
  EXPECT_NE(refused.message.find("belongs to another machine"), std::string::npos);
  EXPECT_EQ(refused.retry_after_ms, 0U);
  EXPECT_EQ(count_events("node.clone_refused"), 1U);
}

TEST_F(Registry, a_clone_with_a_copied_machine_id_is_refused_while_the_original_is_heard) {
  FakeAgent& a = add_node("a", "lab-a");
  wire::Hello copy = a.hello;
  copy.boot_id = "boot-of-the-copy";
  const ConnectionId second = ++connections;
  handle(AgentConnected{second, a.id, public_key_of(a), "10.9.9.9:1"});
  handle(AgentMessage{second, copy});

  const auto refused = std::get<wire::Refused>(stray.back().message);
  EXPECT_EQ(refused.retry_after_ms, 17'500U);
  EXPECT_TRUE(a.closed.empty());
}

TEST_F(Registry, a_reconnect_of_the_same_boot_wins_over_the_half_open_older_one) {
  FakeAgent& a = add_node("a", "lab-a");
  const ConnectionId older = a.connection;
  a.connection = ++connections;
  handle(AgentConnected{a.connection, a.id, public_key_of(a), ""});
  say_hello(a);

  EXPECT_TRUE(core->node(a.id, clock.now())->is_connected);
  EXPECT_EQ(a.received<wire::Welcome>().size(), 2U);
  // What still arrives on the older one is void.
  handle(AgentMessage{older, wire::Leave{}});
  EXPECT_NE(core->node(a.id, clock.now())->row.state, NodeState::kLeft);
}

/// A machine copied while it ran: the same identity, machine and boot. Each comes again when the
/// other has thrown it out.
class Twins : public Registry {
 protected:
  void SetUp() override {
    Registry::SetUp();
    original = &add_node("a", "lab-a");
    copy = *original;
  }

  /// The answer to a hello on a connection of its own: true when it is welcome.
  bool is_welcome(FakeAgent& twin, const std::string& remote) {
    twin.connection = ++connections;
    handle(AgentConnected{twin.connection, twin.id, public_key_of(*original), remote});
    handle(AgentMessage{twin.connection, twin.hello});
    return core->node(twin.id, clock.now())->is_connected && !is_refused(twin.connection);
  }

  bool is_refused(ConnectionId connection) const {
    return std::any_of(stray.begin(), stray.end(), [&](const auto& one) {
      return one.connection == connection && std::holds_alternative<wire::Refused>(one.message);
    });
  }

  FakeAgent* original = nullptr;
  FakeAgent copy;
};

TEST_F(Twins, the_third_meeting_with_a_living_connection_is_refused_and_the_connected_one_stays) {
  EXPECT_TRUE(is_welcome(copy, "10.0.0.2:1"));
  FakeAgent first = *original;
  EXPECT_TRUE(is_welcome(first, "10.0.0.1:2"));
  EXPECT_FALSE(is_welcome(copy, "10.0.0.2:2"));
  EXPECT_FALSE(is_welcome(copy, "10.0.0.2:3"));

  const auto refused = std::get<wire::Refused>(stray.back().message);
  EXPECT_EQ(refused.code, "conflict");
  EXPECT_EQ(
      refused.message,
      "two machines use this identity at the same time: one at 10.0.0.1:2 is connected, one at "
      "10.0.0.2:3 is refused"
  );
  EXPECT_NE(refused.hint.find("reclaim-agent join"), std::string::npos);
  EXPECT_EQ(refused.retry_after_ms, 7500U);
  EXPECT_EQ(count_events("node.clone_refused"), 1U) << "said once, not at each try";
}

TEST_F(Twins, one_machine_whose_connections_break_is_taken_as_soon_as_the_old_one_is_silent) {
  for (int i = 0; i < 20; ++i) {
    clock.advance(milliseconds(7600));
    FakeAgent same = *original;
    EXPECT_TRUE(is_welcome(same, "10.0.0.1:9")) << i;
  }
}

TEST_F(Registry, another_key_than_the_one_that_joined_is_refused) {
  FakeAgent& a = add_node("a", "lab-a");
  disconnect(a);
  a.connection = ++connections;
  handle(AgentConnected{a.connection, a.id, Digest{9}, ""});
  say_hello(a);

  EXPECT_EQ(a.last<wire::Refused>().code, "denied");
}

TEST_F(Registry, a_certificate_of_one_node_cannot_speak_for_another) {
  FakeAgent& a = add_node("a", "lab-a");
  FakeAgent& b = add_node("b", "lab-b");
  disconnect(a);
  a.hello.node = b.id;
  connect(a);

  EXPECT_EQ(a.last<wire::Refused>().code, "denied");
}

TEST_F(Registry, a_revoked_node_is_refused) {
  FakeAgent& a = add_node("a", "lab-a");
  ASSERT_TRUE(run(admin(), RevokeNode{a.id}));
  EXPECT_FALSE(a.closed.empty());
  connect(a);

  EXPECT_NE(a.last<wire::Refused>().message.find("taken back"), std::string::npos);
  EXPECT_FALSE(core->may_renew(a.id, public_key_of(a)));
}

TEST_F(Registry, messages_before_hello_are_refused) {
  FakeAgent& a = add_node("a", "lab-a");
  disconnect(a);
  a.connection = ++connections;
  handle(AgentConnected{a.connection, a.id, public_key_of(a), ""});
  tell(a, wire::Heartbeat{});

  EXPECT_EQ(a.last<wire::Refused>().message, "the first message of a connection must be hello");
}

TEST_F(Registry, a_missing_heartbeat_makes_suspect_three_make_lost_and_a_hello_brings_back) {
  FakeAgent& a = add_node("a", "lab-a");
  a.beats = false;
  pass(8000);
  EXPECT_EQ(core->node(a.id, clock.now())->row.state, NodeState::kSuspect);
  pass(9000);
  EXPECT_EQ(core->node(a.id, clock.now())->row.state, NodeState::kSuspect);
  pass(1000);
  EXPECT_EQ(core->node(a.id, clock.now())->row.state, NodeState::kLost);
  EXPECT_EQ(count_events("node.lost"), 1U);
  EXPECT_EQ(tables.reclaims.begin()->second.record.kind, ReclaimKind::kLost);

  a.beats = true;
  connect(a);
  EXPECT_EQ(core->node(a.id, clock.now())->row.state, NodeState::kUp);
  EXPECT_EQ(tables.reclaims.begin()->second.record.phase, ReclaimPhase::kReturned);
  EXPECT_EQ(core->node(a.id, clock.now())->row.history.lost, 1U);
}

TEST_F(Registry, while_the_coordinator_stood_still_nobody_was_silent) {
  FakeAgent& a = add_node("a", "lab-a");
  FakeAgent& gone = add_node("gone", "lab-b");
  gone.beats = false;
  pass(5000);
  clock.advance(seconds(60));
  handle(Tick{});
  EXPECT_EQ(core->node(a.id, clock.now())->row.state, NodeState::kUp) << "its words lie unread";
  pass(12'000);
  EXPECT_EQ(count_events("node.lost"), 0U);
  pass(2000);

  EXPECT_EQ(core->node(a.id, clock.now())->row.state, NodeState::kUp);
  EXPECT_EQ(core->node(gone.id, clock.now())->row.state, NodeState::kLost);
}

TEST_F(Registry, epochs_rise_above_every_generation_that_an_agent_has_seen) {
  FakeAgent& a = add_node("a", "lab-a");
  a.hello.highest_generation = 40;
  connect(a);

  EXPECT_EQ(tables.meta.at("generation"), "41");
  settle();
  const JobId id = submit();
  pass(1000);
  EXPECT_EQ(job(id).epoch.generation, 41U);
}

TEST_F(Registry, a_node_that_knows_our_generation_from_us_raises_nothing) {
  FakeAgent& a = add_node("a", "lab-a");
  a.hello.highest_generation = 1;
  connect(a);

  EXPECT_EQ(tables.meta.at("generation"), "1");
  EXPECT_EQ(count_events("site.database_is_older"), 0U);
}

TEST_F(Registry, a_lie_about_the_generation_does_not_use_epochs_up) {
  FakeAgent& a = add_node("a", "lab-a");
  a.hello.highest_generation = 0xfffffff0;
  connect(a);

  EXPECT_EQ(a.last<wire::Refused>().code, "invalid");
  EXPECT_EQ(tables.meta.at("generation"), "1");
}

TEST_F(Registry, a_hello_that_lists_too_much_is_refused) {
  FakeAgent& a = add_node("a", "lab-a");
  disconnect(a);
  a.hello.facts.gpus.resize(65);
  connect(a);

  EXPECT_EQ(a.last<wire::Refused>().code, "exhausted");
}

TEST_F(Registry, more_data_sets_than_a_node_may_have_are_refused_and_never_kept) {
  FakeAgent& a = add_node("a", "lab-a");
  NodeFacts facts = a.hello.facts;
  for (int i = 0; i < 257; ++i) facts.data_sets.push_back("d" + std::to_string(i));
  tell(a, wire::NodeUpdate{facts, a.hello.contract, a.hello.address});
  EXPECT_TRUE(tables.nodes.at(a.id).facts.data_sets.empty());

  disconnect(a);
  a.hello.facts = facts;
  connect(a);
  EXPECT_EQ(a.last<wire::Refused>().code, "exhausted");
}

TEST_F(Registry, reclaims_are_recorded_once_acknowledged_and_counted_by_kind) {
  FakeAgent& a = add_node("a", "lab-a");
  ReclaimRecord record;
  record.id = ReclaimId("r-1");
  record.kind = ReclaimKind::kEmergency;
  record.node = NodeId("n-somebody-else");
  tell(a, wire::ReclaimReport{record});
  tell(a, wire::ReclaimReport{record});
  record.phase = ReclaimPhase::kCut;
  tell(a, wire::ReclaimReport{record});

  EXPECT_EQ(a.received<wire::ReclaimAck>().size(), 3U);
  EXPECT_EQ(a.last<wire::ReclaimAck>().phase, ReclaimPhase::kCut);
  EXPECT_EQ(tables.reclaims.size(), 1U);
  EXPECT_EQ(tables.reclaims.begin()->first.first, a.id) << "a node speaks of itself only";
  EXPECT_EQ(core->node(a.id, clock.now())->row.history.emergency, 1U);
  EXPECT_EQ(count_events("reclaim.cut"), 1U);
}

TEST_F(Registry, a_reclaim_that_was_cut_and_cleared_between_two_reports_is_recorded_as_cleared) {
  FakeAgent& a = add_node("a", "lab-a");
  ReclaimRecord record{.id = ReclaimId("r-1"), .phase = ReclaimPhase::kEvacuating};
  tell(a, wire::ReclaimReport{record});
  record.phase = ReclaimPhase::kCleared;
  record.cut_ns = record.cleared_ns = 5;
  tell(a, wire::ReclaimReport{record});

  EXPECT_EQ(tables.reclaims.begin()->second.record.phase, ReclaimPhase::kCleared);
  EXPECT_EQ(tables.reclaims.begin()->second.record.cleared_ns, 5);
}

TEST_F(Registry, an_older_phase_that_comes_late_is_acknowledged_and_changes_nothing) {
  FakeAgent& a = add_node("a", "lab-a");
  ReclaimRecord record{.id = ReclaimId("r-1"), .phase = ReclaimPhase::kCleared};
  tell(a, wire::ReclaimReport{record});
  record.phase = ReclaimPhase::kCut;
  tell(a, wire::ReclaimReport{record});

  EXPECT_EQ(tables.reclaims.begin()->second.record.phase, ReclaimPhase::kCleared);
  EXPECT_EQ(a.last<wire::ReclaimAck>().phase, ReclaimPhase::kCut);
}

TEST_F(Registry, departures_raise_the_rate_of_the_node_and_of_its_lab) {
  FakeAgent& a = add_node("a", "lab-a");
  FakeAgent& a2 = add_node("a2", "lab-a");
  FakeAgent& b = add_node("b", "lab-b");
  const auto rate = [&](FakeAgent& n) { return core->node(n.id, clock.now())->departures_per_day; };
  const double before = rate(a2);
  for (int i = 0; i < 20; ++i) {
    tell(a, wire::ReclaimReport{{.id = ReclaimId("r-" + std::to_string(i))}});
    beat(a);  // and is given back
  }

  EXPECT_GT(rate(a), rate(a2));
  EXPECT_GT(rate(a2), rate(b));
  EXPECT_GT(rate(a2), before);
}

TEST_F(Registry, a_gpu_s_roll_up_is_of_the_samples_that_have_it) {
  FakeAgent& a = add_node("a", "lab-a");
  a.telemetry.gpus = {
      {.index = 0, .utilisation_percent = 50, .temperature_c = -5, .power_mw = 100'000}};
  pass(600'000);  // a whole bucket at least
  tables.rollups.clear();
  for (int i = 0; i < 240; ++i) {  // its driver hangs half of the time
    a.telemetry.gpus.clear();
    pass(config.heartbeat_ms);
    a.telemetry.gpus = {{.index = 0, .utilisation_percent = 50, .temperature_c = -5}};
    pass(config.heartbeat_ms);
  }

  ASSERT_GE(tables.rollups.size(), 3U);
  const RollupRow& row = tables.rollups[1];
  EXPECT_EQ(row.samples, 60U);
  ASSERT_EQ(row.gpus.size(), 1U);
  EXPECT_EQ(row.gpus[0].samples, 30U);
  EXPECT_DOUBLE_EQ(row.gpus[0].utilisation_percent, 50);
  EXPECT_EQ(row.gpus[0].temperature_c_max, -5);
}

TEST_F(Registry, the_width_of_buckets_is_a_setting) {
  config.rollup_s = 60;
  restart();
  FakeAgent& a = add_node("a", "lab-a");
  a.telemetry.cpu_percent = 40;
  pass(300'000);

  ASSERT_GE(tables.rollups.size(), 4U);
  EXPECT_EQ(tables.rollups[1].bucket_s, 60U);
  EXPECT_EQ(tables.rollups[1].samples, 12U);
}

TEST_F(Registry, a_node_that_leaves_is_closed_and_must_join_again) {
  FakeAgent& a = add_node("a", "lab-a");
  tell(a, wire::Leave{"moving house"});

  EXPECT_EQ(core->node(a.id, clock.now())->row.state, NodeState::kLeft);
  EXPECT_EQ(a.closed, "left");
}

TEST_F(Registry, a_node_that_left_has_no_guests) {
  FakeAgent& a = add_node("a", "lab-a");
  a.telemetry.guests = 1;
  pass(30'000);
  ASSERT_EQ(core->node(a.id, clock.now())->telemetry.guests, 1U);

  tell(a, wire::Leave{"moving house"});

  EXPECT_EQ(core->node(a.id, clock.now())->telemetry.guests, 0U);
}

TEST_F(Registry, telemetry_is_rolled_up_when_its_bucket_is_over) {
  FakeAgent& a = add_node("a", "lab-a");
  a.telemetry.cpu_percent = 40;
  a.telemetry.gpus = {{.index = 0, .utilisation_percent = 80, .temperature_c = 71}};
  pass(900'000);

  ASSERT_GE(tables.rollups.size(), 2U);
  const RollupRow& row = tables.rollups[1];
  EXPECT_EQ(row.samples, 60U);
  EXPECT_DOUBLE_EQ(row.cpu_percent, 40);
  EXPECT_DOUBLE_EQ(row.gpus.at(0).utilisation_percent, 80);
  EXPECT_EQ(row.gpus.at(0).temperature_c_max, 71);
  EXPECT_DOUBLE_EQ(row.lending_share, 1);
  EXPECT_GE(core->node(a.id, clock.now())->row.history.exposure_s, 800U);
}

}  // namespace
}  // namespace rn::coordinator
