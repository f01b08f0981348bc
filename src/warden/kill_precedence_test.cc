// SPDX-License-Identifier: Apache-2.0
#include "warden/kill_precedence.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/read_text.h"
#include "io/real_clock.h"
#include "warden/cgroup.h"
#include "warden/cgroup_fixture.h"
#include "warden/kill_service.h"

namespace rn::warden {
namespace {

using warden_wire::KillFrame;

TEST(PrecedenceBudget, is_spent_by_what_is_more_than_its_share_and_whole_again_in_the_next_window) {
  PrecedenceBudget budget;
  const Instant start = instant_from_ns(5'000'000'000);
  EXPECT_TRUE(budget.allows(start, seconds(3))) << "what was used before the window does not count";
  EXPECT_TRUE(budget.allows(start + milliseconds(500), seconds(3) + PrecedenceBudget::kShare));

  const nanoseconds too_much = seconds(3) + PrecedenceBudget::kShare + nanoseconds(1);
  EXPECT_FALSE(budget.allows(start + milliseconds(600), too_much));
  EXPECT_FALSE(budget.allows(budget.until() - nanoseconds(1), too_much));

  EXPECT_TRUE(budget.allows(start + PrecedenceBudget::kWindow, too_much));
}

int policy_of(pid_t thread) {
  return sched_getscheduler(thread) & ~SCHED_RESET_ON_FORK;
}

bool in_time(const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) return false;
    usleep(2000);  // between two looks
  }
  return true;
}

/// The calling thread may raise nobody's precedence any more, itself included.
bool give_up_precedence() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  for (auto* set : {&data[0].effective, &data[0].permitted}) *set &= ~(1U << CAP_SYS_NICE);
  return syscall(SYS_capset, &header, data) == 0;
}

/// The owner's socket without guests and gates: who is served, and how soon.
class KillThread : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "not root";
    KillPathConfig config;
    config.journal = folder_.path() + "/kill.journal";
    config.bpffs = folder_.path() + "/none";
    config.cgroup_parent = lab_;
    config.is_emergency = true;
    auto path = KillPath::open(config, clock_, nullptr);
    ASSERT_TRUE(path) << path.error().describe();
    path_ = std::move(*path);
  }

  void TearDown() override {
    service_.reset();
    if (const auto roots = probe_cgroups(); roots && geteuid() == 0) {
      EXPECT_TRUE(remove_cgroup(*roots, lab_));
    }
  }

  void serve() {
    auto service = KillService::start(socket_, {}, std::move(path_), 0, clock_, [](auto) {});
    ASSERT_TRUE(service) << service.error().describe();
    service_ = std::move(*service);
    ASSERT_TRUE(in_time([&] { return (thread_ = find_thread()) != 0; }));
  }

  static pid_t find_thread() {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      if (io::read_text(task.path().string() + "/comm") == "kill-socket\n")
        return std::stoi(task.path().filename().string());
    }
    return 0;
  }

  Result<KillFrame> asks(KillFrame::Verb verb) const {
    KillFrame frame;
    frame.verb = verb;
    return ask_kill_socket(socket_, frame, seconds(30));
  }

  /// Connects, sends what is no order, and goes.
  void knock() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, socket_.data(), socket_.size());
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      send(fd, "?", 1, MSG_NOSIGNAL);
    close(fd);
  }

  const std::string lab_ = "reclaim-kt" + std::to_string(getpid());
  const test::Folder folder_{test::Tree{}};
  const std::string socket_ = folder_.path() + "/kill.sock";
  const io::RealClock clock_{};
  std::unique_ptr<KillPath> path_;
  std::unique_ptr<KillService> service_;
  pid_t thread_ = 0;
};

/// A process that listens at `path`, hears nobody and is stopped; as many as it lets wait do so.
class StoppedListener {
 public:
  explicit StoppedListener(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    const auto* const to = reinterpret_cast<const sockaddr*>(&address);
    pid_ = fork();
    if (pid_ == 0) {
      const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
      if (bind(fd, to, sizeof address) == 0 && listen(fd, 1) == 0) raise(SIGSTOP);
      _exit(1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
    for (int error = 0; error == 0;) {
      waiting_.push_back(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      error = connect(waiting_.back(), to, sizeof address) == 0 ? 0 : errno;
      EXPECT_TRUE(error == 0 || error == EAGAIN) << std::strerror(error);
    }
  }

  StoppedListener(const StoppedListener&) = delete;
  StoppedListener& operator=(const StoppedListener&) = delete;

  ~StoppedListener() {
    for (const int fd : waiting_) close(fd);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  std::vector<int> waiting_;
};

TEST_F(KillThread, of_a_stopped_daemon_at_which_many_wait_is_not_waited_for) {
  const StoppedListener daemon(socket_);
  const std::string pid_file = folder_.path() + "/warden.pid";
  std::ofstream(pid_file) << daemon.pid() << '\n';

  const auto known = ask_kill_socket(socket_, KillFrame{}, std::chrono::hours(1), pid_file);

  ASSERT_FALSE(known);
  EXPECT_EQ(known.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(known.error().message, "the warden is stopped");
  const auto unknown = ask_kill_socket(socket_, KillFrame{}, milliseconds(20), "/none");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "too many others ask the warden");
}

TEST_F(KillThread, has_precedence_before_any_order_comes) {
  const int before = policy_of(0);
  serve();

  EXPECT_TRUE(in_time([&] { return policy_of(thread_) == SCHED_RR; }));
  EXPECT_EQ(policy_of(0), before) << "nobody else has it";
  ASSERT_TRUE(asks(KillFrame::kCutOnly));
  EXPECT_TRUE(in_time([&] { return policy_of(thread_) == SCHED_RR; })) << "and after it";
  EXPECT_EQ(policy_of(0), before) << "who ordered has given it back";
}

TEST_F(KillThread, loses_it_to_a_flood_of_clients_serves_on_and_has_it_back_after) {
  serve();
  std::atomic<bool> is_flooded = true;
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&] {
      while (is_flooded) knock();
    });
  }

  EXPECT_TRUE(in_time([&] { return policy_of(thread_) != SCHED_RR; }));
  EXPECT_TRUE(asks(KillFrame::kCutOnly)) << "the order of an owner among them";

  is_flooded = false;
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(in_time([&] { return policy_of(thread_) == SCHED_RR; }));
}

TEST_F(KillThread, serves_without_it_where_the_kernel_refuses) {
  std::thread([&] {
    ASSERT_TRUE(give_up_precedence());
    serve();
  }).join();
  ASSERT_NE(service_, nullptr);

  EXPECT_TRUE(asks(KillFrame::kCutOnly));
  EXPECT_NE(policy_of(thread_), SCHED_RR);
}

}  // namespace
}  // namespace rn::warden
