// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "model/fields.h"

namespace rn {

/// GPU indices of a node are below it: the kill frame has one bit for each.
inline constexpr std::uint32_t kMaxGpus = 64;

/// One GPU as its node knows it.
struct Gpu {
  std::uint32_t index = 0;
  std::string uuid;
  std::string model;
  std::uint64_t memory_mib = 0;
  std::string compute_capability;  ///< "8.6"
  bool is_static = false;  ///< declared in the configuration, not seen by NVML; shown as such

  RN_FIELDS(Gpu, index, uuid, model, memory_mib, compute_capability, is_static)
};

/// Where others reach a node. "host:port"; empty when it takes no inbound connection.
struct NodeAddress {
  std::string peer;  ///< framed TLS port for chunks
  std::string api;   ///< REST with mTLS

  RN_FIELDS(NodeAddress, peer, api)
};

/// What a node is; sent at every connection, changes rarely.
struct NodeFacts {
  std::string hostname;
  std::string failure_domain;  ///< machines that fail together share it; default: the lab
  std::uint32_t cpu_milli = 0;
  std::uint64_t memory_mib = 0;
  std::uint64_t disk_mib = 0;
  std::vector<Gpu> gpus;
  std::string kernel;
  std::string engine;          ///< "docker 20.10.24"
  std::string cgroup_version;  ///< "v1", "v2", "hybrid"
  bool has_user_namespaces = false;
  std::vector<std::string> warnings;  ///< engine floors and the like, shown to people
  std::uint64_t uplink_bps = 0;       ///< declared; 0 = unknown
  std::vector<std::string> images;    ///< digests ("sha256:…") present on the node
  /// Names of the data sets that it offers, and that its warden has at the moment; sorted.
  std::vector<std::string> data_sets;
  /// Why its warden uses no container engine although one answers; empty: none is refused.
  std::string engine_refusal;
  /// What its owner lets all copies together send by its uplink, held by the kernel; 0 = as much as
  /// there is, or an older agent, which does not say.
  std::uint64_t transfers_bps = 0;
  bool are_transfers_cut = false;  ///< by the owner: no copy goes out or comes in
  /// What its agent and warden know beyond what every version does (kGangsFeature, gang.h); sorted.
  std::vector<std::string> features;

  RN_FIELDS(
      NodeFacts,
      hostname,
      failure_domain,
      cpu_milli,
      memory_mib,
      disk_mib,
      gpus,
      kernel,
      engine,
      cgroup_version,
      has_user_namespaces,
      warnings,
      uplink_bps,
      images,
      data_sets,
      engine_refusal,
      transfers_bps,
      are_transfers_cut,
      features
  )
};

/// More than any line carries: what is told to be granted beyond it is a mistake, or a lie.
inline constexpr std::uint64_t kMostGranted_bps = 1'000'000'000'000;

struct GpuTelemetry {
  std::uint32_t index = 0;
  std::uint32_t utilisation_percent = 0;
  std::uint64_t memory_used_mib = 0;      ///< as nvidia-smi says it
  std::uint64_t memory_reserved_mib = 0;  ///< the driver's own: not in use, and not to be had
  std::int32_t temperature_c = 0;
  std::uint64_t power_mw = 0;
  std::uint32_t foreign_processes = 0;  ///< that are not our guests'
  std::uint64_t foreign_vram_mib = 0;   ///< of those processes, as far as the driver says it
  bool is_wedged = false;               ///< could not be verified free after a reclaim
  std::string sickness;  ///< why nothing runs on it, by what its driver tells; empty = it is well
  bool is_outside_window = false;  ///< its own windows (gpu_windows) lend it to nobody new now
  std::uint32_t closes_in_s = 0;   ///< end of its own window; 0 = none within a week
  bool is_unseen = false;  ///< no driver tells of it: only what is said of its windows counts

  RN_FIELDS(
      GpuTelemetry,
      index,
      utilisation_percent,
      memory_used_mib,
      memory_reserved_mib,
      temperature_c,
      power_mw,
      foreign_processes,
      foreign_vram_mib,
      is_wedged,
      sickness,
      is_outside_window,
      closes_in_s,
      is_unseen
  )
};

struct NodeTelemetry {
  std::uint32_t cpu_percent = 0;  ///< of all cores together, 0..100
  std::uint64_t memory_used_mib = 0;
  std::uint64_t disk_free_mib = 0;
  std::uint64_t chunk_bytes = 0;  ///< stored for others and for own guests
  std::uint32_t guests = 0;
  std::uint32_t logins = 0;  ///< people logged in on the machine
  std::vector<GpuTelemetry> gpus;

  RN_FIELDS(
      NodeTelemetry, cpu_percent, memory_used_mib, disk_free_mib, chunk_bytes, guests, logins, gpus
  )
};

/// A weekly window in the contract's time zone. `to` before `from` crosses midnight.
struct LendingWindow {
  std::vector<std::string> days;  ///< "mon".."sun"
  std::string from = "00:00";
  std::string to = "24:00";

  RN_FIELDS(LendingWindow, days, from, to)
};

/// When one GPU is lent, within the hours of the machine.
struct GpuWindows {
  std::uint32_t gpu = 0;               ///< index
  std::vector<LendingWindow> windows;  ///< at least one
  std::vector<std::string> holidays;   ///< its own: lent all day, where the machine is

  RN_FIELDS(GpuWindows, gpu, windows, holidays)
};

/// What processes of the owner's on a lent GPU mean: its guest leaves with the contract's notice;
/// it stays and nobody new comes; nothing, the GPU is lent beside them.
enum class OwnerProcesses : std::uint8_t { kEvict, kWait, kIgnore };
RN_ENUM(OwnerProcesses, "evict", "wait", "ignore")

/// Owner's signs of presence that end lending.
struct IdleRule {
  std::uint32_t idle_minutes = 0;  ///< no input or login for so long before lending; 0 = rule off
  std::uint64_t foreign_vram_mib =
      0;  ///< foreign GPU memory above this makes the GPU busy; 0 = any process does
  OwnerProcesses owner_processes = OwnerProcesses::kEvict;

  RN_FIELDS(IdleRule, idle_minutes, foreign_vram_mib, owner_processes)
};

/// Where guests may send packets. "10.1.2.0/24", port 0 = any, protocol "udp", "tcp" or "any".
struct NetworkAllow {
  std::string prefix;
  std::uint32_t port = 0;
  std::string protocol = "any";

  RN_FIELDS(NetworkAllow, prefix, port, protocol)
};

/// What the owner grants. Kept on the node, shown to everyone who is placed there.
struct Contract {
  bool lends = true;                   ///< false: the node only stores chunks
  bool lends_gpus = true;              ///< false: no GPU, which a file says with an empty list
  std::vector<std::uint32_t> gpus;     ///< lent GPU indices; empty = all
  std::vector<LendingWindow> windows;  ///< empty = always
  std::string time_zone = "UTC";
  std::vector<std::string> holidays;  ///< "2026-12-24": lent all day
  IdleRule idle;
  std::uint32_t notice_s = 60;        ///< 0..900
  std::uint32_t min_free_s = 0;       ///< free for so long before lending again after a reclaim
  std::uint32_t guest_cpu_milli = 0;  ///< cap for all guests together; 0 = all cores
  std::uint32_t guest_cpu_each_milli =
      0;                               ///< cap for one guest, so that several share; 0 = no own cap
  std::uint64_t guest_memory_mib = 0;  ///< 0 = three quarters of the machine
  std::uint64_t guest_disk_mib = 10240;   ///< per attempt
  std::uint64_t store_mib = 20480;        ///< chunks kept for others
  std::uint64_t reserve_disk_mib = 2048;  ///< never filled by us
  std::uint64_t uplink_bps_normal = 0;    ///< 0 = no cap
  std::uint64_t uplink_bps_evacuation = 0;
  std::uint32_t max_guests = 16;
  std::uint32_t max_pids = 512;
  std::uint32_t orphan_limit_s = 1800;   ///< how long an attempt runs on without the coordinator
  std::uint32_t max_drain_s = 600;       ///< uploads of checkpoint data after the cut
  std::vector<std::string> allow_users;  ///< empty = everybody
  std::vector<std::string> allow_labs;
  std::vector<std::string> allow_images;  ///< digests; empty = the site's allow list
  bool own_lab_first = true;
  std::vector<NetworkAllow> network;  ///< default deny
  bool gangs = false;  ///< members of gangs run here, and reach the others through the agents
  std::vector<GpuWindows> gpu_windows;  ///< each GPU once; the others are lent with the machine

  RN_FIELDS(
      Contract,
      lends,
      lends_gpus,
      gpus,
      windows,
      time_zone,
      holidays,
      idle,
      notice_s,
      min_free_s,
      guest_cpu_milli,
      guest_cpu_each_milli,
      guest_memory_mib,
      guest_disk_mib,
      store_mib,
      reserve_disk_mib,
      uplink_bps_normal,
      uplink_bps_evacuation,
      max_guests,
      max_pids,
      orphan_limit_s,
      max_drain_s,
      allow_users,
      allow_labs,
      allow_images,
      own_lab_first,
      network,
      gangs,
      gpu_windows
  )
};

/// Of a cap (0 = none) on something of which there is so much (0 = not known).
constexpr std::uint64_t capped(std::uint64_t cap, std::uint64_t all) {
  if (cap == 0 || all == 0) return cap == 0 ? all : cap;
  return cap < all ? cap : all;
}

/// What all copies of guests that leave may send together: by the contract, and by what the owner
/// has the kernel let through. 0 = no bound.
inline std::uint64_t sent_bps_most(const Contract& contract, const NodeFacts& facts) {
  return capped(contract.uplink_bps_evacuation, facts.transfers_bps);
}

inline bool is_gpu_lent(const Contract& contract, std::uint32_t index) {
  if (!contract.lends_gpus || contract.gpus.empty()) return contract.lends_gpus;
  for (const std::uint32_t lent : contract.gpus) {
    if (lent == index) return true;
  }
  return false;
}

/// Whether its owner uses a GPU by the contract's own rule; pure.
inline bool is_owners_own(const Contract& contract, const GpuTelemetry& gpu) {
  if (contract.idle.owner_processes == OwnerProcesses::kIgnore) return false;
  const std::uint64_t tolerated_mib = contract.idle.foreign_vram_mib;
  return tolerated_mib == 0 ? gpu.foreign_processes > 0 : gpu.foreign_vram_mib > tolerated_mib;
}

/// What all guests together may have of the node's cores.
inline std::uint32_t lent_cpu_milli(const Contract& contract, const NodeFacts& facts) {
  return static_cast<std::uint32_t>(capped(contract.guest_cpu_milli, facts.cpu_milli));
}

/// What all guests together may have of the node's memory, in MiB.
inline std::uint64_t lent_memory_mib(const Contract& contract, const NodeFacts& facts) {
  if (contract.guest_memory_mib == 0) return facts.memory_mib / 4 * 3;
  return capped(contract.guest_memory_mib, facts.memory_mib);
}

/// Why a node takes no new guest at the moment; kOpen if it does.
enum class LendingState : std::uint8_t {
  kOpen,
  kNotLending,
  kOutsideWindow,
  kOwnerPresent,
  kReclaimed,
  kPaused,
  kDraining
};
RN_ENUM(
    LendingState,
    "open",
    "not_lending",
    "outside_window",
    "owner_present",
    "reclaimed",
    "paused",
    "draining"
)

/// Node as the coordinator's API shows it.
enum class NodeState : std::uint8_t { kUp, kSuspect, kLost, kLeft };
RN_ENUM(NodeState, "up", "suspect", "lost", "left")

}  // namespace rn
