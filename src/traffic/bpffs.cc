// SPDX-License-Identifier: Apache-2.0
#include "traffic/bpffs.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <bpf/libbpf.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <unistd.h>

namespace rn::traffic {
namespace {

/// The source shown in mountinfo: by it a later process knows that the mount is ours.
constexpr const char* kMountSource = "reclaimnet";

tl::unexpected<Error> system_error(const std::string& what) {
  const ErrorCode code =
      errno == EPERM || errno == EACCES ? ErrorCode::kDenied : ErrorCode::kInternal;
  return fail(code, what + ": " + std::strerror(errno));
}

bool is_on_bpffs(const std::string& folder) {
  struct statfs info {};

  return statfs(folder.c_str(), &info) == 0 && info.f_type == BPF_FS_MAGIC;
}

/// mountinfo: "ID PARENT DEV ROOT MOUNTPOINT OPTIONS TAGS... - TYPE SOURCE SUPER"
bool is_our_mount(const std::string& folder) {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string skip, point, type, source;
    fields >> skip >> skip >> skip >> skip >> point;
    if (point != folder) continue;
    while (fields >> skip && skip != "-") {
    }
    fields >> type >> source;
    if (type == "bpf" && source == kMountSource) return true;
  }
  return false;
}

}  // namespace

Status ensure_bpffs(const std::string& folder) {
  if (folder.empty() || folder.front() != '/') {
    return fail(ErrorCode::kInvalid, "the bpffs folder must be an absolute path: " + folder);
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    errno = error.value();
    return system_error("making " + folder);
  }
  if (is_on_bpffs(folder)) return {};
  if (mount(kMountSource, folder.c_str(), "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700") !=
      0) {
    return system_error("mounting a bpffs on " + folder);
  }
  return {};
}

Status release_bpffs(const std::string& folder) {
  if (is_our_mount(folder) && umount2(folder.c_str(), MNT_DETACH) != 0) {
    return system_error("unmounting " + folder);
  }
  if (rmdir(folder.c_str()) != 0 && errno != ENOENT && errno != ENOTEMPTY && errno != EBUSY) {
    return system_error("removing " + folder);
  }
  return {};
}

Status pin_maps_in(const std::string& folder, bpf_object* object) {
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, object) {
    const std::string name = bpf_map__name(map);
    if (!name.starts_with("rn_")) continue;  // libbpf's own data sections
    if (bpf_map__set_pin_path(map, (folder + "/" + name).c_str()) != 0)
      return system_error("naming a pin");
  }
  return {};
}

Error load_error(int error) {
  if (error == EINVAL || error == EEXIST) {
    return {
        ErrorCode::kConflict,
        "the pinned maps are of another version, or the kernel refuses the program",
        "finish the guests and run `reclaim-agent leave`, then start again"};
  }
  if (error == EPERM || error == EACCES) {
    return {
        ErrorCode::kDenied,
        "loading the traffic program needs root (CAP_BPF and CAP_NET_ADMIN)",
        ""};
  }
  return {
      ErrorCode::kUnsupported,
      std::string("loading the traffic program: ") + std::strerror(error),
      ""};
}

}  // namespace rn::traffic
