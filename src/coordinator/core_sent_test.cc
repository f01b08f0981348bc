// SPDX-License-Identifier: Apache-2.0
// What the coordinator itself sends to nodes (images, submitted folders), planned beside the
// copies.
#include <gtest/gtest.h>

#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

constexpr std::uint64_t kMegabyte = 1'000'000;
constexpr std::size_t kPieces = 25;
constexpr std::uint64_t kPieceBytes = 4 * kMegabyte;

/// The coordinator and a laboratory behind one line of 100 Mbit/s out of their building; outside of
/// it a store, and a machine that starts a job and needs its image.
class Sending : public CoreSite {
 protected:
  explicit Sending(const std::string& our_name = "coordinator") {
    reclaim::TopologyDeclaration declared;
    declared.switches = {{"campus", "", {}}, {"building-a", "campus", {12.5e6, 12.5e6, 0.001}}};
    declared.nodes = {
        {"a", "building-a", {125e6, 125e6, 0}}, {our_name, "building-a", {125e6, 125e6, 0}}};
    config.topology = *reclaim::Topology::make(declared);
  }

  void build() {
    restart();
    Image image = a_image("base");
    image.bytes = kPieces * kPieceBytes;
    for (std::size_t i = 0; i < kPieces; ++i) image.blobs.push_back(piece(i));
    ASSERT_TRUE(run(Core::system_caller(), AddImage{image}));
    for (const char* name : {"a", "c"}) add_node(name, std::string("lab-") + name);
    FakeAgent& store = add_node("store", "lab-store");
    store.hello.contract.lends = false;
    update(store);
    store.lending = LendingState::kNotLending;
    settle();
    running_ = running(only("lab-a"));
    starting_ = submit(only("lab-c"));
    pass(2000);
    ASSERT_EQ(state(starting_), JobState::kStarting) << core->why(starting_, clock.now()).value();
    tell(store, wire::Holdings{{running_}});
    pass(config.heartbeat_ms + 500);
  }

  static Digest piece(std::size_t i) {
    return crypto::sha256(as_bytes("piece " + std::to_string(i)));
  }

  static JobSpec only(const std::string& lab) {
    JobSpec spec = a_spec();
    spec.only_labs = {lab};
    return spec;
  }

  void update(FakeAgent& agent) {
    tell(agent, wire::NodeUpdate{agent.hello.facts, agent.hello.contract, agent.hello.address});
  }

  /// What the shell sees of one node.
  void sends(
      const std::string& to,
      std::vector<Digest> asked,
      std::uint64_t waiting,
      std::uint64_t sent = 0
  ) {
    handle(BlobsSent{{{node(to).id, std::move(asked), waiting, sent}}});
  }

  /// Of its image, with so much on its way.
  void sends_image(std::uint64_t waiting, std::uint64_t sent = 0) {
    sends("c", {piece(0)}, waiting, sent);
  }

  void copies(std::uint64_t bytes, std::uint32_t deadline_ms = 0) {
    tell(node("a"), wire::Transfers{{copy_report(running_, bytes, deadline_ms)}, 0});
  }

  /// Mbit/s.
  double rate_to(const std::string& name) {
    const auto told = paced.find(node(name).id);
    EXPECT_NE(told, paced.end()) << name << " was never paced";
    return told == paced.end() ? -1 : static_cast<double>(told->second) / 1e6;
  }

  wire::TransferRate copy() {
    const auto message = node("a").last<wire::TransferRates>();
    EXPECT_EQ(message.rates.size(), 1u);
    return message.rates.empty() ? wire::TransferRate{} : message.rates[0];
  }

  double copy_rate() { return static_cast<double>(copy().rate_bps) / 1e6; }

  std::string why() { return core->why(starting_, clock.now()).value(); }

  JobId running_;
  JobId starting_;
};

TEST_F(Sending, pieces_of_an_image_go_as_fast_as_the_lines_from_the_coordinator_to_the_node) {
  build();

  sends_image(8 * kMegabyte);

  EXPECT_NEAR(rate_to("c"), 95, 0.1) << "at once: it is sent already";
  EXPECT_EQ(core->metrics().fetches_awaited, 1u);
  EXPECT_EQ(core->metrics().transfers, 0u);
  EXPECT_NE(
      why().find("its image comes from the coordinator, 104 MB left at 95 Mbit/s"),
      std::string::npos
  ) << why();
}

TEST_F(Sending, a_promised_evacuation_arrives_in_time_beside_them) {
  build();
  say(node("a"), running_, job(running_).epoch, AttemptState::kNoticed);
  double evacuated = 100e6;
  std::uint64_t sent = 0;
  double at_s = 0;
  double least = 1e9;
  for (; evacuated > 0 && at_s < 25; at_s += 0.25) {
    sends_image(8 * kMegabyte, sent);
    copies(static_cast<std::uint64_t>(evacuated), static_cast<std::uint32_t>(25'000 - at_s * 1000));
    pass(250);
    ASSERT_TRUE(copy().is_promised) << at_s;
    EXPECT_LE(rate_to("c") + copy_rate(), 95.1) << at_s;
    if (evacuated > 30e6) least = std::min(least, rate_to("c"));
    evacuated -= copy_rate() * 1e6 / 8 * 0.25;
    sent += static_cast<std::uint64_t>(rate_to("c") * 1e6 / 8 * 0.25);
  }

  EXPECT_LE(at_s, 0.95 * 25);
  EXPECT_GT(least, 20) << "a quarter of the line: it has time";
  EXPECT_EQ(count_events("evacuation.refused"), 0u);
}

TEST_F(Sending, what_a_start_waits_for_comes_before_checkpoints_and_what_nothing_waits_for_after) {
  build();

  sends_image(8 * kMegabyte);
  copies(500 * kMegabyte);
  pass(250);
  EXPECT_NEAR(rate_to("c"), 95, 0.1);
  EXPECT_LT(copy_rate(), 0.1);

  say(node("c"), starting_, job(starting_).epoch, AttemptState::kRunning);
  sends_image(8 * kMegabyte, 3 * kMegabyte);
  copies(500 * kMegabyte);
  pass(250);
  EXPECT_LT(rate_to("c"), 0.1);
  EXPECT_NEAR(copy_rate(), 95, 0.1);
  EXPECT_EQ(core->metrics().fetches_others, 1u);
}

TEST_F(Sending, the_lines_of_the_receiver_count_also_for_what_comes_from_here) {
  build();
  node("c").hello.facts.uplink_bps = 50'000'000;
  update(node("c"));

  sends_image(8 * kMegabyte);

  EXPECT_NEAR(rate_to("c"), 47.5, 0.1);
}

TEST_F(Sending, an_owner_who_cuts_transfers_cuts_those_of_agents) {
  build();
  node("c").hello.facts.transfers_bps = 40'000'000;
  node("c").hello.facts.are_transfers_cut = true;
  update(node("c"));

  sends_image(8 * kMegabyte);
  pass(250);

  EXPECT_NEAR(rate_to("c"), 95, 0.1) << "their kernel knows nothing of our connections";
}

TEST_F(Sending, what_is_left_of_an_image_never_grows_by_asking_again) {
  build();

  sends("c", {piece(4), piece(5), piece(3)}, kMegabyte);
  EXPECT_NE(why().find("77 MB left"), std::string::npos) << why();
  pass(250);
  sends("c", {piece(0), crypto::sha256(as_bytes("a file"))}, kMegabyte);

  EXPECT_NE(why().find("77 MB left"), std::string::npos) << why();
}

TEST_F(Sending, files_of_a_submitted_folder_count_as_far_as_they_are_asked_for) {
  build();

  sends("c", {crypto::sha256(as_bytes("a file"))}, 2 * kMegabyte);

  EXPECT_NEAR(rate_to("c"), 95, 0.1);
  EXPECT_NE(why().find("its files come from the coordinator, 2.0 MB left"), std::string::npos)
      << why();
}

TEST_F(Sending, a_node_without_an_attempt_is_served_after_all_others) {
  build();

  sends("store", {piece(0)}, 8 * kMegabyte);
  copies(500 * kMegabyte);
  pass(250);

  EXPECT_NEAR(copy_rate(), 95, 0.1) << "I15";
  EXPECT_LT(rate_to("store"), 0.1);
  EXPECT_EQ(core->metrics().fetches_awaited, 0u);
}

TEST_F(Sending, a_node_that_does_not_read_gives_its_line_to_others) {
  build();

  for (int i = 0; i < 8; ++i) {
    sends_image(8 * kMegabyte);
    copies(500 * kMegabyte);
    pass(250);
  }

  EXPECT_LE(rate_to("c"), 1.1);
  EXPECT_GT(copy_rate(), 93);
}

TEST_F(Sending, what_is_over_is_planned_no_more) {
  build();
  sends_image(8 * kMegabyte);

  handle(BlobsSent{});

  EXPECT_EQ(core->metrics().fetches_awaited, 0u);
  EXPECT_EQ(why().find("comes from the coordinator"), std::string::npos) << why();
}

TEST_F(Sending, what_the_shell_tells_no_more_of_is_over_after_two_seconds) {
  build();
  sends_image(8 * kMegabyte);

  pass(2500);

  EXPECT_EQ(core->metrics().fetches_awaited, 0u);
}

TEST_F(Sending, the_same_node_told_twice_or_one_that_nobody_knows_is_one_or_none) {
  build();
  const BlobsToNode told{node("c").id, {piece(0)}, kMegabyte, 0};
  const BlobsToNode stranger{NodeId("n-nobody"), {piece(0)}, kMegabyte, 0};

  handle(BlobsSent{{told, stranger, told}});

  EXPECT_EQ(core->metrics().fetches_awaited, 1u);
  EXPECT_EQ(core->metrics().fetches_others, 0u);
  EXPECT_EQ(paced.size(), 1u);
}

/// It is declared by the name of its machine.
class OnACampusServer : public Sending {
 protected:
  OnACampusServer() : Sending("campus-server") { config.hostname = "campus-server"; }
};

TEST_F(OnACampusServer, the_coordinator_is_found_by_its_machines_name) {
  build();

  sends_image(8 * kMegabyte);

  EXPECT_NEAR(rate_to("c"), 95, 0.1);
}

/// Nobody said where it hangs.
class Somewhere : public Sending {
 protected:
  Somewhere() : Sending("somebody-else") {}
};

TEST_F(Somewhere, without_a_place_it_hangs_at_the_root_by_a_line_that_is_never_full) {
  build();

  sends_image(8 * kMegabyte);
  EXPECT_EQ(paced.at(node("c").id), 0u) << "no line is known between them";

  sends("a", {piece(0)}, 8 * kMegabyte);
  pass(250);
  EXPECT_NEAR(rate_to("a"), 95, 0.1) << "the building's line, inwards";
}

}  // namespace
}  // namespace rn::coordinator
