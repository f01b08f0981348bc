// SPDX-License-Identifier: Apache-2.0
#include "io/subprocess.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/errno_error.h"
#include "io/fd.h"
#include "io/net.h"
#include "io/pipe.h"

extern char** environ;  // NOLINT: POSIX wants it declared by the program

namespace rn::io {
namespace {

/// Everything the child needs, made before fork: afterwards only async-signal-safe calls are
/// allowed.
struct ChildPlan {
  std::vector<std::string> candidates;  ///< paths of the program to try, in order
  std::vector<char*> argv;
  std::vector<char*> environment;
  const char* folder = nullptr;
  std::vector<std::pair<int, int>> fds;  ///< {ours, child's}
  int report_fd = -1;                    ///< takes errno when exec fails
  int null_fd = -1;
  bool new_session = false;
  bool dies_with_parent = false;
};

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> candidates_for(const std::string& program) {
  if (program.find('/') != std::string::npos) return {program};
  const char* path =
      std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nobody sets variables here
  const std::string list = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
  std::vector<std::string> found;
  std::size_t start = 0;
  while (start <= list.size()) {
    const std::size_t end = std::min(list.find(':', start), list.size());
    if (end > start) found.push_back(list.substr(start, end - start) + "/" + program);
    start = end + 1;
  }
  return found;
}

[[noreturn]] void give_up(const ChildPlan& plan) {
  const int number = errno;
  (void)!write(plan.report_fd, &number, sizeof(number));
  _exit(127);
}

/// Moves descriptors to their numbers in the child. Sources are first lifted above all targets, so
/// none is overwritten.
void place_fds(const ChildPlan& plan, std::pair<int, int>* lifted, int first_free) {
  for (std::size_t i = 0; i < plan.fds.size(); ++i) {
    lifted[i] = {fcntl(plan.fds[i].first, F_DUPFD, first_free), plan.fds[i].second};
    if (lifted[i].first < 0) give_up(plan);
  }
  for (int standard = 0; standard <= 2; ++standard) {
    if (dup2(plan.null_fd, standard) < 0) give_up(plan);
  }
  for (std::size_t i = 0; i < plan.fds.size(); ++i) {
    if (dup2(lifted[i].first, lifted[i].second) < 0) give_up(plan);
  }
}

void set_close_on_exec_from(int first) {
  if (syscall(SYS_close_range, first, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  for (int fd = first; fd < 20'000; ++fd) (void)fcntl(fd, F_SETFD, FD_CLOEXEC);  // kernel < 5.11
}

void close_others(const ChildPlan& plan, int highest) {
  for (int fd = 3; fd <= highest; ++fd) {
    const bool is_wanted = std::any_of(plan.fds.begin(), plan.fds.end(), [fd](const auto& pair) {
      return pair.second == fd;
    });
    if (!is_wanted && fd != plan.report_fd) (void)close(fd);
  }
  set_close_on_exec_from(highest + 1);
}

[[noreturn]] void become(ChildPlan& plan, std::pair<int, int>* lifted, int highest, pid_t parent) {
  for (int number = 1; number < NSIG; ++number) (void)std::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, nullptr);
  if (plan.new_session) (void)setsid();
  if (plan.dies_with_parent) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
  }
  // The report must survive the placing of descriptors.
  plan.report_fd = fcntl(plan.report_fd, F_DUPFD_CLOEXEC, highest + 1);
  plan.null_fd = fcntl(plan.null_fd, F_DUPFD_CLOEXEC, highest + 1);
  place_fds(plan, lifted, highest + 1);
  close_others(plan, highest);
  if (plan.folder != nullptr && chdir(plan.folder) != 0) give_up(plan);
  int failure = ENOENT;
  for (const std::string& candidate : plan.candidates) {
    (void)execve(candidate.c_str(), plan.argv.data(), plan.environment.data());
    if (errno != ENOENT && errno != ENOTDIR) failure = errno;
  }
  errno = failure;
  give_up(plan);
}

int pidfd_open_of(pid_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

ExitStatus to_exit_status(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return ExitStatus{info.si_status, 0};
  return ExitStatus{0, info.si_status};
}

Status check(const SpawnOptions& options) {
  if (options.argv.empty() || options.argv.front().empty())
    return fail(ErrorCode::kInvalid, "there is no program to run");
  const auto has_nul = [](const std::string& text) { return text.find('\0') != std::string::npos; };
  if (std::any_of(options.argv.begin(), options.argv.end(), has_nul))
    return fail(ErrorCode::kInvalid, "an argument has a NUL byte");
  return {};
}

}  // namespace

Result<Subprocess> Subprocess::spawn(const SpawnOptions& options) {
  RN_CHECK(check(options));
  RN_TRY(Pipe report, make_pipe());
  const Fd null_fd(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_fd) return fail(error_from_errno(errno, "opening /dev/null"));
  ChildPlan plan;
  plan.candidates = candidates_for(options.argv.front());
  plan.argv = pointers_to(options.argv);
  if (options.environment) plan.environment = pointers_to(*options.environment);
  if (!options.environment) {
    for (char** at = environ; *at != nullptr; ++at) plan.environment.push_back(*at);
    plan.environment.push_back(nullptr);
  }
  plan.folder = options.folder.empty() ? nullptr : options.folder.c_str();
  plan.fds = options.fds;
  plan.report_fd = report.write.get();
  plan.null_fd = null_fd.get();
  plan.new_session = options.new_session;
  plan.dies_with_parent = options.dies_with_parent;
  int highest = 2;
  for (const auto& [ours, theirs] : options.fds) highest = std::max({highest, ours, theirs});
  std::vector<std::pair<int, int>> lifted(options.fds.size());

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return fail(error_from_errno(errno, "starting " + options.argv.front()));
  if (pid == 0) become(plan, lifted.data(), highest, parent);
  Subprocess child;
  child.pid_ = pid;
  child.own_session_ = options.new_session;
  child.pidfd_ = pidfd_open_of(pid);  // not reaped yet, so the pid is still this child's
  if (child.pidfd_ < 0) return fail(error_from_errno(errno, "watching " + options.argv.front()));
  report.write.reset();
  int number = 0;
  ssize_t got = 0;
  do {
    got = read(report.read.get(), &number, sizeof(number));
  } while (got < 0 && errno == EINTR);
  if (got == sizeof(number))
    return fail(error_from_errno(number, "running " + options.argv.front()));
  return child;
}

Subprocess::Subprocess(Subprocess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::exchange(other.pidfd_, -1)),
      own_session_(other.own_session_),
      status_(other.status_) {}

Subprocess& Subprocess::operator=(Subprocess&& other) noexcept {
  if (this == &other) return *this;
  destroy();
  pid_ = std::exchange(other.pid_, -1);
  pidfd_ = std::exchange(other.pidfd_, -1);
  own_session_ = other.own_session_;
  status_ = other.status_;
  return *this;
}

Subprocess::~Subprocess() {
  destroy();
}

void Subprocess::destroy() {
  if (pid_ > 0 && !status_) {
    if (own_session_) (void)kill(-pid_, SIGKILL);  // not reaped: the group's number is still ours
    (void)kill(pid_, SIGKILL);
    int ignored = 0;
    while (waitpid(pid_, &ignored, 0) < 0 && errno == EINTR) {
    }
  }
  if (pidfd_ >= 0) (void)close(pidfd_);
  pid_ = -1;
  pidfd_ = -1;
}

Status Subprocess::signal(int number) const {
  if (pid_ <= 0 || status_) return fail(ErrorCode::kNotFound, "the process has ended");
  if (syscall(SYS_pidfd_send_signal, pidfd_, number, nullptr, 0) == 0) return {};
  return fail(error_from_errno(errno, "signalling process " + std::to_string(pid_)));
}

Status Subprocess::signal_group(int number) const {
  if (pid_ <= 0 || status_) return fail(ErrorCode::kNotFound, "the process has ended");
  if (!own_session_) return fail(ErrorCode::kUnsupported, "the process has no group of its own");
  if (kill(-pid_, number) == 0) return {};
  return fail(error_from_errno(errno, "signalling the group of process " + std::to_string(pid_)));
}

Result<ExitStatus> Subprocess::wait(milliseconds timeout) {
  if (status_) return *status_;
  if (pid_ <= 0) return fail(ErrorCode::kNotFound, "there is no process");
  if (!wait_for(pidfd_, POLLIN, Deadline(timeout)))
    return fail(ErrorCode::kTimeout, "process " + std::to_string(pid_) + " is still running");
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0)
    return fail(error_from_errno(errno, "waiting for process " + std::to_string(pid_)));
  status_ = to_exit_status(info);
  return *status_;
}

}  // namespace rn::io
