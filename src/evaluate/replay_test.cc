// SPDX-License-Identifier: Apache-2.0
#include "evaluate/replay.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "evaluate/workload.h"
#include "model/codec.h"

namespace rn::evaluate {
namespace {

constexpr double kStep_s = 0.1;
constexpr double kLine = 12.5e6;  ///< bytes/s of 100mbit

/// Three machines at one switch, and a guest that was on the first of them and went on to the
/// third: 20 MB of state, of which a step rewrites 0.1 MB.
Replay a_notice(const std::string& kind = "notice") {
  Replay replay;
  replay.topology =
      "version: 1\nlinks:\n  - name: switch-1\nnodes:\n"
      "  - {name: lab-a, at: switch-1, rate: 100mbit}\n"
      "  - {name: lab-b, at: switch-1, rate: 100mbit}\n"
      "  - {name: lab-c, at: switch-1, rate: 100mbit}\n";
  replay.seconds = 120;
  replay.nodes = {"lab-a", "lab-b", "lab-c"};
  const bool is_told = kind == "notice";
  replay.owners = {{"lab-a", kind, 50, is_told ? 62.0 : 50.0, 100}};
  ReplayGuest guest;
  guest.name = "g0";
  guest.submitted_s = 20;
  guest.steps = 900;
  guest.save_every = 50;
  guest.step_s = kStep_s;
  guest.state_bytes = 20e6;
  guest.step_bytes = 1e5;
  guest.told_s = 0.2;
  guest.ended_s = 110;
  guest.stays = {
      {"lab-a", 21.5, {{32, 100}, {37, 150}, {42, 200}, {47, 250}}, {{32, "lab-b"}, {52, "lab-c"}}},
      {"lab-c", 54, {}, {}}};
  replay.guests = {guest};
  return replay;
}

class ReplayTest : public testing::Test {
 protected:
  void SetUp() override { log::set_level(log::Level::kError); }

  void play(const Replay& replay, bool are_places_given = true) {
    const Status played =
        play_replay(replay, {.are_places_given = are_places_given}, [&](const std::string& row) {
          rows_.push_back(nlohmann::json::parse(row));
        });
    ASSERT_TRUE(played) << played.error().describe();
  }

  std::vector<nlohmann::json> all(const std::string& what) const {
    std::vector<nlohmann::json> found;
    for (const auto& row : rows_)
      if (row["what"] == what) found.push_back(row);
    return found;
  }

  /// The newest of what was saved on the first machine.
  nlohmann::json last(const std::string& what) const {
    nlohmann::json found;
    for (const auto& row : all(what))
      if (row["node"] == "lab-a") found = row;
    return found;
  }

  /// The message of what refuses it.
  static std::string refusal(const Replay& replay) {
    const auto parsed = parse_replay(to_json(replay));
    return parsed ? "" : parsed.error().message;
  }

  std::vector<nlohmann::json> rows_;
};

TEST_F(ReplayTest, a_guest_goes_on_where_it_went_on_then) {
  play(a_notice());
  const auto began = all("began");
  ASSERT_EQ(began.size(), 2u);
  EXPECT_EQ(began[0]["node"], "lab-a");
  EXPECT_EQ(began[1]["node"], "lab-c");
  EXPECT_EQ(last("copied")["to"], "lab-c");
}

TEST_F(ReplayTest, its_last_save_takes_what_its_bytes_take_on_the_line) {
  Replay replay = a_notice();
  replay.guests[0].stays[0].copies = {{32, "lab-c"}};
  play(replay);
  const auto made = last("made");
  const auto durable = last("durable");
  EXPECT_NEAR(made["at_s"], 52, 0.3) << "it hears no signal: five seconds after the one before";
  const double bytes = last("copied")["bytes"];
  EXPECT_NEAR(bytes, 50 * 1e5, 1) << "what fifty steps rewrote, for the copy before lies there";
  const double took_s = durable["at_s"].get<double>() - made["at_s"].get<double>();
  EXPECT_NEAR(took_s, bytes / kLine, 0.35) << "and as much at least";
  EXPECT_GE(took_s, bytes / kLine);
}

TEST_F(ReplayTest, a_line_that_carries_less_than_it_says_takes_longer) {
  Replay replay = a_notice();
  play(replay);
  const double before = last("durable")["at_s"];
  rows_.clear();
  replay.carries = {{"lab-a up", kLine / 4}};
  play(replay);
  EXPECT_GT(last("durable")["at_s"].get<double>(), before + 0.5);
}

TEST_F(ReplayTest, who_handles_the_signal_saves_at_once_and_leaves) {
  Replay replay = a_notice();
  replay.guests[0].handles_term = true;
  play(replay);
  EXPECT_NEAR(all("ended").front()["at_s"], 50.2, 0.3);
  EXPECT_NEAR(last("made")["at_s"], 50.3, 0.3);
  EXPECT_NEAR(all("began").at(1)["work_s"], 28.2, 0.3) << "250 steps by 47 s, and 3.2 s more";
}

TEST_F(ReplayTest, a_lost_machine_is_missed_by_its_heartbeats) {
  Replay replay = a_notice("lost");
  play(replay);
  const auto began = all("began");
  ASSERT_GE(began.size(), 2u);
  EXPECT_EQ(began[1]["node"], "lab-c");
  EXPECT_GT(began[1]["at_s"], 50 + 6) << "three of them, three seconds apart";
  EXPECT_LT(began[1]["at_s"], 50 + 15);
}

TEST_F(ReplayTest, left_to_itself_the_coordinator_finds_places_of_its_own) {
  Replay replay = a_notice();
  replay.guests[0].stays.clear();
  play(replay, false);
  EXPECT_EQ(all("sent").size(), 1u);
  EXPECT_GE(all("began").size(), 1u);
}

TEST_F(ReplayTest, two_replays_are_the_same) {
  play(a_notice());
  const auto first = std::move(rows_);
  rows_.clear();
  play(a_notice());
  EXPECT_EQ(rows_, first);
}

TEST_F(ReplayTest, what_cannot_be_is_refused_by_its_name) {
  Replay replay = a_notice();
  replay.owners[0].node = "lab-z";
  EXPECT_NE(refusal(replay).find("'lab-z', which is no node"), std::string::npos);
  replay = a_notice();
  replay.guests[0].stays[1].node = "lab-z";
  EXPECT_NE(refusal(replay).find("guest 'g0': it was on 'lab-z'"), std::string::npos);
  replay = a_notice();
  replay.guests[0].steps = 0;
  EXPECT_NE(refusal(replay).find("guest 'g0'"), std::string::npos);
  replay = a_notice();
  replay.machine.making_rate = 0;
  EXPECT_NE(refusal(replay).find("machine"), std::string::npos);
  replay = a_notice();
  replay.owners[0].kind = "polite";
  EXPECT_NE(refusal(replay).find("'polite'"), std::string::npos);
  EXPECT_EQ(refusal(a_notice()), "");
}

TEST_F(ReplayTest, a_torn_file_is_refused) {
  const std::string text = to_json(a_notice());
  for (const std::size_t length : {std::size_t{0}, text.size() / 2, text.size() - 1})
    EXPECT_FALSE(parse_replay(text.substr(0, length))) << length;
}

TEST_F(ReplayTest, a_node_that_the_topology_lacks_and_owners_in_disorder_are_refused) {
  Replay replay = a_notice();
  replay.nodes[1] = "lab-d";
  replay.guests[0].stays[0].copies.clear();
  EXPECT_FALSE(play_replay(replay, {}, [](const std::string&) {}));
  replay = a_notice();
  replay.owners[0].returns_s = 40;
  EXPECT_FALSE(play_replay(replay, {}, [](const std::string&) {}));
}

TEST(NumberedState, of_a_file_that_begins_with_a_number_all_moves_when_it_has_a_digit_more) {
  StateKind kind{"testbed", 0, 20e6, 0, 1e6, 1e12, 0};
  kind.numbered_step_s = kStep_s;
  EXPECT_EQ(differing_bytes(kind, 5, 9.9), 4.9e6) << "steps 50 and 99";
  EXPECT_EQ(differing_bytes(kind, 9, 10), 10e6) << "steps 90 and 100: whatever was touched so far";
  EXPECT_EQ(whole_bytes(kind, 3), 3e6) << "the rest is empty";
  EXPECT_EQ(whole_bytes(kind, 90), 20e6);
}

}  // namespace
}  // namespace rn::evaluate
