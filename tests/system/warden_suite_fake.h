// SPDX-License-Identifier: Apache-2.0
#pragma once

// One warden for all tests of the program, in a network namespace of its own.

#include <string>

#include "warden_node_fake.h"
#include <gtest/gtest.h>
#include <sched.h>

namespace rn::warden {

using warden_wire::GuestName;

inline GuestName name_of(int number) {
  return {JobId("j-" + std::to_string(number)), LeaseEpoch{1, 1}};
}

class Warden : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_EQ(unshare(CLONE_NEWNET), 0);
    // docker0 stands for the bridge of the owner's own engine.
    ASSERT_TRUE(run_shell("ip link set lo up && ip link add docker0 type bridge"));
    node = new WardenNode("sys");
    ASSERT_TRUE(node->serve()) << text_of(node->folder + "/log");
    ASSERT_EQ(node->load_image(), "");
  }

  static void TearDownTestSuite() {
    delete node;
    node = nullptr;
  }

  std::string log_of(const GuestName& name) {
    return text_of(node->guest(name).disk + "/reclaim/log");
  }

  bool has_exited(const GuestName& name) {
    return eventually([&] { return node->guest(name).state == GuestState::kExited; });
  }

  /// Ends by itself with this code, and goes away.
  void expect_end(const GuestName& name, int exit_code) {
    EXPECT_TRUE(has_exited(name));
    EXPECT_EQ(node->guest(name).exit_code, exit_code);
    EXPECT_TRUE(node->finish(name));
  }

  inline static WardenNode* node = nullptr;
};

}  // namespace rn::warden
