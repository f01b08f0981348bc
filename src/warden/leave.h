// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "warden/machine.h"

namespace rn::warden {

struct LeaveReport {
  std::vector<std::string> removed;  ///< in order, in words
  std::vector<std::string> stays;    ///< what could not be removed, and why
};

/// Removes all that a warden of this configuration ever made: guests, containers, images, engine,
/// disks and mounts, wires, gates and their pins, the nftables table, sysctls, cgroups, its state
/// and run folders. The daemon must not run. Goes on after a failure and reports it. Idempotent.
LeaveReport leave(const MachineConfig& config, const Clock& clock);

/// Removes the cgroup below every hierarchy of `root` (the engine makes one in each), empty
/// descendants first. Answers the folders removed.
std::vector<std::string> remove_cgroups(const std::string& root, const std::string& name);

}  // namespace rn::warden
