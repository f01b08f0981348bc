// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/config.h"
#include "base/error.h"
#include "base/time.h"

// The program's commands; each answers the exit code (docs/commands.md).
namespace rn::agent {

/// Prints "reclaim-agent: message" and what to do next; answers the exit code.
int report(const Error& error);

/// One request to the running agent, within `limit`. kUnavailable: none runs.
Result<std::string> ask_agent(
    const AgentConfig& config,
    const std::string& method,
    const std::string& path,
    const std::string& body = {},
    milliseconds limit = seconds(10)
);

struct ReclaimFlags {
  std::vector<std::uint32_t> gpus;
  std::string in;
  bool is_now = false;
  std::string message;
};

/// "90", "90s", "10m", "2h", "1d" in seconds, from one second to a year. kInvalid.
Result<std::uint32_t> parse_duration(const std::string& text);

int do_reclaim(const AgentConfig& config, const ReclaimFlags& flags);
/// Waits up to 20 s while a warden that is there clears guests or has just been started.
int do_release(const AgentConfig& config, const std::vector<std::uint32_t>& gpus);
/// Of these GPUs, or of the whole machine; `for_s` 0: until do_resume.
int do_pause(
    const AgentConfig& config, std::uint32_t for_s, const std::vector<std::uint32_t>& gpus
);
int do_resume(const AgentConfig& config, const std::vector<std::uint32_t>& gpus);
int do_status(const AgentConfig& config, bool explains, bool as_json);
int do_leave(
    const AgentConfig& config, bool purges, const std::string& reason, std::uint32_t wait_s
);
int do_contract_show(const AgentConfig& config);
int do_contract_check(const AgentConfig& config, const std::string& file);
int do_contract_set(const AgentConfig& config, const std::string& file);
/// The change that waits, in words, and then as a contract's file.
int do_contract_pending(const AgentConfig& config);
/// Shows it and puts it in force; asks on a terminal first, unless `is_sure`.
int do_contract_accept(const AgentConfig& config, bool is_sure);
int do_contract_reject(const AgentConfig& config);

/// `gpu ok`: the owner has looked at a sick GPU, and lends it again.
int do_gpu_ok(const AgentConfig& config, std::uint32_t gpu);

/// Names every missing piece and what to do about it; 0 if none is missing.
int do_doctor(const AgentConfig& config, bool as_json);

}  // namespace rn::agent
