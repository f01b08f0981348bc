// SPDX-License-Identifier: Apache-2.0
//
// What scripts/gpu-check.sh asks of our own code: the agent's telemetry, and the warden's kill with
// its look whether the GPU is free. One JSON object on standard output.
//
//   gpu_probe telemetry LIBRARY [GUEST_PID…]            those pids are guests, all others foreign
//   gpu_probe clear LIBRARY LIMIT_MS group CGROUP        kills all that is in the control group
//   gpu_probe clear LIBRARY LIMIT_MS pids PID…           kills these processes
//
// Exit code 0: done, and for `clear` nothing was left; 3: something is left (wedged), and named;
// 1: NVML or the control group cannot be used; 2: usage.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <signal.h>
#include <unistd.h>

#include "agent/telemetry_nvml.h"
#include "io/read_text.h"
#include "io/real_clock.h"
#include "warden/kill_path.h"

namespace rn {
namespace {

using Json = nlohmann::json;

enum Code { kDone = 0, kFailed = 1, kUsage = 2, kLeft = 3 };

int complain(const Error& error) {
  std::fprintf(stderr, "gpu_probe: %s\n", error.describe().c_str());
  return kFailed;
}

std::vector<pid_t> pids_of(const std::vector<std::string>& words, std::size_t from) {
  std::vector<pid_t> pids;
  for (; from < words.size(); ++from) pids.push_back(std::atoi(words[from].c_str()));
  return pids;
}

int telemetry(const std::vector<std::string>& words) {
  const auto sampler = agent::NvmlSampler::open(words[1]);
  if (!sampler) return complain(sampler.error());
  const std::vector<pid_t> guests = pids_of(words, 2);
  const auto is_guest = [&](pid_t pid) {
    return std::find(guests.begin(), guests.end(), pid) != guests.end();
  };
  const auto gpus = (*sampler)->gpus();
  const auto sample = (*sampler)->sample(is_guest);
  Json out = Json::array();
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const GpuTelemetry& seen = sample.at(i);
    out.push_back(
        {{"index", gpus[i].index},
         {"uuid", gpus[i].uuid},
         {"model", gpus[i].model},
         {"memory_mib", gpus[i].memory_mib},
         {"compute_capability", gpus[i].compute_capability},
         {"memory_used_mib", seen.memory_used_mib},
         {"memory_reserved_mib", seen.memory_reserved_mib},
         {"utilisation_percent", seen.utilisation_percent},
         {"temperature_c", seen.temperature_c},
         {"power_mw", seen.power_mw},
         {"foreign_processes", seen.foreign_processes},
         {"foreign_vram_mib", seen.foreign_vram_mib},
         {"is_wedged", seen.is_wedged}}
    );
  }
  std::printf("%s\n", Json{{"gpus", out}}.dump().c_str());
  return kDone;
}

/// What a clearing came to; times in ms after the order, -1: not reached.
struct Cleared {
  double killed_ms = -1;
  double free_ms = -1;
  std::size_t processes = 0;
  std::vector<std::string> remains;
};

double ms_since(Instant from, Instant to) {
  return static_cast<double>((to - from).count()) / 1e6;
}

/// The production's kill path, without gates: here nobody has a wire.
Result<Cleared> clear_group(
    const std::string& group, milliseconds limit, warden::GpuProcesses& gpus
) {
  const io::RealClock clock{};
  warden::KillPathConfig config;
  config.journal = "/dev/null";
  config.bpffs = "/proc/self/no-gates";
  config.cgroup_parent = group;
  config.is_emergency = true;
  RN_TRY(const auto path, warden::KillPath::open(config, clock, &gpus));
  for (const std::string& missing : path->missing()) {
    if (missing.find("gates") == std::string::npos)
      return fail(ErrorCode::kUnavailable, "the kill path is not complete: " + missing);
  }
  warden::KillOrder order;
  order.declared = clock.now().boot;
  order.limit = limit;
  const warden::KillReport& report = path->clear(order);
  const Instant end = clock.now().boot;
  Cleared done;
  done.processes = report.processes;
  if (report.is_killed()) done.killed_ms = ms_since(order.declared, report.killed);
  done.remains = report.remains.describe();
  if (!report.is_killed()) done.remains.emplace_back("processes that do not die");
  if (done.remains.empty()) done.free_ms = ms_since(order.declared, end);
  return done;
}

bool has_ended(pid_t pid) {
  const std::string stat = io::read_text("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = stat.rfind(") ");
  return name_end == std::string::npos || stat.substr(name_end + 2, 1) == "Z";
}

/// Where there is no control group to be had: each process by itself, and the same look.
Cleared clear_pids(const std::vector<pid_t>& pids, milliseconds limit, warden::GpuProcesses& gpus) {
  const io::RealClock clock{};
  const Instant declared = clock.now().boot;
  const auto guests = std::make_unique<warden::PidSet>();
  Cleared done;
  done.processes = pids.size();
  for (const pid_t pid : pids) {
    guests->add(pid);
    kill(pid, SIGKILL);
  }
  for (;;) {
    const bool is_killed = std::all_of(pids.begin(), pids.end(), has_ended);
    Instant now = clock.now().boot;
    if (is_killed && done.killed_ms < 0) done.killed_ms = ms_since(declared, now);
    warden::Remains left;
    warden::look_at_gpus(gpus, *guests, ~std::uint64_t{0}, seconds(2), left);
    now = clock.now().boot;
    if (is_killed && left.is_empty()) {
      done.free_ms = ms_since(declared, now);
      return done;
    }
    if (now - declared > limit) {
      done.remains = left.describe();
      if (!is_killed) done.remains.emplace_back("processes that do not die");
      return done;
    }
    usleep(5000);  // between two looks
  }
}

int clear(const std::vector<std::string>& words) {
  if (words.size() < 5) return kUsage;
  const auto gpus = warden::open_nvml(words[1]);
  if (!gpus) return complain(gpus.error());
  const milliseconds limit{std::max(1, std::atoi(words[2].c_str()))};
  Result<Cleared> done = words[3] == "group" ? clear_group(words[4], limit, **gpus)
                                             : clear_pids(pids_of(words, 4), limit, **gpus);
  if (!done) return complain(done.error());
  std::printf(
      "%s\n",
      Json{
          {"verdict", done->remains.empty() ? "free" : "wedged"},
          {"killed_ms", done->killed_ms},
          {"free_ms", done->free_ms},
          {"processes", done->processes},
          {"remains", done->remains}}
          .dump()
          .c_str()
  );
  return done->remains.empty() ? kDone : kLeft;
}

}  // namespace
}  // namespace rn

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  int code = rn::kUsage;
  if (words.size() >= 2 && words[0] == "telemetry") code = rn::telemetry(words);
  if (words.size() >= 2 && words[0] == "clear") code = rn::clear(words);
  if (code == rn::kUsage) std::fputs("gpu_probe: see the first lines of gpu_probe.cc\n", stderr);
  return code;
}
