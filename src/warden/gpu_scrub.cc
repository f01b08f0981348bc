// SPDX-License-Identifier: Apache-2.0
#include "warden/gpu_scrub.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "io/errno_error.h"
#include "io/fd.h"
#include "warden/posix.h"

namespace rn::warden {
namespace {

constexpr milliseconds kScrubLook{50};
constexpr milliseconds kScrubKillLimit = seconds(5);
constexpr std::size_t kScrubWords = 4096;  ///< of what it says; more is read and forgotten
constexpr int kScrubNotBegun = 126;

/// All that the child needs, made before the fork of a threaded process.
struct ScrubPlan {
  std::vector<io::Fd> groups;  ///< cgroup.procs of each hierarchy
  io::Fd nothing;
  io::Fd out;
  const char* program = nullptr;
  std::array<char*, 4> words{};
  std::array<char*, 2> environment{};
  uid_t uid = 0;
};

/// Only what is safe after a fork of a threaded process.
[[noreturn]] void become_scrub(const ScrubPlan& plan) {
  for (const io::Fd& group : plan.groups)
    if (write(group.get(), "0", 1) != 1) _exit(kScrubNotBegun);
  if (dup2(plan.nothing.get(), 0) < 0 || dup2(plan.out.get(), 1) < 0 ||
      dup2(plan.out.get(), 2) < 0 || syscall(SYS_close_range, 3U, ~0U, 0U) != 0)
    _exit(kScrubNotBegun);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // The raw calls: the C library's own would look for the other threads.
  const auto id = static_cast<long>(plan.uid);
  if (unshare(CLONE_NEWNET | CLONE_NEWIPC) != 0 || syscall(SYS_setgroups, 0, nullptr) != 0 ||
      syscall(SYS_setresgid, id, id, id) != 0 || syscall(SYS_setresuid, id, id, id) != 0 ||
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
    _exit(kScrubNotBegun);
  execve(plan.program, plan.words.data(), plan.environment.data());
  _exit(kScrubNotBegun);
}

Result<std::vector<io::Fd>> open_scrub_groups(const CgroupRoots& roots, const std::string& cgroup) {
  std::vector<io::Fd> groups;
  for (const std::string& top : {roots.unified, roots.freezer}) {
    if (top.empty()) continue;
    const std::string path = top + "/" + cgroup + "/cgroup.procs";
    io::Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file) return fail(from_errno(path));
    groups.push_back(std::move(file));
  }
  return Result<std::vector<io::Fd>>(std::move(groups));
}

/// One that is being waited for; it is reaped in any case.
class ScrubProcess {
 public:
  ScrubProcess(pid_t pid, io::Fd out) : pid_(pid), out_(std::move(out)) {
    pidfd_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  }

  ScrubProcess(const ScrubProcess&) = delete;
  ScrubProcess& operator=(const ScrubProcess&) = delete;

  ~ScrubProcess() {
    // One that the driver keeps is reaped when the driver lets it go.
    if (!has_ended_ && !reap())
      std::thread([pid = pid_] {
        while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
        }
      }).detach();
  }

  /// Waits up to `limit` for its end or its words.
  bool has_ended(milliseconds limit) {
    std::array<pollfd, 2> what{{{pidfd_.get(), POLLIN, 0}, {out_.get(), POLLIN, 0}}};
    (void)poll(what.data(), what.size(), static_cast<int>(limit.count()));
    read_words();
    return reap();
  }

  bool is_good() const { return WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }

  std::string how_it_ended() const {
    if (WIFSIGNALED(status_)) return "it was killed";
    if (WEXITSTATUS(status_) == kScrubNotBegun) return "it could not be started";
    return "it ended with " + std::to_string(WEXITSTATUS(status_));
  }

  /// Of what it said; empty for nothing.
  std::string last_line() const {
    std::string_view all = words_;
    while (!all.empty() && all.back() == '\n') all.remove_suffix(1);
    const auto end = all.rfind('\n');
    return std::string(end == std::string_view::npos ? all : all.substr(end + 1));
  }

  pid_t pid() const { return pid_; }

 private:
  void read_words() {
    std::array<char, 1024> some{};
    // Not without an end: a program that never stops talking must not keep us here.
    for (int round = 0; round < 64; ++round) {
      const ssize_t count = read(out_.get(), some.data(), some.size());
      if (count <= 0) return;
      if (words_.size() < kScrubWords) words_.append(some.data(), static_cast<std::size_t>(count));
    }
  }

  bool reap() {
    if (!has_ended_) has_ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    if (has_ended_) read_words();
    return has_ended_;
  }

  pid_t pid_;
  io::Fd out_;
  io::Fd pidfd_;
  bool has_ended_ = false;
  int status_ = 0;
  std::string words_;
};

Result<ScrubPlan> plan_scrub(const GpuScrubOrder& order, const CgroupRoots& roots, io::Fd out) {
  ScrubPlan plan;
  RN_TRY(plan.groups, open_scrub_groups(roots, order.cgroup));
  plan.nothing.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!plan.nothing) return fail(from_errno("/dev/null"));
  plan.out = std::move(out);
  plan.program = order.program.c_str();
  static char name[] = "reclaim-scrub";
  static char flag[] = "--gpu";
  static char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  plan.words = {name, flag, const_cast<char*>(order.uuid.c_str()), nullptr};  // execve's own type
  plan.environment = {path, nullptr};
  plan.uid = order.uid;
  return Result<ScrubPlan>(std::move(plan));
}

Result<std::string> watch_scrub(
    ScrubProcess& process,
    const GpuScrubOrder& order,
    const CgroupName& cgroup,
    const CgroupKiller& killer,
    const Clock& clock,
    const std::function<Status(pid_t)>& may_go_on
) {
  const Instant deadline = clock.now().boot + order.limit;
  Status stopped;
  while (!process.has_ended(kScrubLook)) {
    stopped = may_go_on(process.pid());
    if (stopped && clock.now().boot >= deadline)
      stopped = fail(
          ErrorCode::kTimeout,
          "reclaim-scrub has not ended within " + std::to_string(order.limit.count()) + " ms"
      );
    if (stopped) continue;
    (void)killer.kill(cgroup, clock.now().boot + kScrubKillLimit);
    const Instant last = clock.now().boot + kScrubKillLimit;
    while (!process.has_ended(kScrubLook) && clock.now().boot < last) {
    }
    if (!process.has_ended(milliseconds(0)))
      return fail(
          ErrorCode::kTimeout,
          "reclaim-scrub, process " + std::to_string(process.pid()) + ", does not end when killed",
          "look at dmesg; the node may need a reboot"
      );
    return fail(stopped.error());
  }
  if (process.is_good()) return process.last_line();
  const std::string words = process.last_line();
  return fail(
      ErrorCode::kUnavailable,
      words.empty() ? "reclaim-scrub: " + process.how_it_ended() : words,
      "run reclaim-scrub --gpu " + order.uuid + " as root to see why"
  );
}

Result<std::string> run_scrub(
    const GpuScrubOrder& order,
    const CgroupRoots& roots,
    const CgroupKiller& killer,
    const Clock& clock,
    const std::function<Status(pid_t)>& may_go_on
) {
  RN_TRY(const CgroupName cgroup, make_cgroup_name(order.cgroup));
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return fail(from_errno("a pipe"));
  io::Fd said(ends[0]);
  RN_TRY(const ScrubPlan plan, plan_scrub(order, roots, io::Fd(ends[1])));
  RN_CHECK(may_go_on(0));
  const pid_t pid = fork();
  if (pid < 0) return fail(from_errno("starting reclaim-scrub"));
  if (pid == 0) become_scrub(plan);
  ScrubProcess process(pid, std::move(said));
  return watch_scrub(process, order, cgroup, killer, clock, may_go_on);
}

}  // namespace

Result<std::string> scrub_gpu(
    const GpuScrubOrder& order,
    const CgroupRoots& roots,
    const CgroupKiller& killer,
    const Clock& clock,
    const std::function<Status(pid_t)>& may_go_on
) {
  RN_CHECK(make_cgroup(roots, order.cgroup));
  auto said = run_scrub(order, roots, killer, clock, may_go_on);
  if (const Status removed = remove_cgroup(roots, order.cgroup); !removed)
    log::warning("gpu.scrub_stays", {{"why", removed.error().describe()}});
  return said;
}

}  // namespace rn::warden
