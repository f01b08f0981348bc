// SPDX-License-Identifier: Apache-2.0
#include "sim/point_faults.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "sim/machine.h"
#include "sim/world.h"

namespace rn::sim {
namespace {

struct Strikes {
  explicit Strikes(World& world) {
    world.on_strike = [this](PointFault fault, const std::string& process) {
      seen.emplace_back(fault, process);
      return is_possible;
    };
  }

  std::vector<std::pair<PointFault, std::string>> seen;
  bool is_possible = true;
};

TEST(PointFaults, what_is_armed_happens_once_when_its_point_is_passed) {
  World world(1);
  Strikes strikes(world);
  world.arm(PointFault::kCut, "agent.send.heartbeat", 1);

  EXPECT_FALSE(world.crashes_at("agent.send.heartbeat", "node0"));
  EXPECT_TRUE(strikes.seen.empty());
  EXPECT_FALSE(world.crashes_at("agent.send.heartbeat", "node1"));
  EXPECT_FALSE(world.crashes_at("agent.send.heartbeat", "node1"));

  ASSERT_EQ(strikes.seen.size(), 1u);
  EXPECT_EQ(strikes.seen[0], std::pair(PointFault::kCut, std::string("node1")));
  const auto& cell = world.coverage().at("agent.send.heartbeat");
  EXPECT_EQ(cell.passed, 3u);
  EXPECT_EQ(cell.hit[std::size_t(PointFault::kCut)], 1u);
  EXPECT_EQ(cell.crashed(), 0u);
}

TEST(PointFaults, a_kill_and_a_power_loss_end_the_process_that_passes) {
  World world(1);
  Strikes strikes(world);
  world.arm(PointFault::kKill, "warden.go", 0);
  world.arm(PointFault::kPower, "warden.go", 0);

  EXPECT_TRUE(world.crashes_at("warden.go", "node0.warden"));
  EXPECT_TRUE(world.crashes_at("warden.go", "node0.warden"));
  EXPECT_FALSE(world.crashes_at("warden.go", "node0.warden"));

  EXPECT_EQ(strikes.seen.size(), 1u);  // a kill is nobody else's business
  EXPECT_EQ(world.coverage().at("warden.go").crashed(), 1u);
}

TEST(PointFaults, what_cannot_happen_now_is_not_counted) {
  World world(1);
  Strikes strikes(world);
  strikes.is_possible = false;
  world.arm(PointFault::kPower, "warden.go", 0);

  EXPECT_FALSE(world.crashes_at("warden.go", "node0.warden"));

  EXPECT_EQ(world.coverage().at("warden.go").hit[std::size_t(PointFault::kPower)], 0u);
}

TEST(PointFaults, nothing_happens_once_all_is_disarmed) {
  World world(1);
  Strikes strikes(world);
  world.arm(PointFault::kKill, "coordinator.reply", 0);

  world.disarm();

  EXPECT_FALSE(world.crashes_at("coordinator.reply", "coordinator"));
}

TEST(PointFaults, the_table_has_no_cells_for_what_makes_no_sense) {
  EXPECT_TRUE(applies(PointFault::kTwice, "coordinator.send.commit"));
  EXPECT_FALSE(applies(PointFault::kTwice, "agent.disk.sync"));
  EXPECT_TRUE(applies(PointFault::kPower, "warden.start"));
  EXPECT_FALSE(applies(PointFault::kPower, "coordinator.before_commit"));
  EXPECT_FALSE(applies(PointFault::kLie, "warden.start"));
  for (std::size_t i = 0; i < kPointFaults; ++i) {
    EXPECT_TRUE(std::any_of(crash_points().begin(), crash_points().end(), [&](const auto& point) {
      return applies(PointFault(i), point);
    })) << kPointFaultNames[i];
  }
}

/// Two hosts with one connection, and what each heard.
struct Pair {
  Pair() {
    Network::Endpoint client;
    client.on_close = [this] { ++closed; };
    id = world.network().connect(
        "a",
        "b",
        client,
        [this](Network::ConnectionId) {
          Network::Endpoint server;
          server.on_message = [this](const Blob& bytes) { heard += as_text(bytes); };
          server.on_close = [this] { ++closed; };
          return server;
        },
        [] {}
    );
    run();
  }

  void say(const std::string& text) {
    const BlobView bytes = as_bytes(text);
    world.network().send(id, "a", Blob(bytes.begin(), bytes.end()));
  }

  void run() {
    while (world.queue().step()) {
    }
  }

  World world{1};
  Network::ConnectionId id = 0;
  std::string heard;
  int closed = 0;
};

TEST(NetworkOfAWorld, one_message_is_repeated_and_the_next_one_is_not) {
  Pair pair;
  pair.world.network().repeat_next("a");

  pair.say("1");
  pair.run();
  pair.say("2");
  pair.run();

  EXPECT_EQ(pair.heard, "112");
}

TEST(NetworkOfAWorld, one_message_is_overtaken) {
  Pair pair;
  pair.world.network().hold_back_next("a");

  pair.say("1");
  for (int i = 0; i < 20; ++i) pair.say("2");
  pair.run();

  EXPECT_EQ(pair.heard.size(), 21u);
  EXPECT_NE(pair.heard.front(), '1');
}

TEST(NetworkOfAWorld, a_broken_connection_loses_what_is_under_way_and_both_ends_hear_of_it) {
  Pair pair;
  pair.say("1");

  pair.world.network().break_host("b");
  pair.run();

  EXPECT_EQ(pair.heard, "");
  EXPECT_EQ(pair.closed, 2);
}

TEST(MachineOfAWorld, is_off_after_a_power_loss_until_it_is_switched_on) {
  World world(1);
  Machine machine(world, "node0", 1, nanoseconds(0));

  machine.lose_power();

  EXPECT_FALSE(machine.is_on());
  machine.switch_on();
  EXPECT_TRUE(machine.is_on());
}

}  // namespace
}  // namespace rn::sim
