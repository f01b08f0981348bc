// SPDX-License-Identifier: Apache-2.0
#include "warden/disk.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "io/fd.h"
#include "io/patiently.h"
#include "io/real_fs.h"
#include "io/real_rng.h"
#include "io/subprocess.h"
#include "warden/disk_view.h"
#include "warden/loop_mount.h"
#include "warden/mount_users.h"
#include "warden/posix.h"
#include "warden/profile.h"

namespace rn::warden {

namespace {

using warden_wire::GuestName;

constexpr int kMaxFolderDepth = 64;
/// Beside the attempts: why the agent has no view of guests' disks. `reclaim-agent doctor` reads
/// it.
constexpr const char* kNoViewFile = "no-view";
constexpr milliseconds kFormatLimit = seconds(60);

/// Changes the owner of all that is in the open folder, which it closes. Never through a link,
/// never onto another file system; a hard link cannot come from outside the disk.
Status chown_below(int folder, std::uint32_t uid, dev_t device, int depth) {
  if (depth > kMaxFolderDepth) {
    close(folder);
    return fail(ErrorCode::kInvalid, "the work folder is nested more than 64 deep");
  }
  DIR* entries = fdopendir(folder);
  if (entries == nullptr) {
    close(folder);
    return fail(from_errno("reading a folder"));
  }
  Status status;
  while (const dirent* entry = readdir(entries)) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    const int here = dirfd(entries);

    struct stat about {};

    if (fstatat(here, name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) {
      status = fail(from_errno(name));
      break;
    }
    if (about.st_dev != device) continue;
    if (S_ISDIR(about.st_mode)) {
      const int below = openat(here, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (below < 0) {
        status = fail(from_errno(name));
        break;
      }
      status = chown_below(below, uid, device, depth + 1);
      if (!status) break;
    }
    if (fchownat(here, name.c_str(), uid, uid, AT_SYMLINK_NOFOLLOW) != 0) {
      status = fail(from_errno(name));
      break;
    }
  }
  closedir(entries);
  return status;
}

/// A folder at or below the guest's work folder, found by the kernel without a link and without
/// leaving the disk, whatever the guest moves meanwhile.
Result<io::Fd> open_in_work(const std::string& disk, const std::string& path) {
  const std::string work = disk + "/work";
  // NOTE: the disk's root belongs to root, so `work` itself is no link of the guest's.
  const io::Fd root(::open(work.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (root.get() < 0) return fail(from_errno(work));
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  io::Fd found(static_cast<int>(syscall(SYS_openat2, root.get(), path.c_str(), &how, sizeof how)));
  if (found.get() < 0) return fail(from_errno(path));
  return found;
}

}  // namespace

std::string attempt_folder_name(const GuestName& guest) {
  return guest.job.str() + "-" + to_string(guest.epoch);
}

Result<GuestName> guest_of_folder(const std::string& name) {
  const auto hyphen = name.rfind('-');
  GuestName guest;
  if (hyphen != std::string::npos) {
    guest.job = JobId(name.substr(0, hyphen));
    guest.epoch = parse_epoch(name.substr(hyphen + 1));
  }
  RN_CHECK(check_guest_name(guest));
  return guest;
}

std::string AttemptDisks::attempt_folder(const GuestName& guest) const {
  return config_.folder + "/" + attempt_folder_name(guest);
}

std::string AttemptDisks::folder_of(const GuestName& guest) const {
  return attempt_folder(guest) + "/disk";
}

Result<AttemptDisks> AttemptDisks::open(const DiskConfig& config) {
  io::RealFileSystem fs;
  RN_CHECK(make_folders(fs, parent_folder(config.folder), 0711));
  RN_CHECK(make_folders(fs, config.folder, 0750));
  // Only the agent's group may go in, and only root may change names in it.
  if (chown(config.folder.c_str(), 0, config.agent_gid) != 0 ||
      chmod(config.folder.c_str(), 0750) != 0)
    return fail(from_errno(config.folder));
  RN_CHECK(mount_shared(config.folder));
  return AttemptDisks(config);
}

Status AttemptDisks::check_space(std::uint64_t disk_mib) const {
  struct statvfs space {};

  if (statvfs(config_.folder.c_str(), &space) != 0) return fail(from_errno(config_.folder));
  const std::uint64_t free_mib = (space.f_bavail * space.f_frsize) >> 20;
  // What older images may still grow is promised already.
  std::uint64_t promised_mib = 0;
  io::RealFileSystem fs;
  RN_TRY(const auto names, fs.list(config_.folder));
  for (const std::string& name : names) {
    struct stat about {};

    const std::string image = config_.folder + "/" + name + "/image.ext4";
    if (stat(image.c_str(), &about) != 0) continue;
    const auto size = static_cast<std::uint64_t>(about.st_size);
    const auto used = static_cast<std::uint64_t>(about.st_blocks) * 512;
    if (size > used) promised_mib += (size - used) >> 20;
  }
  if (free_mib >= promised_mib + config_.reserve_mib + disk_mib) return {};
  return fail(
      ErrorCode::kExhausted,
      "the disk has " + std::to_string(free_mib) + " MiB free, of which " +
          std::to_string(promised_mib) + " are promised and " +
          std::to_string(config_.reserve_mib) + " are the owner's",
      "ask for a smaller disk, or try another node"
  );
}

Status AttemptDisks::make_image(const std::string& path, std::uint64_t disk_mib) const {
  const std::string half_made = path + ".new";
  {
    const io::Fd image(
        ::open(half_made.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600)
    );
    if (image.get() < 0) return fail(from_errno(half_made));
    if (ftruncate(image.get(), static_cast<off_t>(disk_mib << 20)) != 0)
      return fail(from_errno(half_made));
  }
  const auto made = io::run_for_output(
      {"mkfs.ext4",
       "-q",
       "-F",
       "-m",
       "0",
       "-E",
       "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
       half_made},
      kFormatLimit
  );
  if (!made) return fail(made.error().with("making the attempt's disk"));
  if (rename(half_made.c_str(), path.c_str()) != 0) return fail(from_errno(path));
  return {};
}

/// The folders of a new disk. Its root stays root's, so the guest cannot replace them. One that is
/// root's was made by a process that was killed before it could give it away.
Status AttemptDisks::fill(const std::string& mounted) const {
  const auto make = [&](const char* name, std::uint32_t uid, std::uint32_t gid) -> Status {
    const std::string path = mounted + "/" + name;
    if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return fail(from_errno(path));

    struct stat about {};

    if (lstat(path.c_str(), &about) != 0) return fail(from_errno(path));
    if (about.st_uid == 0 && lchown(path.c_str(), uid, gid) != 0) return fail(from_errno(path));
    return {};
  };
  if (chmod(mounted.c_str(), 0755) != 0) return fail(from_errno(mounted));
  RN_CHECK(make("work", config_.agent_uid, config_.agent_gid));
  return make("reclaim", config_.guest_uid, config_.guest_uid);
}

Status AttemptDisks::mount_and_fill(const std::string& image, const std::string& mounted) const {
  RN_TRY(const bool is_there, is_mounted(mounted));
  if (!is_there) RN_CHECK(mount_image(image, mounted));
  return fill(mounted);
}

Result<std::string> AttemptDisks::prepare(const GuestName& guest, std::uint64_t disk_mib) const {
  RN_CHECK(check_guest_name(guest));
  const std::string folder = attempt_folder(guest);
  const std::string mounted = folder_of(guest);
  const std::string image = folder + "/image.ext4";
  io::RealFileSystem fs;
  if (access(image.c_str(), F_OK) != 0) {
    RN_CHECK(check_space(disk_mib));
    RN_CHECK(make_folders(fs, mounted, 0755));
    if (const Status made = make_image(image, disk_mib); !made) {
      const Status ignored = remove_tree(fs, folder);
      (void)ignored;
      return fail(made.error());
    }
  }
  const std::lock_guard lock(*mounting_);
  RN_CHECK(mount_and_fill(image, mounted));
  return mounted;
}

Status AttemptDisks::adopt(const GuestName& guest) const {
  const std::string work = folder_of(guest) + "/work";
  io::Fd folder(::open(work.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.get() < 0) return fail(from_errno(work));

  struct stat about {};

  if (fstat(folder.get(), &about) != 0) return fail(from_errno(work));
  const int again = dup(folder.get());
  if (again < 0) return fail(from_errno(work));
  RN_CHECK(chown_below(again, config_.guest_uid, about.st_dev, 0).map_error([](const Error& e) {
    return e.with("giving the disk to the guest");
  }));
  if (fchown(folder.get(), config_.guest_uid, config_.guest_uid) != 0)
    return fail(from_errno(work));
  const std::lock_guard lock(*mounting_);
  show_to_agent(guest);
  return {};
}

void AttemptDisks::show_to_agent(const GuestName& guest) const {
  const std::string view = attempt_folder(guest) + "/view";
  const auto show = [&]() -> Status {
    io::RealFileSystem fs;
    RN_CHECK(make_folders(fs, view, 0755));
    RN_TRY(const bool is_there, is_mounted(view));
    if (is_there) return {};
    return mount_view(
        folder_of(guest),
        view,
        {config_.guest_uid, config_.agent_uid, config_.guest_uid, config_.agent_gid}
    );
  };
  const Status shown = show();
  io::RealFileSystem fs;
  const std::string mark = join_path(parent_folder(config_.folder), kNoViewFile);
  if (shown) {
    (void)fs.remove(mark);
    return;
  }
  rmdir(view.c_str());  // the agent looks for it
  log::warning(
      "disk.no_view",
      {{"guest", attempt_folder_name(guest)},
       {"why", shown.error().describe()},
       {"so", "the agent saves only what the guest lets everybody read"}}
  );
  // The owner's `doctor` reads it.
  const Status marked = write_durably(fs, mark, as_bytes(shown.error().describe()), 0644);
  if (!marked) log::warning("disk.no_mark", {{"why", marked.error().describe()}});
}

Status AttemptDisks::release(const GuestName& guest) const {
  RN_CHECK(check_guest_name(guest));
  const std::lock_guard lock(*mounting_);
  RN_CHECK(unmount(attempt_folder(guest) + "/view"));
  RN_CHECK(unmount(folder_of(guest)));
  io::RealFileSystem fs;
  return remove_tree(fs, attempt_folder(guest));
}

Result<std::vector<AttemptDisk>> AttemptDisks::find() const {
  io::RealFileSystem fs;
  std::vector<AttemptDisk> disks;
  RN_TRY(const auto names, fs.list(config_.folder));
  for (const std::string& name : names) {
    const auto guest = guest_of_folder(name);
    if (!guest) continue;
    const std::string image = config_.folder + "/" + name + "/image.ext4";
    const std::lock_guard lock(*mounting_);

    struct stat about {};

    if (stat(image.c_str(), &about) != 0) continue;  // half made: prepare() makes it anew
    const std::uint64_t disk_mib = static_cast<std::uint64_t>(about.st_size) >> 20;
    const std::string folder = folder_of(*guest);
    if (const Status mounted = mount_and_fill(image, folder); !mounted) {
      log::warning("disk.not_mounted", {{"image", image}, {"why", mounted.error().describe()}});
      continue;
    }
    // Adopted before this start of ours: the agent goes on reading it.
    if (stat((folder + "/work").c_str(), &about) == 0 && about.st_uid == config_.guest_uid)
      show_to_agent(*guest);
    disks.push_back({*guest, folder, disk_mib});
  }
  return disks;
}

Result<int> AttemptDisks::open_reclaim(const GuestName& guest) const {
  RN_CHECK(check_guest_name(guest));
  const std::string path = folder_of(guest) + "/reclaim";
  // NOTE: the disk's root belongs to root, so `reclaim` itself is no link of the guest's.
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return fail(from_errno(path));
  return fd;
}

Status AttemptDisks::write(const GuestName& guest, const std::string& name, const std::string& text)
    const {
  RN_TRY(const int raw, open_reclaim(guest));
  const io::Fd folder(raw);
  // A name that the guest cannot guess, made new: nothing of the guest's is written through.
  io::RealRng rng;
  const std::string fresh = "." + name + "." + rng.hex(8);
  {
    const io::Fd file(openat(
        folder.get(), fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644
    ));
    if (file.get() < 0) return fail(from_errno(name));
    if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      const Error error = from_errno(name);
      unlinkat(folder.get(), fresh.c_str(), 0);
      return fail(error);
    }
  }
  if (renameat(folder.get(), fresh.c_str(), folder.get(), name.c_str()) != 0) {
    const Error error = from_errno(name);
    unlinkat(folder.get(), fresh.c_str(), 0);
    return fail(error);
  }
  return {};
}

Status AttemptDisks::erase(const GuestName& guest, const std::string& name) const {
  RN_TRY(const int raw, open_reclaim(guest));
  const io::Fd folder(raw);
  if (unlinkat(folder.get(), name.c_str(), 0) == 0 || errno == ENOENT) return {};
  return fail(from_errno(name));
}

Result<bool> AttemptDisks::write_new(
    const GuestName& guest, const std::string& path, const std::string& text
) const {
  RN_CHECK(check_guest_name(guest));
  if (!is_safe_relative_path(path))
    return fail(ErrorCode::kInvalid, path + " is not inside the guest's folder");
  RN_TRY(const io::Fd folder, open_in_work(folder_of(guest), parent_folder(path)));
  return put_new(folder.get(), path, text);
}

Result<bool> AttemptDisks::write_new_beside(
    const GuestName& guest, const std::string& name, const std::string& text
) const {
  RN_TRY(const int raw, open_reclaim(guest));
  const io::Fd folder(raw);
  return put_new(folder.get(), name, text);
}

/// Under the last name of `path`, which lies in the folder.
Result<bool> AttemptDisks::put_new(int folder, const std::string& path, const std::string& text)
    const {
  const std::string name = path.substr(path.rfind('/') + 1);
  // Nameless until it is whole: the guest sees all of it or nothing, and nothing of its own is
  // written to.
  const io::Fd file(openat(folder, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0644));
  if (file.get() < 0) return fail(from_errno(path));
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return fail(from_errno(path));
  const std::string self = "/proc/self/fd/" + std::to_string(file.get());
  if (linkat(AT_FDCWD, self.c_str(), folder, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
    // It may be deleted without this, too: the folder is the guest's.
    if (fchown(file.get(), config_.guest_uid, config_.guest_uid) != 0)
      log::warning("disk.not_given", {{"why", from_errno(path).describe()}});
    return true;
  }
  if (errno != EEXIST) return fail(from_errno(path));

  struct stat about {};

  const bool is_folder =
      fstatat(folder, name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(about.st_mode);
  if (is_folder) return fail(ErrorCode::kUnsupported, path + " is a folder");
  return false;
}

Result<std::string> AttemptDisks::read(
    const GuestName& guest, const std::string& name, std::size_t max
) const {
  RN_TRY(const int raw, open_reclaim(guest));
  const io::Fd folder(raw);
  const io::Fd file(
      openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
  );
  if (file.get() < 0) return fail(from_errno(name));

  struct stat about {};

  if (fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode))
    return fail(ErrorCode::kDenied, name + " is no regular file");
  std::string text(max, '\0');
  const ssize_t got = ::read(file.get(), text.data(), max);
  if (got < 0) return fail(from_errno(name));
  text.resize(static_cast<std::size_t>(got));
  return text;
}

LeaveReport AttemptDisks::leave(milliseconds patience) const {
  io::RealFileSystem fs;
  LeaveReport report;
  const auto names = fs.list(config_.folder);
  if (!names) {
    report.stays.push_back(names.error().describe());
    return report;
  }
  for (const std::string& name : *names) {
    const auto guest = guest_of_folder(name);
    if (!guest) continue;
    const Status released = io::patiently(patience, [&] { return release(*guest); });
    if (released) {
      report.removed.push_back("disk of " + name);
      continue;
    }
    std::string users;
    for (const std::string& user : users_of_mount(folder_of(*guest)))
      users += (users.empty() ? "; in use by process " : ", ") + user;
    report.stays.push_back("disk of " + name + ": " + released.error().message + users);
  }
  if (!report.stays.empty()) return report;
  const Status removed = io::patiently(patience, [&]() -> Status {
    RN_CHECK(unmount(config_.folder));
    return remove_tree(fs, config_.folder);
  });
  if (!removed) report.stays.push_back("attempts' folder: " + removed.error().message);
  return report;
}

}  // namespace rn::warden
