// SPDX-License-Identifier: Apache-2.0
//
// PID 1 of a guest:
//   reclaim-init [--slurm] [--member RANK] [--tell-hook LINES | --tell-api] LOG_LIMIT_BYTES
//     GO_WAIT_S GO_TICKET COMMAND...
//
// Waits until /reclaim/go holds GO_TICKET (the warden writes it when network and gates stand, so
// the command never runs in a half-made container, nor in one that an engine killed in the middle
// of a start brought up beside its successor), runs the command with both its outputs into
// /reclaim/log up to the limit, reaps orphans, and when the command ends kills the rest and writes
// its exit code to /reclaim/exit. The warden's word in /reclaim/told it passes on meanwhile, by the
// guest's hook or its API (hook.h, api.h), and it connects its user's tunnels to ports of the guest
// (tunnels.h), and runs what its user wants to run there beside it (visits.h). With --member it is
// one of a gang, whose programs reach the other members by it (links.h). With --slurm the
// guest finds this program as the commands of Slurm, too (slurm.h), by which it may ask to be over
// (leave.h). It catches no signal: the warden signals the processes that catch one by themselves,
// and PID 1 must not count among them. Static, since it runs in images that have no libraries of
// ours; no allocation.

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "api.h"
#include "hook.h"
#include "init_log.h"
#include "leave.h"
#include "links.h"
#include "metadata.h"
#include "slurm.h"
#include "tunnels.h"
#include "visits.h"
#include "word.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rn::init {
namespace {

constexpr const char* kLog = "/reclaim/log";
constexpr const char* kGo = "/reclaim/go";
constexpr const char* kExit = "/reclaim/exit";
constexpr const char* kExitTemporary = "/reclaim/.exit.new";

constexpr int kNeverStarted = 125;  ///< as `docker run` says it
constexpr int kNotWritten = 124;    ///< it ended, and the guest left no way to write down how

enum class GoAhead { kNone, kAnothers, kMine };

GoAhead look_for_go(const char* ticket) {
  const int fd = open(kGo, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return GoAhead::kNone;
  char said[128];
  const ssize_t size = read(fd, said, sizeof said);
  close(fd);
  const std::size_t wanted = strlen(ticket);
  const bool is_mine =
      size == static_cast<ssize_t>(wanted) && memcmp(said, ticket, wanted) == 0 && wanted > 0;
  return is_mine ? GoAhead::kMine : GoAhead::kAnothers;
}

/// Until the warden said go to this container or to another, at most for `wait_ms`.
GoAhead wait_for_go(const char* ticket, std::int64_t wait_ms) {
  const std::int64_t end = now_ms() + wait_ms;
  const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (watch >= 0) inotify_add_watch(watch, "/reclaim", IN_CREATE | IN_MOVED_TO);
  // Looked at after the watch stands, so a file made in between is not missed. Without inotify
  // (the owner's instances are used up) the wait degrades to a poll.
  GoAhead found = look_for_go(ticket);
  while (found == GoAhead::kNone && now_ms() < end) {
    const std::int64_t left = end - now_ms();
    pollfd ready{watch, POLLIN, 0};
    const std::int64_t step = watch >= 0 ? 1000 : 10;
    poll(&ready, watch >= 0 ? 1 : 0, static_cast<int>(left < step ? left : step));
    char drop[4096];
    while (watch >= 0 && read(watch, drop, sizeof drop) > 0) {
    }
    found = look_for_go(ticket);
  }
  if (watch >= 0) close(watch);
  return found;
}

/// Moves what the pipe holds now into the log, at most `rounds` buffers of it: a guest that floods
/// must not keep PID 1 from seeing its command end. False at the pipe's end.
bool pump(int from, Log& log, int rounds) {
  static char buffer[65536];
  while (rounds-- > 0) {
    const ssize_t got = read(from, buffer, sizeof buffer);
    if (got > 0) {
      log.take(buffer, static_cast<std::size_t>(got));
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    return got < 0 && errno == EAGAIN;
  }
  return true;
}

/// What passes between the guest and its node by us: that it is told to save, if it is by us, and
/// that it asks to be over. Beside the command, and of no effect on it but for the last.
struct Telling {
  Word word;
  WordWatch watch;
  Hook hook;
  Api api;
  Leaving leaving;

  /// Something is to be looked for in the guest's folder.
  bool is_looking() const { return hook.is_set() || api.has_socket() || leaving.is_on(); }

  bool is_on() const { return is_looking() || api.is_open(); }

  /// How long there is nothing to do without a descriptor's word; -1 = for ever.
  int sleep_ms(std::int64_t now) const {
    if (!is_on()) return -1;
    std::int64_t most = is_looking() ? WordWatch::kLookMs : -1;
    for (const std::int64_t at : {hook.wakes_at(), api.wakes_at(), leaving.wakes_at()}) {
      if (at < 0) continue;
      const std::int64_t left = at > now ? at - now : 0;
      if (most < 0 || left < most) most = left;
    }
    return static_cast<int>(most);
  }

  void step(const pollfd* ready, Log& log) {
    if (!is_on()) return;
    const std::int64_t now = now_ms();
    const bool is_time_to_look = is_looking() && watch.is_due(now);
    hook.step(now, is_time_to_look, word, log);
    api.step(ready, now, is_time_to_look, word);
    leaving.step(now, is_time_to_look, log);
  }
};

/// Reaps whoever ended. True once `command` did, with its code (128 + signal) in `code`.
bool reap(pid_t command, int& code, Hook& hook, Visits& visits, Log& log) {
  bool is_over = false;
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    hook.on_ended(pid, status, now_ms(), log);
    visits.on_ended(pid, status, now_ms());
    if (pid != command) continue;
    is_over = true;
    code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return is_over;
}

bool has_children() {
  siginfo_t drop{};
  return waitid(P_ALL, 0, &drop, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

/// The file for the exit code, with room, made before the guest can use up the disk.
int make_exit_file() {
  const int fd = open(
      kExitTemporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644
  );
  if (fd >= 0) fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 4096);
  return fd;
}

bool is_same_file(int fd, const char* path) {
  struct stat held {};

  struct stat found {};

  return fstat(fd, &held) == 0 && lstat(path, &found) == 0 && held.st_dev == found.st_dev &&
         held.st_ino == found.st_ino;
}

bool write_exit(int fd, int code) {
  if (fd < 0 || !is_same_file(fd, kExitTemporary)) fd = make_exit_file();  // the guest removed it
  if (fd < 0 || ftruncate(fd, 0) != 0 || dprintf(fd, "%d\n", code) < 0 || fsync(fd) != 0)
    return false;
  // A folder that the guest put there is no obstacle to an exchange.
  return rename(kExitTemporary, kExit) == 0 ||
         renameat2(AT_FDCWD, kExitTemporary, AT_FDCWD, kExit, RENAME_EXCHANGE) == 0;
}

/// What PID 1 ends with. The warden takes these three, without the file, for a container that
/// vanished, and starts it again uncounted; so an own end that could not be written has another.
int told_by(bool is_written, int code) {
  const bool is_ambiguous = code == 0 || code == 137 || code == 255;
  return !is_written && is_ambiguous ? kNotWritten : code;
}

/// The sooner of a time to wait and of an instant; -1 = for ever, and no such instant.
int sooner_ms(int wait_ms, std::int64_t at) {
  if (at < 0) return wait_ms;
  const std::int64_t now = now_ms();
  const std::int64_t left = at > now ? at - now : 0;
  return wait_ms >= 0 && wait_ms < left ? wait_ms : static_cast<int>(left);
}

/// Until the command ends, or until the guest that asked to be over is. Answers its exit code.
int supervise(
    pid_t command,
    int output,
    int signals,
    Telling& telling,
    Tunnels& tunnels,
    Visits& visits,
    Links& links,
    Log& log
) {
  constexpr int kOwn = 3;
  constexpr int kTold = kOwn + Api::kPolled;
  constexpr int kVisits = kTold + Tunnels::kPolled;
  constexpr int kLinks = kVisits + Visits::kPolled;
  constexpr int kAll = kLinks + Links::kPolled;
  const nfds_t polled = links.is_on() ? kAll : kLinks;  // most guests are no members
  int code = kNeverStarted;
  bool is_output_open = true;
  bool has_ended = false;
  for (bool is_over = false; !is_over;) {
    pollfd ready[kAll] = {
        {signals, POLLIN, 0},
        {is_output_open ? output : -1, POLLIN, 0},
        {telling.watch.fd(), POLLIN, 0}};
    telling.api.fill(ready + kOwn);
    tunnels.fill(ready + kTold);
    visits.fill(ready + kVisits);
    int wait_ms =
        sooner_ms(sooner_ms(telling.sleep_ms(now_ms()), tunnels.wakes_at()), visits.wakes_at());
    if (links.is_on()) {
      links.fill(ready + kLinks);
      wait_ms = sooner_ms(wait_ms, links.wakes_at());
    }
    if (poll(ready, polled, wait_ms) < 0 && errno != EINTR) break;
    if (ready[1].revents != 0) is_output_open = pump(output, log, 16);
    signalfd_siginfo drop[8];
    while (read(signals, drop, sizeof drop) > 0) {
    }
    has_ended = reap(command, code, telling.hook, visits, log) || has_ended;
    telling.step(ready + kOwn, log);
    visits.step(ready + kVisits, now_ms());
    tunnels.step(ready + kTold, now_ms());
    links.step(ready + kLinks, now_ms());
    if (has_ended) telling.leaving.look(now_ms(), log);
    is_over = telling.leaving.is_asked() ? !has_children() || telling.leaving.is_time_up(now_ms())
                                         : has_ended;
  }
  kill(-1, SIGKILL);
  for (int status = 0; waitpid(-1, &status, 0) > 0 || errno == EINTR;) {
  }
  links.flush();
  if (is_output_open) pump(output, log, 1024);
  if (telling.leaving.is_asked()) return telling.leaving.code();
  // As for who is signalled: whoever leaves after that has left because of it.
  return code == 0 && telling.api.has_told_to_leave() ? kQueueAgain : code;
}

/// What stands before the log's limit in our arguments. False if it cannot be.
struct Options {
  const char* hook = nullptr;
  bool has_api = false;
  bool has_slurm = false;
  const char* member = nullptr;  ///< its rank in its gang
  int first = 1;                 ///< of the arguments behind

  bool read(int argc, char** argv) {
    for (; first < argc && strncmp(argv[first], "--", 2) == 0; ++first) {
      if (strcmp(argv[first], "--tell-api") == 0)
        has_api = true;
      else if (strcmp(argv[first], "--slurm") == 0)
        has_slurm = true;
      else if (strcmp(argv[first], "--tell-hook") == 0 && first + 1 < argc)
        hook = argv[++first];
      else if (strcmp(argv[first], "--member") == 0 && first + 1 < argc)
        member = argv[++first];
      else
        return false;
    }
    return argc - first >= 4;
  }
};

void begin_telling(
    Telling& telling, const Options& options, int output, const sigset_t& mask, Log& log
) {
  if (options.hook != nullptr) telling.hook.set(options.hook, output, mask);
  if (options.has_api && !telling.api.begin())
    log.say("it cannot be told to save, for want of /reclaim/api.sock", strerror(errno));
  const int port = metadata_port(variable(kMetadataVariable, ""));
  if (port != 0 && !telling.api.begin_metadata(port))
    log.say("it cannot ask for its instance's metadata", strerror(errno));
  // Where the warden gave it no such address (an older one), nobody answers there, as ever.
  if (strcmp(variable(kNoMetadataVariable, ""), "true") != 0) (void)telling.api.begin_link_local();
  if (options.has_slurm) telling.leaving.begin();
  if (telling.is_looking()) telling.watch.begin();
}

/// Without it the guest runs as well: whoever it connects to is not there.
void begin_links(Links& links, const Options& options, Log& log) {
  if (options.member == nullptr) return;
  const unsigned long rank = strtoul(options.member, nullptr, 10);
  if (rank >= gang_link::kRanks || !links.begin(static_cast<std::uint32_t>(rank)))
    log.say("it cannot reach the other members of its gang", strerror(errno));
}

/// In front of what the image has: the engine gives each container a PATH.
void put_first_on_path(const char* folder) {
  static char path[16384];
  for (char** one = environ; *one != nullptr; ++one) {
    if (strncmp(*one, "PATH=", 5) != 0) continue;
    const int size = snprintf(path, sizeof path, "PATH=%s:%s", folder, *one + 5);
    if (size > 0 && static_cast<std::size_t>(size) < sizeof path) *one = path;
    return;
  }
}

int run(const Options& options, char** argv) {
  Log log;
  log.fd = open(kLog, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);

  struct stat about {};

  const std::uint64_t limit = strtoull(argv[0], nullptr, 10);
  const std::uint64_t used =
      log.fd >= 0 && fstat(log.fd, &about) == 0 ? static_cast<std::uint64_t>(about.st_size) : 0;
  log.left = used < limit ? limit - used : 0;

  const GoAhead go_ahead = wait_for_go(argv[2], strtoll(argv[1], nullptr, 10) * 1000);
  if (go_ahead == GoAhead::kAnothers) return kNeverStarted;  // log and exit code are the other's
  if (go_ahead == GoAhead::kNone) {
    log.say("not started", "the node's warden gave no go-ahead in time");
    write_exit(-1, kNeverStarted);
    return kNeverStarted;
  }

  sigset_t children;
  sigset_t before;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, &before);
  const int signals = signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC);
  int output[2];
  if (signals < 0 || pipe2(output, O_CLOEXEC) != 0) return kNeverStarted;

  const int exit_file = make_exit_file();
  static Telling telling;  // tens of KiB
  if (options.has_slurm) put_first_on_path(kSlurmFolder);
  begin_telling(telling, options, output[1], before, log);
  Visits visits;
  visits.begin(before);
  Tunnels tunnels;
  Links links;
  begin_links(links, options, log);
  // Where it cannot, whoever wants to get in is told that there is no way.
  (void)tunnels.begin(visits, links);
  const pid_t command = fork();
  if (command == 0) become(argv + 3, environ, output[1], before);
  if (command < 0) {
    log.say("cannot start the command", strerror(errno));
    write_exit(exit_file, kNeverStarted);
    return kNeverStarted;
  }
  if (!telling.hook.is_set()) close(output[1]);  // else each run needs it
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  const int code = supervise(command, output[0], signals, telling, tunnels, visits, links, log);
  return told_by(write_exit(exit_file, code), code);
}

}  // namespace
}  // namespace rn::init

int main(int argc, char** argv) {
  int code = 0;
  if (rn::init::run_slurm(argc, argv, code)) return code;
  rn::init::Options options;
  if (options.read(argc, argv)) return rn::init::run(options, argv + options.first);
  dprintf(
      2,
      "usage: reclaim-init [--slurm] [--member RANK] [--tell-hook LINES | --tell-api] "
      "LOG_LIMIT_BYTES GO_WAIT_S GO_TICKET COMMAND...\n"
  );
  return rn::init::kNeverStarted;
}
