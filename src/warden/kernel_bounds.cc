// SPDX-License-Identifier: Apache-2.0
#include "warden/kernel_bounds.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/errno_error.h"
#include "io/fd.h"
#include "io/read_text.h"
#include "warden/posix.h"

namespace rn::warden {

namespace {

struct KernelBound {
  const char* machine;     ///< what a user may have there
  const char* name_space;  ///< what the namespace of the process that opens it may have
};

constexpr KernelBound kBounds[] = {
    {"/proc/sys/fs/inotify/max_user_instances", "/proc/sys/user/max_inotify_instances"},
    {"/proc/sys/fs/inotify/max_user_watches", "/proc/sys/user/max_inotify_watches"},
};

/// Only what is safe after a fork of a threaded process. errno, or 0.
int write_inside(int name_space, const char* path, const char* text, std::size_t size) {
  if (setns(name_space, CLONE_NEWUSER) != 0) return errno;
  // Opened inside: the kernel answers with the bounds of the namespace that asks.
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return errno;
  return write(file, text, size) == static_cast<ssize_t>(size) ? 0 : errno;
}

Status set_inside(const io::Fd& name_space, const char* path, const std::string& text) {
  const pid_t child = fork();
  if (child < 0) return fail(from_errno("bounding a guest's namespace"));
  if (child == 0) _exit(write_inside(name_space.get(), path, text.c_str(), text.size()));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return fail(from_errno("bounding a guest's namespace"));
  }
  if (!WIFEXITED(status)) return fail(ErrorCode::kInternal, std::string(path) + " was not written");
  // ENOENT: a kernel that does not count it.
  if (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != ENOENT)
    return fail(io::error_from_errno(WEXITSTATUS(status), path));
  return {};
}

}  // namespace

Status bound_kernel_objects(std::int32_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/ns/user";
  const io::Fd name_space(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!name_space) return fail(from_errno(path));

  struct stat its {};

  struct stat ours {};

  if (fstat(name_space.get(), &its) != 0 || stat("/proc/self/ns/user", &ours) != 0)
    return fail(from_errno(path));
  if (its.st_dev == ours.st_dev && its.st_ino == ours.st_ino) return {};
  for (const KernelBound& bound : kBounds) {
    const std::string text = io::read_text(bound.machine);
    std::uint64_t most = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), most).ec != std::errc()) continue;
    const std::uint64_t part = std::max<std::uint64_t>(1, most / kGuestsPartOfRoot);
    RN_CHECK(set_inside(name_space, bound.name_space, std::to_string(part) + "\n"));
  }
  return {};
}

}  // namespace rn::warden
