// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "warden/gpu_processes.h"

namespace rn::warden {

/// Answers what the test has put in.
class FakeGpuProcesses final : public GpuProcesses {
 public:
  Result<std::vector<GpuProcess>> list(milliseconds) override {
    if (is_hanging) return fail(ErrorCode::kTimeout, "the driver does not answer");
    return processes;
  }

  Result<std::string> uuid(std::uint32_t gpu, milliseconds) override {
    if (is_hanging) return fail(ErrorCode::kTimeout, "the driver does not answer");
    return "GPU-of-the-test-" + std::to_string(gpu);
  }

  std::vector<GpuProcess> processes;
  bool is_hanging = false;
};

}  // namespace rn::warden
