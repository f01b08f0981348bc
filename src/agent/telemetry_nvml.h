// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "agent/gpu_health.h"
#include "base/error.h"
#include "model/node.h"

namespace rn::agent {

/// GPUs by NVML, loaded at run time: machines without a driver need nothing. Calls may hang with
/// the driver, so use it on a thread of its own.
class NvmlSampler {
 public:
  /// kNotFound: no such library (no NVIDIA driver). kInvalid: a path was given, and what is there
  /// cannot be loaded. kUnavailable: NVML refuses (library and module differ, no device).
  /// Initialises NVML once per object.
  static Result<std::unique_ptr<NvmlSampler>> open(
      const std::string& library = "libnvidia-ml.so.1"
  );
  ~NvmlSampler();
  NvmlSampler(const NvmlSampler&) = delete;
  NvmlSampler& operator=(const NvmlSampler&) = delete;

  /// What does not change.
  std::vector<Gpu> gpus() const;

  /// `is_guest` tells guests' processes from foreign ones. A value that the device does not offer
  /// is 0; a device that does not answer at all (fallen off the bus) is wedged.
  std::vector<GpuTelemetry> sample(const std::function<bool(pid_t)>& is_guest) const;

  /// What tells of the devices' health; what one does not offer is as if it were well. Numbers of
  /// errors (Xid) are told once.
  std::vector<GpuSigns> signs() const;

  struct State;
  explicit NvmlSampler(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

/// True if the process's control group lies below one whose path contains `guest_group`. `root` as
/// in telemetry_host.h.
bool is_in_group(const std::string& root, pid_t pid, const std::string& guest_group);

}  // namespace rn::agent
