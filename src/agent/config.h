// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/node.h"

namespace rn::agent {

/// /etc/reclaimnet/agent.yaml; every field may be left out, unknown ones are refused. Flags of the
/// program come after it.
struct AgentConfig {
  std::string state = "/var/lib/reclaimnet";
  std::string run = "/run/reclaimnet";
  std::string warden_socket;                 ///< empty: RUN/warden.sock
  std::string kill_socket;                   ///< empty: RUN/kill.sock
  std::string listen_peer = "0.0.0.0:7445";  ///< "" = none: this node holds nothing for others
  std::string listen_api = "0.0.0.0:7444";   ///< "" = none
  std::string advertise_peer;                ///< what others dial; empty: found (dialled_address)
  std::string advertise_api;
  std::string failure_domain;  ///< empty: the lab
  std::uint64_t uplink_bps = 0;
  /// Static devices, shown as such. `gpus: 0` in the file: there is none, and nobody looks.
  std::vector<Gpu> gpus;
  /// Data sets that this node offers, by name; those are offered whose folders the warden knows
  /// (`reclaim-warden serve --data-set NAME=FOLDER`).
  std::vector<std::string> data_sets;
  std::string nvml_library = "libnvidia-ml.so.1";  ///< "" = do not look for GPUs
  std::string guest_group = "reclaim-";            ///< begin of the guests' control groups' names
  std::string machine_id_file = "/etc/machine-id";
  std::string root;  ///< of /proc and /sys; for tests
  std::string zone_folder = "/usr/share/zoneinfo";
  std::vector<std::string> owners;  ///< identities that may use the emergency control by LAN
  std::uint32_t warden_uid = 0;     ///< nobody else is taken for the warden
  std::uint32_t telemetry_ms = 2000;
  /// A guest that runs for so long and saves nothing is told of, and so is one whose newest save is
  /// older on a node whose owner comes back often.
  std::uint32_t no_save_after_s = 600;
  /// Image archives kept for the next load, least recently used ones go first; 0 = only those in
  /// use.
  std::uint64_t image_archives_mib = 20'480;

  RN_FIELDS(
      AgentConfig,
      state,
      run,
      warden_socket,
      kill_socket,
      listen_peer,
      listen_api,
      advertise_peer,
      advertise_api,
      failure_domain,
      uplink_bps,
      gpus,
      data_sets,
      nvml_library,
      guest_group,
      machine_id_file,
      root,
      zone_folder,
      owners,
      warden_uid,
      telemetry_ms,
      no_save_after_s,
      image_archives_mib
  )

  std::string folder() const { return state + "/agent"; }

  std::string identity_folder() const { return folder() + "/identity"; }

  std::string store_folder() const { return folder() + "/chunks"; }

  std::string contract_path() const { return folder() + "/contract.yaml"; }

  std::string warden_path() const {
    return warden_socket.empty() ? run + "/warden.sock" : warden_socket;
  }

  std::string kill_path() const { return kill_socket.empty() ? run + "/kill.sock" : kill_socket; }

  std::string control_path() const { return run + "/agent.sock"; }
};

/// kInvalid names file, place and field. A missing file is kNotFound.
Result<AgentConfig> load_config(const std::string& path);
Result<AgentConfig> parse_config(const std::string& text);
/// What a field's type cannot say; kInvalid names the field.
Status check_config(const AgentConfig& config);

}  // namespace rn::agent
