// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

/// A site whose agents beat by themselves, or, as far as they say nothing new, by one event.
class Beating : public CoreSite {
 public:
  explicit Beating(bool by_one_event) : by_one_event_(by_one_event) {
    start();
    for (const char* name : {"a", "b", "c", "d", "e", "f"})
      add_node(name, std::string("lab-") + (name[0] < 'd' ? "x" : "y"));
    settle();
  }

  void TestBody() override {}

  /// One heartbeat of all, and the ticks until the next.
  void round() {
    std::vector<ConnectionId> still_there;
    std::vector<FakeAgent*> others;
    for (auto& [id, agent] : agents) {
      if (agent.connection == 0) continue;
      const bool is_news = changed_.contains(id) || !agent.attempts.empty();
      if (is_news)
        others.push_back(&agent);
      else
        still_there.push_back(agent.connection);
    }
    changed_.clear();
    if (by_one_event_) {
      handle(StillThere{still_there});
    } else {
      for (const ConnectionId connection : still_there) beat(*agent_on(connection));
    }
    for (FakeAgent* agent : others) beat(*agent);
    for (int tick = 0; tick < 20; ++tick) {
      clock.advance(milliseconds(250));
      handle(Tick{});
    }
  }

  /// Something that owners, users or the network do.
  void happen() {
    FakeAgent& agent = std::next(agents.begin(), static_cast<int>(script_.below(6)))->second;
    switch (script_.below(6)) {
      case 0:
        agent.lending = agent.lending == LendingState::kOpen ? LendingState::kOwnerPresent
                                                             : LendingState::kOpen;
        changed_.insert(agent.id);
        break;
      case 1:
        agent.telemetry.logins = static_cast<std::uint32_t>(script_.below(2));
        agent.telemetry.cpu_percent = static_cast<std::uint32_t>(script_.below(100));
        changed_.insert(agent.id);
        break;
      case 2:
        submit();
        break;
      case 3:
        if (agent.connection == 0)
          connect(agent);
        else
          disconnect(agent);
        changed_.insert(agent.id);
        break;
      default:
        go_on_with_jobs(agent);
    }
  }

  void expect_same(const Beating& other) const {
    EXPECT_EQ(tables.jobs, other.tables.jobs);
    EXPECT_EQ(tables.attempts, other.tables.attempts);
    EXPECT_EQ(tables.nodes, other.tables.nodes);
    EXPECT_EQ(tables.events, other.tables.events);
    EXPECT_EQ(tables.rollups, other.tables.rollups);
    EXPECT_EQ(tables.usage, other.tables.usage);
    EXPECT_EQ(tables.campus_hazard, other.tables.campus_hazard);
    EXPECT_EQ(tables.lab_hazards, other.tables.lab_hazards);
    EXPECT_EQ(tables.node_hazards, other.tables.node_hazards);
    EXPECT_EQ(core->metrics().heartbeats, other.core->metrics().heartbeats);
    const auto here = core->nodes(clock.now());
    const auto there = other.core->nodes(clock.now());
    for (std::size_t i = 0; i < here.size(); ++i) {
      EXPECT_EQ(here[i].row, there[i].row);
      EXPECT_EQ(here[i].silent_ms, there[i].silent_ms);
      EXPECT_EQ(here[i].lending, there[i].lending);
      EXPECT_EQ(here[i].outlook.mean, there[i].outlook.mean);
    }
    for (const auto& [id, agent] : agents)
      EXPECT_EQ(told(agent), told(other.agents.at(id))) << agent.hello.facts.hostname;
  }

  std::size_t placed() const { return count_events("job.placed"); }

  std::size_t lost() const { return count_events("node.lost"); }

 private:
  void go_on_with_jobs(FakeAgent& agent) {
    if (agent.connection == 0) return;
    const auto attempts_there = agent.attempts;
    for (const auto& [key, report] : attempts_there) {
      const bool is_over = report.state == AttemptState::kRunning;
      say(agent,
          key.first,
          key.second,
          is_over ? AttemptState::kEnded : AttemptState::kRunning,
          is_over ? AttemptEnd::kSucceeded : AttemptEnd::kNone);
      changed_.insert(agent.id);
    }
  }

  /// All that it was told, but for acknowledgements that say nothing.
  static std::vector<wire::Message> told(const FakeAgent& agent) {
    std::vector<wire::Message> result;
    for (wire::Message message : agent.inbox) {
      if (auto* ack = std::get_if<wire::HeartbeatAck>(&message)) {
        if (ack->verdicts.empty() && ack->plans.empty() && ack->hazard.per_day.empty()) continue;
        ack->seq = 0;
      }
      result.push_back(std::move(message));
    }
    return result;
  }

  bool by_one_event_;
  SeededRng script_{5};
  std::set<NodeId> changed_;
};

TEST(StillThere, one_event_comes_to_the_same_as_a_heartbeat_of_each_in_which_nothing_is_new) {
  Beating each(false);
  Beating together(true);
  for (int round = 0; round < 300; ++round) {
    for (Beating* site : {&each, &together}) {
      if (round % 4 == 0) site->happen();
      site->round();
    }
  }
  EXPECT_GT(each.placed(), 5u);
  EXPECT_GT(each.lost(), 0u);
  together.expect_same(each);
}

class StillThereSite : public CoreSite {};

TEST_F(StillThereSite, who_is_not_connected_or_has_not_said_hello_is_not_there) {
  start();
  FakeAgent& agent = add_node("a", "lab-a");
  settle();
  const std::uint64_t before = core->metrics().heartbeats;
  handle(AgentConnected{77, agent.id, public_key_of(agent), "10.0.0.1:2"});
  handle(StillThere{{77, 1234}});
  EXPECT_EQ(core->metrics().heartbeats, before);
  handle(StillThere{{agent.connection}});
  EXPECT_EQ(core->metrics().heartbeats, before + 1);
}

}  // namespace
}  // namespace rn::coordinator
