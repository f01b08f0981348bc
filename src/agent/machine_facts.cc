// SPDX-License-Identifier: Apache-2.0
#include "agent/machine_facts.h"

#include <filesystem>
#include <utility>

#include "agent/telemetry_host.h"

namespace rn::agent {

NodeFacts machine_facts(const AgentConfig& config, std::unique_ptr<NvmlSampler>& nvml) {
  NodeFacts out;
  const HostSampler host(config.root);
  out.cpu_milli = host.cpu_milli().value_or(0);
  out.memory_mib = host.memory_mib().value_or(0);
  out.kernel = host.kernel();
  out.cgroup_version = host.cgroup_version();
  out.has_user_namespaces = host.has_user_namespaces();
  out.uplink_bps = config.uplink_bps;
  std::error_code ignored;
  const auto space = std::filesystem::space(config.folder(), ignored);
  if (!ignored) out.disk_mib = space.capacity >> 20;
  if (!config.nvml_library.empty()) {
    auto opened = NvmlSampler::open(config.nvml_library);
    if (opened) {
      nvml = *std::move(opened);
      out.gpus = nvml->gpus();
    } else if (opened.error().code != ErrorCode::kNotFound) {
      out.warnings.push_back(opened.error().message);
    }
  }
  for (Gpu gpu : config.gpus) {
    gpu.is_static = true;
    out.gpus.push_back(std::move(gpu));
  }
  return out;
}

}  // namespace rn::agent
