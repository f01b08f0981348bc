// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <sys/types.h>

#include "base/error.h"
#include "base/time.h"
#include "warden/cgroup.h"
#include "warden/cgroup_kill.h"

/// Overwriting a GPU's memory between two tenants, by a program of its own that is confined and
/// killed as a guest is (ADR 0018).
namespace rn::warden {

/// What becomes of a start on a GPU whose memory could not be overwritten before.
enum class GpuScrub : std::uint8_t {
  kOff,   ///< memory is not overwritten
  kTry,   ///< the guest starts all the same, and a warning tells why
  kMust,  ///< the guest is refused
};

struct GpuScrubOrder {
  std::string program;   ///< reclaim-scrub
  std::string uuid;      ///< of the GPU, as the driver names it
  std::string cgroup;    ///< relative; made for it, and removed at its end
  uid_t uid = 0;         ///< what it runs as; group alike
  milliseconds limit{};  ///< then it is killed
};

/// Blocks until the program has ended, and answers its last line. `may_go_on` is asked before it
/// begins (with 0) and every 50 ms with its pid: while the kernel takes it down, no control group
/// lists it any more, and the driver still does. Its error ends the program and is answered. Errors
/// else: kUnavailable with the program's own words when it fails, kTimeout when it was killed at
/// its limit, or does not end even when killed (a driver that hangs; then a process of that cgroup
/// is still there). For a worker.
Result<std::string> scrub_gpu(
    const GpuScrubOrder& order,
    const CgroupRoots& roots,
    const CgroupKiller& killer,
    const Clock& clock,
    const std::function<Status(pid_t)>& may_go_on
);

}  // namespace rn::warden
