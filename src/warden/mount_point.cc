// SPDX-License-Identifier: Apache-2.0
#include "warden/mount_point.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/errno_error.h"
#include "io/read_text.h"

namespace rn::warden {

namespace {

bool is_mounted_for_anybody(const std::string& folder) {
  const std::string field = " " + folder + " ";
  const auto pids = io::all_pids();
  return std::any_of(pids.begin(), pids.end(), [&](pid_t pid) {
    return io::read_text("/proc/" + std::to_string(pid) + "/mountinfo").find(field) !=
           std::string::npos;
  });
}

}  // namespace

Status make_mount_point(const std::string& folder, const std::string& marker) {
  if (mkdir(folder.c_str(), 0711) != 0)
    return errno == EEXIST ? Status{} : fail(io::error_from_errno(errno, folder));
  const int made = open(marker.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (made < 0) return fail(io::error_from_errno(errno, marker));
  close(made);
  return {};
}

void remove_mount_point(const std::string& folder, const std::string& marker) {
  if (access(marker.c_str(), F_OK) != 0) return;
  // NOTE(kernel): rmdir takes away what other mount namespaces have mounted on it.
  if (!is_mounted_for_anybody(folder)) rmdir(folder.c_str());
  unlink(marker.c_str());
}

}  // namespace rn::warden
