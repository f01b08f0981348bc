// SPDX-License-Identifier: Apache-2.0
#include "cli_top.h"

#include <algorithm>

#include "cli_live.h"
#include <gtest/gtest.h>

namespace rn::cli {
namespace {

constexpr std::int64_t kBucketMs = 300'000;
constexpr std::int64_t kNowMs = 1'700'000'000'000 / kBucketMs * kBucketMs + 10'000;

api::NodeInfo a_node(const char* host, std::uint32_t gpus = 0) {
  api::NodeInfo node;
  node.id = NodeId(std::string("n-") + host);
  node.lab = LabId("lab-a");
  node.is_connected = true;
  node.facts.hostname = host;
  node.facts.memory_mib = 64 * 1024;
  node.telemetry.cpu_percent = 50;
  node.telemetry.memory_used_mib = 16 * 1024;
  for (std::uint32_t i = 0; i < gpus; ++i) {
    node.facts.gpus.push_back({.index = i, .model = "A100", .memory_mib = 80 * 1024});
    node.telemetry.gpus.push_back(
        {.index = i, .utilisation_percent = 90, .memory_used_mib = 40 * 1024, .temperature_c = 60}
    );
  }
  return node;
}

Job a_job(std::uint64_t number, JobState state, const char* host = "") {
  Job job;
  job.id = JobId("j-" + std::to_string(number));
  job.number = number;
  job.owner = UserId("ada");
  job.state = state;
  if (*host != '\0') job.node = NodeId(std::string("n-") + host);
  return job;
}

/// A bucket that was over so many buckets ago.
api::NodeHistoryPoint a_point(const char* host, std::int64_t ago, double cpu) {
  api::NodeHistoryPoint point;
  point.node = NodeId(std::string("n-") + host);
  point.bucket_wall_ms = kNowMs / kBucketMs * kBucketMs - ago * kBucketMs;
  point.samples = 60;
  point.cpu_percent = cpu;
  return point;
}

std::vector<std::string> hosts_of(const TopView& view) {
  std::vector<std::string> hosts;
  for (const TopNode& node : view.nodes) hosts.push_back(node.host);
  return hosts;
}

std::size_t lines_in(const std::string& screen) {
  return static_cast<std::size_t>(std::count(screen.begin(), screen.end(), '\n'));
}

TEST(Top, a_nodes_history_is_what_was_kept_of_it_then_what_it_said_last) {
  const TopView view =
      top_view({{a_node("one")}}, {}, {{a_point("one", 2, 10), a_point("one", 1, 30)}}, kNowMs);
  const History& history = view.nodes.at(0).history;

  ASSERT_EQ(history.size(), kTopBuckets + 1);
  EXPECT_EQ(history[kTopBuckets], 50);
  EXPECT_EQ(history[kTopBuckets - 1], 30);
  EXPECT_EQ(history[kTopBuckets - 2], 10);
  EXPECT_EQ(history[kTopBuckets - 3], -1) << "nothing was heard then";
}

TEST(Top, what_a_node_that_is_away_said_last_is_not_shown_as_if_it_were_now) {
  api::NodeInfo away = a_node("one", 1);
  away.is_connected = false;
  const TopView view = top_view({{away}}, {}, {{a_point("one", 1, 30)}}, kNowMs);

  EXPECT_EQ(view.nodes.at(0).history.back(), -1);
  EXPECT_EQ(view.nodes.at(0).gpus.at(0).history.back(), -1);
  EXPECT_EQ(view.nodes.at(0).history[kTopBuckets - 1], 30) << "it was heard before";
  EXPECT_NE(top_screen(view, {}, "", false).find("away"), std::string::npos);
}

TEST(Top, nodes_with_guests_come_first_and_those_that_are_away_last) {
  api::NodeInfo away = a_node("away");
  away.is_connected = false;
  away.telemetry.guests = 2;
  api::NodeInfo closed = a_node("closed");
  closed.lending = LendingState::kPaused;
  api::NodeInfo busy = a_node("zz-busy");
  busy.telemetry.guests = 1;
  api::NodeInfo gone = a_node("gone");
  gone.is_revoked = true;
  const TopView view = top_view({{away, closed, a_node("open"), busy, gone}}, {}, {}, kNowMs);

  EXPECT_EQ(hosts_of(view), (std::vector<std::string>{"zz-busy", "open", "closed", "away"}));
}

TEST(Top, a_job_has_the_history_of_the_gpus_of_its_node_and_one_that_waits_has_none) {
  api::NodeInfo node = a_node("one", 2);
  node.telemetry.gpus[1].utilisation_percent = 10;
  Job on_gpus = a_job(2, JobState::kRunning, "one");
  on_gpus.spec.resources.gpus = 1;
  const TopView view = top_view(
      {{node}},
      {{a_job(4, JobState::kSucceeded, "one"),
        a_job(3, JobState::kRunning, "one"),
        on_gpus,
        a_job(1, JobState::kQueued, "one")}},
      {},
      kNowMs
  );

  ASSERT_EQ(view.jobs.size(), 3U) << "what is over is not shown";
  EXPECT_EQ(view.jobs[0].number, 2U);
  EXPECT_EQ(view.jobs[0].history.back(), 50) << "the mean of 90 and 10";
  EXPECT_EQ(view.jobs[1].history.back(), 50) << "the processor";
  EXPECT_EQ(view.jobs[2].number, 1U);
  EXPECT_EQ(view.jobs[2].host, "") << "it was there before";
  EXPECT_TRUE(view.jobs[2].history.empty());
}

TEST(Top, bars_grow_with_the_load_and_are_blank_where_nothing_was_heard) {
  EXPECT_EQ(sparkline({0, 12, 50, 99, 100, 250, -1, 88}, false), "__=### #");
  EXPECT_EQ(sparkline({0, 100, -1}, true), "▁█ ");
  EXPECT_EQ(sparkline({}, true), "");
}

TEST(Top, a_screen_names_what_is_lent_used_and_waiting) {
  api::NodeInfo node = a_node("one", 1);
  node.telemetry.guests = 1;
  node.used_gpus = 1;
  Job running = a_job(7, JobState::kRunning, "one");
  running.spec.name = "digits\x1b[2J";
  running.started_wall_ms = kNowMs - 600'000;
  running.epoch = {1, 2};
  Job waiting = a_job(8, JobState::kQueued);
  waiting.reason = "waits: 1 busy";
  const std::string screen =
      top_screen(top_view({{node}}, {{running, waiting}}, {}, kNowMs), {}, "q ends", false);

  for (const char* said :
       {"nodes: 1 lend, 0 do not, 0 away  GPUs: 1 lent, 1 used  jobs: 1 placed, 1 wait\n",
        "one      lab-a  open     1       ",
        "  gpu 0  A100   lent     60 C    ",
        "50 %  16.0 GiB of 64.0 GiB\n",
        "90 %  40.0 GiB of 80.0 GiB\n",
        "7   digits\\x1b[2J  ada   running  one   2        10 min ago",
        "waits: 1 busy\n",
        "\nq ends\n"})
    EXPECT_NE(screen.find(said), std::string::npos) << said << " in:\n" << screen;
}

TEST(Top, a_screen_is_never_bigger_than_the_terminal_and_counts_what_has_no_room) {
  api::NodeList nodes;
  api::JobList jobs;
  for (int i = 0; i < 30; ++i) {
    nodes.nodes.push_back(a_node(("node-" + std::to_string(100 + i)).c_str()));
    jobs.jobs.push_back(a_job(static_cast<std::uint64_t>(i) + 1, JobState::kQueued));
  }
  const TopView view = top_view(nodes, jobs, {}, kNowMs);
  const std::string screen = top_screen(view, {.columns = 40, .lines = 24}, "status", true);

  EXPECT_EQ(lines_in(screen), 24U);
  EXPECT_NE(screen.find("... 21 more\n"), std::string::npos) << screen;
  EXPECT_NE(screen.find("... 22 more\n"), std::string::npos) << screen;
  EXPECT_TRUE(screen.ends_with("status\n"));
  std::size_t begin = 0;
  while (begin < screen.size()) {
    const std::size_t end = screen.find('\n', begin);
    const std::string line = screen.substr(begin, end - begin);
    begin = end + 1;
    EXPECT_LE(
        std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }), 40
    ) << line;
  }
  for (std::size_t lines = 1; lines < 12; ++lines)
    EXPECT_LE(lines_in(top_screen(view, {.columns = 10, .lines = lines}, "s", true)), lines);
  EXPECT_EQ(lines_in(top_screen(view, {}, "", true)), 64U) << "all of them, where nothing is small";
}

TEST(Top, what_is_no_terminal_is_not_drawn_on) {
  const Client nobody(Login{"https://127.0.0.1:1", "secret", std::string(64, 'a')});
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();

  EXPECT_EQ(top(nobody, {}), 2);
  EXPECT_EQ(top(nobody, {.is_once = true}), 6);

  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("--once prints one"), std::string::npos);
}

}  // namespace
}  // namespace rn::cli
