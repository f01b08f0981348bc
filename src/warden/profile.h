// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/warden.h"
#include "warden/gpu_driver.h"

namespace rn::warden {

/// How the engine is asked for a GPU.
enum class GpuAccess : std::uint8_t {
  kStatic,          ///< GPUs are declared only (no device exists): none is asked for
  kDeviceRequests,  ///< the NVIDIA runtime hook
  kCdi,             ///< Container Device Interface, engines from 25 on
  kDriver,          ///< not at all: devices and the driver's libraries are named one by one
};

/// What the warden adds to a StartGuest. The caller never chooses any of it.
struct ContainerSetting {
  std::string lab;
  std::string image_id;        ///< the engine's own, recorded when the archive was verified
  std::string work_source;     ///< the attempt's work folder on the node
  std::string reclaim_source;  ///< the folder of log, exit, notice and go
  std::string data_source;     ///< the folder of the attempt's views of data sets, by their names
  std::string init_path;       ///< the static reclaim-init
  std::string hosts_path;      ///< /etc/hosts of a member of a gang (guest_gang.h)
  std::string cgroup_parent;
  std::uint32_t slot = 0;
  std::string go_ticket;  ///< what the go-ahead must say: one container of an attempt can have it
  std::uint32_t go_wait_s = 60;  ///< after it a guest without go-ahead ends with 125
  GpuAccess gpu_access = GpuAccess::kStatic;
  GpuDriver gpu_driver;  ///< with kDriver, of the guest's GPUs
};

inline constexpr std::uint32_t kGuestUid = 10001;  ///< inside the container, group alike

inline constexpr const char* kJobLabel = "reclaimnet.job";
inline constexpr const char* kEpochLabel = "reclaimnet.epoch";
inline constexpr const char* kLabLabel = "reclaimnet.lab";
inline constexpr const char* kSlotLabel = "reclaimnet.slot";
inline constexpr const char* kGpusLabel = "reclaimnet.gpus";  ///< "0,3"; none = ""
inline constexpr const char* kGoLabel = "reclaimnet.go";

/// The GPUs' label, and what it says; none for what is no such text. Pure.
std::string gpus_text(const std::vector<std::uint32_t>& gpus);
std::vector<std::uint32_t> gpus_in(const std::string& text);

/// "rn-LAB-JOB-EPOCH": the container's name, so that a second start of one guest is a conflict.
std::string container_name(const std::string& lab, const warden_wire::GuestName& guest);

/// A job id is used as a path component and a name by root, so it must be 1 to 64 of a-z, 0-9 and
/// inner hyphens, with an epoch. kInvalid otherwise. Pure.
Status check_guest_name(const warden_wire::GuestName& guest);

/// kInvalid with the reason for anything that the profile does not offer: a command or environment
/// out of bounds, a variable that steers the runtime (NVIDIA_*, LD_*, DOCKER*, GLIBC_TUNABLES), a
/// work folder that is not absolute and plain or lies over a system folder, data sets out of bounds
/// or in the work folder's way, resources out of range. Pure.
Status check_start(const warden_wire::StartGuest& start);

/// The engine's create request (JSON) with the whole hardening. Nothing
/// of `start` reaches it but what check_start accepts, which is called first. Pure, deterministic.
Result<std::string> make_create_request(
    const warden_wire::StartGuest& start, const ContainerSetting& place
);

}  // namespace rn::warden
