// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "model/warden.h"
#include "warden/leave_report.h"

namespace rn::warden {

struct DiskConfig {
  std::string folder;                ///< STATE/warden/attempts
  std::uint32_t agent_uid = 0;       ///< owns `work/` until adopt()
  std::uint32_t agent_gid = 0;       ///< may go into the folder; nobody else may
  std::uint32_t guest_uid = 0;       ///< the mapped uid on the host, group alike
  std::uint64_t reserve_mib = 2048;  ///< of the disk below, never promised to guests
};

struct AttemptDisk {
  warden_wire::GuestName guest;
  std::string folder;  ///< mounted
  std::uint64_t disk_mib = 0;
};

/// "JOB-EPOCH", the attempt's folder name, and back (kInvalid for another's folder). Pure.
std::string attempt_folder_name(const warden_wire::GuestName& guest);
Result<warden_wire::GuestName> guest_of_folder(const std::string& name);

/// One loop-mounted ext4 image per attempt, so that a limit on disk really holds: no quota, no
/// option of the engine, just a file system of that size. In it `work/` (the guest's work folder)
/// and `reclaim/` (log, exit, notice, go). Mounted nosuid and nodev. The images are sparse, but
/// their full sizes are promised: what does not fit beside the reserve is refused beforehand.
///
/// Blocking; calls for different guests may run at once. Each step may be the last one before a
/// SIGKILL: the next process finds the disk and finishes what was begun.
class AttemptDisks {
 public:
  /// Makes the folder and a shared mount of it on itself, so that a private engine started later
  /// sees the disks mounted after its start. Idempotent.
  static Result<AttemptDisks> open(const DiskConfig& config);

  /// Makes, or finds, the disk and mounts it; answers its folder. kExhausted: the owner's disk has
  /// not that much to give beside the reserve. Idempotent.
  Result<std::string> prepare(const warden_wire::GuestName& guest, std::uint64_t disk_mib) const;
  /// Gives everything in `work/` to the guest, without following a link or leaving the disk, and
  /// mounts the disk a second time beside itself, as `view`, in which the guest's files are the
  /// agent's to read whatever their modes. Where the kernel cannot do that it is logged, and the
  /// agent reads what the modes let everybody read. Idempotent.
  Status adopt(const warden_wire::GuestName& guest) const;
  /// Unmounts and deletes. kUnavailable while something still holds it. Idempotent.
  Status release(const warden_wire::GuestName& guest) const;
  /// All disks there are, mounted again where they were not, with their folders and the agent's
  /// view. Those without an image are left to prepare(); one whose mount fails is logged and left.
  Result<std::vector<AttemptDisk>> find() const;

  std::string folder_of(const warden_wire::GuestName& guest) const;

  /// Puts a file into `reclaim/` by a rename, whatever the guest has put there meanwhile.
  Status write(
      const warden_wire::GuestName& guest, const std::string& name, const std::string& text
  ) const;
  Status erase(const warden_wire::GuestName& guest, const std::string& name) const;
  /// Puts a file with all its text into `work/`, at a relative path below it, and gives it to the
  /// guest. No link is followed, nothing is replaced and no folder made: false if something of that
  /// name is there. kDenied for a way through a link, kNotFound where a folder on it is missing,
  /// kUnsupported if the name is a folder's.
  Result<bool> write_new(
      const warden_wire::GuestName& guest, const std::string& path, const std::string& text
  ) const;
  /// The same in `reclaim/`.
  Result<bool> write_new_beside(
      const warden_wire::GuestName& guest, const std::string& name, const std::string& text
  ) const;
  /// Of a regular file in `reclaim/`, at most `max` bytes. kNotFound; kDenied for a link.
  Result<std::string> read(
      const warden_wire::GuestName& guest, const std::string& name, std::size_t max
  ) const;

  /// Unmounts everything, the shared mount too, and deletes the folder. What is in use is tried
  /// again for `patience` at most, and then stays; who uses it is said.
  LeaveReport leave(milliseconds patience) const;

 private:
  explicit AttemptDisks(DiskConfig config)
      : config_(std::move(config)), mounting_(std::make_unique<std::mutex>()) {}

  std::string attempt_folder(const warden_wire::GuestName& guest) const;
  void show_to_agent(const warden_wire::GuestName& guest) const;
  Status make_image(const std::string& path, std::uint64_t disk_mib) const;
  Status check_space(std::uint64_t disk_mib) const;
  Status fill(const std::string& mounted) const;
  Status mount_and_fill(const std::string& image, const std::string& mounted) const;
  Result<bool> put_new(int folder, const std::string& path, const std::string& text) const;
  Result<int> open_reclaim(const warden_wire::GuestName& guest) const;

  DiskConfig config_;
  /// A search looks at all disks while others are made, adopted and released: without it an image
  /// would be mounted twice, by two file systems that do not know of each other.
  std::unique_ptr<std::mutex> mounting_;
};

}  // namespace rn::warden
