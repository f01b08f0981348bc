// SPDX-License-Identifier: Apache-2.0
#include "warden/engine_exec.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "io/errno_error.h"
#include "warden/mount_point.h"

namespace rn::warden {

namespace {

constexpr std::array<const char*, 4> kFiles = {"passwd", "group", "subuid", "subgid"};

/// In the child: everything up to exec. Answers what failed; errno says why.
const char* become_engine(const EngineExec& engine) {
  if (setsid() < 0 && errno != EPERM) return "setsid";
  // NOTE(dockerd 20.10): without a bridge it deletes `docker0` wherever it runs, the owner's own.
  if (unshare(CLONE_NEWNS | CLONE_NEWNET) != 0) return "namespaces of its own";
  if (mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) return "slave mounts";
  for (const char* file : kFiles) {
    const std::string source = engine.etc + "/" + file;
    const std::string target = std::string("/etc/") + file;
    if (mount(source.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) != 0)
      return file;  // NOTE: /etc/subuid and subgid come with Debian's passwd
  }
  // NOTE(dockerd 20.10): it takes the machine's containerd where there is one, which starts guests
  // outside this namespace, where their file systems are not mounted; and it is the owner's.
  if (mount(engine.containerd.c_str(), kContainerdFolder, nullptr, MS_BIND, nullptr) != 0)
    return kContainerdFolder;
  const int log = open(engine.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  const int nothing = open("/dev/null", O_RDONLY);
  if (log < 0 || nothing < 0) return "its log";
  dup2(nothing, 0);
  dup2(log, 1);
  dup2(log, 2);
  std::vector<char*> argv;
  for (const std::string& argument : engine.argv)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  return "its program";
}

struct Failure {
  int number = 0;
  std::array<char, 64> what{};
};

}  // namespace

Status exec_engine(const EngineExec& engine) {
  std::array<int, 2> news{};  // closed by a successful exec
  if (pipe2(news.data(), O_CLOEXEC) != 0) return fail(io::error_from_errno(errno, "pipe"));
  const pid_t middle = fork();
  if (middle < 0) return fail(io::error_from_errno(errno, "fork"));
  if (middle == 0) {
    // NOTE(containerd): after a hang it writes its stacks there. dockerd has a folder of its own.
    setenv("TMPDIR", parent_folder(engine.log).c_str(), 1);
    // The middle process ends at once, so that the engine belongs to init and not to us.
    if (fork() != 0) _exit(0);
    Failure failure;
    const char* what = become_engine(engine);
    failure.number = errno;
    strncpy(failure.what.data(), what, failure.what.size() - 1);
    [[maybe_unused]] const ssize_t told = write(news[1], &failure, sizeof failure);
    _exit(1);
  }
  close(news[1]);
  waitpid(middle, nullptr, 0);
  Failure failure;
  const ssize_t got = read(news[0], &failure, sizeof failure);
  close(news[0]);
  if (got <= 0) return {};
  return fail(io::error_from_errno(
      failure.number, std::string("starting the engine: ") + failure.what.data()
  ));
}

}  // namespace rn::warden
