// SPDX-License-Identifier: Apache-2.0
//
// reclaim-kill: `reclaim-warden kill`, with the guests' packets cut before that program is loaded,
// and before this one's own C library is ready (ADR 0012). Static, and small: it allocates nothing,
// and reads a file only to look whether a lab that is named is the one meant. It shuts the pinned
// gate (ahead.h); tells a warden that lives, without waiting for it; takes precedence on the
// processor, which what it becomes keeps; and becomes `reclaim-warden kill` with the same words,
// which does the whole and says how it went.

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "ahead.h"
#include "order.h"
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "model/warden.h"

namespace {

using rn::EarlyOrder;
using rn::warden_wire::KillFrame;
using Path = char[512];

constexpr int kFailed = 1;
constexpr int kNotCleared = 3;  ///< as `reclaim-warden kill` says it
constexpr int kMostWords = 64;

bool join(Path& path, const char* folder, const char* name) {
  const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
  return length > 0 && static_cast<std::size_t>(length) < sizeof path;
}

/// Not before the cut is through: packets that have passed the gate already wait for the kernel's
/// own threads on this processor, which would come after us.
void take_precedence() {
  const sched_param first{1};
  sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first);  // refused: merely slower
}

/// A warden that lives would open the gate again for what it does not know of. Nothing is waited
/// for: what this program becomes asks it once more, and hears the answer.
void tell_the_warden(const EarlyOrder& order, std::int64_t declared_ns) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  Path path;
  if (!join(path, order.run, "kill.sock") || std::strlen(path) >= sizeof address.sun_path) return;
  std::strcpy(address.sun_path, path);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  KillFrame frame;
  frame.verb =
      order.cut == EarlyOrder::Cut::kGuests ? KillFrame::kCutOnly : KillFrame::kCutTransfers;
  frame.declared_ns = declared_ns;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    send(fd, &frame, sizeof frame, MSG_NOSIGNAL);
  close(fd);
}

const char* name_of_what(const EarlyOrder& order) {
  return order.cut == EarlyOrder::Cut::kGuests ? "the guests' packets" : "the agent's transfers";
}

void say(const EarlyOrder& order, int result) {
  const char* const what = name_of_what(order);
  if (result == 0) {
    std::fprintf(stderr, "reclaim-kill: %s are cut\n", what);
    return;
  }
  const bool lacks_rights = result == -EPERM || result == -EACCES;
  const bool is_absent = result == -ENOENT || result == -ENOTDIR;
  std::fprintf(
      stderr,
      "reclaim-kill: %s are not cut yet: the gate in %s/gates: %s\n%s",
      what,
      order.run,
      std::strerror(-result),
      lacks_rights ? "  next: run it as root\n"
      : is_absent  ? "  next: if the warden's serve was given another --run, give it here, too\n"
                   : ""
  );
}

/// Beside this program when installed, else in the build tree. Comes back when there is none.
void become_the_warden(char** argv) {
  Path self;
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) return;
  self[length] = '\0';
  char* const slash = std::strrchr(self, '/');
  if (slash == nullptr) return;
  *slash = '\0';
  int first_error = 0;
  for (const char* name : {"reclaim-warden", "../reclaim-warden/reclaim-warden"}) {
    Path path;
    if (!join(path, self, name)) continue;
    execv(path, argv);
    if (first_error == 0 || errno != ENOENT) first_error = errno;
  }
  std::fprintf(
      stderr,
      first_error == ENOENT ? "reclaim-kill: there is no %s/reclaim-warden: %s\n"
                            : "reclaim-kill: %s/reclaim-warden cannot be started: %s\n",
      self,
      std::strerror(first_error)
  );
}

/// With no program to become. The code of what was not done.
int say_what_is_left_to_do(const EarlyOrder& order, bool is_cut) {
  if (!order.is_understood) {
    std::fputs(
        "  next: install reclaim-warden beside this program: it has the rest, and --help\n", stderr
    );
    return kFailed;
  }
  if (order.cut == EarlyOrder::Cut::kTransfers) {
    std::fputs(
        is_cut ? "  next: the transfers stay cut; reclaim-agent release lets them go on\n"
               : "  next: stop the agent: systemctl stop reclaim-agent\n",
        stderr
    );
    return kNotCleared;
  }
  if (is_cut)
    std::fputs(
        "reclaim-kill: the guests' packets stay cut; reclaim-agent release lets them pass\n", stderr
    );
  std::fputs(
      "  next: no process was killed; the line of docs/emergency.md for a root shell does it\n",
      stderr
  );
  return kNotCleared;
}

}  // namespace

int main(int argc, char** argv) {
  if (!rn::ahead_of_all.is_over) rn::cut_ahead(argc - 1, argv + 1);
  const rn::CutAhead& ahead = rn::ahead_of_all;
  if (ahead.is_meant) {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    tell_the_warden(ahead.order, std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec);
    say(ahead.order, ahead.result);
  }
  static char name[] = "reclaim-warden";
  static char verb[] = "kill";
  char* words[kMostWords + 2] = {name, verb};
  if (argc - 1 >= kMostWords) {
    std::fputs("reclaim-kill: too many words\n  next: reclaim-kill --help\n", stderr);
    return 2;
  }
  for (int i = 1; i < argc; ++i) words[i + 1] = argv[i];
  take_precedence();
  become_the_warden(words);
  return say_what_is_left_to_do(ahead.order, ahead.is_meant && ahead.result == 0);
}
