// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sys/types.h>

#include "base/error.h"
#include "base/time.h"
#include "warden/cgroup.h"

/// Killing a cgroup without allocating, without the engine, and without anything that can hang:
/// plain system calls on kernel file systems, fixed buffers, every wait with a deadline.
namespace rn::warden {

inline constexpr std::size_t kMaxCgroupName = 256;
inline constexpr std::size_t kMaxKnownPids = 4096;

/// "reclaim-lab-a/ID" in a fixed array.
using CgroupName = std::array<char, kMaxCgroupName>;
/// kInvalid when it is too long, absolute, empty, or has a ".." component.
Result<CgroupName> make_cgroup_name(const std::string& name);

/// Processes seen in a cgroup. `total` goes on counting beyond the capacity.
struct PidSet {
  std::array<pid_t, kMaxKnownPids> pid{};
  std::size_t count = 0;
  std::size_t total = 0;

  void add(pid_t one) {
    if (count < pid.size()) pid[count++] = one;
    ++total;
  }

  void clear() { count = total = 0; }

  bool contains(pid_t one) const;
};

/// The processor limits of one cgroup as the kernel's words, in the order of their files; empty for
/// those that are not there.
struct CpuLimits {
  static constexpr std::array kFiles{"cpu.max", "cpu.weight", "cpu.cfs_quota_us", "cpu.shares"};
  static constexpr std::array kNone{"max", "10000", "-1", "262144"};
  std::array<std::array<char, 48>, kFiles.size()> word{};
};

/// The hierarchies' top folders, opened beforehand. Movable, not copyable; closes on destruction.
class CgroupKiller {
 public:
  /// kNotFound when a hierarchy's folder is not there.
  static Result<CgroupKiller> open(const CgroupRoots& roots, const Clock& clock);
  CgroupKiller(CgroupKiller&& other) noexcept;
  CgroupKiller& operator=(CgroupKiller&&) = delete;
  CgroupKiller(const CgroupKiller&) = delete;
  ~CgroupKiller();

  /// Adds every process of the cgroup and below. A cgroup that is not there adds nothing.
  void collect(const CgroupName& name, PidSet& into) const;
  /// A part that cannot be looked at is not empty.
  bool is_empty(const CgroupName& name) const;

  /// Calls visit(pid) once for each process of the cgroup and below, in whichever hierarchies it
  /// is. False when a part could not be looked at.
  template <class Visit>
  bool each(const CgroupName& name, Visit visit) const {
    return visit_all(
        name, [](void* context, pid_t pid) { (*static_cast<Visit*>(context))(pid); }, &visit
    );
  }

  /// SIGKILL for everything in it: cgroup.kill where there is a v2 hierarchy, then *always* the v1
  /// freezers thawed (a process frozen by v1 dies only when thawed).
  void strike(const CgroupName& name) const;
  /// Takes the processor limits off `name`, and off everything below it if asked: dying processes
  /// run their own exit, and a quota of a tenth of a core would make the owner wait for it. Answers
  /// what `name` itself had.
  CpuLimits hurry(const CgroupName& name, bool with_all_below) const;
  /// Gives `name` itself its limits back.
  void restore(const CgroupName& name, const CpuLimits& limits) const;
  /// Not allowed: nothing in it or below can fork, so that an engine cannot bring to life what it
  /// is just starting. Where there is no pids controller nothing happens. Never allocates.
  void allow_births(const CgroupName& name, bool is_allowed) const;
  /// strike(), then waits until the cgroup is empty; where cgroup.kill is missing or left something
  /// alive: freeze, SIGKILL one by one, thaw, again and again. True when empty; false at the
  /// deadline.
  bool kill(const CgroupName& name, Instant deadline) const;

 private:
  explicit CgroupKiller(const Clock& clock);

  bool visit_all(const CgroupName& name, void (*visit)(void*, pid_t), void* context) const;
  bool wait_unpopulated(const CgroupName& name, Instant deadline) const;
  void kill_one_by_one(const CgroupName& name, Instant deadline) const;

  int unified_ = -1;
  int freezer_ = -1;
  int cpu_ = -1;   ///< the v1 cpu controller; -1 where there is none
  int pids_ = -1;  ///< the v1 pids controller, as above
  const Clock* clock_;
};

}  // namespace rn::warden
