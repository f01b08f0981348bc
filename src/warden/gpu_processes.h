// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/error.h"
#include "base/time.h"

namespace rn::warden {

/// A process that holds a context on a GPU. Pids are the host's.
struct GpuProcess {
  std::uint32_t gpu = 0;
  pid_t pid = 0;
  std::uint64_t used_bytes = 0;  ///< 0 when the driver does not say

  friend bool operator==(const GpuProcess&, const GpuProcess&) = default;
};

/// Who holds GPU contexts now. Real (NVML) and fake implementations.
class GpuProcesses {
 public:
  virtual ~GpuProcesses() = default;
  /// Sorted by GPU, then pid. kTimeout when the driver has not answered within `limit`; later calls
  /// answer kTimeout at once while it still hangs. Never blocks longer.
  virtual Result<std::vector<GpuProcess>> list(milliseconds limit) = 0;
  /// What the driver calls GPU `gpu`: "GPU-", and a number that no other card has. kNotFound: there
  /// is none; kUnsupported: the driver does not say; else as list(), and it blocks as that does.
  virtual Result<std::string> uuid(std::uint32_t gpu, milliseconds limit) = 0;
};

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

/// Loads `library` and starts NVML. kNotFound when there is no such library or the driver is not
/// loaded: then nobody holds a GPU. kUnavailable when NVML refuses (driver and library differ, no
/// device). Waits for the driver.
Result<std::unique_ptr<GpuProcesses>> open_nvml(const std::string& library = kNvmlLibrary);

/// The same without waiting for anything: NVML starts on a thread of its own. Where there is no
/// driver the list is empty; while it refuses, the list is its error.
std::unique_ptr<GpuProcesses> nvml_when_asked(const std::string& library = kNvmlLibrary);

/// A node without GPUs: always answers an empty list.
std::unique_ptr<GpuProcesses> no_gpus();

}  // namespace rn::warden
