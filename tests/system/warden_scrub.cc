// SPDX-License-Identifier: Apache-2.0
//
// A warden whose owner wants a GPU's memory overwritten between two guests: reclaim-scrub itself on
// a false CUDA driver, and programs in its place that fail, linger and meet others.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>

#include "warden_suite_fake.h"

#include "base/places_fixture.h"
#include "warden/core.h"

namespace rn::warden {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCardBytes = std::size_t{6} << 20;

/// A node with one recorded GPU whose --scrub is this script.
class ScrubNode {
 public:
  ScrubNode(const std::string& name, const std::string& policy, const std::string& script)
      : node(name) {
    recording_ = node.folder + "/recorded";
    fs::create_directory(node.folder + "/nvml");
    fs::create_symlink(places::kAgentFakeNvml, node.folder + "/nvml/libnvidia-ml.so.1");
    hold("");
    const std::string program = node.folder + "/scrub";
    // What it did is written where anybody may write.
    fs::create_directory(node.folder + "/said");
    fs::permissions(node.folder + "/said", fs::perms::all);
    std::ofstream(program) << "#!/bin/sh\nsaid=" << node.folder << "/said\n" << script << "\n";
    fs::permissions(program, fs::perms(0755));
    node.flags = {"--gpu-scrub", policy, "--scrub", program};
  }

  bool serve() {
    setenv("RN_FAKE_NVML", recording_.c_str(), 1);
    setenv("LD_LIBRARY_PATH", (node.folder + "/nvml").c_str(), 1);
    const bool is_up = node.serve();
    unsetenv("RN_FAKE_NVML");
    unsetenv("LD_LIBRARY_PATH");
    return is_up && node.load_image().empty();
  }

  /// "PID:MIB …", from now on.
  void hold(const std::string& holders) {
    std::ofstream(recording_ + ".part")
        << "recorded-card GPU-recorded-0 9 0 24576 500 0 41 70000 " << holders << "\n";
    fs::permissions(recording_ + ".part", fs::perms(0666));
    fs::rename(recording_ + ".part", recording_);
  }

  warden_wire::Answer run(int number) {
    return node.run(name_of(number), "sleep 100", [](warden_wire::StartGuest& start) {
      start.gpus = {0};
    });
  }

  std::string said(const std::string& file) { return text_of(node.folder + "/said/" + file); }

  WardenNode node;

 private:
  std::string recording_;
};

/// Groups of scrubs that are still there.
std::size_t scrub_groups(const std::string& lab) {
  std::size_t count = 0;
  for (const char* top : {"/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/freezer"}) {
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(std::string(top) + "/reclaim-" + lab, failed))
      if (entry.path().filename().string().starts_with("scrub-")) ++count;
  }
  return count;
}

TEST(WardenScrub, what_a_tenant_left_is_overwritten_before_the_next_guest_runs) {
  ASSERT_EQ(unshare(CLONE_NEWNET), 0);
  ScrubNode site(
      "lo",
      "must",
      "id -u >$said/uid; cat /proc/self/cgroup >$said/group; ls /sys/class/net >$said/net 2>&1\n"
      // The driver lists it as long as it lives, and longer.
      "echo \"recorded-card GPU-recorded-0 9 0 24576 500 0 41 70000 $$:300\" >$said/../recorded; "
      "sleep 0.2\n"
      "RN_FAKE_CUDA_GPU=GPU-recorded-0 RN_FAKE_CUDA_MEMORY=$said/card "
      "exec $said/reclaim-scrub --library $said/libcuda.so \"$@\""
  );
  // The build tree may lie where only root looks.
  fs::copy_file(RN_SCRUB, site.node.folder + "/said/reclaim-scrub");
  fs::copy_file(RN_FAKE_CUDA_LIBRARY, site.node.folder + "/said/libcuda.so");
  std::ofstream(site.node.folder + "/said/card", std::ios::binary) << std::string(kCardBytes, 'x');
  fs::permissions(site.node.folder + "/said/card", fs::perms(0666));
  ASSERT_TRUE(site.serve()) << text_of(site.node.folder + "/log");

  const auto started = site.run(1);

  EXPECT_EQ(started.code, "") << started.message;
  EXPECT_EQ(site.said("card"), std::string(kCardBytes, '\0'));
  EXPECT_GT(std::atol(site.said("uid").c_str()), 1000) << "it is nobody whom the machine knows";
  EXPECT_NE(site.said("group").find("/reclaim-" + site.node.lab + "/scrub-"), std::string::npos)
      << site.said("group");
  EXPECT_EQ(scrub_groups(site.node.lab), 0U);
  EXPECT_NE(text_of(site.node.folder + "/log").find("gpu.scrubbed"), std::string::npos);
  EXPECT_TRUE(site.node.finish(name_of(1)));
}

TEST(WardenScrub, where_it_must_be_and_fails_the_guest_is_refused_with_the_programs_words) {
  ASSERT_EQ(unshare(CLONE_NEWNET), 0);
  ScrubNode site("lf", "must", "echo 'the card is on fire' >&2; exit 1");
  ASSERT_TRUE(site.serve()) << text_of(site.node.folder + "/log");

  const auto refused = site.run(1);

  EXPECT_EQ(refused.code, "unavailable");
  EXPECT_NE(refused.message.find("could not be overwritten"), std::string::npos) << refused.message;
  EXPECT_NE(refused.message.find("the card is on fire"), std::string::npos) << refused.message;
  EXPECT_EQ(scrub_groups(site.node.lab), 0U);
  EXPECT_EQ(site.node.run(name_of(2), "sleep 100").code, "") << "one without a GPU runs";
  EXPECT_TRUE(site.node.finish(name_of(2)));
}

TEST(WardenScrub, where_it_is_only_tried_the_guest_starts_all_the_same_and_the_log_says_why) {
  ASSERT_EQ(unshare(CLONE_NEWNET), 0);
  ScrubNode site("lt", "try", "exit 3");
  ASSERT_TRUE(site.serve()) << text_of(site.node.folder + "/log");

  EXPECT_EQ(site.run(1).code, "");
  EXPECT_NE(text_of(site.node.folder + "/log").find("gpu.not_scrubbed"), std::string::npos);
  EXPECT_TRUE(site.node.finish(name_of(1)));
}

TEST(WardenScrub, an_order_of_the_owners_ends_it_and_no_guest_follows) {
  ASSERT_EQ(unshare(CLONE_NEWNET), 0);
  ScrubNode site("le", "try", "echo $$ >$said/pid; exec sleep 600");
  ASSERT_TRUE(site.serve()) << text_of(site.node.folder + "/log");
  auto starting = std::async(std::launch::async, [&] { return site.run(1); });
  ASSERT_TRUE(eventually([&] { return !site.said("pid").empty(); }));

  EXPECT_TRUE(run_shell(site.node.command("kill") + " --gpu 0 >" + site.node.folder + "/kill 2>&1"))
      << text_of(site.node.folder + "/kill");

  const std::string pid = site.said("pid");
  EXPECT_FALSE(fs::exists("/proc/" + pid.substr(0, pid.find('\n'))));
  EXPECT_NE(starting.get().code, "") << "it is only tried, but the owner has the GPU now";
  EXPECT_EQ(scrub_groups(site.node.lab), 0U);
}

TEST(WardenScrub, it_gives_way_to_who_else_computes_on_the_card) {
  ASSERT_EQ(unshare(CLONE_NEWNET), 0);
  ScrubNode site("lw", "must", "echo $$ >$said/pid; exec sleep 600");
  ASSERT_TRUE(site.serve()) << text_of(site.node.folder + "/log");
  auto starting = std::async(std::launch::async, [&] { return site.run(1); });
  ASSERT_TRUE(eventually([&] { return !site.said("pid").empty(); }));

  site.hold(std::to_string(getpid()) + ":300");

  const auto refused = starting.get();
  EXPECT_EQ(refused.code, "unavailable");
  EXPECT_NE(
      refused.message.find("process " + std::to_string(getpid()) + " computes on it"),
      std::string::npos
  ) << refused.message;
  const std::string pid = site.said("pid");
  EXPECT_FALSE(fs::exists("/proc/" + pid.substr(0, pid.find('\n'))));
}

TEST(WardenScrub, a_program_that_is_not_there_is_told_before_anything_is_served) {
  WardenNode node("ln");
  const std::string out = node.folder + "/out";
  EXPECT_FALSE(run_shell(
      node.command("serve") +
      " --lab x --agent-uid 64990 --init " RN_INIT " --gpu-scrub must --scrub /nowhere >" + out +
      " 2>&1"
  ));
  EXPECT_NE(text_of(out).find("--gpu-scrub: /nowhere is no program"), std::string::npos)
      << text_of(out);
  EXPECT_NE(text_of(out).find("--gpu-scrub off"), std::string::npos) << text_of(out);
}

}  // namespace
}  // namespace rn::warden
