// SPDX-License-Identifier: Apache-2.0
//
// The guests' own queues, as the warden makes them (GuestNet): each in its guest's namespace, all
// together no faster than what the owner granted, whoever comes, goes or restarts. In a network
// namespace of its own.

#include <filesystem>
#include <iostream>
#include <optional>

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/scratch_folder.h"
#include "io/subprocess.h"
#include "traffic/guest_cut.h"
#include "warden/guest_net.h"

namespace rn::warden {
namespace {

/// A process in a network namespace of its own, as a container's init.
class FakeGuest {
 public:
  FakeGuest() {
    int ready[2];
    if (pipe(ready) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      if (unshare(CLONE_NEWNET) != 0 || write(ready[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte = 0;
    if (read(ready[0], &byte, 1) != 1) std::abort();
    close(ready[0]);
    close(ready[1]);
  }

  FakeGuest(const FakeGuest&) = delete;
  FakeGuest& operator=(const FakeGuest&) = delete;

  ~FakeGuest() { end(); }

  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  pid_t pid() const { return pid_; }

  /// "90Mbit"; empty when there is no queue.
  std::string rate() const {
    const auto shown = io::run_for_output(
        {"nsenter", "-t", std::to_string(pid_), "-n", "tc", "class", "show", "dev", "eth0"},
        seconds(5)
    );
    if (!shown) return {};
    const auto at = shown->find(" rate ");
    if (at == std::string::npos) return {};
    return shown->substr(at + 6, shown->find(' ', at + 6) - at - 6);
  }

 private:
  pid_t pid_ = 0;
};

class UplinkShare : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) {
      std::cerr << "\n*** NOT RUN: uplink_share needs root (namespaces, BPF) ***\n\n";
      GTEST_SKIP() << "not root";
    }
    ASSERT_EQ(unshare(CLONE_NEWNET), 0);
    auto cut = traffic::GuestCut::open(folder_.path() + "/bpf");
    ASSERT_TRUE(cut) << cut.error().describe();
    cut_.emplace(std::move(*cut));
    start(90'000'000);
  }

  void TearDown() override {
    if (net_) net_->leave();
    if (cut_) {
      EXPECT_TRUE(cut_->leave());
    }
  }

  void start(std::uint64_t granted_bps) {
    net_.emplace(
        GuestNetConfig{"uplink", "100.64.0.0", 0, granted_bps, folder_.path() + "/sysctls"}, *cut_
    );
  }

  void wire(traffic::Slot slot, const FakeGuest& guest) {
    const auto wired = net_->attach(slot, guest.pid(), {{"198.51.100.7/32", 9000, "udp"}});
    ASSERT_TRUE(wired) << wired.error().describe();
  }

  const ScratchFolder folder_;
  std::optional<traffic::GuestCut> cut_;
  std::optional<GuestNet> net_;
};

TEST_F(UplinkShare, guests_that_come_and_go_have_equal_parts_of_the_grant) {
  FakeGuest first, second;
  ASSERT_NO_FATAL_FAILURE(wire(3, first));
  EXPECT_EQ(first.rate(), "90Mbit");

  ASSERT_NO_FATAL_FAILURE(wire(4, second));
  EXPECT_EQ(first.rate(), "45Mbit");
  EXPECT_EQ(second.rate(), "45Mbit");

  ASSERT_TRUE(net_->detach(3));
  EXPECT_EQ(second.rate(), "90Mbit");
}

TEST_F(UplinkShare, a_guest_that_died_without_a_word_does_not_hinder_the_next) {
  FakeGuest first, second;
  ASSERT_NO_FATAL_FAILURE(wire(3, first));
  first.end();

  ASSERT_NO_FATAL_FAILURE(wire(4, second));

  EXPECT_EQ(second.rate(), "45Mbit") << "until the other one is detached";
}

TEST_F(UplinkShare, guests_of_an_earlier_life_share_with_those_that_come) {
  FakeGuest first, second;
  ASSERT_NO_FATAL_FAILURE(wire(3, first));
  start(90'000'000);
  ASSERT_TRUE(net_->keep_only({{3, first.pid()}}));

  ASSERT_NO_FATAL_FAILURE(wire(4, second));

  EXPECT_EQ(first.rate(), "45Mbit");
  EXPECT_EQ(second.rate(), "45Mbit");
}

TEST_F(UplinkShare, a_guest_that_came_during_the_search_keeps_its_wire_and_a_leftover_does_not) {
  FakeGuest leftover, newcomer;
  ASSERT_NO_FATAL_FAILURE(wire(3, leftover));
  start(90'000'000);
  ASSERT_NO_FATAL_FAILURE(wire(4, newcomer));

  ASSERT_TRUE(net_->keep_only({}));

  EXPECT_EQ(leftover.rate(), "");
  EXPECT_EQ(newcomer.rate(), "90Mbit");
  const auto bound = cut_->bound_slots();
  ASSERT_TRUE(bound);
  ASSERT_EQ(bound->size(), 1U);
  EXPECT_EQ(bound->front().first, 4U);
}

TEST_F(UplinkShare, without_a_grant_a_guest_has_no_queue) {
  start(0);
  FakeGuest guest;

  ASSERT_NO_FATAL_FAILURE(wire(3, guest));

  EXPECT_EQ(guest.rate(), "");
}

}  // namespace
}  // namespace rn::warden

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
