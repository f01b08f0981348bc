// SPDX-License-Identifier: Apache-2.0
#include "traffic/guest_filter.h"

#include <cerrno>
#include <cstring>
#include <string_view>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rn::traffic {
namespace {

/// One fixed place, so that a restarted loader finds its own filter. No meaning beyond being the
/// same everywhere.
constexpr std::uint32_t kHandle = 1;
constexpr std::uint32_t kPriority = 0x726e;

enum class Occupant : std::uint8_t { kNobody, kOurs, kForeign };

bpf_tc_hook hook_of(std::uint32_t ifindex, rn_cut_direction direction) {
  bpf_tc_hook hook{};
  hook.sz = sizeof(hook);
  hook.ifindex = static_cast<int>(ifindex);
  hook.attach_point = direction == RN_CUT_FROM_GUEST ? BPF_TC_INGRESS : BPF_TC_EGRESS;
  return hook;
}

bpf_tc_opts place() {
  bpf_tc_opts options{};
  options.sz = sizeof(options);
  options.handle = kHandle;
  options.priority = kPriority;
  return options;
}

bool is_gone(int result) {
  return result == -ENOENT || result == -ENODEV || result == -EINVAL;
}

tl::unexpected<Error> failed(const char* what, int result) {
  const ErrorCode code = result == -EPERM ? ErrorCode::kDenied : ErrorCode::kInternal;
  return fail(code, std::string(what) + ": " + std::strerror(-result));
}

std::string_view program_name(rn_cut_direction direction) {
  return direction == RN_CUT_FROM_GUEST ? "rn_from_guest" : "rn_to_guest";
}

Occupant occupant(std::uint32_t ifindex, rn_cut_direction direction) {
  const bpf_tc_hook hook = hook_of(ifindex, direction);
  bpf_tc_opts options = place();
  if (bpf_tc_query(&hook, &options) != 0) return Occupant::kNobody;
  const int fd = bpf_prog_get_fd_by_id(options.prog_id);
  if (fd < 0) return Occupant::kForeign;
  bpf_prog_info info{};
  std::uint32_t size = sizeof(info);
  const int result = bpf_obj_get_info_by_fd(fd, &info, &size);
  close(fd);
  if (result != 0) return Occupant::kForeign;
  return program_name(direction) == info.name ? Occupant::kOurs : Occupant::kForeign;
}

}  // namespace

Result<bool> ensure_clsact(std::uint32_t ifindex) {
  bpf_tc_hook hook = hook_of(ifindex, RN_CUT_FROM_GUEST);
  const int result = bpf_tc_hook_create(&hook);
  if (result == 0) return true;
  if (result == -EEXIST) return false;
  return failed("making the clsact qdisc", result);
}

Status put_filter(std::uint32_t ifindex, rn_cut_direction direction, int program_fd) {
  if (occupant(ifindex, direction) == Occupant::kForeign) {
    return fail(
        ErrorCode::kConflict,
        "a foreign filter sits at priority " + std::to_string(kPriority) + " of interface " +
            std::to_string(ifindex),
        "remove it: tc filter show dev ... ingress|egress"
    );
  }
  const bpf_tc_hook hook = hook_of(ifindex, direction);
  bpf_tc_opts options = place();
  options.prog_fd = program_fd;
  options.flags = BPF_TC_F_REPLACE;
  const int result = bpf_tc_attach(&hook, &options);
  if (result != 0) return failed("attaching the filter", result);
  return {};
}

bool has_filter(std::uint32_t ifindex, rn_cut_direction direction) {
  return occupant(ifindex, direction) == Occupant::kOurs;
}

Status remove_filter(std::uint32_t ifindex, rn_cut_direction direction) {
  if (occupant(ifindex, direction) != Occupant::kOurs) return {};
  const bpf_tc_hook hook = hook_of(ifindex, direction);
  const bpf_tc_opts options = place();
  const int result = bpf_tc_detach(&hook, &options);
  if (result != 0 && !is_gone(result)) return failed("detaching the filter", result);
  return {};
}

Status remove_clsact(std::uint32_t ifindex) {
  bpf_tc_hook hook = hook_of(ifindex, RN_CUT_FROM_GUEST);
  hook.attach_point = static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS);
  const int result = bpf_tc_hook_destroy(&hook);
  if (result != 0 && !is_gone(result)) return failed("removing the clsact qdisc", result);
  return {};
}

Status set_link_down(std::uint32_t ifindex) {
  ifreq request{};
  if (if_indextoname(ifindex, request.ifr_name) == nullptr) return {};
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return failed("opening a socket", -errno);
  int result = ioctl(fd, SIOCGIFFLAGS, &request) == 0 ? 0 : -errno;
  if (result == 0 && (request.ifr_flags & IFF_UP) != 0) {
    request.ifr_flags = static_cast<short>(request.ifr_flags & ~IFF_UP);
    result = ioctl(fd, SIOCSIFFLAGS, &request) == 0 ? 0 : -errno;
  }
  close(fd);
  if (result != 0 && !is_gone(result)) return failed("taking the interface down", result);
  return {};
}

}  // namespace rn::traffic
