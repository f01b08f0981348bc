// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace rn::warden {

struct EngineExec {
  std::string etc;         ///< folder with passwd, group, subuid, subgid for the engine alone
  std::string containerd;  ///< folder that lies over /run/containerd for the engine alone
  std::string log;         ///< its output; begun afresh
  std::vector<std::string> argv;  ///< dockerd and its arguments
};

/// Runs the engine detached from the calling process, in a mount namespace of its own in which the
/// files of `etc` lie over those of /etc and `containerd` over /run/containerd (which must exist),
/// and into which the host's later mounts come (but not back), and in an empty network namespace:
/// it needs no network, and must not touch the owner's. Returns when the engine's program runs; it
/// outlives the caller. Forks: only for a process with one thread (`reclaim-warden engine-exec`).
Status exec_engine(const EngineExec& engine);

}  // namespace rn::warden
