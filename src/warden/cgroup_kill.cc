// SPDX-License-Identifier: Apache-2.0
#include "warden/cgroup_kill.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "warden/proc_scan.h"

namespace rn::warden {
namespace {

constexpr int kMaxGroupDepth = 8;       ///< runc makes one level, nested engines few more
constexpr std::size_t kPollBatch = 64;  ///< pidfds waited for at once
constexpr milliseconds kFallbackStep{5};
constexpr milliseconds kStrikeStep{
    250};  ///< after it somebody may have frozen the guests anew: strike again
constexpr milliseconds kFreezeWait{
    50};  ///< a task in uninterruptible sleep does not freeze; it is killed all the same

using proc::Descriptor;
using proc::open_folder;

void write_word(int folder, const char* file, const char* word) {
  const Descriptor fd(openat(folder, file, O_WRONLY | O_CLOEXEC));
  if (!fd.is_open()) return;
  // An error means that the cgroup has gone, or that the fallback will find what is left.
  [[maybe_unused]] const ssize_t written = write(fd.get(), word, std::strlen(word));
}

/// True for what hides no process: a cgroup that has just gone, and a threaded one, whose processes
/// are listed above it.
bool hides_nothing(int error) {
  return error == ENOENT || error == ENODEV || error == EOPNOTSUPP;
}

/// Calls visit(folder) for the folder and all below it, parents first. False when there may be
/// more.
template <class Visit>
bool walk(int folder, int depth, Visit& visit) {
  visit(folder);
  if (depth == kMaxGroupDepth) return true;
  bool is_whole = true;
  const bool is_listed = proc::each_entry(folder, [&](const char* name, std::uint8_t type) {
    if (type != DT_DIR || name[0] == '.') return;
    const Descriptor child(open_folder(folder, name));
    if (child.is_open() ? !walk(child.get(), depth + 1, visit) : !hides_nothing(errno))
      is_whole = false;
  });
  return (is_listed || hides_nothing(errno)) && is_whole;
}

/// False when there may be more: a look that fails is no proof that nobody is there.
template <class Visit>
bool each_pid(int top, const CgroupName& name, Visit visit) {
  if (top < 0) return true;
  const Descriptor folder(open_folder(top, name.data()));
  if (!folder.is_open()) return hides_nothing(errno);
  bool is_whole = true;
  auto read_folder = [&](int one) {
    const bool is_read = proc::each_line(one, "cgroup.procs", [&](const char* line, std::size_t) {
      visit(std::atoi(line));
    });
    if (!is_read && !hides_nothing(errno)) is_whole = false;
  };
  return walk(folder.get(), 0, read_folder) && is_whole;
}

bool says_populated(int events) {
  std::array<char, 256> text{};
  const ssize_t got = pread(events, text.data(), text.size() - 1, 0);
  if (got < 0) return !hides_nothing(errno);  // ENODEV: the cgroup was removed, so it is empty
  return std::strstr(text.data(), "populated 1") != nullptr;
}

timespec time_until(Instant now, Instant deadline, nanoseconds at_most) {
  const nanoseconds left = std::clamp<nanoseconds>(deadline - now, nanoseconds(0), at_most);
  return {left.count() / 1'000'000'000, left.count() % 1'000'000'000};
}

void thaw_v1(int freezer, const CgroupName& name) {
  if (freezer < 0) return;
  const Descriptor folder(open_folder(freezer, name.data()));
  if (!folder.is_open()) return;
  auto thaw = [](int one) { write_word(one, "freezer.state", "THAWED"); };
  walk(folder.get(), 0, thaw);
}

/// Frozen processes can neither fork nor end, so that a list of them is complete and no pid in it
/// is recycled.
void freeze_v1(int freezer, const CgroupName& name, const Clock& clock, Instant deadline) {
  if (freezer < 0) return;
  const Descriptor folder(open_folder(freezer, name.data()));
  if (!folder.is_open()) return;
  write_word(folder.get(), "freezer.state", "FROZEN");
  const Descriptor state(openat(folder.get(), "freezer.state", O_RDONLY | O_CLOEXEC));
  const timespec step{0, 500'000};
  for (char word[16] = {}; state.is_open() && clock.now().boot < deadline;
       nanosleep(&step, nullptr)) {
    if (pread(state.get(), word, sizeof(word) - 1, 0) <= 0 || std::strncmp(word, "FROZEN", 6) == 0)
      return;
  }
}

void read_word(int folder, const char* file, std::array<char, 48>& word) {
  const Descriptor fd(openat(folder, file, O_RDONLY | O_CLOEXEC));
  if (fd.is_open() && read(fd.get(), word.data(), word.size() - 1) < 0) word = {};
}

/// Waits for the first few processes of the cgroup to end, at most `at_most`.
void wait_for_some(int top, const CgroupName& name, timespec at_most) {
  std::array<pollfd, kPollBatch> waits{};
  nfds_t count = 0;
  each_pid(top, name, [&](pid_t pid) {
    if (count == waits.size()) return;
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (fd >= 0) waits[count++] = {fd, POLLIN, 0};
  });
  if (count > 0) ppoll(waits.data(), count, &at_most, nullptr);
  for (nfds_t i = 0; i < count; ++i) close(waits[i].fd);
}

}  // namespace

Result<CgroupName> make_cgroup_name(const std::string& name) {
  const bool is_climbing = name == ".." || name.starts_with("../") || name.ends_with("/..") ||
                           name.find("/../") != std::string::npos;
  if (name.empty() || name.front() == '/' || name.size() >= kMaxCgroupName || is_climbing) {
    return fail(ErrorCode::kInvalid, "not a relative cgroup name: " + name);
  }
  CgroupName fixed{};
  std::copy(name.begin(), name.end(), fixed.begin());
  return fixed;
}

bool PidSet::contains(pid_t one) const {
  return std::find(pid.begin(), pid.begin() + static_cast<std::ptrdiff_t>(count), one) !=
         pid.begin() + static_cast<std::ptrdiff_t>(count);
}

CgroupKiller::CgroupKiller(const Clock& clock) : clock_(&clock) {}

CgroupKiller::CgroupKiller(CgroupKiller&& other) noexcept
    : unified_(std::exchange(other.unified_, -1)),
      freezer_(std::exchange(other.freezer_, -1)),
      cpu_(std::exchange(other.cpu_, -1)),
      pids_(std::exchange(other.pids_, -1)),
      clock_(other.clock_) {}

CgroupKiller::~CgroupKiller() {
  if (unified_ >= 0) close(unified_);
  if (freezer_ >= 0) close(freezer_);
  if (cpu_ >= 0) close(cpu_);
  if (pids_ >= 0) close(pids_);
}

Result<CgroupKiller> CgroupKiller::open(const CgroupRoots& roots, const Clock& clock) {
  CgroupKiller killer(clock);
  if (!roots.unified.empty()) killer.unified_ = open_folder(AT_FDCWD, roots.unified.c_str());
  if (!roots.freezer.empty()) killer.freezer_ = open_folder(AT_FDCWD, roots.freezer.c_str());
  const bool misses_unified = !roots.unified.empty() && killer.unified_ < 0;
  const bool misses_freezer = !roots.freezer.empty() && killer.freezer_ < 0;
  if (misses_unified || misses_freezer) {
    return fail(
        ErrorCode::kNotFound, "cannot open " + (misses_unified ? roots.unified : roots.freezer)
    );
  }
  for (const std::string& other : roots.others) {
    const bool is_cpu = other.ends_with("/cpu") || other.ends_with("/cpu,cpuacct") ||
                        other.ends_with("/cpuacct,cpu");
    if (is_cpu) killer.cpu_ = open_folder(AT_FDCWD, other.c_str());
    if (other.ends_with("/pids")) killer.pids_ = open_folder(AT_FDCWD, other.c_str());
  }
  return killer;
}

void CgroupKiller::collect(const CgroupName& name, PidSet& into) const {
  each(name, [&](pid_t pid) { into.add(pid); });
}

bool CgroupKiller::visit_all(const CgroupName& name, void (*visit)(void*, pid_t), void* context)
    const {
  PidSet seen;
  const bool is_unified_whole = each_pid(unified_, name, [&](pid_t pid) {
    seen.add(pid);
    visit(context, pid);
  });
  const bool is_freezer_whole = each_pid(freezer_, name, [&](pid_t pid) {
    if (!seen.contains(pid)) visit(context, pid);
  });
  return is_unified_whole && is_freezer_whole;
}

bool CgroupKiller::is_empty(const CgroupName& name) const {
  bool is_found = false;
  const auto note = [&](pid_t) { is_found = true; };
  const bool is_unified_whole = each_pid(unified_, name, note);
  const bool is_freezer_whole = each_pid(freezer_, name, note);
  return !is_found && is_unified_whole && is_freezer_whole;
}

void CgroupKiller::strike(const CgroupName& name) const {
  if (unified_ >= 0) {
    const Descriptor folder(open_folder(unified_, name.data()));
    if (folder.is_open()) write_word(folder.get(), "cgroup.kill", "1");
  }
  thaw_v1(freezer_, name);
}

CpuLimits CgroupKiller::hurry(const CgroupName& name, bool with_all_below) const {
  CpuLimits before;
  for (const int hierarchy : {unified_, cpu_}) {
    const Descriptor folder(hierarchy < 0 ? -1 : open_folder(hierarchy, name.data()));
    if (!folder.is_open()) continue;
    for (std::size_t i = 0; i < CpuLimits::kFiles.size(); ++i) {
      if (before.word[i][0] == '\0') read_word(folder.get(), CpuLimits::kFiles[i], before.word[i]);
    }
    auto lift = [](int one) {
      for (std::size_t i = 0; i < CpuLimits::kFiles.size(); ++i)
        write_word(one, CpuLimits::kFiles[i], CpuLimits::kNone[i]);
    };
    walk(folder.get(), with_all_below ? 0 : kMaxGroupDepth, lift);
  }
  return before;
}

void CgroupKiller::restore(const CgroupName& name, const CpuLimits& limits) const {
  for (const int hierarchy : {unified_, cpu_}) {
    const Descriptor folder(hierarchy < 0 ? -1 : open_folder(hierarchy, name.data()));
    if (!folder.is_open()) continue;
    for (std::size_t i = 0; i < CpuLimits::kFiles.size(); ++i) {
      if (limits.word[i][0] != '\0')
        write_word(folder.get(), CpuLimits::kFiles[i], limits.word[i].data());
    }
  }
}

void CgroupKiller::allow_births(const CgroupName& name, bool is_allowed) const {
  // The engine makes it with its first container, which may be the one that is just starting.
  if (pids_ >= 0) mkdirat(pids_, name.data(), 0755);
  for (const int hierarchy : {unified_, pids_}) {
    const Descriptor folder(hierarchy < 0 ? -1 : open_folder(hierarchy, name.data()));
    if (folder.is_open()) write_word(folder.get(), "pids.max", is_allowed ? "max" : "0");
  }
}

bool CgroupKiller::kill(const CgroupName& name, Instant deadline) const {
  do {
    strike(name);
    const Instant step = std::min(deadline, clock_->now().boot + kStrikeStep);
    if (wait_unpopulated(name, step) && is_empty(name)) return true;
    kill_one_by_one(name, deadline);
    if (is_empty(name)) return true;
  } while (clock_->now().boot < deadline);
  return false;
}

bool CgroupKiller::wait_unpopulated(const CgroupName& name, Instant deadline) const {
  if (unified_ < 0) return false;
  const Descriptor folder(open_folder(unified_, name.data()));
  if (!folder.is_open()) return hides_nothing(errno);
  const Descriptor kill_file(openat(folder.get(), "cgroup.kill", O_WRONLY | O_CLOEXEC));
  const Descriptor events(openat(folder.get(), "cgroup.events", O_RDONLY | O_CLOEXEC));
  if (!kill_file.is_open() || !events.is_open())
    return false;  // NOTE(kernel < 5.14): no cgroup.kill
  while (says_populated(events.get())) {
    const Instant now = clock_->now().boot;
    if (now >= deadline) return false;
    // The event is level-triggered per read; the step bounds the harm of a missed one.
    const timespec timeout = time_until(now, deadline, milliseconds(100));
    pollfd wait{events.get(), POLLPRI, 0};
    ppoll(&wait, 1, &timeout, nullptr);
  }
  return true;
}

void CgroupKiller::kill_one_by_one(const CgroupName& name, Instant deadline) const {
  freeze_v1(freezer_, name, *clock_, std::min(deadline, clock_->now().boot + kFreezeWait));
  const auto strike_one = [](pid_t pid) { ::kill(pid, SIGKILL); };
  each_pid(unified_, name, strike_one);
  each_pid(freezer_, name, strike_one);
  thaw_v1(freezer_, name);
  const timespec step = time_until(clock_->now().boot, deadline, kFallbackStep);
  wait_for_some(freezer_ >= 0 ? freezer_ : unified_, name, step);
}

}  // namespace rn::warden
