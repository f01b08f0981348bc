// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "agent/config.h"
#include "agent/telemetry_nvml.h"
#include "model/node.h"

namespace rn::agent {

/// What the machine has, as the agent tells it and as contracts are judged by, whoever judges: the
/// serving agent and `contract check` alike. Hostname and failure domain are left empty. What
/// cannot be read is 0. `nvml` is what showed the GPUs, if the machine has some; a library that is
/// there and cannot be used is a warning. Blocking, and may hang with a GPU's driver.
NodeFacts machine_facts(const AgentConfig& config, std::unique_ptr<NvmlSampler>& nvml);

}  // namespace rn::agent
