// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>

#include "base/fs.h"
#include "coordinator/core_commands.h"
#include "model/data_sets.h"
#include "model/warden.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kArguments = 1024;
constexpr std::size_t kVariables = 512;
constexpr std::size_t kTextBytes = 64 << 10;
constexpr std::size_t kGlobs = 128;
constexpr std::size_t kNameBytes = 128;

tl::unexpected<Error> wrong(std::string message, std::string hint = {}) {
  return fail(ErrorCode::kInvalid, std::move(message), std::move(hint));
}

bool starts_with(const std::string& text, std::string_view prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

Status check_command(const JobSpec& spec) {
  if (spec.command.empty())
    return wrong("command: is empty", "say what to run, e.g. `reclaim run -- python train.py`");
  if (spec.command.size() > kArguments) return wrong("command: more than 1024 arguments");
  std::size_t bytes = 0;
  for (const std::string& argument : spec.command) {
    bytes += argument.size() + 1;
    if (argument.find('\0') != std::string::npos) return wrong("command: contains a zero byte");
  }
  if (bytes > kTextBytes)
    return wrong("command: more than 64 KiB", "put long arguments into a file of the folder");
  if (spec.command.front().empty()) return wrong("command: its first word is empty");
  if (spec.name.size() > kNameBytes) return wrong("name: more than 128 bytes");
  return {};
}

Status check_env(const JobSpec& spec) {
  if (spec.env.size() > kVariables) return wrong("env: more than 512 variables");
  std::size_t bytes = 0;
  for (const auto& [key, value] : spec.env) {
    bytes += key.size() + value.size() + 2;
    const bool is_name = !key.empty() && !std::isdigit(static_cast<unsigned char>(key.front())) &&
                         std::all_of(key.begin(), key.end(), [](unsigned char c) {
                           return std::isalnum(c) || c == '_';
                         });
    if (key.size() > warden_wire::kVariableNameMax)
      return wrong("env." + key.substr(0, 40) + "…: a name of more than 128 bytes");
    if (!is_name || value.find('\0') != std::string::npos)
      return wrong("env." + key + ": is not the name or value of a variable");
    if (warden_wire::steers_runtime(key) || starts_with(key, "CUDA_VISIBLE"))
      return wrong("env." + key + ": steers the runtime and is set by the node", "leave it out");
    if (starts_with(key, "RECLAIM_"))
      return wrong("env." + key + ": RECLAIM_ variables are set by the platform", "leave it out");
  }
  if (bytes > kTextBytes) return wrong("env: more than 64 KiB");
  return {};
}

Status check_resources(const Resources& r) {
  if (r.gpus > 64) return wrong("resources.gpus: more than 64 on one node");
  if (r.cpu_milli == 0 || r.cpu_milli > 1'000'000)
    return wrong("resources.cpu_milli: expected 1 to 1000000");
  if (r.cpu_milli_min > r.cpu_milli)
    return wrong("resources.cpu_milli_min: is more than resources.cpu_milli");
  if (r.memory_mib < 16 || r.memory_mib > (64u << 20))
    return wrong("resources.memory_mib: expected at least 16");
  if (r.disk_mib < 16 || r.disk_mib > (64u << 20))
    return wrong("resources.disk_mib: expected at least 16");
  const bool is_version = std::all_of(
      r.compute_capability_min.begin(),
      r.compute_capability_min.end(),
      [](unsigned char c) { return std::isdigit(c) || c == '.'; }
  );
  if (!is_version || r.compute_capability_min.size() > 8)
    return wrong("resources.compute_capability_min: expected a number such as \"8.6\"");
  return {};
}

Status check_globs(const std::vector<std::string>& globs, const std::string& field) {
  if (globs.size() > kGlobs) return wrong(field + ": more than 128 patterns");
  for (const std::string& glob : globs) {
    if (glob.empty() || glob.size() > 4096 || glob.front() == '/' || glob == ".." ||
        glob.find("../") != std::string::npos || glob.find('\0') != std::string::npos)
      return wrong(
          field + ": '" + glob.substr(0, 60) + "' is not a pattern inside the job's folder",
          "patterns are relative to the folder and stay in it, e.g. 'runs/*.pt'"
      );
  }
  return {};
}

Status check_checkpoint(const CheckpointSpec& c) {
  RN_CHECK(check_globs(c.paths, "checkpoint.paths"));
  RN_CHECK(check_globs(c.temporary, "checkpoint.temporary"));
  RN_CHECK(check_globs(c.outputs, "checkpoint.outputs"));
  if (!c.complete_marker.empty() && !is_safe_relative_path(c.complete_marker))
    return wrong("checkpoint.complete_marker: is not a path inside the job's folder");
  if (c.copies > 8) return wrong("checkpoint.copies: more than 8");
  if (c.destinations.size() > kGlobs) return wrong("checkpoint.destinations: more than 128");
  if (c.quiet_ms > 600'000) return wrong("checkpoint.quiet_ms: more than ten minutes");
  const bool has_signal = c.signal != SaveSignal::kAuto && c.signal != SaveSignal::kNone;
  if (c.is_told && !has_signal)
    return wrong(
        "checkpoint.is_told: says that it saves when it is told, and no signal to tell it with",
        "name the signal (--signal USR1, interrupt.signal), or leave --tell out"
    );
  if (c.is_told && c.is_stateless)
    return wrong("checkpoint.is_told: contradicts is_stateless", "leave one of the two out");
  if (c.is_stateless && !c.paths.empty())
    return wrong(
        "checkpoint.is_stateless: contradicts checkpoint.paths", "leave one of the two out"
    );
  if (c.is_stateless && !c.complete_marker.empty())
    return wrong(
        "checkpoint.is_stateless: contradicts checkpoint.complete_marker",
        "leave one of the two out"
    );
  return {};
}

}  // namespace

Status check_spec(const JobSpec& spec) {
  RN_CHECK(check_command(spec));
  RN_CHECK(check_env(spec));
  RN_CHECK(check_resources(spec.resources));
  RN_CHECK(check_checkpoint(spec.checkpoint));
  if (spec.priority > 7) return wrong("priority: expected 0 (highest) to 7");
  if (const auto why = warden_wire::why_no_work_folder(spec.work_dir); !why.empty())
    return wrong(
        "work_dir: '" + spec.work_dir.substr(0, 60) + "' " + std::string(why),
        "use a folder such as /work"
    );
  RN_CHECK(check_data_sets(spec.data, kMaxDataSetsOfJob, "data"));
  if (!spec.data.empty() && is_in_data_folder(spec.work_dir))
    return wrong("work_dir: lies where the job's data sets are", "use a folder such as /work");
  if (spec.notice_s > 900) return wrong("notice_s: more than 900", "owners grant at most 15 min");
  if (spec.max_restarts > 1000) return wrong("max_restarts: more than 1000");
  if (spec.peers.size() > 64) return wrong("peers: more than 64");
  if (spec.only_labs.size() > 256) return wrong("only_labs: more than 256");
  return {};
}

std::vector<std::string> warnings_for(const State& state, const JobEntry& job) {
  std::vector<std::string> warnings;
  const JobSpec& spec = job.row.job.spec;
  const CheckpointSpec& c = spec.checkpoint;
  if (!c.is_stateless && c.paths.empty() && c.complete_marker.empty())
    warnings.emplace_back(
        "nothing says where this job saves: files with the usual checkpoint names (*.pt, *.pth, "
        "*.pth.tar, *.ckpt, *.safetensors, checkpoint*/) are looked for. A job that never saves "
        "starts over after "
        "every reclaim; name its files with --checkpoint GLOB (checkpoint.paths), or say "
        "--stateless "
        "(checkpoint.is_stateless)"
    );
  const sched::Demand demand = demand_of(job);
  const auto candidates = candidates_of(state);
  if (!sched::is_feasible(demand, candidates))
    warnings.push_back("it waits until a node fits: " + sched::explain(demand, candidates));
  const auto longest = sched::longest_notice_s(demand, candidates);
  if (longest && *longest < spec.notice_s)
    warnings.push_back(
        "it asks for " + std::to_string(spec.notice_s) +
        " s of notice before a reclaim, and the longest that a node's owner grants is " +
        std::to_string(*longest) + " s: save more often than that"
    );
  if (spec.max_duration_s == 0 && spec.resources.gpus > 0)
    warnings.emplace_back("max_duration_s is not set: placement assumes that it runs for 4 hours");
  return warnings;
}

}  // namespace rn::coordinator
