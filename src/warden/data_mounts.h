// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/error.h"
#include "base/time.h"
#include "model/warden.h"
#include "warden/leave_report.h"

namespace rn::warden {

struct DataConfig {
  std::string folder;                       ///< STATE/warden/data
  std::map<std::string, std::string> sets;  ///< name of a data set: the owner's folder
  std::vector<std::string> ours;            ///< folders that no data set may show or lie in
};

/// The owner's data sets, as guests get them: views of the owner's folders below
/// `folder`/guests/JOB-EPOCH/NAME, read-only, without devices and without set-user-id.
///
/// A view is there from just before the guest's container is made until it has started: the
/// container's own mount namespace holds what the guest sees, and goes with the guest. So a guest
/// that was killed leaves nothing mounted; what a killed warden left is found by keep_only(), the
/// kill path and leave(). Nothing is ever deleted here but empty folders, and the views are apart
/// from the attempts' folders, which are deleted with all they hold: no mistake there could reach
/// the owner's files.
///
/// A view shows one file system: what the owner has mounted below the folder is not in it, and what
/// he mounts there later neither.
///
/// Blocking; calls for different guests may run at once.
class DataMounts {
 public:
  /// Checks the names and folders, and makes the folder of the views with a shared mount of it on
  /// itself, so that a private engine started later sees them. The error names the data set; one
  /// whose folder is not there (yet) is logged and not offered. Idempotent.
  static Result<DataMounts> open(const DataConfig& config);

  /// Names of the data sets whose folders are there now; sorted.
  std::vector<std::string> there() const;

  /// Makes the views of a guest that is about to start, anew where some were. kNotFound: there is
  /// no such data set, or its folder has gone. On error none is left.
  Status mount(const warden_wire::GuestName& guest, const std::vector<std::string>& names);
  /// That the first process of the guest's container sees exactly these views as /data/NAME: an
  /// engine in another mount namespace would show it empty folders. Call before unmount().
  Status check_seen(
      const warden_wire::GuestName& guest, const std::vector<std::string>& names, pid_t first
  ) const;
  /// Undoes the guest's views; those that are busy are detached. Idempotent.
  Status unmount(const warden_wire::GuestName& guest);
  /// Undoes all views that this process has not made: after a restart.
  Status undo_strays();

  /// Undoes everything, the shared mount too, and removes the empty folders.
  LeaveReport leave(milliseconds patience);

  /// The guest's views; the folder of all guests' views, in which every mount is a guest's. Pure.
  std::string folder_of(const warden_wire::GuestName& guest) const;

  static std::string guests_folder(const std::string& folder) { return folder + "/guests"; }

 private:
  struct Shared {
    std::mutex mutex;
    std::set<std::string> in_use;  ///< folder names of guests that are being started
  };

  explicit DataMounts(DataConfig config)
      : config_(std::move(config)), shared_(std::make_unique<Shared>()) {}

  Status undo(const std::string& guest_folder) const;

  DataConfig config_;
  std::unique_ptr<Shared> shared_;
};

/// kInvalid for a path that is not absolute and plain, or that lies in one of `ours` or above it,
/// or in what the kernel makes up (/proc, /sys, /dev). Pure.
Status check_data_path(const std::string& path, const std::vector<std::string>& ours);

}  // namespace rn::warden
