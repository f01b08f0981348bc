// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include "coordinator/core_evacuation_fixture.h"

namespace rn::coordinator {
namespace {

constexpr std::uint64_t kMega = 1'000'000;

/// Laboratories in a building with one line of 100 Mbit/s out of it; but for the first, their
/// machines take no guests at the moment. Two others and a store are outside.
class ThinLine : public Evacuations {
 protected:
  ThinLine() {
    reclaim::TopologyDeclaration declared;
    declared.switches = {{"campus", "", {}}, {"building", "campus", {12.5e6, 12.5e6, 0}}};
    for (const char* name : {"a", "b", "c", "f", "g", "h"})
      declared.nodes.push_back({name, "building", {125e6, 125e6, 0}});
    config.topology = *reclaim::Topology::make(declared);
  }

  void SetUp() override {
    start();
    for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"})
      add_node(name, std::string("lab-") + name).hello.contract.max_guests = 1;
    add_node("store", "storage").hello.contract.lends = false;
    for (const char* name : {"b", "c", "f", "g", "h"}) node(name).lending = LendingState::kPaused;
    for (auto& [name, id] : names) connect(node(name));
    settle();
  }

  void open(const std::string& at) {
    node(at).lending = LendingState::kOpen;
    beat(node(at));
  }

  /// It is taken back, and what its guest saved last is on its way to where the choice says.
  void leaves(const JobId& id) {
    take_back(where(id), 60, where(id).c_str());
    notice(id);
    ASSERT_EQ(core->evacuation(id)->way, "destination");
    say(node(where(id)), id, job(id).epoch, AttemptState::kSaving);
    say(node(where(id)), id, job(id).epoch, AttemptState::kDraining);
    node(where(id)).inbox.clear();
  }

  void report(
      const JobId& id, const std::string& to, std::uint64_t bytes, std::uint32_t deadline_ms
  ) {
    wire::TransferReport report;
    report.id = 7;
    report.job = id;
    report.epoch = job(id).epoch;
    report.peer = node(to).id;
    report.kind = TransferKind::kEvacuation;
    report.bytes_left = bytes;
    report.is_size_known = is_size_known;
    report.deadline_ms = deadline_ms;
    tell(node(where(id)), wire::Transfers{{report}, 0});
  }

  /// Where the node was told to begin anew; empty: what is under way goes on.
  std::string moved(const JobId& id) {
    std::string to;
    for (const auto& ack : node(where(id)).received<wire::HeartbeatAck>()) {
      for (const wire::CopyPlan& plan : ack.plans)
        if (plan.leaves_others && plan.job == id) to = name_of(plan.copies.front().node.str());
    }
    return to;
  }

  bool is_promised(const JobId& id) {
    const auto told = node(where(id)).last<wire::TransferRates>();
    return !told.rates.empty() && told.rates[0].is_promised;
  }

  bool is_size_known = true;
};

TEST_F(
    ThinLine, where_the_whole_does_not_fit_what_is_new_goes_to_who_has_the_rest_and_is_promised
) {
  const JobId id = saved("a");  // 100 MB of it are durable at the store
  leaves(id);
  const std::string first = chosen(id);

  report(id, first, 150 * kMega, 10'000);
  pass(250);

  EXPECT_EQ(count_events("evacuation.refused"), 1u);
  EXPECT_EQ(moved(id), "store");
  const EventRow& event = last_event("evacuation.chosen");
  EXPECT_EQ(event.data.at("way"), "delta");
  EXPECT_EQ(event.data.at("bytes"), "50000000");
  EXPECT_EQ(name_of(event.data.at("destination")), first) << "it goes on where it has its place";
  EXPECT_NE(event.data.at("because").find("is not promised"), std::string::npos);
  report(id, "store", 50 * kMega, 9'500);
  pass(250);
  EXPECT_TRUE(is_promised(id));
}

TEST_F(ThinLine, where_not_even_what_is_new_fits_a_near_machine_keeps_it) {
  const JobId id = saved("a");
  leaves(id);

  report(id, chosen(id), 250 * kMega, 10'000);
  pass(250);

  const std::string near = moved(id);
  EXPECT_TRUE(std::set<std::string>({"b", "c", "f", "g", "h"}).contains(near)) << near;
  EXPECT_EQ(last_event("evacuation.chosen").data.at("way"), "store");
  report(id, near, 250 * kMega, 9'500);
  pass(250);
  EXPECT_TRUE(is_promised(id));
}

TEST_F(ThinLine, a_near_machine_that_can_go_on_with_it_comes_before_what_is_new_alone) {
  const JobId id = saved("a");
  leaves(id);
  open("c");

  report(id, chosen(id), 150 * kMega, 10'000);
  pass(250);

  EXPECT_EQ(moved(id), "c");
  EXPECT_EQ(last_event("evacuation.chosen").data.at("way"), "destination");
  EXPECT_EQ(chosen(id), "c");
}

TEST_F(ThinLine, what_arrives_nowhere_in_time_goes_on_as_it_did) {
  const JobId id = saved("a");
  leaves(id);
  const std::string first = chosen(id);

  report(id, first, 20'000 * kMega, 10'000);
  pass(250);

  EXPECT_EQ(count_events("evacuation.refused"), 1u);
  EXPECT_EQ(moved(id), "");
  EXPECT_EQ(chosen(id), first);
}

TEST_F(ThinLine, what_was_left_is_not_given_to_two) {
  const JobId one = saved("a");
  open("b");
  const JobId two = saved("b");
  leaves(one);
  leaves(two);

  // Of each 70 MB are new: in ten seconds the line has room for one of them.
  report(one, chosen(one), kMega, 0);  // planned at once; what follows is planned together
  report(one, chosen(one), 170 * kMega, 10'000);
  report(two, chosen(two), 170 * kMega, 10'000);
  pass(250);

  EXPECT_NE(moved(one) == "store", moved(two) == "store");
  EXPECT_FALSE(moved(one).empty());
  EXPECT_FALSE(moved(two).empty());
}

TEST_F(ThinLine, what_was_sent_elsewhere_keeps_its_room_before_its_agent_tells_of_it) {
  const JobId one = saved("a");
  open("b");
  const JobId two = saved("b");
  leaves(one);
  leaves(two);
  report(one, chosen(one), 170 * kMega, 10'000);
  pass(250);
  ASSERT_EQ(moved(one), "store");

  report(two, chosen(two), 170 * kMega, 10'000);
  pass(250);

  EXPECT_NE(moved(two), "store");
  EXPECT_NE(moved(two), "");
}

TEST_F(ThinLine, a_size_that_is_a_guess_moves_nothing) {
  const JobId id = saved("a");
  leaves(id);
  is_size_known = false;

  report(id, chosen(id), 150 * kMega, 10'000);
  pass(250);
  EXPECT_EQ(count_events("evacuation.refused"), 1u);
  EXPECT_EQ(moved(id), "");

  is_size_known = true;
  report(id, chosen(id), 150 * kMega, 9'700);
  pass(250);
  EXPECT_EQ(moved(id), "store");
}

TEST_F(ThinLine, a_guest_that_still_saves_is_not_moved) {
  const JobId id = saved("a");
  take_back("a", 60);
  notice(id);

  report(id, chosen(id), 150 * kMega, 10'000);
  pass(250);

  EXPECT_EQ(count_events("evacuation.refused"), 1u);
  EXPECT_EQ(moved(id), "");
}

TEST_F(ThinLine, what_is_not_promised_but_arrives_by_the_rate_that_it_has_is_left_alone) {
  const JobId id = saved("a");
  leaves(id);

  report(id, chosen(id), 115 * kMega, 10'000);  // beyond the slack, and within the ten seconds
  pass(250);

  EXPECT_EQ(count_events("evacuation.refused"), 1u);
  EXPECT_EQ(moved(id), "");
}

TEST_F(ThinLine, a_copy_that_gets_little_is_not_thought_to_get_more_elsewhere) {
  const JobId id = saved("a");
  leaves(id);
  const std::string first = chosen(id);

  for (std::uint32_t i = 0; i < 12; ++i) {  // 1 MB a second, of 12 that it may
    report(id, first, 160 * kMega - i * kMega / 4, 20'000);
    pass(250);
  }

  EXPECT_EQ(count_events("evacuation.refused"), 1u);
  EXPECT_EQ(core->metrics().evacuations_withdrawn, 1u);
  EXPECT_EQ(
      moved(id), ""
  ) << "60 MB that are new are not sent over what may be the same bottleneck";
}

TEST_F(ThinLine, a_job_is_moved_three_times_at_most) {
  const JobId id = saved("a");
  leaves(id);
  std::string at = chosen(id);
  std::vector<std::string> ways;
  for (int i = 0; i < 6; ++i) {
    report(id, at, 250 * kMega, 10'000);
    pass(250);
    if (moved(id).empty() || moved(id) == at) continue;
    at = moved(id);
    ways.push_back(at);
    cut(at, true);  // its owner
  }

  EXPECT_EQ(ways.size(), 3u);
  EXPECT_EQ(std::set<std::string>(ways.begin(), ways.end()).size(), 3u) << "nobody twice";
}

}  // namespace
}  // namespace rn::coordinator
