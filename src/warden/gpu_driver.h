// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

/// What a guest needs of the machine's NVIDIA driver, found by looking: for machines without
/// NVIDIA's container toolkit.
namespace rn::warden {

/// Where the driver's libraries lie in a guest: where many images look for them anyway.
inline constexpr const char* kGpuDriverFolder = "/usr/local/nvidia/lib64";

/// What one guest is given. All of it is the machine's own, and not a guest's choice.
struct GpuDriver {
  std::vector<std::string> devices;                            ///< "/dev/nvidia0", the same inside
  std::vector<std::pair<std::string, std::string>> libraries;  ///< file here, file in the guest

  bool is_empty() const { return devices.empty(); }
};

/// Of the GPUs with these UUIDs. A card's device has a number of the kernel module's own, which is
/// not its index; the module tells it with the UUID. kNotFound, with what is missing, when there is
/// no driver, no such card, or no node in /dev (made when somebody uses CUDA for the first time
/// after a boot). `root` is put before all paths that are looked at, and not before those that are
/// answered. Blocks on the file system.
Result<GpuDriver> find_gpu_driver(
    const std::vector<std::string>& uuids, const std::string& root = ""
);

}  // namespace rn::warden
