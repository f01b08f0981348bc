// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

/// What a lease grants, and what becomes of it.
class CoreLease : public CoreTest {
 protected:
  void come_back() {
    feed(WardenConnected{});
    answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
    connect();
  }

  wire::ProbeReply probe(const char* job, const Resources& resources) {
    wire::Probe probe;
    probe.job = JobId(job);
    probe.resources = resources;
    tell(probe);
    return sent<wire::ProbeReply>().back();
  }

  void detect() { feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}}); }

  Resources wanted;
};

TEST_F(CoreLease, a_fenced_attempt_is_not_granted_again) {
  start();
  run();
  tell(wire::HeartbeatAck{1, {{JobId("j-1"), kEpoch, false, false}}, {}, 0});
  tell(a_commit());

  EXPECT_FALSE(sent<wire::CommitReply>().back().is_granted);
}

TEST_F(CoreLease, a_second_copy_does_not_go_where_the_first_is_going) {
  start();
  run();
  wire::CopyPlan plan = a_plan();
  plan.wanted = 2;
  plan.copies = {a_peer("n-2"), a_peer("n-3"), a_peer("n-4"), a_peer("n-5")};
  plan.copies[2].failure_domain = "domain-n-3";
  tell(wire::HeartbeatAck{1, {}, {plan}, 0});
  detect();
  finish<TakeSnapshot>(Error{ErrorCode::kUnavailable, "changed while it was read", ""});
  save(1);  // after one that failed: nothing has gone ahead
  finish<CopyGeneration>(Error{ErrorCode::kUnavailable, "no route", ""});  // to n-2

  std::vector<NodeId> peers;
  for (const Work& work : works) {
    if (const auto* copy = std::get_if<CopyGeneration>(&work.body))
      peers.push_back(copy->peer.node);
  }
  EXPECT_EQ(peers, (std::vector{NodeId("n-3"), NodeId("n-5")})) << "n-4 stands beside n-3";
}

}  // namespace
}  // namespace rn::agent
