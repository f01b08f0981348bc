// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/warden.h"
#include "warden/engine_exec.h"
#include "warden/machine.h"

namespace CLI {
class App;
}

namespace rn::warden_cli {

/// Exit codes: what a script of the owner can rely on.
enum Code { kDone = 0, kFailed = 1, kUsage = 2, kNotCleared = 3 };

struct Options {
  std::string state = "/var/lib/reclaimnet";
  std::string run = "/run/reclaimnet";
  std::string lab;
  std::string engine;
  std::string init;
  std::string gpus = "static";
  std::string gpu_scrub = "off";
  std::string scrub;  ///< reclaim-scrub, where it is not beside this program
  std::string first_address;
  std::uint32_t agent_uid = 0;
  std::vector<std::uint32_t> owner_uids;
  std::uint64_t reserve_mib = 2048;
  std::uint64_t guest_uplink_bps = 0;
  std::string uplink;                  ///< INTERFACE:RATE
  std::vector<std::string> data_sets;  ///< NAME=/path
  bool is_floor_strict = false;
  std::vector<std::uint32_t> kill_gpus;
  bool is_cut_only = false;
  std::string transfers;  ///< INTERFACE[:RATE]
  bool cuts_transfers = false;
  bool allows_transfers = false;
  warden::EngineExec exec;
};

/// Says it on standard error with what to do next. Returns kFailed.
int complain(const Error& error);

/// What `serve` was told and `kill`, `verify` and `leave` must know: lab, engine, addresses.
std::string settings_path(const Options& options);

/// Fills in what the flags leave out, and answers the lab that served; empty for none.
std::string recall_settings(Options& options);

warden::MachineConfig machine_of(const Options& options);

std::string pid_path(const Options& options);

/// A descriptor that is held while the daemon lives; kConflict when another one holds it.
Result<int> lock_pid_file(const Options& options);

/// The flags that every command has.
void add_places(CLI::App& command, Options& options);

}  // namespace rn::warden_cli
