// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/error.h"

namespace rn::warden {

/// Where the hierarchies are that hold guests. kV2: all in one. kHybrid: v1 controllers beside a v2
/// hierarchy that still has cgroup.kill and cgroup.freeze. kV1: no v2 hierarchy at all.
enum class CgroupFlavour : std::uint8_t { kV1, kHybrid, kV2 };

struct CgroupRoots {
  CgroupFlavour flavour = CgroupFlavour::kV2;
  std::string unified;  ///< empty on kV1
  std::string freezer;  ///< the v1 freezer; empty on kV2
  std::vector<std::string>
      others;  ///< further v1 hierarchies, in which an engine makes the same cgroups
};

/// Looks at the files below `root`, not at mounts, so that a folder of fixtures will do.
/// kUnsupported when there is neither a v2 hierarchy nor a v1 freezer.
Result<CgroupRoots> probe_cgroups(const std::string& root = "/sys/fs/cgroup");

/// Makes the cgroup in each hierarchy of `roots`, so that its descriptors can be opened before a
/// guest is in it. `name` is relative, e.g. "reclaim-lab-a" or "reclaim-lab-a/ID". Idempotent.
Status make_cgroup(const CgroupRoots& roots, const std::string& name);
/// Removes it with its empty descendants from every hierarchy, `others` included. kUnavailable
/// while processes are in it. Idempotent.
Status remove_cgroup(const CgroupRoots& roots, const std::string& name);

/// Every process in the cgroup and below, in any hierarchy, sorted, once each. A cgroup that is not
/// there is empty.
Result<std::vector<pid_t>> pids_in_cgroup(const CgroupRoots& roots, const std::string& name);

/// Asks for a freeze (the v2 freezer where there is one: a guest frozen by it can be killed without
/// a thaw) and returns at once. kNotFound when no hierarchy has the cgroup.
Status freeze_cgroup(const CgroupRoots& roots, const std::string& name);
/// Thaws both freezers, descendants included: `docker pause` freezes in v1 behind our back.
Status thaw_cgroup(const CgroupRoots& roots, const std::string& name);
/// True when every process of it has stopped.
Result<bool> is_cgroup_frozen(const CgroupRoots& roots, const std::string& name);

/// The signals that a process catches: bit N-1 for signal N, from the text of /proc/PID/status.
/// kCorrupt without a SigCgt line.
Result<std::uint64_t> caught_signals(const std::string& status_text);

/// Sends `signal` to those processes that have a handler of their own for it (not those of a parent
/// that they are forked from, nor launchers), and answers them. Each is held by a pidfd while this
/// is read, so a recycled pid is never hit; who ended is left out. `proc` is /proc but in tests.
Result<std::vector<pid_t>> signal_catchers(
    const CgroupRoots& roots, const std::string& name, int signal, const std::string& proc = "/proc"
);

/// Who was told to save, and by which signal; 0 = nobody.
struct ToldToSave {
  int signal = 0;
  std::vector<pid_t> pids;
};

/// The same where nobody has said which signal a guest saves on: the first of SIGUSR1, SIGUSR2 and
/// SIGTERM that somebody has a handler of his own for. Who catches nearly every signal has that
/// from a library or from his language's runtime (MPI's, Go's), for which USR1 and USR2 are no word
/// to save; such a one hears SIGTERM, and only if nobody else catches one of the three.
Result<ToldToSave> tell_to_save(
    const CgroupRoots& roots, const std::string& name, const std::string& proc = "/proc"
);

}  // namespace rn::warden
