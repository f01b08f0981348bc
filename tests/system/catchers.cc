// SPDX-License-Identifier: Apache-2.0
//
// A control group as guests have one, and the warden's choice of whom to signal in it:
//   catchers run GROUP COMMAND...     makes it, enters it, and becomes the command
//   catchers signal GROUP NUMBER      signals who catches it, prints their pids, one a line
//   catchers tell GROUP               as where no signal is named; prints its number first
//   catchers remove GROUP             once nothing is left in it
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include <unistd.h>

#include "warden/cgroup.h"

namespace {

int complain(const rn::Error& error) {
  std::cerr << "catchers: " << error.describe() << "\n";
  return 1;
}

int run(const rn::warden::CgroupRoots& roots, const std::string& group, char** command) {
  if (const auto made = rn::warden::make_cgroup(roots, group); !made) return complain(made.error());
  for (const std::string& root : {roots.unified, roots.freezer}) {
    if (root.empty()) continue;
    std::ofstream procs(root + "/" + group + "/cgroup.procs");
    procs << ::getpid() << std::flush;
    if (!procs) {
      std::cerr << "catchers: cannot enter " << root << "/" << group << "\n";
      return 1;
    }
  }
  ::execvp(command[0], command);
  std::cerr << "catchers: cannot run " << command[0] << "\n";
  return 127;
}

int signal_in(const rn::warden::CgroupRoots& roots, const std::string& group, int number) {
  const auto pids = rn::warden::signal_catchers(roots, group, number);
  if (!pids) return complain(pids.error());
  for (const pid_t pid : *pids) std::cout << pid << "\n";
  return 0;
}

int tell_in(const rn::warden::CgroupRoots& roots, const std::string& group) {
  const auto told = rn::warden::tell_to_save(roots, group);
  if (!told) return complain(told.error());
  std::cout << told->signal << "\n";
  for (const pid_t pid : told->pids) std::cout << pid << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 2 ? argv[1] : "";
  const auto roots = rn::warden::probe_cgroups();
  if (!roots) return complain(roots.error());
  if (verb == "run" && argc > 3) return run(*roots, argv[2], argv + 3);
  if (verb == "signal" && argc > 3) return signal_in(*roots, argv[2], std::atoi(argv[3]));
  if (verb == "tell") return tell_in(*roots, argv[2]);
  if (verb == "remove") {
    const auto removed = rn::warden::remove_cgroup(*roots, argv[2]);
    return removed ? 0 : complain(removed.error());
  }
  std::cerr << "usage: catchers run|signal|tell|remove GROUP [NUMBER | COMMAND...]\n";
  return 2;
}
