// SPDX-License-Identifier: Apache-2.0
#include "warden/data_mounts.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "io/fd.h"
#include "io/patiently.h"
#include "io/real_fs.h"
#include "model/data_sets.h"
#include "warden/disk.h"
#include "warden/loop_mount.h"
#include "warden/posix.h"
#include "warden/verify.h"

namespace rn::warden {

namespace {

using warden_wire::GuestName;

constexpr milliseconds kBusyLimit = seconds(1);  ///< then a view is detached
constexpr std::array<const char*, 3> kKernelFolders = {"/proc", "/sys", "/dev"};

bool is_at_or_in(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder == "/" ? folder : folder + "/");
}

io::Fd open_plainly(int at, const char* path, std::uint64_t resolve) {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = resolve | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return io::Fd(static_cast<int>(syscall(SYS_openat2, at, path, &how, sizeof how)));
}

bool is_same_folder(const struct stat& one, const std::string& path) {
  struct stat other {};

  return stat(path.c_str(), &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

/// The path alone does not tell: the owner may have mounted a folder above ours somewhere else.
Status check_identity(const io::Fd& folder, const DataConfig& config, const std::string& path) {
  struct stat about {};

  if (fstat(folder.get(), &about) != 0) return fail(from_errno(path));
  for (const std::string& ours : config.ours) {
    for (std::string above = ours;; above = parent_folder(above)) {
      if (is_same_folder(about, above))
        return fail(
            ErrorCode::kInvalid, path + " is " + above + " by another name: it would show " + ours
        );
      if (above.size() < 2) break;
    }
  }
  return {};
}

Result<io::Fd> open_set(const std::string& name, const DataConfig& config) {
  const auto known = config.sets.find(name);
  if (known == config.sets.end())
    return fail(
        ErrorCode::kNotFound,
        "this node's warden has no data set " + name,
        "its owner adds it: reclaim-warden serve --data-set " + name + "=/its/folder"
    );
  const std::string& path = known->second;
  io::Fd folder = open_plainly(AT_FDCWD, path.c_str(), 0);
  if (!folder) {
    const std::string what = "data set " + name + ": " + path;
    if (errno == ELOOP)
      return fail(
          ErrorCode::kInvalid, what + " has a symbolic link on its way", "give its true path"
      );
    if (errno == ENOENT || errno == ENOTDIR)
      return fail(ErrorCode::kNotFound, what + " is no folder that is there", "mount or make it");
    return fail(from_errno(what));
  }
  RN_CHECK(check_identity(folder, config, path));
  return Result<io::Fd>(std::move(folder));
}

Status mount_set(const io::Fd& folder, const std::string& point) {
  const int flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH;
  const io::Fd tree(open_tree(folder.get(), "", flags));
  if (!tree) return fail(from_errno("a view for " + point));
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  // Else what the owner mounts in the folder later would come along, and writable.
  attributes.propagation = MS_PRIVATE;
  if (mount_setattr(tree.get(), "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0)
    return fail(from_errno("making the view for " + point + " read-only"));
  if (move_mount(tree.get(), "", AT_FDCWD, point.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0)
    return fail(from_errno("mounting " + point));
  return {};
}

/// The owner's files may be below it for all that is known: nothing but an empty folder goes.
Status remove_empty(const std::string& folder) {
  if (rmdir(folder.c_str()) == 0 || errno == ENOENT) return {};
  return fail(from_errno(folder));
}

Status take_off(const std::string& point) {
  const Status undone = io::patiently(kBusyLimit, [&] { return unmount(point); });
  if (undone) return {};
  if (umount2(point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || errno == EINVAL) return {};
  return fail(from_errno("detaching " + point));
}

Status must_be_same(const io::Fd& seen, const std::string& view, const std::string& name) {
  struct stat about {};

  struct statvfs file_system {};

  const unsigned long wanted = ST_RDONLY | ST_NOSUID | ST_NODEV;
  if (!seen || fstat(seen.get(), &about) != 0 || fstatvfs(seen.get(), &file_system) != 0)
    return fail(
        ErrorCode::kInternal,
        "the container has no folder /data/" + name,
        "see that its image has no file or link there"
    );
  if (!is_same_folder(about, view))
    return fail(
        ErrorCode::kInternal,
        "the container engine shows another folder as /data/" + name,
        "run the engine in the warden's mount namespace, or let the warden start its own "
        "(--engine private) anew"
    );
  if ((file_system.f_flag & wanted) != wanted)
    return fail(ErrorCode::kInternal, "the container engine shows /data/" + name + " unprotected");
  return {};
}

}  // namespace

Status check_data_path(const std::string& path, const std::vector<std::string>& ours) {
  const auto refuse = [&](const std::string& why, const char* next) {
    return fail(ErrorCode::kInvalid, "\"" + path + "\" " + why, next);
  };
  if (path.size() < 2 || path.front() != '/' || !is_safe_relative_path(path.substr(1)))
    return refuse("is not an absolute path below /", "give one without //, /./ and /../");
  for (const std::string folder : kKernelFolders) {
    if (is_at_or_in(path, folder)) return refuse("lies in " + folder, "give a folder of files");
  }
  for (const std::string& folder : ours) {
    if (is_at_or_in(path, folder))
      return refuse("lies in " + folder + ", which is this program's", "keep data outside of it");
    if (is_at_or_in(folder, path))
      return refuse("would show guests " + folder, "give a folder that has only the data");
  }
  return {};
}

std::string DataMounts::folder_of(const GuestName& guest) const {
  return guests_folder(config_.folder) + "/" + attempt_folder_name(guest);
}

Result<DataMounts> DataMounts::open(const DataConfig& config) {
  for (const auto& [name, path] : config.sets) {
    const auto in_set = [&set = name](const Error& e) { return e.with("data set " + set); };
    RN_CHECK(check_data_sets({name}, 1, "data set").map_error(in_set));
    RN_CHECK(check_data_path(path, config.ours).map_error(in_set));
    const auto folder = open_set(name, config);
    if (folder) continue;
    if (folder.error().code != ErrorCode::kNotFound) return fail(folder.error());
    // A disk that is not mounted yet must not keep the owner from his emergency control.
    log::warning("data.not_there", {{"why", folder.error().describe()}});
  }
  io::RealFileSystem fs;
  RN_CHECK(make_folders(fs, guests_folder(config.folder), 0700));
  if (chmod(config.folder.c_str(), 0700) != 0) return fail(from_errno(config.folder));
  RN_CHECK(mount_shared(config.folder));
  return DataMounts(config);
}

std::vector<std::string> DataMounts::there() const {
  std::vector<std::string> names;
  for (const auto& [name, path] : config_.sets) {
    if (open_set(name, config_)) names.push_back(name);
  }
  return names;
}

Status DataMounts::mount(const GuestName& guest, const std::vector<std::string>& names) {
  if (names.empty()) return {};
  RN_CHECK(check_data_sets(names, kMaxDataSetsOfJob, "data"));
  RN_CHECK(unmount(guest));
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->in_use.insert(attempt_folder_name(guest));
  }
  const Status made = [&]() -> Status {
    io::RealFileSystem fs;
    for (const std::string& name : names) {
      RN_TRY(const io::Fd folder, open_set(name, config_));
      const std::string point = folder_of(guest) + "/" + name;
      RN_CHECK(make_folders(fs, point, 0700));
      RN_CHECK(mount_set(folder, point));
    }
    return {};
  }();
  if (made) return {};
  if (const Status undone = unmount(guest); !undone)
    log::warning("data.view_stays", {{"why", undone.error().describe()}});
  return made;
}

Status DataMounts::check_seen(
    const GuestName& guest, const std::vector<std::string>& names, pid_t first
) const {
  if (names.empty()) return {};
  const std::string path = "/proc/" + std::to_string(first) + "/root";
  const io::Fd root(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return fail(from_errno(path));
  for (const std::string& name : names) {
    const io::Fd seen = open_plainly(root.get(), ("data/" + name).c_str(), RESOLVE_IN_ROOT);
    RN_CHECK(must_be_same(seen, folder_of(guest) + "/" + name, name));
  }
  return {};
}

Status DataMounts::undo(const std::string& guest_folder) const {
  io::RealFileSystem fs;
  const auto names = fs.list(guest_folder);
  if (!names) {
    if (names.error().code == ErrorCode::kNotFound) return {};
    return fail(names.error());
  }
  for (const std::string& name : *names) RN_CHECK(take_off(guest_folder + "/" + name));
  // Mounts upon mounts, which nobody makes: whatever is there must not stay.
  detach_mounts(guest_folder.c_str());
  for (const std::string& name : *names) RN_CHECK(remove_empty(guest_folder + "/" + name));
  return remove_empty(guest_folder);
}

Status DataMounts::unmount(const GuestName& guest) {
  RN_CHECK(undo(folder_of(guest)));
  const std::lock_guard lock(shared_->mutex);
  shared_->in_use.erase(attempt_folder_name(guest));
  return {};
}

Status DataMounts::undo_strays() {
  io::RealFileSystem fs;
  const std::string guests = guests_folder(config_.folder);
  RN_TRY(const auto names, fs.list(guests));
  for (const std::string& name : names) {
    const std::lock_guard lock(shared_->mutex);  // held: nobody begins with it meanwhile
    if (shared_->in_use.contains(name)) continue;
    // What cannot be undone keeps nothing else from being done: verify names it.
    const Status undone = undo(guests + "/" + name);
    log::warning(
        "data.stray_view",
        {{"guest", name}, {"what", undone ? "undone" : undone.error().describe()}}
    );
  }
  return {};
}

LeaveReport DataMounts::leave(milliseconds patience) {
  LeaveReport report;
  io::RealFileSystem fs;
  const std::string guests = guests_folder(config_.folder);
  const auto names = fs.list(guests);
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const Status undone = io::patiently(patience, [&] { return undo(guests + "/" + name); });
    if (undone) {
      report.removed.push_back("views of data sets of " + name);
    } else {
      report.stays.push_back("views of data sets of " + name + ": " + undone.error().describe());
    }
  }
  if (!report.stays.empty()) return report;
  const Status removed = io::patiently(patience, [&]() -> Status {
    RN_CHECK(rn::warden::unmount(config_.folder));
    RN_CHECK(remove_empty(guests));
    return remove_empty(config_.folder);
  });
  if (!removed) report.stays.push_back("folder of data sets' views: " + removed.error().describe());
  return report;
}

}  // namespace rn::warden
