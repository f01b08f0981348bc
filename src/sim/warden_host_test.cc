// SPDX-License-Identifier: Apache-2.0
#include "sim/warden_host.h"

#include <gtest/gtest.h>

namespace rn::sim {
namespace {

constexpr const char* kImage = "sha256:image";

/// A node with a warden, and a guest of ten steps of a second each.
struct LonelyNode {
  explicit LonelyNode(std::uint32_t crash_at_step) {
    warden.start();
    pass(seconds(1));  // it searches the machine
    session = warden.open_session([](const warden_wire::Reply&) {}, [] {});
    ask(warden_wire::LoadImage{kImage, {}});
    ask(warden_wire::PrepareDisk{guest, 64});
    ask(warden_wire::AdoptDisk{guest});
    warden_wire::StartGuest start;
    start.guest = guest;
    start.image_digest = kImage;
    start.command = {"train"};
    start.env = {{"STEPS", "10"}, {"CRASH_AT", std::to_string(crash_at_step)}};
    ask(start);
  }

  void ask(warden_wire::Request request) {
    warden.ask(session, {++asked, std::move(request)});
    pass(seconds(1));
  }

  void pass(nanoseconds time) {
    bool is_over = false;
    world.queue().after(time, [&] { is_over = true; });
    while (!is_over) world.queue().step();
  }

  /// What the warden tells the agent of its only guest.
  warden_wire::GuestReport told() const { return warden.core()->state().guests.at(0); }

  World world{1};
  Machine machine{world, "node0", 1, {}};
  WardenHost warden{world, machine};
  GuestName guest{JobId("j-1"), LeaseEpoch{1, 1}};
  std::uint64_t session = 0;
  std::uint64_t asked = 0;
};

/// The end of a guest while its warden watches, and while it is dead.
void end_with(LonelyNode& node, bool is_watched, nanoseconds after, bool is_killed) {
  ASSERT_EQ(node.told().state, GuestState::kRunning);
  if (!is_watched) node.warden.crash(seconds(20));
  node.pass(after);
  EXPECT_EQ(node.machine.kill_all(), is_killed ? 1U : 0U);
  node.pass(seconds(21));
  ASSERT_EQ(node.told().state, GuestState::kExited);
}

TEST(SimulatedWarden, who_is_killed_with_its_init_has_vanished_also_while_no_warden_watched) {
  for (const bool is_watched : {true, false}) {
    LonelyNode node(0);
    end_with(node, is_watched, seconds(3), true);

    EXPECT_TRUE(node.told().is_vanished) << is_watched;
  }
}

TEST(SimulatedWarden, who_ends_by_itself_has_its_exit_code_also_while_no_warden_watched) {
  for (const bool is_watched : {true, false}) {
    for (const std::int32_t code : {0, 1}) {
      LonelyNode node(code == 0 ? 0 : 6);
      end_with(node, is_watched, seconds(15), false);

      EXPECT_FALSE(node.told().is_vanished) << is_watched;
      EXPECT_EQ(node.told().exit_code, code) << is_watched;
    }
  }
}

}  // namespace
}  // namespace rn::sim
