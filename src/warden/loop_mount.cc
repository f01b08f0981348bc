// SPDX-License-Identifier: Apache-2.0
#include "warden/loop_mount.h"

#include <cerrno>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include "io/errno_error.h"
#include "io/fd.h"

namespace rn::warden {

namespace {

/// mountinfo writes blank, tab, newline and backslash as octal.
std::string unescaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>(
          (text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0')
      );
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

/// Attaches `image` to a free loop device and mounts it. Another process may take the device
/// between the question and LOOP_CONFIGURE: then EBUSY, and the next one is tried.
Status try_mount(const io::Fd& control, int image, const std::string& folder) {
  const int number = ioctl(control.get(), LOOP_CTL_GET_FREE);
  if (number < 0) return fail(io::error_from_errno(errno, "no free loop device"));
  const std::string path = "/dev/loop" + std::to_string(number);
  const io::Fd device(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (device.get() < 0) return fail(io::error_from_errno(errno, path));
  loop_config config{};
  config.fd = static_cast<__u32>(image);
  config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
  if (ioctl(device.get(), LOOP_CONFIGURE, &config) != 0) {
    if (errno == EBUSY) return fail(ErrorCode::kUnavailable, path + " was taken");
    return fail(io::error_from_errno(errno, "configuring " + path));
  }
  if (mount(path.c_str(), folder.c_str(), "ext4", MS_NOSUID | MS_NODEV | MS_NOATIME, nullptr) == 0)
    return {};
  // Autoclear frees the device when its descriptor is closed.
  if (errno == EINVAL) return fail(ErrorCode::kCorrupt, "the image is no ext4 file system");
  return fail(io::error_from_errno(errno, "mounting on " + folder));
}

}  // namespace

Status mount_image(const std::string& image, const std::string& folder) {
  const io::Fd control(open("/dev/loop-control", O_RDWR | O_CLOEXEC));
  if (control.get() < 0) return fail(io::error_from_errno(errno, "/dev/loop-control"));
  const io::Fd file(open(image.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (file.get() < 0) return fail(io::error_from_errno(errno, image));
  Status last;
  for (int attempt = 0; attempt < 16; ++attempt) {
    last = try_mount(control, file.get(), folder);
    if (last || last.error().code != ErrorCode::kUnavailable) return last;
  }
  return last;
}

Status mount_shared(const std::string& folder) {
  RN_TRY(const bool is_there, is_mounted(folder));
  if (!is_there && mount(folder.c_str(), folder.c_str(), nullptr, MS_BIND, nullptr) != 0)
    return fail(io::error_from_errno(errno, "bind mount of " + folder));
  if (mount(nullptr, folder.c_str(), nullptr, MS_SHARED, nullptr) != 0)
    return fail(io::error_from_errno(errno, "sharing " + folder));
  return {};
}

Status unmount(const std::string& folder) {
  RN_TRY(const bool is_there, is_mounted(folder));
  if (!is_there) return {};
  if (umount2(folder.c_str(), UMOUNT_NOFOLLOW) == 0 || errno == EINVAL) return {};
  if (errno == EBUSY)
    return fail(ErrorCode::kUnavailable, folder + " is still in use", "try again");
  return fail(io::error_from_errno(errno, "unmounting " + folder));
}

Result<bool> is_mounted(const std::string& folder) {
  std::ifstream table("/proc/thread-self/mountinfo");
  if (!table) return fail(ErrorCode::kInternal, "/proc/thread-self/mountinfo cannot be read");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string word;
    for (int i = 0; i < 5; ++i) words >> word;
    if (unescaped(word) == folder) return true;
  }
  return false;
}

}  // namespace rn::warden
