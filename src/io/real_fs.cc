// SPDX-License-Identifier: Apache-2.0
#include "io/real_fs.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/errno_error.h"
#include "io/fd.h"

namespace rn::io {
namespace {

constexpr std::size_t kFirstReadBytes = 64 << 10;
constexpr std::size_t kEarlyWriteBytes = 1 << 20;  ///< less is not worth the call

tl::unexpected<Error> failed(const std::string& what) {
  return fail(error_from_errno(errno, what));
}

Status check_path(const std::string& path) {
  if (path.empty() || path.front() != '/')
    return fail(ErrorCode::kInvalid, "'" + path + "' is not an absolute path");
  if (path.find('\0') != std::string::npos)
    return fail(ErrorCode::kInvalid, "a path with a NUL byte");
  return {};
}

FileStat::Kind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return FileStat::Kind::kRegular;
  if (S_ISDIR(mode)) return FileStat::Kind::kDirectory;
  if (S_ISLNK(mode)) return FileStat::Kind::kSymlink;
  return FileStat::Kind::kOther;
}

FileStat to_file_stat(const struct stat& raw) {
  FileStat result;
  result.kind = kind_of(raw.st_mode);
  result.size = static_cast<std::uint64_t>(raw.st_size);
  result.inode = raw.st_ino;
  result.mtime_ns = std::int64_t{raw.st_mtim.tv_sec} * 1'000'000'000 + raw.st_mtim.tv_nsec;
  result.mode = raw.st_mode & 07777;
  result.links = static_cast<std::uint32_t>(raw.st_nlink);
  result.changed_ns = std::int64_t{raw.st_ctim.tv_sec} * 1'000'000'000 + raw.st_ctim.tv_nsec;
  return result;
}

class RealFile final : public File {
 public:
  RealFile(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Result<Blob> read(std::uint64_t offset, std::uint64_t max) override {
    Blob bytes;
    while (bytes.size() < max) {
      const std::size_t have = bytes.size();
      const std::size_t more = static_cast<std::size_t>(
          std::min<std::uint64_t>(max - have, std::max(have, kFirstReadBytes))
      );
      bytes.resize(have + more);
      const ssize_t got =
          pread(fd_.get(), bytes.data() + have, more, static_cast<off_t>(offset + have));
      bytes.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return failed("reading " + path_);
      if (got == 0) break;
    }
    return bytes;
  }

  Status append(BlobView bytes) override {
    const std::size_t length = bytes.size();
    while (!bytes.empty()) {
      const ssize_t put = write(fd_.get(), bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return failed("writing " + path_);
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
    // Whoever appends here syncs soon: the disk begins now, and the syncs of several files find
    // little left to do. A hint; an error of the disk is the sync's to tell.
    if (length >= kEarlyWriteBytes) (void)sync_file_range(fd_.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
    return {};
  }

  Status sync() override {
    // NOTE(kernel): after a failed fsync the next one may report success although pages were lost.
    if (condemned_) return fail(*condemned_);
    if (fsync(fd_.get()) == 0) return {};
    condemned_ = error_from_errno(errno, "syncing " + path_);
    return fail(*condemned_);
  }

  Result<FileStat> stat() override {
    struct stat raw {};

    if (fstat(fd_.get(), &raw) != 0) return failed("looking at " + path_);
    return to_file_stat(raw);
  }

 private:
  Fd fd_;
  std::string path_;
  std::optional<Error> condemned_;
};

/// Refuses everything but a regular file. The descriptor was opened with O_NONBLOCK, so a FIFO
/// could not block us.
Result<std::unique_ptr<File>> regular_file(Fd fd, const std::string& path) {
  struct stat raw {};

  if (fstat(fd.get(), &raw) != 0) return failed("looking at " + path);
  if (!S_ISREG(raw.st_mode)) return fail(ErrorCode::kUnsupported, path + " is not a regular file");
  return std::make_unique<RealFile>(std::move(fd), path);
}

Result<std::unique_ptr<File>> open_file(const std::string& path, int flags, std::uint32_t mode) {
  RN_CHECK(check_path(path));
  const int always = O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;
  Fd fd(::open(path.c_str(), flags | always, static_cast<mode_t>(mode)));
  if (!fd) return failed("opening " + path);
  return regular_file(std::move(fd), path);
}

Result<std::vector<std::string>> names_in(Fd folder, const std::string& path) {
  DIR* stream = fdopendir(folder.get());
  if (stream == nullptr) return failed("listing " + path);
  (void)folder.release();  // now the stream's
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(stream)) {  // NOLINT(concurrency-mt-unsafe): own stream
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int error = errno;
  closedir(stream);
  if (error != 0) return fail(error_from_errno(error, "listing " + path));
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> link_target(int folder, const char* name, const std::string& path) {
  std::string target(4096, '\0');
  const ssize_t size = readlinkat(folder, name, target.data(), target.size());
  if (size < 0 && errno == EINVAL)
    return fail(ErrorCode::kUnsupported, path + " is not a symbolic link");
  if (size < 0) return failed("reading the link " + path);
  target.resize(static_cast<std::size_t>(size));
  return target;
}

class RealFolder final : public Folder {
 public:
  RealFolder(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Result<std::unique_ptr<File>> open(const std::string& relative) override {
    RN_TRY(Fd fd, resolve(relative, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW));
    return regular_file(std::move(fd), join_path(path_, relative));
  }

  Result<FileStat> stat(const std::string& relative) override {
    RN_TRY(const Fd fd, resolve(relative, O_PATH | O_NOFOLLOW));

    struct stat raw {};

    if (fstat(fd.get(), &raw) != 0) return failed("looking at " + join_path(path_, relative));
    return to_file_stat(raw);
  }

  Result<std::vector<std::string>> list(const std::string& relative) override {
    RN_TRY(Fd fd, resolve(relative, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    return names_in(std::move(fd), join_path(path_, relative));
  }

  Result<std::string> read_symlink(const std::string& relative) override {
    RN_TRY(const Fd fd, resolve(relative, O_PATH | O_NOFOLLOW));
    return link_target(fd.get(), "", join_path(path_, relative));
  }

 private:
  Result<Fd> resolve(const std::string& relative, int flags) const {
    if (!relative.empty() && !is_safe_relative_path(relative))
      return fail(ErrorCode::kDenied, "'" + relative + "' is not a safe relative path");
    open_how how{};
    how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    const char* name = relative.empty() ? "." : relative.c_str();
    // NOTE(kernel): EAGAIN tells that a rename elsewhere raced with the resolution.
    for (int attempt = 0; attempt < 16; ++attempt) {
      Fd fd(static_cast<int>(syscall(SYS_openat2, fd_.get(), name, &how, sizeof(how))));
      if (fd) return fd;
      if (errno != EAGAIN && errno != EINTR) break;
    }
    if (errno == EXDEV) errno = ELOOP;  // an escape: denied, like a link
    if (errno == EAGAIN) errno = EBUSY;
    return failed("opening " + join_path(path_, relative));
  }

  Fd fd_;
  std::string path_;
};

}  // namespace

Result<std::unique_ptr<File>> RealFileSystem::open(const std::string& path) {
  return open_file(path, O_RDONLY, 0);
}

Result<std::unique_ptr<File>> RealFileSystem::create(const std::string& path, std::uint32_t mode) {
  return open_file(path, O_RDWR | O_APPEND | O_CREAT | O_EXCL, mode);
}

Result<std::unique_ptr<File>> RealFileSystem::open_append(
    const std::string& path, std::uint32_t mode
) {
  return open_file(path, O_RDWR | O_APPEND | O_CREAT, mode);
}

Status RealFileSystem::rename(const std::string& from, const std::string& to) {
  RN_CHECK(check_path(from));
  RN_CHECK(check_path(to));
  if (::rename(from.c_str(), to.c_str()) != 0) return failed("renaming " + from + " to " + to);
  return {};
}

Status RealFileSystem::remove(const std::string& path) {
  RN_CHECK(check_path(path));
  if (unlink(path.c_str()) == 0) return {};
  if (errno == EISDIR && rmdir(path.c_str()) == 0) return {};
  return failed("removing " + path);
}

Status RealFileSystem::make_folder(const std::string& path, std::uint32_t mode) {
  RN_CHECK(check_path(path));
  if (mkdir(path.c_str(), static_cast<mode_t>(mode)) != 0)
    return failed("making the folder " + path);
  return {};
}

Status RealFileSystem::make_symlink(const std::string& target, const std::string& path) {
  RN_CHECK(check_path(path));
  if (target.find('\0') != std::string::npos)
    return fail(ErrorCode::kInvalid, "a link target with a NUL byte");
  if (symlink(target.c_str(), path.c_str()) != 0) return failed("making the link " + path);
  return {};
}

Result<std::string> RealFileSystem::read_symlink(const std::string& path) {
  RN_CHECK(check_path(path));
  return link_target(AT_FDCWD, path.c_str(), path);
}

Status RealFileSystem::set_mode(const std::string& path, std::uint32_t mode) {
  RN_CHECK(check_path(path));
  const Fd fd(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));

  struct stat raw {};

  if (!fd || fstat(fd.get(), &raw) != 0) return failed("looking at " + path);
  if (S_ISLNK(raw.st_mode)) return fail(ErrorCode::kDenied, path + " is a symbolic link");
  // NOTE(kernel < 6.6): no fchmodat2, and fchmod refuses O_PATH descriptors.
  const std::string self = "/proc/self/fd/" + std::to_string(fd.get());
  if (chmod(self.c_str(), static_cast<mode_t>(mode)) != 0)
    return failed("changing the mode of " + path);
  return {};
}

Status RealFileSystem::set_mtime(const std::string& path, std::int64_t mtime_ns) {
  RN_CHECK(check_path(path));
  std::int64_t whole = mtime_ns / 1'000'000'000;
  std::int64_t rest = mtime_ns % 1'000'000'000;
  if (rest < 0) {
    rest += 1'000'000'000;
    --whole;
  }
  timespec times[2] = {};
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_sec = whole;
  times[1].tv_nsec = rest;
  if (utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0)
    return failed("setting the time of " + path);
  return {};
}

Status RealFileSystem::sync_folder(const std::string& path) {
  RN_CHECK(check_path(path));
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return failed("opening the folder " + path);
  if (fsync(fd.get()) != 0) return failed("syncing the folder " + path);
  return {};
}

Result<FileStat> RealFileSystem::stat(const std::string& path) {
  RN_CHECK(check_path(path));

  struct stat raw {};

  if (lstat(path.c_str(), &raw) != 0) return failed("looking at " + path);
  return to_file_stat(raw);
}

Result<std::uint64_t> RealFileSystem::mount_of(const std::string& path) {
  RN_CHECK(check_path(path));

  struct statx raw {};

  // An automount that is looked at stays as it is.
  const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
  if (statx(AT_FDCWD, path.c_str(), flags, STATX_MNT_ID, &raw) != 0)
    return failed("looking at the mount of " + path);
  if ((raw.stx_mask & STATX_MNT_ID) != 0) return raw.stx_mnt_id;
  // NOTE(kernel < 5.8): another disk is told apart, another mount of the same disk is not.
  return std::uint64_t{raw.stx_dev_major} << 32 | raw.stx_dev_minor;
}

Result<std::vector<std::string>> RealFileSystem::list(const std::string& path) {
  RN_CHECK(check_path(path));
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return failed("opening the folder " + path);
  return names_in(std::move(fd), path);
}

Result<std::uint64_t> RealFileSystem::free_bytes(const std::string& path) {
  RN_CHECK(check_path(path));

  struct statvfs raw {};

  if (statvfs(path.c_str(), &raw) != 0) return failed("measuring the disk of " + path);
  return std::uint64_t{raw.f_bavail} * raw.f_frsize;
}

void RealFileSystem::drop_cache(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (fd) (void)posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
}

Result<std::unique_ptr<Folder>> RealFileSystem::open_folder(const std::string& path) {
  RN_CHECK(check_path(path));
  Fd fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return failed("opening the folder " + path);
  return std::make_unique<RealFolder>(std::move(fd), path);
}

}  // namespace rn::io
