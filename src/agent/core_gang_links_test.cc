// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A node with rank 1 of a gang of three.
class CoreGangLinks : public CoreTest {
 protected:
  CoreGangLinks() {
    gang = GangPlace{GangId("g-1"), 1, 3, 5, GangEnds::kAll, GangRuns::kCommand};
    contract.gangs = true;
  }

  void go() {
    wire::GangGo word;
    word.job = JobId("j-1");
    word.epoch = kEpoch;
    word.members = members_;
    tell(word);
  }

  void run_member() {
    start();
    prepare();
    go();
    answer<warden_wire::StartGuest>();
    set_guest(GuestState::kRunning);
    push_state();
    ASSERT_EQ(state(), AttemptState::kRunning);
  }

  std::vector<wire::GangPeer> members_ = {
      {0, JobId("j-0"), NodeId("n-0"), "n-0:7445", {}},
      {1, JobId("j-1"), NodeId("n-1"), "n-1:7445", {}},
      {2, JobId("j-2"), NodeId("n-2"), "n-2:7445", {}}};
};

TEST_F(CoreGangLinks, a_member_has_links_from_the_word_to_go_until_it_is_told_to_end) {
  start();
  prepare();
  EXPECT_THAT(core->linked_guests(), IsEmpty()) << "it is ready, and nothing else";
  go();
  ASSERT_EQ(core->linked_guests().size(), 1u);
  const LinkedGuest linked = core->linked_guests().front();
  EXPECT_EQ(linked.name, (GuestName{JobId("j-1"), kEpoch}));
  EXPECT_EQ(linked.place.rank, 1u);
  EXPECT_EQ(linked.disk, "/disk/1");
  EXPECT_EQ(linked.members, members_);

  answer<warden_wire::StartGuest>();
  set_guest(GuestState::kRunning);
  push_state();
  EXPECT_EQ(core->linked_guests().size(), 1u);
  order_stop(StopMode::kSaveFirst, AttemptEnd::kMigrated, 60'000);
  EXPECT_EQ(core->linked_guests().size(), 1u) << "what it is told to save may need all the others";
  order_stop(StopMode::kAtOnce, AttemptEnd::kCancelled);
  EXPECT_THAT(core->linked_guests(), IsEmpty());
}

TEST_F(CoreGangLinks, renewed_tickets_are_those_that_count) {
  run_member();
  members_[2].ticket_out.expiry_wall_ms = 77;

  go();

  EXPECT_EQ(core->linked_guests().front().members[2].ticket_out.expiry_wall_ms, 77);
}

TEST_F(CoreGangLinks, what_is_fenced_has_none) {
  run_member();

  tell(wire::HeartbeatAck{1, {{JobId("j-1"), kEpoch, false, false}}, {}, 0});

  EXPECT_THAT(core->linked_guests(), IsEmpty());
}

TEST_F(CoreGangLinks, a_job_of_its_own_has_none_and_its_network_no_addresses) {
  gang.reset();
  start();
  prepare();

  EXPECT_FALSE(asked<warden_wire::StartGuest>().front().gang);
  EXPECT_EQ(asked<warden_wire::StartGuest>().front().env.at("RECLAIM_NODES_IPS"), "127.0.0.1");
  EXPECT_THAT(core->linked_guests(), IsEmpty());
}

TEST_F(CoreGangLinks, a_member_is_told_where_the_others_are) {
  start();
  prepare();
  go();

  const auto request = asked<warden_wire::StartGuest>().front();
  EXPECT_EQ(request.gang, (warden_wire::GangMember{1, 3}));
  EXPECT_EQ(request.env.at("RECLAIM_NODES_IPS"), "100.68.0.1\n100.68.0.2\n100.68.0.3");
  EXPECT_EQ(request.env.at("RECLAIM_MASTER_NODE_IP"), "100.68.0.1");
  EXPECT_EQ(request.env.at("MASTER_ADDR"), "100.68.0.1");
  EXPECT_EQ(request.env.at("MASTER_PORT"), "29500");
}

TEST_F(CoreGangLinks, where_they_meet_may_be_the_submitters_choice) {
  spec.env["MASTER_PORT"] = "12345";
  start();
  prepare();
  go();

  EXPECT_EQ(asked<warden_wire::StartGuest>().front().env.at("MASTER_PORT"), "12345");
}

TEST_F(CoreGangLinks, what_broke_here_is_told_with_each_report_and_before_its_guests_end) {
  run_member();
  EXPECT_EQ(core->reports(clock.now()).front().links_broken, 0u);

  feed(LinkBroken{{JobId("j-1"), kEpoch}});
  feed(LinkBroken{{JobId("j-1"), kEpoch}});
  feed(LinkBroken{{JobId("j-1"), {1, 9}}});
  feed(LinkBroken{{JobId("j-2"), kEpoch}});

  ASSERT_EQ(core->reports(clock.now()).size(), 1u);
  EXPECT_EQ(core->reports(clock.now()).front().links_broken, 2u);
}

TEST_F(CoreGangLinks, a_job_of_its_own_has_no_link_that_could_break) {
  gang.reset();
  start();
  prepare();

  feed(LinkBroken{{JobId("j-1"), kEpoch}});

  EXPECT_EQ(core->reports(clock.now()).front().links_broken, 0u);
}

TEST_F(CoreGangLinks, an_agent_that_comes_back_has_broken_the_links_of_the_guests_that_are_left) {
  run_member();

  crash_and_restart();
  EXPECT_EQ(core->reports(clock.now()).front().links_broken, 1u);
  crash_and_restart();
  EXPECT_EQ(core->reports(clock.now()).front().links_broken, 2u) << "it was journalled";
}

TEST_F(CoreGangLinks, who_had_no_guest_yet_had_no_links_when_its_agent_went) {
  start();
  prepare();

  crash_and_restart();

  EXPECT_EQ(core->reports(clock.now()).front().links_broken, 0u);
}

TEST_F(CoreGangLinks, a_node_knows_what_its_agent_and_its_warden_know) {
  facts.features = {kGangsFeature, kKeepsSetsFeature};
  start();
  EXPECT_THAT(sent<wire::Hello>().front().facts.features, ElementsAre(kKeepsSetsFeature))
      << "an older warden says none, and what is kept here is not its matter";

  warden.features = {"another", kGangsFeature};
  push_state();
  const auto both = ElementsAre(kGangsFeature, kKeepsSetsFeature);
  EXPECT_THAT(sent<wire::NodeUpdate>().back().facts.features, both);

  feed(FactsChanged{facts});
  EXPECT_THAT(sent<wire::NodeUpdate>().back().facts.features, both);
  facts.features.clear();
  feed(FactsChanged{facts});
  EXPECT_THAT(sent<wire::NodeUpdate>().back().facts.features, IsEmpty());
}

}  // namespace
}  // namespace rn::agent
