// SPDX-License-Identifier: Apache-2.0
#include "warden/verify.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>

#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "warden/proc_scan.h"

namespace rn::warden {
namespace {

constexpr std::size_t kMaxMounts = 512;  ///< a bound for detach_mounts()

bool is_at_or_below(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

/// Undoes mountinfo's octal escapes (\040 for a blank) in place.
std::string_view unescape(char* text, std::size_t size) {
  std::size_t to = 0;
  for (std::size_t from = 0; from < size; ++from) {
    char c = text[from];
    if (c == '\\' && from + 3 < size) {
      c = static_cast<char>(
          (text[from + 1] - '0') * 64 + (text[from + 2] - '0') * 8 + (text[from + 3] - '0')
      );
      from += 3;
    }
    text[to++] = c;
  }
  return {text, to};
}

/// Calls visit(mountpoint) for each mount at or below `folder`; false when mountinfo cannot be
/// read.
template <class Visit>
bool each_mount(const char* folder, const char* mountinfo, Visit visit) {
  return proc::each_line(AT_FDCWD, mountinfo, [&](char* line, std::size_t size) {
    std::string_view rest(line, size);
    for (int field = 0; field < 4; ++field) {
      const std::size_t blank = rest.find(' ');
      if (blank == std::string_view::npos) return;
      rest.remove_prefix(blank + 1);
    }
    const std::size_t length = std::min(rest.find(' '), rest.size());
    const std::string_view point = unescape(line + (rest.data() - line), length);
    if (is_at_or_below(point, folder)) visit(point);
  });
}

/// /proc/net/tcp: "sl local_address rem_address st ..."; local is ADDRESS:PORT in hex.
void look_at_port_table(const char* path, std::string_view name, bool is_tcp, Remains& into) {
  const bool is_read = proc::each_line(AT_FDCWD, path, [&](char* line, std::size_t size) {
    std::string_view text(line, size);
    const std::size_t first_colon = text.find(": ");
    if (first_colon == std::string_view::npos) return;  // the heading
    text.remove_prefix(first_colon + 2);
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos || colon + 5 > text.size()) return;
    unsigned port = 0;
    std::from_chars(text.data() + colon + 1, text.data() + colon + 5, port, 16);
    const std::size_t remote = text.find(' ') + 1;
    const std::size_t state = text.find(' ', remote) + 1;
    constexpr std::string_view kListen = "0A";
    if (is_tcp && text.substr(state, 2) != kListen) return;
    into.add(RemainderKind::kPort, port, name);
  });
  if (!is_read && errno != ENOENT) into.add(RemainderKind::kUnverified, errno, path);
}

/// Whether no process of this machine has the pid, or only one that has ended. Pid 0: the driver
/// does not say who.
bool is_gone(pid_t pid) {
  if (pid <= 0) return false;
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/status", pid);
  bool has_ended = false;
  const bool is_read =
      proc::each_line(AT_FDCWD, path.data(), [&](const char* line, std::size_t size) {
        const std::string_view text(line, size);
        if (text.starts_with("State:\tZ") || text.starts_with("State:\tX")) has_ended = true;
      });
  return has_ended || (!is_read && (errno == ENOENT || errno == ESRCH));
}

void add_context(const GpuProcess& process, Remains& into) {
  std::array<char, 32> what{};
  std::snprintf(what.data(), what.size(), "GPU %u", process.gpu);
  into.add(RemainderKind::kGpuContext, process.pid, what.data());
}

/// Nobody else's interfaces have this group: it is given at the moment of deletion.
constexpr std::uint32_t kDoomedGroup = 0x52434c4d;

/// One request about the interface, or about all of `group` where ifindex is 0 (a group of 0 is
/// left out). The kernel acts inside send(). Answers its errno, 0 for done.
int ask_link(int fd, std::uint16_t type, std::uint32_t ifindex, std::uint32_t group) {
  struct {
    nlmsghdr head;
    ifinfomsg link;
    rtattr attribute;
    std::uint32_t group;
  } request{};

  static_assert(sizeof(request) == NLMSG_LENGTH(sizeof(ifinfomsg)) + RTA_LENGTH(sizeof(group)));
  request.head.nlmsg_len = group == 0 ? NLMSG_LENGTH(sizeof(ifinfomsg)) : sizeof(request);
  request.head.nlmsg_type = type;
  request.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
  request.link.ifi_index = static_cast<int>(ifindex);
  request.attribute.rta_len = RTA_LENGTH(sizeof(group));
  request.attribute.rta_type = IFLA_GROUP;
  request.group = group;
  if (send(fd, &request, sizeof(request), 0) < 0) return errno;

  alignas(nlmsghdr) std::array<char, 512> answer{};
  const ssize_t got = recv(fd, answer.data(), answer.size(), MSG_DONTWAIT);
  const auto* const head = reinterpret_cast<const nlmsghdr*>(answer.data());
  if (got < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(nlmsgerr))) || head->nlmsg_type != NLMSG_ERROR)
    return EPROTO;
  return -static_cast<const nlmsgerr*>(NLMSG_DATA(head))->error;
}

}  // namespace

std::string_view to_string(RemainderKind kind) {
  switch (kind) {
    case RemainderKind::kProcess:
      return "process";
    case RemainderKind::kUidProcess:
      return "process with a guest's user id, PID";
    case RemainderKind::kMount:
      return "mount";
    case RemainderKind::kPort:
      return "listening port";
    case RemainderKind::kInterface:
      return "interface";
    case RemainderKind::kGpuContext:
      return "GPU context of process";
    case RemainderKind::kUnverified:
      return "not verified";
  }
  return "";
}

void Remains::add(RemainderKind kind, std::int64_t id, std::string_view what) {
  ++total_;
  if (count_ == items_.size()) return;
  Remainder& item = items_[count_++];
  item.kind = kind;
  item.id = id;
  item.what = {};
  std::copy_n(what.begin(), std::min(what.size(), item.what.size() - 1), item.what.begin());
}

std::vector<std::string> Remains::describe() const {
  std::vector<std::string> lines;
  for (const Remainder& item : items()) {
    std::string line(to_string(item.kind));
    if (item.id != 0) line += " " + std::to_string(item.id);
    lines.push_back(line + ": " + item.what.data());
  }
  if (total_ > count_) lines.push_back("and " + std::to_string(total_ - count_) + " more");
  return lines;
}

std::vector<std::string> labs_here(const std::string& cgroup_root) {
  const std::string prefix = "reclaim-";
  std::set<std::string> labs;
  const auto look = [&](const std::filesystem::path& top) {
    std::error_code failed;
    for (std::filesystem::directory_iterator it(top, failed), end; !failed && it != end;
         it.increment(failed)) {
      const std::string name = it->path().filename();
      std::error_code ignored;
      const bool is_unit =  // systemd's group of our own daemons
          name.ends_with(".service") || name.ends_with(".scope") || name.ends_with(".slice");
      if (name.starts_with(prefix) && !is_unit && it->is_directory(ignored))
        labs.insert(name.substr(prefix.size()));
    }
  };
  look(cgroup_root);
  std::error_code failed;
  for (std::filesystem::directory_iterator it(cgroup_root, failed), end; !failed && it != end;
       it.increment(failed))
    look(it->path());  // a hierarchy of its own each, with cgroup v1
  return {labs.begin(), labs.end()};
}

Result<std::string> lab_to_kill(
    const std::string& asked,
    const std::string& served,
    const std::vector<std::string>& here,
    const std::string& state
) {
  if (!served.empty() && (asked.empty() || asked == served)) return served;
  if (served.empty() && std::find(here.begin(), here.end(), asked) != here.end()) return asked;
  if (served.empty() && asked.empty() && here.size() == 1) return here.front();
  std::string labs;
  for (const std::string& lab : here) labs += (labs.empty() ? "\"" : "\", \"") + lab;
  labs += labs.empty() ? "" : "\"";
  const std::string running =
      labs.empty() ? "no lab has guests on this machine" : "here are " + labs;
  if (!served.empty()) {
    return fail(
        ErrorCode::kNotFound,
        "lab \"" + asked + "\" was not served from " + state + ": there it is lab \"" + served +
            "\"; " + running,
        "leave --lab out, or name that lab's folders with --state and --run"
    );
  }
  return fail(
      ErrorCode::kNotFound,
      (asked.empty() ? "no warden has served from " + state
                     : "no warden has served lab \"" + asked + "\" from " + state) +
          "; " + running,
      "name the folder that the warden's serve was given with --state, or one of these labs with "
      "--lab"
  );
}

Status check_served(const std::string& asked, const std::string& served, const std::string& state) {
  if (served.empty())
    return fail(
        ErrorCode::kNotFound,
        "no warden has served from " + state + ": there is nothing to verify",
        "name the folder that the warden's serve was given with --state"
    );
  if (asked.empty() || asked == served) return {};
  return fail(
      ErrorCode::kNotFound,
      "no warden has served lab \"" + asked + "\" from " + state + ": there it is lab \"" + served +
          "\"",
      "leave --lab out, or name that lab's folder with --state"
  );
}

void look_at_cgroup(const CgroupKiller& cgroups, const CgroupName& name, Remains& into) {
  const bool is_whole =
      cgroups.each(name, [&](pid_t pid) { into.add(RemainderKind::kProcess, pid, name.data()); });
  if (!is_whole) into.add(RemainderKind::kUnverified, 0, name.data());
}

namespace {

/// In the guests' cgroup of a lab that is not `own`, by a line of /proc/PID/cgroup: "9:pids:/PATH".
bool is_in_another_lab(std::string_view line, std::string_view own) {
  const std::size_t first = line.find(':');
  const std::size_t second = first == line.npos ? first : line.find(':', first + 1);
  if (second == line.npos || !line.substr(second + 1).starts_with("/reclaim-")) return false;
  std::string_view top = line.substr(second + 2);
  top = top.substr(0, top.find('/'));
  const bool is_unit =  // systemd's group of our own daemons
      top.ends_with(".service") || top.ends_with(".scope") || top.ends_with(".slice");
  return top != own && !is_unit;
}

}  // namespace

void look_at_uids(
    std::uint32_t first, std::uint32_t count, const CgroupName& own, Remains& into, const char* proc
) {
  if (count == 0) return;
  const proc::Descriptor folder(proc::open_folder(AT_FDCWD, proc));
  if (!folder.is_open()) return into.add(RemainderKind::kUnverified, errno, proc);
  const bool is_listed = proc::each_entry(folder.get(), [&](const char* name) {
    if (name[0] < '1' || name[0] > '9') return;
    std::array<char, 64> path{};
    std::snprintf(path.data(), path.size(), "%s/status", name);
    bool is_zombie = false;
    bool is_guest = false;
    const auto read_line = [&](const char* line, std::size_t size) {
      const std::string_view text(line, size);
      if (text.starts_with("State:\tZ") || text.starts_with("State:\tX")) is_zombie = true;
      unsigned real = 0;
      unsigned effective = 0;
      if (std::sscanf(line, "Uid:\t%u\t%u", &real, &effective) != 2) return;
      is_guest = real - first < count || effective - first < count;
    };
    const bool is_read = proc::each_line(folder.get(), path.data(), read_line);
    if (!is_read && errno != ENOENT && errno != ESRCH)  // these: it has just ended
      into.add(RemainderKind::kUnverified, errno, path.data());
    if (!is_guest || is_zombie) return;
    std::snprintf(path.data(), path.size(), "%s/cgroup", name);
    bool is_anothers = false;
    // One that cannot be read counts as ours.
    proc::each_line(folder.get(), path.data(), [&](const char* line, std::size_t size) {
      is_anothers = is_anothers || is_in_another_lab({line, size}, own.data());
    });
    if (!is_anothers)
      into.add(RemainderKind::kUidProcess, std::atoi(name), "outside the guests' cgroup");
  });
  if (!is_listed) into.add(RemainderKind::kUnverified, errno, proc);
}

void look_at_mounts(const char* folder, Remains& into, const char* mountinfo) {
  const bool is_read = each_mount(folder, mountinfo, [&](std::string_view point) {
    into.add(RemainderKind::kMount, 0, point);
  });
  if (!is_read) into.add(RemainderKind::kUnverified, errno, mountinfo);
}

void look_at_ports(const char* path, Remains& into, int whose) {
  const proc::Descriptor there(open(path, O_RDONLY | O_CLOEXEC));
  if (!there.is_open()) {
    if (errno != ENOENT) into.add(RemainderKind::kUnverified, errno, path);
    return;
  }
  // Not before it is open: whose process lives now had its pid then.
  pollfd life{whose, POLLIN, 0};
  if (whose >= 0 && poll(&life, 1, 0) != 0) return;
  const proc::Descriptor home(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!home.is_open() || setns(there.get(), CLONE_NEWNET) != 0) {
    // EINVAL: an ended namespace leaves an ordinary file behind where it was mounted.
    if (errno != EINVAL) into.add(RemainderKind::kUnverified, errno, path);
    return;
  }
  look_at_port_table("/proc/thread-self/net/tcp", "tcp", true, into);
  look_at_port_table("/proc/thread-self/net/tcp6", "tcp6", true, into);
  look_at_port_table("/proc/thread-self/net/udp", "udp", false, into);
  look_at_port_table("/proc/thread-self/net/udp6", "udp6", false, into);
  RN_ASSERT(
      setns(home.get(), CLONE_NEWNET) == 0,
      "the warden must not stay in a guest's network namespace"
  );
}

void look_at_interface(std::uint32_t ifindex, Remains& into) {
  const proc::Descriptor fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  request.ifr_ifindex = static_cast<int>(ifindex);
  if (!fd.is_open()) return into.add(RemainderKind::kUnverified, errno, "interfaces");
  if (ioctl(fd.get(), SIOCGIFNAME, &request) == 0) {
    into.add(RemainderKind::kInterface, ifindex, request.ifr_name);
  } else if (errno != ENODEV) {
    into.add(RemainderKind::kUnverified, errno, "interfaces");
  }
}

void look_at_gpus(
    GpuProcesses& gpus,
    const PidSet& guests,
    std::uint64_t gone_on,
    milliseconds limit,
    Remains& into
) {
  const auto processes = gpus.list(limit);
  if (!processes) return into.add(RemainderKind::kUnverified, 0, processes.error().message);
  for (const GpuProcess& process : *processes) {
    const bool is_asked = process.gpu < 64 && ((gone_on >> process.gpu) & 1) != 0;
    if (guests.contains(process.pid) || (is_asked && is_gone(process.pid)))
      add_context(process, into);
  }
}

void look_at_gpus(
    GpuProcesses& gpus,
    const std::vector<std::uint32_t>& meant,
    const PidSet& guests,
    milliseconds limit,
    Remains& into
) {
  const auto processes = gpus.list(limit);
  if (!processes) return into.add(RemainderKind::kUnverified, 0, processes.error().message);
  for (const GpuProcess& process : *processes) {
    if (std::find(meant.begin(), meant.end(), process.gpu) == meant.end()) continue;
    if (guests.contains(process.pid) || is_gone(process.pid)) add_context(process, into);
  }
}

std::size_t detach_mounts(const char* folder, const char* mountinfo) {
  std::size_t detached = 0;
  for (; detached < kMaxMounts; ++detached) {
    std::array<char, 4096> topmost{};
    each_mount(folder, mountinfo, [&](std::string_view point) {
      if (point.size() >= topmost.size()) return;
      topmost = {};
      std::copy(point.begin(), point.end(), topmost.begin());
    });
    if (topmost[0] == '\0' || umount2(topmost.data(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0) break;
  }
  return detached;
}

void delete_interfaces(std::span<const std::uint32_t> ifindexes) {
  const proc::Descriptor fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd.is_open()) return;
  bool is_grouped = true;
  for (const std::uint32_t ifindex : ifindexes) {
    const int error = ask_link(fd.get(), RTM_SETLINK, ifindex, kDoomedGroup);
    if (error != 0 && error != ENODEV) is_grouped = false;
  }
  if (is_grouped && ask_link(fd.get(), RTM_DELLINK, 0, kDoomedGroup) == 0) return;
  // One of them is of a kind that cannot be grouped or deleted, or all have gone.
  for (const std::uint32_t ifindex : ifindexes) ask_link(fd.get(), RTM_DELLINK, ifindex, 0);
}

}  // namespace rn::warden
