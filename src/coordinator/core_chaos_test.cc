// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/sanitizers.h"
#include "coordinator/core_harness.h"

// Random sites: nodes come, go and are taken back, the coordinator is killed, answers are lost,
// messages are repeated. Tables check every row (I4, I12, conditional writes); afterwards the
// faults stop and every job has to succeed (I1, I13). The seed of a failure is printed.

namespace rn::coordinator {
namespace {

using AgentAnswer = FakeAgent::Answer;

class Chaos : public CoreSite, public ::testing::WithParamInterface<std::uint64_t> {
 protected:
  struct Seen {
    std::uint32_t durable = 0;
    std::size_t condemned = 0;
  };

  void SetUp() override {
    log::set_level(log::Level::kWarning);
    config.min_residence_s = 20;
    config.home_settle_s = 5;
    config.drain_wait_ms = 20'000;
    config.crash_after_resume_s = 0;
    start();
    for (const char* name : {"a", "b", "c"}) add_node(name, std::string("lab-") + name);
    add_node("store", "storage").hello.contract.lends = false;
    connect(node("store"));
    settle();
  }

  void TearDown() override { log::set_level(log::Level::kInfo); }

  FakeAgent& any() {
    auto at = agents.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(dice.below(agents.size())));
    return at->second;
  }

  /// One step of one attempt's life, as the node that holds it sees it.
  void live(FakeAgent& agent) {
    if (agent.connection == 0 || agent.attempts.empty()) return;
    auto at = agent.attempts.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(dice.below(agent.attempts.size())));
    const auto [id, epoch] = at->first;
    const AttemptState phase = at->second.state;
    const bool is_taken_back = agent.lending == LendingState::kReclaimed;
    if (phase < AttemptState::kRunning)
      return hear(agent, id, epoch, say(agent, id, epoch, AttemptState::kRunning));
    if (is_taken_back && phase == AttemptState::kRunning)
      return hear(agent, id, epoch, say(agent, id, epoch, AttemptState::kNoticed));
    if (is_taken_back)
      return hear(
          agent, id, epoch, say(agent, id, epoch, AttemptState::kEnded, AttemptEnd::kReclaimed)
      );
    if (dice.below(4) != 0) return save(agent, id, epoch);
    static constexpr AttemptEnd kEnds[] = {
        AttemptEnd::kSucceeded, AttemptEnd::kLost, AttemptEnd::kMigrated};
    const AttemptEnd end = is_calm ? AttemptEnd::kSucceeded : kEnds[dice.below(3)];
    hear(agent, id, epoch, say(agent, id, epoch, AttemptState::kEnded, end));
  }

  /// An agent that is told that its epoch is stale stops.
  void hear(FakeAgent& agent, const JobId& id, LeaseEpoch epoch, const wire::AttemptAck& ack) {
    if (ack.job == id && ack.epoch == epoch && !ack.is_accepted) agent.attempts.erase({id, epoch});
  }

  void obey_verdicts(FakeAgent& agent) {
    const auto drop_stale = [&](const auto& told) {
      for (const auto& verdict : told.verdicts)
        if (!verdict.is_current) agent.attempts.erase({verdict.job, verdict.epoch});
    };
    for (const wire::Message& message : agent.inbox) {  // not copied: 600 times 200 of them
      if (const auto* ack = std::get_if<wire::HeartbeatAck>(&message)) drop_stale(*ack);
      if (const auto* welcome = std::get_if<wire::Welcome>(&message)) drop_stale(*welcome);
    }
    for (const auto& stop : agent.received<wire::StopAttempt>())
      if (agent.attempts.contains({stop.job, stop.epoch}) && agent.connection != 0)
        say(agent, stop.job, stop.epoch, AttemptState::kEnded, stop.end);
    if (agent.inbox.size() > 200) agent.inbox.erase(agent.inbox.begin(), agent.inbox.begin() + 100);
  }

  void save(FakeAgent& agent, const JobId& id, LeaseEpoch epoch) {
    GenerationRef ref;
    ref.job = id;
    ref.epoch = epoch;
    ref.generation = ++made[id];
    ref.manifest = crypto::sha256(as_bytes(id.str() + to_string(epoch) + std::to_string(made[id])));
    FakeAgent& holder = agent.id == node("store").id ? node("a") : node("store");
    const wire::CommitGeneration message{.generation = ref, .receipts = {receipt(holder, ref)}};
    old.push_back({agent.id, message});
    const LeaseEpoch current = tables.jobs.at(id).job.epoch;
    tell(agent, message);
    if (tables.generations.contains({id, ref.generation})) {
      EXPECT_EQ(tables.jobs.at(id).job.epoch, epoch) << "I3: a stale epoch's generation was taken";
      EXPECT_EQ(current, epoch);
    }
  }

  void replay() {
    if (old.empty()) return;
    const auto& [from, message] = old[dice.below(old.size())];
    FakeAgent& agent = agents.at(from);
    if (agent.connection != 0) tell(agent, message);
  }

  void misbehave() {
    FakeAgent& agent = any();
    switch (dice.below(10)) {
      case 0:
        if (agent.connection != 0) disconnect(agent);
        return;
      case 1:
        connect(agent);
        return;
      case 2:
        agent.lending = dice.below(2) == 0 ? LendingState::kReclaimed : LendingState::kOpen;
        return;
      case 3:
        agent.to_probe = static_cast<AgentAnswer>(dice.below(3));
        return;
      case 4:
        agent.to_commit = static_cast<AgentAnswer>(dice.below(3));
        return;
      case 5:
        agent.beats = dice.below(3) != 0;
        return;
      case 6:
        if (dice.below(10) == 0) restart();
        return;
      case 7:
        return replay();
      case 8:
        if (dice.below(5) == 0) agent.attempts.clear();  // its disk is gone
        return;
      default:
        if (dice.below(4) == 0 && submitted.size() < 12) submitted.push_back(submit());
    }
  }

  void check() {
    for (const auto& [id, row] : tables.jobs) {
      EXPECT_GE(row.job.durable.generation, seen[id].durable) << "I7: progress went back";
      seen[id].durable = row.job.durable.generation;
      EXPECT_LE(core->find_job(id) == nullptr ? 0 : core->attempts(id).size(), 500U);
    }
  }

  SeededRng dice{GetParam()};
  bool is_calm = false;
  std::vector<JobId> submitted;
  std::map<JobId, std::uint32_t> made;
  std::map<JobId, Seen> seen;
  std::vector<std::pair<NodeId, wire::Message>> old;
};

TEST_P(Chaos, no_row_breaks_an_invariant_and_every_job_succeeds_once_faults_stop) {
  for (int step = 0; step < 600; ++step) {
    if (dice.below(3) == 0) misbehave();
    live(any());
    pass(250 * static_cast<std::int64_t>(1 + dice.below(8)));
    for (auto& [id, agent] : agents) obey_verdicts(agent);
    check();
    if (HasFailure()) FAIL() << "seed " << GetParam() << ", step " << step;
  }

  is_calm = true;
  for (auto& [id, agent] : agents) {
    agent.to_probe = agent.to_commit = AgentAnswer::kOffer;
    agent.lending = LendingState::kOpen;
    agent.beats = true;
    connect(agent);
  }
  for (int step = 0; step < 400; ++step) {
    for (auto& [id, agent] : agents) {
      live(agent);
      obey_verdicts(agent);
    }
    pass(1000);
  }
  for (const JobId& id : submitted)
    EXPECT_EQ(tables.jobs.at(id).job.state, JobState::kSucceeded)
        << "seed " << GetParam() << ": " << core->why(id, clock.now()).value();
  EXPECT_FALSE(submitted.empty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, Chaos, ::testing::Range<std::uint64_t>(1, kIsSanitized ? 9 : 33));

}  // namespace
}  // namespace rn::coordinator
