// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "warden/leave_report.h"
#include "warden/machine.h"

namespace rn::warden {

/// Removes all that a warden of this configuration ever made: guests, containers, images, engine,
/// disks and mounts, wires, gates and their pins, the nftables table, sysctls, cgroups, its state
/// and run folders. The daemon must not run. What dying processes still hold is tried again for
/// some seconds; then it goes on and reports it. Blocking, a minute or two at worst; `says` is told
/// each step that may take seconds before it begins. Idempotent.
LeaveReport leave(
    const MachineConfig& config,
    const Clock& clock,
    const std::function<void(const std::string& step)>& says
);

/// False if nothing that a warden of this configuration made can be here: no state, no gates, no
/// control group of the lab in any hierarchy of `cgroup_root`. A shared engine may always have
/// containers of it. Reads only. Blocking.
bool may_have_served(const MachineConfig& config, const std::string& cgroup_root);

/// Removes the cgroup below every hierarchy of `root` (the engine makes one in each), empty
/// descendants first; tried again while processes of it are dying, for `patience` at most. What
/// stays is named with its processes.
LeaveReport remove_cgroups(const std::string& root, const std::string& name, milliseconds patience);

}  // namespace rn::warden
