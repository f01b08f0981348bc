// SPDX-License-Identifier: Apache-2.0
#include "warden/disk_view.h"

#include <cerrno>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/errno_error.h"
#include "io/fd.h"
#include "warden/posix.h"

namespace rn::warden {

namespace {

/// A child in a user namespace of its own, which it keeps until it is ended.
struct Namespace {
  pid_t keeper = -1;

  explicit Namespace(pid_t pid) : keeper(pid) {}

  Namespace(const Namespace&) = delete;
  Namespace& operator=(const Namespace&) = delete;

  ~Namespace() {
    if (keeper <= 0) return;
    kill(keeper, SIGKILL);
    while (waitpid(keeper, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  std::string file(const char* name) const { return "/proc/" + std::to_string(keeper) + name; }
};

Status write_map(const std::string& path, std::uint32_t from, std::uint32_t to) {
  const io::Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) return fail(from_errno(path));
  // One write: the kernel takes the whole map or nothing.
  const std::string line = std::to_string(from) + " " + std::to_string(to) + " 1\n";
  if (write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return fail(from_errno(path));
  return {};
}

/// The descriptor of a user namespace that maps like `owners`. It needs no process once it is open.
Result<io::Fd> make_namespace(const OwnerMap& owners) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail(from_errno("a pipe"));
  io::Fd ready(ends[0]);
  io::Fd tell(ends[1]);
  const pid_t child = fork();
  if (child < 0) return fail(from_errno("a user namespace"));
  if (child == 0) {  // only what is safe after a fork of a threaded process
    const char answer = unshare(CLONE_NEWUSER) == 0 ? 0 : static_cast<char>(errno);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (write(ends[1], &answer, 1) == 1) pause();
    _exit(0);
  }
  const Namespace keeper(child);
  tell.reset();
  char answer = EIO;
  while (read(ready.get(), &answer, 1) < 0 && errno == EINTR) {
  }
  if (answer != 0) return fail(io::error_from_errno(answer, "a user namespace"));
  RN_CHECK(write_map(keeper.file("/uid_map"), owners.from_uid, owners.to_uid));
  RN_CHECK(write_map(keeper.file("/gid_map"), owners.from_gid, owners.to_gid));
  io::Fd space(open(keeper.file("/ns/user").c_str(), O_RDONLY | O_CLOEXEC));
  if (!space) return fail(from_errno("a user namespace"));
  return Result<io::Fd>(std::move(space));
}

}  // namespace

Status mount_view(const std::string& disk, const std::string& view, const OwnerMap& owners) {
  RN_TRY(const io::Fd space, make_namespace(owners));
  const io::Fd tree(open_tree(AT_FDCWD, disk.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
  if (!tree) return fail(from_errno("a view of " + disk));
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  attributes.userns_fd = static_cast<std::uint64_t>(space.get());
  if (mount_setattr(tree.get(), "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0) {
    if (errno == ENOSYS || errno == EINVAL || errno == EOPNOTSUPP)
      return fail(
          ErrorCode::kUnsupported,
          "this kernel or file system has no mounts with mapped owners",
          "run Linux 5.12 or newer with the state folder's disk images on ext4"
      );
    return fail(from_errno("mapping the owners of " + disk));
  }
  if (move_mount(tree.get(), "", AT_FDCWD, view.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0)
    return fail(from_errno("mounting " + view));
  return {};
}

}  // namespace rn::warden
