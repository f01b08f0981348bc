// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli_run.h"
#include "cli_upload.h"
#include <CLI/CLI.hpp>

#include "base/error.h"

namespace rn::cli {

/// The options of `run` as they were typed.
struct RunFlags {
  std::string image = "base";
  std::string gpu;
  std::string cpus;
  std::string cpus_min;
  std::string memory;
  std::string disk;
  std::string name;
  std::string signal;
  bool is_told = false;
  std::string tell_file;
  std::string tell_hook;
  bool has_tell_api = false;
  std::string notice;
  std::string max_duration;
  std::string idle_stop;
  std::string marker;
  std::string capability;
  std::string folder = ".";
  std::vector<std::string> env;
  std::vector<std::string> checkpoints;
  std::vector<std::string> outputs;
  std::vector<std::string> temporary;
  std::vector<std::string> copies_at;
  std::vector<std::string> labs;
  std::vector<std::string> data;
  std::vector<std::string> peers;
  std::vector<std::string> notify;
  std::vector<std::string> command;
  std::uint32_t priority = 4;
  std::uint32_t copies = 1;
  std::uint32_t max_restarts = 20;
  std::uint64_t upload_mib = kDefaultUploadLimit >> 20;
  bool is_stateless = false;
  bool is_detached = false;
  bool has_no_upload = false;
  bool is_json = false;
};

/// More is no folder of a job, and its bytes have to be counted in 64 bits.
inline constexpr std::uint64_t kUploadMibMax = 1u << 24;

/// Those that say where it may run and what it gets there.
void add_place_flags(CLI::App& app, RunFlags& flags);
/// These and all others of `run`, with the command.
void add_run_flags(CLI::App& app, RunFlags& flags);

/// --notify, of `run` and `submit`.
void add_notify(CLI::App& app, std::vector<std::string>& out);
/// kInvalid unless each is an address or a URL.
Status check_notify(const std::vector<std::string>& receivers);

/// kInvalid unless each is UTF-8, as jobs are kept and shown: other bytes would come out as other
/// ones. `what` is the flag.
Status check_text(const std::string& what, const std::vector<std::string>& words);

/// What they ask for. kInvalid names the flag.
Result<JobSpec> spec_of(const RunFlags& flags);
Result<RunOptions> options_of(const RunFlags& flags);

}  // namespace rn::cli
