// SPDX-License-Identifier: Apache-2.0
//
// The kill path with the container engine hanging: a private dockerd runs guests with a veth, a
// listening port and a mounted disk, one of them paused; then dockerd, containerd and all shims are
// stopped (SIGSTOP), and the owner takes the node back. Prints the time to each station. Leaves
// nothing behind.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>

#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/read_text.h"
#include "io/real_clock.h"
#include "traffic/guest_cut.h"
#include "warden/kill_path.h"

namespace rn::warden {
namespace {

namespace fs = std::filesystem;

std::string output_of(const std::string& command) {
  std::string text;
  std::array<char, 4096> part{};
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) text += part.data();
  pclose(pipe);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool is_done(const std::string& command) {
  return std::system(command.c_str()) == 0;
}

/// A dockerd of the test's own, with its containerd and shims, in the test's network namespace.
class Engine {
 public:
  explicit Engine(const std::string& folder) : folder_(folder) {
    fs::create_directories(folder_);
    pid_ = fork();
    if (pid_ == 0) run_daemon();
  }

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  ~Engine() {
    signal_all(SIGCONT);
    docker("ps -aq | xargs -r " + cli() + " rm -f >/dev/null 2>&1");
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
    for (const pid_t left : processes()) kill(left, SIGKILL);
    is_done("umount -l " + folder_ + "/data/* " + folder_ + "/exec/netns/* 2>/dev/null");
  }

  bool wait_ready() const {
    for (int i = 0; i < 300; ++i) {
      if (is_done(cli() + " version >/dev/null 2>&1")) return true;
      usleep(100'000);  // between two tries
    }
    return false;
  }

  std::string cli() const { return "docker -H unix://" + folder_ + "/docker.sock"; }

  std::string docker(const std::string& arguments) const {
    return output_of(cli() + " " + arguments);
  }

  /// dockerd, containerd, shims: everything whose command line names our folder.
  std::vector<pid_t> processes() const {
    std::vector<pid_t> pids;
    for (const pid_t pid : io::all_pids()) {
      const std::string line = io::read_text("/proc/" + std::to_string(pid) + "/cmdline");
      const bool is_engine = line.starts_with("dockerd") || line.starts_with("containerd") ||
                             line.find("/containerd-shim") != std::string::npos;
      if (is_engine && line.find(folder_) != std::string::npos) pids.push_back(pid);
    }
    return pids;
  }

  std::size_t signal_all(int signal) const {
    const std::vector<pid_t> pids = processes();
    for (const pid_t pid : pids) kill(pid, signal);
    return pids.size();
  }

 private:
  [[noreturn]] void run_daemon() const {
    if (std::freopen((folder_ + "/dockerd.log").c_str(), "w", stderr) == nullptr) _exit(126);
    const std::string socket = "unix://" + folder_ + "/docker.sock";
    const std::string data = folder_ + "/data";
    const std::string exec = folder_ + "/exec";
    const std::string pid_file = folder_ + "/docker.pid";
    execlp(
        "dockerd",
        "dockerd",
        "-H",
        socket.c_str(),
        "--data-root",
        data.c_str(),
        "--exec-root",
        exec.c_str(),
        "--pidfile",
        pid_file.c_str(),
        "--bridge=none",
        "--iptables=false",
        "--ip-masq=false",
        nullptr
    );
    _exit(127);
  }

  std::string folder_;
  pid_t pid_ = -1;
};

bool import_busybox(const Engine& engine, const std::string& folder) {
  const std::string root = folder + "/rootfs";
  return is_done(
      "mkdir -p " + root + "/bin " + root + "/tmp && cp /bin/busybox " + root +
      "/bin/ && for a in sh sleep nc; do ln -s busybox " + root + "/bin/$a; done && tar -C " +
      root + " -c . | " + engine.cli() + " import - rn-busybox >/dev/null"
  );
}

double ms_after(Instant from, Instant to) {
  return static_cast<double>((to - from).count()) / 1e6;
}

class KillWithoutEngine : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) {
      std::cerr
          << "\n*** NOT RUN: kill_without_engine needs root (Docker, namespaces, BPF) ***\n\n";
      GTEST_SKIP() << "not root";
    }
    ASSERT_TRUE(is_done("command -v dockerd >/dev/null && test -x /bin/busybox"))
        << "needs the packages docker.io and busybox-static";
    ASSERT_EQ(unshare(CLONE_NEWNET), 0);
    char name[] = "/tmp/rn_engine_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    roots_ = probe_cgroups().value();
    auto cut = traffic::GuestCut::open(folder_ + "/bpf");
    ASSERT_TRUE(cut) << cut.error().describe();
    cut_.emplace(std::move(*cut));
    engine_.emplace(folder_ + "/engine");
    ASSERT_TRUE(engine_->wait_ready()) << output_of("tail -5 " + folder_ + "/engine/dockerd.log");
    ASSERT_TRUE(import_busybox(*engine_, folder_));
    fs::create_directory(folder_ + "/attempts");
    KillPathConfig config;
    config.journal = folder_ + "/kill.journal";
    config.bpffs = folder_ + "/bpf";
    config.cgroup_parent = lab_;
    config.attempts_folder = folder_ + "/attempts";
    auto path = KillPath::open(config, clock_, nullptr);
    ASSERT_TRUE(path) << path.error().describe();
    path_ = std::move(*path);
  }

  void TearDown() override {
    path_.reset();
    engine_.reset();
    if (cut_) {
      EXPECT_TRUE(cut_->leave());
    }
    cut_.reset();
    if (folder_.empty()) return;
    const Status removed = remove_cgroup(roots_, lab_);
    EXPECT_TRUE(removed) << removed.error().describe();
    detach_mounts(folder_.c_str());
    Remains mounts;
    look_at_mounts(folder_.c_str(), mounts);
    EXPECT_TRUE(mounts.is_empty()) << testing::PrintToString(mounts.describe());
    fs::remove_all(folder_);
  }

  /// A container as the warden makes it: own disk, own veth with the filter, and the guest's place
  /// registered.
  void start_guest(traffic::Slot slot) {
    const std::string number = std::to_string(slot);
    const std::string disk = folder_ + "/attempts/j-" + number;
    fs::create_directory(disk);
    ASSERT_EQ(mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m"), 0);
    const std::string id = engine_->docker(
        "run -d --network none --cgroup-parent /" + lab_ +
        " --user 10001:10001 --cap-drop ALL -v " + disk +
        ":/work rn-busybox /bin/sh -c 'nc -l -p 8888 & for i in 1 2 3 4; do sleep 100000 & done; "
        "while :; do sleep 1; done'"
    );
    ASSERT_EQ(id.size(), 64u) << id;
    const std::string pid = engine_->docker("inspect -f '{{.State.Pid}}' " + id);
    const std::string netns = engine_->docker("inspect -f '{{.NetworkSettings.SandboxKey}}' " + id);
    const std::string veth = "gv" + number;
    ASSERT_TRUE(
        is_done("ip link add " + veth + " type veth peer name eth0 netns /proc/" + pid + "/ns/net")
    );
    traffic::GuestPolicy policy;
    policy.guest_v4 = "192.0.2.2";
    policy.gateway_v4 = "192.0.2.1";
    ASSERT_TRUE(cut_->attach(veth, slot, policy));
    ASSERT_TRUE(is_done("ip link set " + veth + " up"));
    ASSERT_TRUE(cut_->uncut(slot));
    const GuestPlace place{lab_ + "/" + id, disk, netns, if_nametoindex(veth.c_str())};
    ASSERT_TRUE(path_->guest_started(slot, place));
    ids_.push_back(id);
  }

  const io::RealClock clock_{};
  const std::string lab_ = "rn-test-engine-" + std::to_string(getpid());
  std::string folder_;
  CgroupRoots roots_;
  std::optional<traffic::GuestCut> cut_;
  std::optional<Engine> engine_;
  std::unique_ptr<KillPath> path_;
  std::vector<std::string> ids_;
};

TEST_F(KillWithoutEngine, guests_are_cut_killed_and_cleared_while_the_engine_is_stopped) {
  for (const traffic::Slot slot : {1u, 2u, 3u}) ASSERT_NO_FATAL_FAILURE(start_guest(slot));
  ASSERT_TRUE(cut_->uncut_node());
  engine_->docker("pause " + ids_[1]);
  const Remains before = path_->look(KillScope::node(), milliseconds(10));
  ASSERT_GT(before.total(), 3u * (6 + 1 + 1)) << "processes, a mount, an interface and a port each";
  ASSERT_GE(engine_->signal_all(SIGSTOP), 5u) << "dockerd, containerd and three shims";

  const KillReport report = path_->clear({});

  EXPECT_TRUE(report.is_cleared()) << testing::PrintToString(report.remains.describe());
  EXPECT_EQ(report.cut_error, 0);
  EXPECT_GE(report.processes, 3u * 6);
  EXPECT_FALSE(cut_->gates().state()->is_node_open);
  for (const char* veth : {"gv1", "gv2", "gv3"}) EXPECT_EQ(if_nametoindex(veth), 0u);
  std::printf(
      "engine stopped, %u processes in 3 containers (one paused): cut %.2f, killed %.2f, cleared "
      "%.2f ms; %s\n",
      report.processes,
      ms_after(report.declared, report.cut),
      ms_after(report.declared, report.killed),
      ms_after(report.declared, report.cleared),
      report.is_journaled ? "journaled" : "not journaled in time"
  );
}

TEST_F(KillWithoutEngine, one_guest_goes_and_its_neighbour_stays_with_the_engine_stopped) {
  for (const traffic::Slot slot : {1u, 2u}) ASSERT_NO_FATAL_FAILURE(start_guest(slot));
  ASSERT_TRUE(cut_->uncut_node());
  ASSERT_GE(engine_->signal_all(SIGSTOP), 4u);

  const KillReport report = path_->clear({.scope = KillScope::guest(1)});

  EXPECT_TRUE(report.is_cleared()) << testing::PrintToString(report.remains.describe());
  EXPECT_TRUE(pids_in_cgroup(roots_, lab_ + "/" + ids_[0])->empty());
  EXPECT_GE(pids_in_cgroup(roots_, lab_ + "/" + ids_[1])->size(), 6u);
  EXPECT_TRUE(cut_->gates().state()->is_node_open);
  EXPECT_TRUE(cut_->gates().is_open(2).value());
  EXPECT_NE(if_nametoindex("gv2"), 0u);
}

TEST_F(KillWithoutEngine, the_engine_comes_back_and_finds_its_guests_dead) {
  ASSERT_NO_FATAL_FAILURE(start_guest(1));
  ASSERT_GE(engine_->signal_all(SIGSTOP), 3u);
  ASSERT_TRUE(path_->clear({}).is_cleared());

  engine_->signal_all(SIGCONT);

  std::string state;
  for (int i = 0; i < 100 && state != "exited"; ++i) {
    state = engine_->docker("inspect -f '{{.State.Status}}' " + ids_[0]);
    if (state != "exited") usleep(100'000);  // between two looks
  }
  EXPECT_EQ(state, "exited");
}

}  // namespace
}  // namespace rn::warden

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
