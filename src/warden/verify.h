// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "warden/cgroup_kill.h"
#include "warden/gpu_processes.h"

/// Looks: what is left of a guest, found by looking at the machine and not by having asked
/// somebody. None of them allocates, except the one at GPUs. A look that cannot be made leaves a
/// kUnverified, so it never passes for clean.
namespace rn::warden {

enum class RemainderKind : std::uint8_t {
  kProcess,     ///< in the guests' cgroup; id = pid
  kUidProcess,  ///< outside it, with a guest's uid; id = pid
  kMount,       ///< at or below the guest's folder
  kPort,        ///< a listening port in the guest's network namespace; id = port
  kInterface,   ///< the guest's host-side interface; id = ifindex
  kGpuContext,  ///< of a guest's pid; id = pid
  kUnverified,  ///< this look failed; id = errno
};

std::string_view to_string(RemainderKind kind);

struct Remainder {
  RemainderKind kind = RemainderKind::kUnverified;
  std::int64_t id = 0;
  std::array<char, 112> what{};  ///< a path, a name, or why; cut off when longer
};

/// What was found: the first 32 in detail, all of them counted.
class Remains {
 public:
  void add(RemainderKind kind, std::int64_t id, std::string_view what);

  bool is_empty() const { return total_ == 0; }

  std::size_t total() const { return total_; }

  std::span<const Remainder> items() const { return {items_.data(), count_}; }

  /// "process 4711 in reclaim-lab-a", one each. Allocates.
  std::vector<std::string> describe() const;

 private:
  std::array<Remainder, 32> items_{};
  std::size_t count_ = 0;
  std::size_t total_ = 0;
};

/// Labs that have a control group of guests here, settings or none.
std::vector<std::string> labs_here(const std::string& cgroup_root = "/sys/fs/cgroup");

/// Which lab `kill` acts on: the named one if it served from `state`, or, where no settings say who
/// did, if it has a control group here; unnamed, the only one that has. `asked` and `served` as
/// below, `here` = labs_here(). kNotFound, with the labs that there are, for any other: "cleared"
/// would be said of nothing. Pure.
Result<std::string> lab_to_kill(
    const std::string& asked,
    const std::string& served,
    const std::vector<std::string>& here,
    const std::string& state
);

/// kNotFound when "clear" would say nothing, because no warden has ever served this lab from
/// `state`. `asked`: the lab that was named, empty for the one that served; `served`: the lab whose
/// warden served from `state`, empty for none. Pure.
Status check_served(const std::string& asked, const std::string& served, const std::string& state);

/// Processes in the cgroup and below, in every hierarchy.
void look_at_cgroup(const CgroupKiller& cgroups, const CgroupName& name, Remains& into);

/// Processes whose real or effective uid lies in [first, first + count): also those that escaped
/// their cgroup. Zombies are no processes, and what is in the guests' cgroup of another lab than
/// `own` is that lab's, whose range may be the same (guest_ids.h). Only for a range that is the
/// guests' alone.
void look_at_uids(
    std::uint32_t first,
    std::uint32_t count,
    const CgroupName& own,
    Remains& into,
    const char* proc = "/proc"
);

/// Mounts at or below `folder` in this mount namespace.
void look_at_mounts(
    const char* folder, Remains& into, const char* mountinfo = "/proc/self/mountinfo"
);

/// Listening TCP and bound UDP ports in the network namespace that `path` names. A path that is not
/// there is clean: the namespace has gone. So is one whose process, that of the pidfd `whose`, has
/// ended: the same path may be another process's by now. -1: the path is nobody's. The calling
/// thread visits the namespace and comes back; if it cannot, the process aborts.
void look_at_ports(const char* path, Remains& into, int whose = -1);

/// The interface with this index, in the calling thread's network namespace.
void look_at_interface(std::uint32_t ifindex, Remains& into);

/// GPU contexts of these pids, a guest's own, so that the owner's processes never count; and on the
/// GPUs of `gone_on`, bit by index, those of processes that are gone: their memory is nobody's any
/// more, and who looks a second time does not know that they were guests. Allocates.
void look_at_gpus(
    GpuProcesses& gpus,
    const PidSet& guests,
    std::uint64_t gone_on,
    milliseconds limit,
    Remains& into
);

/// Both on these GPUs alone, for who is about to give them to somebody.
void look_at_gpus(
    GpuProcesses& gpus,
    const std::vector<std::uint32_t>& meant,
    const PidSet& guests,
    milliseconds limit,
    Remains& into
);

/// Detaches every mount at or below `folder` of this mount namespace, the topmost first. Does not
/// allocate. Answers how many; what is left shows in look_at_mounts().
std::size_t detach_mounts(const char* folder, const char* mountinfo = "/proc/self/mountinfo");

/// Deletes interfaces by netlink, all in one transaction of the kernel: one by one, each would wait
/// for the kernel's readers anew. Fine when some are gone; a failure shows in look_at_interface().
/// Does not allocate.
void delete_interfaces(std::span<const std::uint32_t> ifindexes);

}  // namespace rn::warden
