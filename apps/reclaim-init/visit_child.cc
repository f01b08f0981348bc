// SPDX-License-Identifier: Apache-2.0
#include "visit_child.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "copies.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace rn::init {

namespace {

constexpr int kNotRunnable = 126;
constexpr int kNotThere = 127;
constexpr int kDescriptorsClosed = 1024;  ///< where the kernel closes no range of them

void close_if_open(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

/// Both ends of all that a child without a terminal reads and writes.
struct Pipes {
  int of_child[3] = {-1, -1, -1};
  int ours[3] = {-1, -1, -1};

  bool open() {
    for (int i = 0; i < 3; ++i) {
      int ends[2];
      if (pipe2(ends, O_CLOEXEC) != 0) {
        const int error = errno;
        close_all();
        errno = error;
        return false;
      }
      of_child[i] = ends[i == 0 ? 0 : 1];
      ours[i] = ends[i == 0 ? 1 : 0];
      fcntl(ours[i], F_SETFL, O_NONBLOCK);
    }
    return true;
  }

  void close_childs() {
    for (int& fd : of_child) close_if_open(fd);
  }

  void close_all() {
    close_childs();
    for (int& fd : ours) close_if_open(fd);
  }

  void give(VisitChild& out) const {
    out.input = ours[0];
    out.output = ours[1];
    out.errors = ours[2];
  }
};

/// Of the child alone. What PID 1 has open is none of its business.
void take_files(const int (&files)[3]) {
  int high[3];
  for (int i = 0; i < 3; ++i) high[i] = fcntl(files[i], F_DUPFD_CLOEXEC, 3);
  for (int i = 0; i < 3; ++i) dup2(high[i], i);
  if (close_range(3, ~0U, 0) == 0) return;
  for (int fd = 3; fd < kDescriptorsClosed; ++fd) close(fd);
}

/// Of the child alone; comes back only where it could not become the command, with its exit code.
int become_command(const visit::Run& run) {
  if (run.has_terminal && run.terminal[0] != '\0') setenv("TERM", run.terminal, 1);
  // The words are an array of our own, and execvpe() leaves them as they are.
  char* const* const words = const_cast<char* const*>(run.words);
  execvpe(words[0], words, environ);
  const int error = errno;
  dprintf(2, "[reclaimnet] cannot run %s: %s\n", words[0], strerror(error));
  return error == ENOENT ? kNotThere : kNotRunnable;
}

bool set_size(int terminal, const visit::Run& run) {
  winsize window{};
  window.ws_row = run.rows;
  window.ws_col = run.columns;
  return ioctl(terminal, TIOCSWINSZ, &window) == 0;
}

bool start_on_terminal(const visit::Run& run, const sigset_t& mask, VisitChild& out) {
  char name[64];
  int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (ours < 0) return false;
  int also = -1;
  const bool is_ready = unlockpt(ours) == 0 && ptsname_r(ours, name, sizeof name) == 0 &&
                        set_size(ours, run) && fcntl(ours, F_SETFL, O_NONBLOCK) == 0 &&
                        (also = fcntl(ours, F_DUPFD_CLOEXEC, 3)) >= 0;
  const pid_t pid = is_ready ? fork() : -1;
  if (pid == 0) {
    setsid();
    const int terminal = open(name, O_RDWR);  // and so it is the session's own
    if (terminal < 0) _exit(kNotRunnable);
    ioctl(terminal, TIOCSCTTY, 0);
    take_files({terminal, terminal, terminal});
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    _exit(become_command(run));
  }
  if (pid < 0) {
    const int error = errno;
    close_if_open(ours);
    close_if_open(also);
    errno = error;
    return false;
  }
  out = {pid, also, ours, -1};
  return true;
}

/// A child without a terminal, in a session of its own, which ends with what `become` answers.
template <class Become>
bool start_on_pipes(const sigset_t& mask, const Become& become, VisitChild& out) {
  Pipes pipes;
  if (!pipes.open()) return false;
  const pid_t pid = fork();
  if (pid == 0) {
    setsid();
    take_files(pipes.of_child);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    _exit(become());
  }
  const int error = errno;
  pipes.close_childs();
  if (pid < 0) {
    pipes.close_all();
    errno = error;
    return false;
  }
  out.pid = pid;
  pipes.give(out);
  return true;
}

}  // namespace

bool start_command(const visit::Run& run, const sigset_t& mask, VisitChild& out) {
  if (run.has_terminal) return start_on_terminal(run, mask, out);
  const auto command = [&run] { return become_command(run); };
  return start_on_pipes(mask, command, out);
}

bool start_copy(bool is_sent, const char* path, const sigset_t& mask, VisitChild& out) {
  const auto copy = [is_sent, path] { return is_sent ? send_path(path) : take_path(path); };
  return start_on_pipes(mask, copy, out);
}

void signal_session(pid_t leader, int signal) {
  const int processes = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  alignas(dirent64) static char entries[4096];
  ssize_t size = 0;
  while (processes >= 0 && (size = getdents64(processes, entries, sizeof entries)) > 0) {
    for (ssize_t at = 0; at < size;) {
      const auto* const one = reinterpret_cast<const dirent64*>(entries + at);
      at += one->d_reclen;
      const long pid = strtol(one->d_name, nullptr, 10);
      if (pid > 1 && getsid(static_cast<pid_t>(pid)) == leader)
        kill(static_cast<pid_t>(pid), signal);
    }
  }
  if (processes >= 0) close(processes);
  if (getsid(leader) == leader) kill(leader, signal);  // a guest may have no /proc to read
}

}  // namespace rn::init
