// SPDX-License-Identifier: Apache-2.0
#include "become.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>

#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "model/warden.h"

namespace rn {
namespace {

using warden_wire::KillFrame;
using Path = char[512];

constexpr int kFailed = 1;
constexpr int kNotCleared = 3;  ///< as `reclaim-warden kill` says it

bool join(Path& path, const char* folder, const char* name) {
  const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
  return length > 0 && static_cast<std::size_t>(length) < sizeof path;
}

const char* name_of(EarlyOrder::Cut cut) {
  if (cut == EarlyOrder::Cut::kTransfers) return "the agent's transfers";
  return cut == EarlyOrder::Cut::kGuestsOfGpus ? "the packets of these GPUs' guests"
                                               : "the guests' packets";
}

}  // namespace

void take_precedence() {
  const sched_param first{1};
  sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first);  // refused: merely slower
}

void tell_the_warden(const CutAhead& ahead) {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  Path path;
  if (!join(path, ahead.order.run, "kill.sock") || std::strlen(path) >= sizeof address.sun_path)
    return;
  std::strcpy(address.sun_path, path);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  KillFrame frame;
  const bool is_of_transfers = ahead.order.cut == EarlyOrder::Cut::kTransfers;
  frame.verb = is_of_transfers ? KillFrame::kCutTransfers : KillFrame::kCutOnly;
  frame.gpu_mask = ahead.order.gpus;
  frame.declared_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    send(fd, &frame, sizeof frame, MSG_NOSIGNAL);
  close(fd);
}

void say(const char* program, const CutAhead& ahead) {
  const char* const what = name_of(ahead.order.cut);
  const int result = ahead.result;
  if (result == 0) {
    std::fprintf(stderr, "%s: %s are cut\n", program, what);
    return;
  }
  const bool lacks_rights = result == -EPERM || result == -EACCES;
  const bool is_absent = result == -ENOENT || result == -ENOTDIR;
  std::fprintf(
      stderr,
      "%s: %s are not cut yet: the gate in %s/gates: %s\n%s",
      program,
      what,
      ahead.order.run,
      std::strerror(-result),
      lacks_rights ? "  next: run it as root\n"
      : is_absent  ? "  next: if the warden's serve was given another --run, give it here, too\n"
                   : ""
  );
}

void become_the_warden(const char* program, char** words) {
  Path self;
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) return;
  self[length] = '\0';
  char* const slash = std::strrchr(self, '/');
  if (slash == nullptr) return;
  *slash = '\0';
  int first_error = 0;
  // Where they are installed, and in the build tree from either of the small programs.
  for (const char* name :
       {"../lib/reclaimnet/reclaim-warden",
        "whole/reclaim-warden",
        "../reclaim-warden/whole/reclaim-warden"}) {
    Path path;
    if (!join(path, self, name)) continue;
    execv(path, words);
    if (first_error == 0 || errno != ENOENT) first_error = errno;
  }
  std::fprintf(
      stderr,
      first_error == ENOENT ? "%s: there is no %s/../lib/reclaimnet/reclaim-warden: %s\n"
                            : "%s: %s/../lib/reclaimnet/reclaim-warden cannot be started: %s\n",
      program,
      self,
      std::strerror(first_error)
  );
}

int say_what_is_left_to_do(const char* program, const CutAhead& ahead) {
  const bool is_cut = ahead.is_meant && ahead.result == 0;
  if (!ahead.order.is_understood) {
    std::fputs(
        "  next: install the whole package: that program has the rest, and --help\n", stderr
    );
    return kFailed;
  }
  if (ahead.order.cut == EarlyOrder::Cut::kTransfers) {
    std::fputs(
        is_cut ? "  next: the transfers stay cut; reclaim-agent release lets them go on\n"
               : "  next: stop the agent: systemctl stop reclaim-agent\n",
        stderr
    );
    return kNotCleared;
  }
  if (is_cut)
    std::fprintf(
        stderr,
        "%s: %s stay cut; reclaim-agent release lets them pass\n",
        program,
        name_of(ahead.order.cut)
    );
  std::fputs(
      "  next: no process was killed; the line of docs/emergency.md for a root shell does it\n",
      stderr
  );
  return kNotCleared;
}

}  // namespace rn
