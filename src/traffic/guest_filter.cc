// SPDX-License-Identifier: Apache-2.0
#include "traffic/guest_filter.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rn::traffic {
namespace {

constexpr std::uint32_t kHandle = 1;

enum class Occupant : std::uint8_t { kNobody, kOurs, kForeign };

bpf_tc_hook hook_of(std::uint32_t ifindex, rn_cut_direction direction) {
  bpf_tc_hook hook{};
  hook.sz = sizeof(hook);
  hook.ifindex = static_cast<int>(ifindex);
  hook.attach_point = direction == RN_CUT_FROM_GUEST ? BPF_TC_INGRESS : BPF_TC_EGRESS;
  return hook;
}

bpf_tc_opts options_of(const FilterPlace& place) {
  bpf_tc_opts options{};
  options.sz = sizeof(options);
  options.handle = kHandle;
  options.priority = place.priority;
  return options;
}

bool is_gone(int result) {
  return result == -ENOENT || result == -ENODEV || result == -EINVAL;
}

tl::unexpected<Error> failed(const char* what, int result) {
  const ErrorCode code = result == -EPERM ? ErrorCode::kDenied : ErrorCode::kInternal;
  return fail(code, std::string(what) + ": " + std::strerror(-result));
}

std::string_view program_name(rn_cut_direction direction, const FilterPlace& place) {
  return direction == RN_CUT_FROM_GUEST ? place.ingress_program : place.egress_program;
}

Occupant occupant(std::uint32_t ifindex, rn_cut_direction direction, const FilterPlace& place) {
  const bpf_tc_hook hook = hook_of(ifindex, direction);
  bpf_tc_opts options = options_of(place);
  if (bpf_tc_query(&hook, &options) != 0) return Occupant::kNobody;
  const int fd = bpf_prog_get_fd_by_id(options.prog_id);
  if (fd < 0) return Occupant::kForeign;
  bpf_prog_info info{};
  std::uint32_t size = sizeof(info);
  const int result = bpf_obj_get_info_by_fd(fd, &info, &size);
  close(fd);
  if (result != 0) return Occupant::kForeign;
  return program_name(direction, place) == info.name ? Occupant::kOurs : Occupant::kForeign;
}

/// bpf_attach_type of Linux 6.6; our headers are older.
std::uint32_t tcx_type(rn_cut_direction direction) {
  return direction == RN_CUT_FROM_GUEST ? 46 : 47;
}

std::string_view hook_word(rn_cut_direction direction) {
  return direction == RN_CUT_FROM_GUEST ? "ingress" : "egress";
}

/// How many tcx programs the hook has; all of them run before every tc filter.
Result<std::uint32_t> count_tcx(std::uint32_t ifindex, rn_cut_direction direction) {
  bpf_attr attributes{};
  attributes.query.target_fd = ifindex;  // here the interface
  attributes.query.attach_type = tcx_type(direction);
  if (syscall(SYS_bpf, BPF_PROG_QUERY, &attributes, sizeof attributes) == 0)
    return attributes.query.prog_cnt;
  if (is_gone(-errno)) return 0U;  // or an older kernel, which has none
  return failed("listing tcx programs", -errno);
}

/// One filter of a dump, as far as its place says.
struct TcFilter {
  std::uint32_t handle = 0;
  std::uint32_t priority = 0;
  std::uint32_t chain = 0;
  std::string kind;
};

TcFilter read_filter(const nlmsghdr& message) {
  const auto* const place = static_cast<const tcmsg*>(NLMSG_DATA(&message));
  TcFilter filter{place->tcm_handle, place->tcm_info >> 16, 0, {}};
  auto left = static_cast<int>(message.nlmsg_len - NLMSG_LENGTH(sizeof(tcmsg)));
  const auto* attribute = reinterpret_cast<const rtattr*>(place + 1);
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    const char* const data = static_cast<const char*>(RTA_DATA(attribute));
    const std::size_t size = RTA_PAYLOAD(attribute);
    if (attribute->rta_type == TCA_KIND) filter.kind.assign(data, strnlen(data, size));
    if (attribute->rta_type == TCA_CHAIN && size == sizeof filter.chain)
      std::memcpy(&filter.chain, data, size);
  }
  return filter;
}

/// Calls visit(filter) for each filter of the hook in the order in which the kernel asks them.
template <class Visit>
Status each_filter(std::uint32_t ifindex, rn_cut_direction direction, Visit visit) {
  struct {
    nlmsghdr head;
    tcmsg place;
  } request{};

  request.head.nlmsg_len = sizeof request;
  request.head.nlmsg_type = RTM_GETTFILTER;
  request.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.place.tcm_ifindex = static_cast<int>(ifindex);
  const std::uint32_t hook = direction == RN_CUT_FROM_GUEST ? TC_H_MIN_INGRESS : TC_H_MIN_EGRESS;
  request.place.tcm_parent = TC_H_MAKE(TC_H_CLSACT, hook);
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return failed("opening a socket", -errno);
  int result = send(fd, &request, sizeof request, 0) < 0 ? -errno : 0;
  alignas(nlmsghdr) std::array<char, 32768> answer{};
  for (bool is_done = false; result == 0 && !is_done;) {
    const ssize_t got = recv(fd, answer.data(), answer.size(), 0);
    if (got <= 0) result = got < 0 ? -errno : -EPROTO;
    auto left = static_cast<std::uint32_t>(std::max<ssize_t>(got, 0));
    const auto* message = reinterpret_cast<const nlmsghdr*>(answer.data());
    for (; NLMSG_OK(message, left); message = NLMSG_NEXT(message, left)) {
      if (message->nlmsg_type == RTM_NEWTFILTER) visit(read_filter(*message));
      if (message->nlmsg_type == NLMSG_ERROR)
        result = static_cast<const nlmsgerr*>(NLMSG_DATA(message))->error;
      is_done = is_done || message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR;
    }
  }
  close(fd);
  if (result != 0 && !is_gone(result)) return failed("listing filters", result);
  return {};
}

}  // namespace

Result<std::optional<ForeignFilter>> filter_before(
    std::uint32_t ifindex, rn_cut_direction direction, const FilterPlace& place
) {
  std::array<char, IF_NAMESIZE> name{};
  if (if_indextoname(ifindex, name.data()) == nullptr) return std::nullopt;
  const std::string interface = name.data();
  const std::string hook(hook_word(direction));
  std::uint32_t xdp = 0;
  if (direction == RN_CUT_FROM_GUEST && bpf_xdp_query_id(static_cast<int>(ifindex), 0, &xdp) == 0 &&
      xdp != 0)
    return ForeignFilter{"an XDP program", "ip link set dev " + interface + " xdp off"};
  RN_TRY(const std::uint32_t tcx, count_tcx(ifindex, direction));
  if (tcx != 0) {
    return ForeignFilter{
        "a tcx program on " + hook, "bpftool net detach tcx_" + hook + " dev " + interface};
  }
  std::optional<ForeignFilter> first;
  bool is_ours_seen = false;
  RN_CHECK(each_filter(ifindex, direction, [&](const TcFilter& filter) {
    // Others are reached from chain 0 alone; the entry without a handle is the priority itself.
    if (filter.chain != 0 || filter.handle == 0 || filter.priority > place.priority) return;
    if (filter.priority == place.priority && filter.handle == kHandle) is_ours_seen = true;
    if (is_ours_seen || first) return;
    const std::string pref = "pref " + std::to_string(filter.priority);
    first = ForeignFilter{
        "a tc filter on " + hook + " (" + filter.kind + ", " + pref + ")",
        "tc filter del dev " + interface + " " + hook + " " + pref};
  }));
  return first;
}

Result<std::size_t> count_filters(std::uint32_t ifindex, rn_cut_direction direction) {
  std::size_t count = 0;
  RN_CHECK(each_filter(ifindex, direction, [&](const TcFilter& filter) {
    if (filter.handle != 0) ++count;  // the entry without a handle is the priority itself
  }));
  return count;
}

Result<bool> ensure_clsact(std::uint32_t ifindex) {
  bpf_tc_hook hook = hook_of(ifindex, RN_CUT_FROM_GUEST);
  const int result = bpf_tc_hook_create(&hook);
  if (result == 0) return true;
  if (result == -EEXIST) return false;
  return failed("making the clsact qdisc", result);
}

Status put_filter(
    std::uint32_t ifindex, rn_cut_direction direction, int program_fd, const FilterPlace& place
) {
  if (occupant(ifindex, direction, place) == Occupant::kForeign) {
    return fail(
        ErrorCode::kConflict,
        "a foreign filter sits at priority " + std::to_string(place.priority) + " of interface " +
            std::to_string(ifindex),
        "remove it: tc filter show dev ... ingress|egress"
    );
  }
  const bpf_tc_hook hook = hook_of(ifindex, direction);
  bpf_tc_opts options = options_of(place);
  options.prog_fd = program_fd;
  options.flags = BPF_TC_F_REPLACE;
  const int result = bpf_tc_attach(&hook, &options);
  if (result != 0) return failed("attaching the filter", result);
  return {};
}

bool has_filter(std::uint32_t ifindex, rn_cut_direction direction, const FilterPlace& place) {
  return occupant(ifindex, direction, place) == Occupant::kOurs;
}

Status remove_filter(std::uint32_t ifindex, rn_cut_direction direction, const FilterPlace& place) {
  if (occupant(ifindex, direction, place) != Occupant::kOurs) return {};
  const bpf_tc_hook hook = hook_of(ifindex, direction);
  const bpf_tc_opts options = options_of(place);
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
