// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "coordinator/core_harness.h"

namespace rn::coordinator {

/// Four nodes that take members, each in a lab of its own, and two that only keep copies.
class GangSite : public CoreSite {
 protected:
  void SetUp() override {
    start();
    for (const char* name : {"a", "b", "c", "d"}) {
      FakeAgent& agent = add_node(name, std::string("lab-") + name);
      agent.hello.contract.gangs = true;
      agent.hello.facts.features = {kGangsFeature, kKeepsSetsFeature};
      agent.hello.facts.images = {a_image("base").digest};
      connect(agent);
    }
    for (const char* name : {"store", "archive"}) {
      FakeAgent& agent = add_node(name, std::string("lab-") + name);
      agent.hello.contract.lends = false;
      agent.hello.facts.features = {kKeepsSetsFeature};
      connect(agent);
    }
    settle();
  }

  static api::GangRequest a_gang(std::uint32_t size = 3, GangSaves saves = GangSaves::kAll) {
    api::GangRequest request;
    request.spec = a_spec();
    request.size = size;
    request.saves = saves;
    return request;
  }

  GangId submit_gang(const api::GangRequest& request = a_gang(), std::string key = "") {
    const auto answer =
        run(admin(), SubmitGang{.idempotency_key = std::move(key), .request = request});
    EXPECT_TRUE(answer) << answer.error().describe();
    return answer ? std::get<api::GangAnswer>(*answer).gang : GangId();
  }

  const GangRow& gang(const GangId& id) { return tables.gangs.at(id); }

  JobId member(const GangId& id, std::uint32_t rank) { return gang(id).members.at(rank); }

  FakeAgent& host(const GangId& id, std::uint32_t rank) {
    const Job& j = job(member(id, rank));
    return agents.at(tables.attempts.at({j.id, j.epoch}).attempt.node);
  }

  void tell_phase(const GangId& id, std::uint32_t rank, AttemptState phase) {
    const JobId m = member(id, rank);
    say(host(id, rank), m, job(m).epoch, phase);
  }

  void tell_end(const GangId& id, std::uint32_t rank, AttemptEnd end, std::int32_t exit_code = 0) {
    const JobId m = member(id, rank);
    say(host(id, rank), m, job(m).epoch, AttemptState::kEnded, end, exit_code);
  }

  void all_tell_phase(const GangId& id, AttemptState phase) {
    for (std::uint32_t rank = 0; rank < gang(id).size; ++rank) tell_phase(id, rank, phase);
  }

  /// Those who have not ended yet leave as they were told to.
  void rest_ends(const GangId& id, AttemptEnd end = AttemptEnd::kMigrated) {
    for (std::uint32_t rank = 0; rank < gang(id).size; ++rank) {
      const Job& j = job(member(id, rank));
      if (tables.attempts.at({j.id, j.epoch}).attempt.state != AttemptState::kEnded)
        tell_end(id, rank, end);
    }
  }

  /// Placed, behind the barrier.
  void prepare(const GangId& id, std::int64_t within_ms = 4000) {
    for (std::int64_t done = 0; done < within_ms && gang(id).state == GangState::kWaiting;
         done += 250)
      pass(250);
    ASSERT_EQ(gang(id).state, GangState::kPreparing) << core->gang(id)->reason;
    all_tell_phase(id, AttemptState::kPreparing);
  }

  void begin(const GangId& id, std::int64_t within_ms = 4000) {
    prepare(id, within_ms);
    all_tell_phase(id, AttemptState::kReady);
    ASSERT_EQ(gang(id).state, GangState::kRunning);
    all_tell_phase(id, AttemptState::kStarting);
    all_tell_phase(id, AttemptState::kRunning);
  }

  GangId running_gang(const api::GangRequest& request = a_gang()) {
    const GangId id = submit_gang(request);
    begin(id);
    return id;
  }

  /// A generation of a member's that is durable on the two nodes for copies.
  GenerationRef saved(
      const GangId& id, std::uint32_t rank, std::uint32_t number, std::int64_t mark
  ) {
    GenerationRef ref = generation(member(id, rank), number);
    ref.step = mark;
    const std::string name = ref.job.str() + to_string(ref.epoch) + std::to_string(number);
    ref.manifest = crypto::sha256(as_bytes(name));
    const auto answer = commit_generation(
        host(id, rank), ref, {receipt(node("store"), ref), receipt(node("archive"), ref)}
    );
    EXPECT_TRUE(answer.is_accepted) << answer.reason;
    return ref;
  }

  /// Of the member's job among those that its node got.
  template <class M>
  std::vector<M> told(const GangId& id, std::uint32_t rank) {
    std::vector<M> result;
    for (const M& message : host(id, rank).template received<M>())
      if (message.job == member(id, rank)) result.push_back(message);
    return result;
  }

  std::vector<JobState> states_of_members(const GangId& id) {
    std::vector<JobState> result;
    for (const JobId& m : gang(id).members) result.push_back(state(m));
    return result;
  }

  bool are_all(const GangId& id, JobState wanted) {
    const auto states = states_of_members(id);
    return std::all_of(states.begin(), states.end(), [&](JobState s) { return s == wanted; });
  }

  /// The owner takes the member's machine back.
  void take_back(const GangId& id, std::uint32_t rank, ReclaimKind kind, std::int64_t notice_s) {
    ReclaimRecord record;
    record.id = ReclaimId("r-0000000000000001");
    record.node = host(id, rank).id;
    record.kind = kind;
    record.phase = kind == ReclaimKind::kEmergency ? ReclaimPhase::kCut : ReclaimPhase::kDeclared;
    record.declared_wall_ms = to_ms(clock.now().wall);
    record.declared_ns = to_ns(clock.now().boot);
    record.deadline_ns = record.declared_ns + notice_s * 1'000'000'000;
    tell(host(id, rank), wire::ReclaimReport{record});
  }
};

}  // namespace rn::coordinator
