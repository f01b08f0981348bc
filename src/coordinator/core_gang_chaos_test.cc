// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/sanitizers.h"
#include "coordinator/core_gang_fixture.h"

// Gangs on random sites, as core_chaos_test.cc has it of jobs: after each step members are of one
// epoch, go on from one set and count alike (G1, G3, G4, G6 of ADR 0027); afterwards the faults
// stop and every gang has to succeed.

namespace rn::coordinator {
namespace {

using AgentAnswer = FakeAgent::Answer;

class GangChaos : public GangSite, public ::testing::WithParamInterface<std::uint64_t> {
 protected:
  using Key = std::pair<JobId, LeaseEpoch>;

  void SetUp() override {
    log::set_level(log::Level::kWarning);
    config.drain_wait_ms = 20'000;
    config.gang_save_s = 20;
    GangSite::SetUp();
  }

  void TearDown() override { log::set_level(log::Level::kInfo); }

  FakeAgent& any() {
    auto at = agents.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(dice.below(agents.size())));
    return at->second;
  }

  void hear(FakeAgent& agent, const Key& key, const wire::AttemptAck& ack) {
    if (ack.job == key.first && ack.epoch == key.second && !ack.is_accepted)
      agent.attempts.erase(key);
  }

  /// One step of one member's life, as its node sees it.
  void live(FakeAgent& agent) {
    if (agent.connection == 0 || agent.attempts.empty()) return;
    auto at = agent.attempts.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(dice.below(agent.attempts.size())));
    const Key key = at->first;
    const AttemptState phase = at->second.state;
    const auto tell_it = [&](AttemptState next, AttemptEnd end = AttemptEnd::kNone) {
      hear(agent, key, say(agent, key.first, key.second, next, end));
    };
    const bool is_taken_back = agent.lending == LendingState::kReclaimed;
    if (is_taken_back && phase < AttemptState::kNoticed) return tell_it(AttemptState::kNoticed);
    if (is_taken_back) return tell_it(AttemptState::kEnded, AttemptEnd::kReclaimed);
    if (phase < AttemptState::kPreparing) return tell_it(AttemptState::kPreparing);
    if (phase < AttemptState::kReady) return tell_it(AttemptState::kReady);
    if (phase < AttemptState::kRunning) {
      if (told_to_go.contains(key)) tell_it(AttemptState::kRunning);
      return;
    }
    if (dice.below(4) != 0) return save(agent, key);
    static constexpr AttemptEnd kEnds[] = {
        AttemptEnd::kSucceeded, AttemptEnd::kLost, AttemptEnd::kMigrated};
    tell_it(AttemptState::kEnded, is_calm ? AttemptEnd::kSucceeded : kEnds[dice.below(3)]);
  }

  void save(FakeAgent& agent, const Key& key) {
    GenerationRef ref;
    ref.job = key.first;
    ref.epoch = key.second;
    ref.generation = ++made[key.first];
    ref.step = std::int64_t{key.second.generation} * 1'000'000 +
               std::int64_t{key.second.attempt} * 1000 + ++saves[key];
    const std::string name =
        key.first.str() + to_string(key.second) + std::to_string(ref.generation);
    ref.manifest = crypto::sha256(as_bytes(name));
    tell(
        agent,
        wire::CommitGeneration{
            .generation = ref,
            .receipts = {receipt(node("store"), ref), receipt(node("archive"), ref)}}
    );
  }

  void obey(FakeAgent& agent) {
    const auto drop_stale = [&](const auto& told_here) {
      for (const auto& verdict : told_here.verdicts)
        if (!verdict.is_current) agent.attempts.erase({verdict.job, verdict.epoch});
    };
    const std::vector<wire::Message> inbox = std::move(agent.inbox);
    agent.inbox.clear();
    for (const wire::Message& message : inbox) {
      if (const auto* ack = std::get_if<wire::HeartbeatAck>(&message)) drop_stale(*ack);
      if (const auto* welcome = std::get_if<wire::Welcome>(&message)) drop_stale(*welcome);
      if (const auto* go = std::get_if<wire::GangGo>(&message))
        told_to_go.insert({go->job, go->epoch});
      const auto* stop = std::get_if<wire::StopAttempt>(&message);
      if (stop != nullptr && agent.attempts.contains({stop->job, stop->epoch}) &&
          agent.connection != 0)
        say(agent, stop->job, stop->epoch, AttemptState::kEnded, stop->end);
    }
  }

  void misbehave() {
    FakeAgent& agent = any();
    switch (dice.below(9)) {
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
        if (dice.below(5) == 0) agent.attempts.clear();  // its disk is gone
        return;
      default:
        if (dice.below(4) == 0 && submitted.size() < 4)
          submitted.push_back(submit_gang(a_gang(static_cast<std::uint32_t>(2 + dice.below(2)))));
    }
  }

  void check(const GangId& id) {
    const GangRow& row = gang(id);
    EXPECT_GE(row.set.mark, marks[id]) << "G4: a set went back";
    marks[id] = std::max(marks[id], row.set.mark);
    const Job& first = job(row.members.front());
    for (std::uint32_t rank = 0; rank < row.size; ++rank) {
      const Job& one = job(row.members[rank]);
      EXPECT_EQ(one.epoch, row.epoch) << "G1";
      EXPECT_EQ(one.restarts, first.restarts) << "G6";
      EXPECT_EQ(one.displacements, first.displacements) << "G6";
      EXPECT_EQ(is_terminal(one.state), row.state == GangState::kOver) << "G6";
      if (row.epoch.is_none()) continue;
      const auto attempt = tables.attempts.find({one.id, row.epoch});
      ASSERT_NE(attempt, tables.attempts.end()) << "G1: a member has no attempt of its epoch";
      if (row.state != GangState::kPreparing) continue;
      const std::uint32_t in_set = row.set.refs.empty() ? 0 : row.set.refs[rank].generation;
      EXPECT_EQ(attempt->second.attempt.resumed_generation, in_set) << "G3";
    }
    for (const GenerationRef& ref : row.set.refs) {
      EXPECT_TRUE(tables.generations.contains({ref.job, ref.generation})) << "G3";
      EXPECT_EQ(ref.step, row.set.mark) << "G3";
      EXPECT_EQ(ref.epoch, row.set.epoch) << "G3";
    }
  }

  SeededRng dice{GetParam()};
  bool is_calm = false;
  std::vector<GangId> submitted;
  std::map<GangId, std::int64_t> marks;
  std::map<JobId, std::uint32_t> made;
  std::map<Key, std::int64_t> saves;
  std::set<Key> told_to_go;
};

TEST_P(GangChaos, members_stay_together_and_every_gang_succeeds_once_faults_stop) {
  submitted.push_back(submit_gang(a_gang(3)));
  marks[submitted.front()] = -1;
  for (int step = 0; step < 500; ++step) {
    if (dice.below(4) == 0) misbehave();
    live(any());
    pass(250 * static_cast<std::int64_t>(1 + dice.below(8)));
    for (auto& [id, agent] : agents) obey(agent);
    for (const GangId& id : submitted) {
      marks.try_emplace(id, -1);
      check(id);
    }
    if (HasFailure()) FAIL() << "seed " << GetParam() << ", step " << step;
  }

  is_calm = true;
  for (auto& [id, agent] : agents) {
    agent.to_probe = agent.to_commit = AgentAnswer::kOffer;
    agent.lending = LendingState::kOpen;
    agent.beats = true;
    connect(agent);
  }
  for (int step = 0; step < 600; ++step) {
    for (auto& [id, agent] : agents) {
      live(agent);
      obey(agent);
    }
    pass(1000);
  }
  for (const GangId& id : submitted) {
    check(id);
    EXPECT_EQ(gang(id).state, GangState::kOver)
        << "seed " << GetParam() << ": " << core->gang(id)->reason;
    EXPECT_TRUE(are_all(id, JobState::kSucceeded)) << "seed " << GetParam();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Seeds, GangChaos, ::testing::Range<std::uint64_t>(1, kIsSanitized ? 5 : 17)
);

}  // namespace
}  // namespace rn::coordinator
