// SPDX-License-Identifier: Apache-2.0
//
// A warden beside a driver that answers from a file: what is verified of a GPU when it is taken
// back, and before it goes to the next tenant.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "warden_suite_fake.h"

#include "base/places_fixture.h"
#include "warden/core.h"

namespace rn::warden {
namespace {

/// The recording of src/agent/fake_nvml.c: one device, and who holds memory of it.
void record_holders(const std::string& path, const std::string& holders) {
  std::ofstream(path + ".part") << "recorded-card GPU-recorded-0 9 0 24576 500 0 41 70000 "
                                << holders << "\n";
  std::filesystem::rename(path + ".part", path);
}

/// A process of the lab's guests; "" when there is none.
std::string guest_pid(const std::string& lab) {
  for (const char* top : {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"}) {
    std::error_code failed;
    const std::filesystem::path group = std::string(top) + "/reclaim-" + lab;
    for (std::filesystem::recursive_directory_iterator it(group, failed), end; !failed && it != end;
         it.increment(failed)) {
      if (it->path().filename() != "cgroup.procs") continue;
      const std::string pids = text_of(it->path());
      if (!pids.empty()) return pids.substr(0, pids.find('\n'));
    }
  }
  return "";
}

GuestName guest_of(std::uint32_t gpu) {
  return name_of(41 + static_cast<int>(gpu));
}

/// Reclaims that stand so: cleared, and not yet returned.
std::size_t cleared_on(WardenNode& node) {
  const auto all = node.state().reclaims;
  return static_cast<std::size_t>(std::count_if(
      all.begin(),
      all.end(),
      [](const ReclaimRecord& one) { return is_open(one) && one.phase == ReclaimPhase::kCleared; }
  ));
}

TEST(WardenGpu, what_a_dead_guest_still_holds_is_wedged_and_nobodys_until_it_is_free) {
  ASSERT_EQ(unshare(CLONE_NEWNET), 0);
  WardenNode node("lg");
  const std::string recording = node.folder + "/recorded";
  std::filesystem::create_directory(node.folder + "/nvml");
  std::filesystem::create_symlink(places::kAgentFakeNvml, node.folder + "/nvml/libnvidia-ml.so.1");
  record_holders(recording, std::to_string(getpid()) + ":300");  // the owner's, all the time
  setenv("RN_FAKE_NVML", recording.c_str(), 1);
  setenv("LD_LIBRARY_PATH", (node.folder + "/nvml").c_str(), 1);
  ASSERT_TRUE(node.serve()) << text_of(node.folder + "/log");
  unsetenv("RN_FAKE_NVML");
  unsetenv("LD_LIBRARY_PATH");
  ASSERT_EQ(node.load_image(), "");
  const auto on_gpu = [](warden_wire::StartGuest& start) { start.gpus = {0}; };
  ASSERT_EQ(node.run(name_of(1), "sleep 100", on_gpu).code, "");
  const std::string pid = guest_pid(node.lab);
  ASSERT_NE(pid, "");
  const std::string owners = std::to_string(getpid()) + ":300 ";
  record_holders(recording, owners + pid + ":1000");

  warden_wire::DeclareReclaim take;
  take.kind = ReclaimKind::kEmergency;
  take.gpus = {0};
  ASSERT_EQ(node.ask(take).code, "");
  // On a machine that is too busy the first look may find that the driver does not answer in time:
  // the next ones do.
  const std::vector<std::string> held = {"GPU context of process " + pid + ": GPU 0"};
  ASSERT_TRUE(eventually(
      [&] {
        const ReclaimRecord record = node.state().reclaims.back();
        return record.phase == ReclaimPhase::kWedged && record.remains == held;
      },
      60
  )) << to_string(node.state().reclaims.back().phase);
  EXPECT_NE(node.state().reclaims.back().killed_ns, 0)
      << "the process is gone, what it held is not";
  ASSERT_EQ(node.state().gpus.size(), 1U);
  EXPECT_TRUE(node.state().gpus[0].is_wedged);

  // The owner may have it back all the same; the next tenant not yet.
  EXPECT_EQ(node.ask(warden_wire::Release{}).code, "");
  EXPECT_TRUE(node.finish(name_of(1)));
  const auto refused = node.run(name_of(2), "sleep 100", on_gpu);
  EXPECT_EQ(refused.code, "unavailable");
  EXPECT_NE(refused.message.find("not free yet: GPU context of process " + pid), std::string::npos)
      << refused.message;

  record_holders(recording, owners);
  EXPECT_EQ(node.run(name_of(2), "sleep 100", on_gpu).code, "");
  ASSERT_EQ(node.ask(take).code, "");
  EXPECT_TRUE(eventually([&] {
    return node.state().reclaims.back().phase == ReclaimPhase::kCleared;
  })) << "the owner's own process does not count";
  EXPECT_EQ(node.ask(warden_wire::Release{}).code, "");
  EXPECT_TRUE(node.finish(name_of(2)));
}

TEST_F(Warden, each_kind_is_cleared_of_one_gpu_and_of_the_machine_with_the_engine_stopped) {
  const std::uint32_t machine = 3;  // the guest that has it goes with the machine
  for (std::uint32_t gpu = 0; gpu <= machine; ++gpu) {
    const auto name = guest_of(gpu);
    ASSERT_EQ(node->run(name, "sleep 100", [gpu](auto& s) { s.gpus = {gpu}; }).code, "");
    ASSERT_TRUE(eventually([&] { return node->guest(name).pids >= 2; })) << "it has not begun";
  }
  const pid_t engine = node->engine_pid();
  ASSERT_EQ(kill(engine, SIGSTOP), 0);

  const std::vector<ReclaimKind> kinds = {
      ReclaimKind::kEmergency, ReclaimKind::kNotice, ReclaimKind::kAnnounced, ReclaimKind::kNotice};
  for (std::uint32_t gpu = 0; gpu <= machine; ++gpu) {
    warden_wire::DeclareReclaim declare;
    declare.kind = kinds[gpu];
    declare.in_s = declare.notice_s = 1;
    if (gpu != machine) declare.gpus = {gpu};
    EXPECT_EQ(node->ask(declare).code, "");
    EXPECT_TRUE(eventually([&] { return cleared_on(*node) == gpu + 1; })) << gpu;
    EXPECT_EQ(node->guest(guest_of(gpu)).pids, 0U);
    for (std::uint32_t other = gpu + 1; other <= machine; ++other) {
      EXPECT_GE(node->guest(guest_of(other)).pids, 2U) << "it has another GPU: " << other;
      EXPECT_FALSE(node->guest(guest_of(other)).is_cut) << other;
    }
  }

  ASSERT_EQ(kill(engine, SIGCONT), 0);
  EXPECT_TRUE(eventually([&] { return node->ask(warden_wire::Release{}).code.empty(); }));
  for (std::uint32_t gpu = 0; gpu <= machine; ++gpu)
    EXPECT_TRUE(eventually([&] { return node->finish(guest_of(gpu)); }));
  EXPECT_TRUE(eventually([&] { return node->state().is_engine_up; })) << "for who comes next";
}

TEST_F(Warden, of_one_gpu_by_hand_its_guest_alone_goes_with_the_warden_stopped_or_dead) {
  const auto other = guest_of(1);
  ASSERT_EQ(node->run(other, "sleep 100", [](auto& s) { s.gpus = {1}; }).code, "");
  for (const bool is_dead : {false, true}) {
    const auto name = name_of(is_dead ? 46 : 47);
    ASSERT_EQ(node->run(name, "sleep 100 & sleep 100", [](auto& s) { s.gpus = {0}; }).code, "");
    ASSERT_TRUE(eventually([&] { return node->guest(other).pids >= 2; }));
    if (is_dead) {
      node->kill_daemon();
    } else {
      ASSERT_TRUE(node->daemon().signal(SIGSTOP));
    }
    const std::string out = node->folder + "/kill.out";
    const std::string places = " --state " + node->folder + "/state --run " + node->folder + "/run";
    const std::string by = is_dead ? std::string(RN_WARDEN) + " kill" : RN_KILL;
    EXPECT_TRUE(run_shell(by + " --gpu 0" + places + " > " + out + " 2>&1")) << text_of(out);
    EXPECT_NE(text_of(out).find("cleared (by hand)"), std::string::npos) << text_of(out);
    // Which of both small programs it was, this one says what it did ahead.
    if (!is_dead)
      EXPECT_NE(text_of(out).find("the packets of these GPUs' guests are cut"), std::string::npos);
    if (is_dead) {
      ASSERT_TRUE(node->serve()) << text_of(node->folder + "/log");
    } else {
      ASSERT_TRUE(node->daemon().signal(SIGCONT));
    }

    EXPECT_TRUE(has_exited(name));
    EXPECT_TRUE(eventually([&] { return cleared_on(*node) == 1; }));
    EXPECT_EQ(node->state().reclaims.back().gpus, std::vector<std::uint32_t>{0});
    EXPECT_EQ(node->guest(other).state, GuestState::kRunning);
    EXPECT_GE(node->guest(other).pids, 2U);
    EXPECT_TRUE(eventually([&] { return !node->guest(other).is_cut; }));
    EXPECT_TRUE(eventually([&] { return node->ask(warden_wire::Release{}).code.empty(); }));
    EXPECT_TRUE(eventually([&] { return node->finish(name); }));
  }
  EXPECT_TRUE(node->finish(other));
}

}  // namespace
}  // namespace rn::warden
