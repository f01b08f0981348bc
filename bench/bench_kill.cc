// SPDX-License-Identifier: Apache-2.0
//
// Owner harm, from the order to each of its stations: journaled, cut, killed, cleared; for 1, 16
// and 200 guest processes in a cgroup of their own, killed by the production kill path on real
// gates. Where there is a v1 cpu controller the cgroup is limited to one core, like a container.
// The times are the report's own boot-time stamps; tests/system/cut_on_the_wire measures the cut
// from outside.
//
//   bench_kill [ROUNDS=100] [idle|busy] [cut-first|journal-first]

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "bench_report.h"
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/real_clock.h"
#include "traffic/guest_cut.h"
#include "warden/kill_path.h"

namespace rn {
namespace {

struct Samples {
  std::vector<double> journaled, cut, killed, cleared;  // ms after the order
};

double ms_between(Instant from, Instant to) {
  return static_cast<double>((to - from).count()) / 1e6;
}

[[noreturn]] void live(bool is_busy) {
  volatile unsigned turns = 0;
  for (;;) {
    if (is_busy) {
      turns = turns + 1;
    } else {
      pause();
    }
  }
}

std::vector<pid_t> start_guests(const std::vector<std::string>& procs, int count, bool is_busy) {
  std::vector<pid_t> pids;
  for (int i = 0; i < count; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      for (const std::string& file : procs) std::ofstream(file) << getpid() << std::flush;
      live(is_busy);
    }
    pids.push_back(pid);
  }
  return pids;
}

void wait_until_joined(
    const warden::CgroupRoots& roots, const std::string& lab, std::size_t count
) {
  while (warden::pids_in_cgroup(roots, lab).value().size() < count) usleep(1000);
}

void print_row(int processes, const char* phase, const std::vector<double>& ms) {
  if (ms.empty()) return;
  std::printf(
      "%9d  %-9s %5zu %9.3f %9.3f %9.3f\n",
      processes,
      phase,
      ms.size(),
      bench::quantile(ms, 0.5),
      bench::quantile(ms, 0.99),
      bench::quantile(ms, 1.0)
  );
}

/// Limits the guests to one core; answers the file that takes their pids, "" without a controller.
std::string limit_to_one_core(const warden::CgroupRoots& roots, const std::string& guest) {
  for (const std::string& top : roots.others) {
    if (!top.ends_with("/cpu")) continue;
    std::filesystem::create_directories(top + "/" + guest);
    std::ofstream(top + "/" + guest + "/cpu.cfs_quota_us") << 100'000 << std::flush;
    return top + "/" + guest + "/cgroup.procs";
  }
  return "";
}

int run(int rounds, bool is_busy, bool is_cut_first) {
  const std::string lab = "rn-bench-kill-" + std::to_string(getpid());
  const std::string folder = "/tmp/" + lab;
  std::filesystem::create_directories(folder);
  const io::RealClock clock{};
  const auto roots = warden::probe_cgroups().value();
  auto cut = traffic::GuestCut::open(folder + "/bpf").value();
  warden::KillPathConfig config;
  config.journal = folder + "/kill.journal";
  config.bpffs = folder + "/bpf";
  config.cgroup_parent = lab;
  config.attempts_folder = folder + "/attempts";
  config.cuts_before_journaled = is_cut_first;
  auto path = warden::KillPath::open(config, clock, nullptr).value();
  if (!warden::make_cgroup(roots, lab + "/guest")) return 1;
  std::vector<std::string> procs;
  for (const std::string& top : {roots.unified, roots.freezer}) {
    if (!top.empty()) procs.push_back(top + "/" + lab + "/guest/cgroup.procs");
  }

  int failures = 0;
  std::printf("processes  phase         n    p50 ms    p99 ms    max ms\n");
  for (const int processes : {1, 16, 200}) {
    Samples samples;
    for (int round = 0; round < rounds; ++round) {
      // Anew for each round: the kill path takes the limit off.
      std::vector<std::string> joined = procs;
      const std::string limited = limit_to_one_core(roots, lab + "/guest");
      if (!limited.empty()) joined.push_back(limited);
      const std::vector<pid_t> pids = start_guests(joined, processes, is_busy);
      wait_until_joined(roots, lab, pids.size());
      if (!cut.uncut_node()) ++failures;
      const warden::KillReport& report = path->clear({});
      if (!report.is_cleared() || report.processes != pids.size()) ++failures;
      if (report.is_journaled)
        samples.journaled.push_back(ms_between(report.declared, report.journaled));
      samples.cut.push_back(ms_between(report.declared, report.cut));
      samples.killed.push_back(ms_between(report.declared, report.killed));
      samples.cleared.push_back(ms_between(report.declared, report.cleared));
      for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
    }
    print_row(
        processes, "journaled", samples.journaled
    );  // those beyond the limit of 20 ms are missing in n
    print_row(processes, "cut", samples.cut);
    print_row(processes, "killed", samples.killed);
    print_row(processes, "cleared", samples.cleared);
  }
  path.reset();
  if (!cut.leave() || !warden::remove_cgroup(roots, lab)) ++failures;
  std::filesystem::remove_all(folder);
  if (failures > 0) std::printf("FAILED rounds: %d\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace rn

int main(int argc, char** argv) {
  if (geteuid() != 0) {
    std::cerr << "bench_kill needs root (cgroups, BPF)\n";
    return 1;
  }
  if (unshare(CLONE_NEWNET) != 0) return 1;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 100;
  const bool is_busy = argc > 2 && std::strcmp(argv[2], "busy") == 0;
  rn::bench::print_machine(
      is_busy ? "order -> cut -> cleared, busy guests" : "order -> cut -> cleared, idle guests"
  );
  const bool is_cut_first = argc <= 3 || std::strcmp(argv[3], "journal-first") != 0;
  std::printf("order of steps: %s\n", is_cut_first ? "cut first" : "journal first");
  return rn::run(rounds, is_busy, is_cut_first);
}
