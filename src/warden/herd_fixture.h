// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "warden/cgroup.h"

namespace rn::warden::test {

/// Child processes in a cgroup of their own. They end with the object whatever the test did.
class Herd {
 public:
  Herd(const CgroupRoots& roots, const std::string& cgroup, int count, void (*life)()) {
    for (int i = 0; i < count; ++i) start(roots, cgroup, life);
  }

  Herd(const Herd&) = delete;
  Herd& operator=(const Herd&) = delete;

  ~Herd() {
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }

  const std::vector<pid_t>& pids() const { return pids_; }

  bool is_alive(std::size_t i) const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pids_[i]), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
  }

 private:
  static void join(const std::string& procs, pid_t pid) {
    std::ofstream(procs) << pid << std::flush;
  }

  void start(const CgroupRoots& roots, const std::string& cgroup, void (*life)()) {
    int gate[2];
    ASSERT_EQ(pipe(gate), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      close(gate[1]);
      char byte = 0;
      [[maybe_unused]] const ssize_t got = read(gate[0], &byte, 1);
      life();
      _exit(0);
    }
    close(gate[0]);
    if (!roots.unified.empty()) join(roots.unified + "/" + cgroup + "/cgroup.procs", pid);
    if (!roots.freezer.empty()) join(roots.freezer + "/" + cgroup + "/cgroup.procs", pid);
    pids_.push_back(pid);
    close(gate[1]);
  }

  std::vector<pid_t> pids_;
};

inline void sleep_forever() {
  for (;;) pause();
}

}  // namespace rn::warden::test
