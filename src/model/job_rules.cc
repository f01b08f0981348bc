// SPDX-License-Identifier: Apache-2.0
#include "model/job_rules.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <string_view>

#include "base/fs.h"
#include "model/data_sets.h"
#include "model/warden.h"

namespace rn {

namespace {

constexpr std::size_t kJobArguments = 1024;
constexpr std::size_t kJobVariables = 512;
constexpr std::size_t kJobTextBytes = 64 << 10;
constexpr std::size_t kJobGlobs = 128;
constexpr std::size_t kJobNameBytes = 128;
constexpr std::size_t kJobRefBytes = 64;

tl::unexpected<Error> wrong_job(std::string message, std::string hint = {}) {
  return fail(ErrorCode::kInvalid, std::move(message), std::move(hint));
}

Status check_command(const JobSpec& spec) {
  if (spec.command.empty())
    return wrong_job("command: is empty", "say what to run, e.g. `reclaim run -- python train.py`");
  if (spec.command.size() > kJobArguments) return wrong_job("command: more than 1024 arguments");
  std::size_t bytes = 0;
  for (const std::string& argument : spec.command) {
    bytes += argument.size() + 1;
    if (argument.find('\0') != std::string::npos) return wrong_job("command: contains a zero byte");
  }
  if (bytes > kJobTextBytes)
    return wrong_job("command: more than 64 KiB", "put long arguments into a file of the folder");
  if (spec.command.front().empty()) return wrong_job("command: its first word is empty");
  if (spec.name.size() > kJobNameBytes) return wrong_job("name: more than 128 bytes");
  return {};
}

Status check_env(const JobSpec& spec) {
  if (spec.env.size() > kJobVariables) return wrong_job("env: more than 512 variables");
  std::size_t bytes = 0;
  for (const auto& [key, value] : spec.env) {
    bytes += key.size() + value.size() + 2;
    const bool is_name = !key.empty() && !std::isdigit(static_cast<unsigned char>(key.front())) &&
                         std::all_of(key.begin(), key.end(), [](unsigned char c) {
                           return std::isalnum(c) || c == '_';
                         });
    if (key.size() > warden_wire::kVariableNameMax)
      return wrong_job("env." + key.substr(0, 40) + "…: a name of more than 128 bytes");
    if (!is_name || value.find('\0') != std::string::npos)
      return wrong_job("env." + key + ": is not the name or value of a variable");
    if (warden_wire::steers_runtime(key) || key.starts_with("CUDA_VISIBLE"))
      return wrong_job(
          "env." + key + ": steers the runtime and is set by the node", "leave it out"
      );
    if (key.starts_with("RECLAIM_"))
      return wrong_job(
          "env." + key + ": RECLAIM_ variables are set by the platform", "leave it out"
      );
  }
  if (bytes > kJobTextBytes) return wrong_job("env: more than 64 KiB");
  return {};
}

Status check_resources(const Resources& r) {
  if (r.gpus > 64) return wrong_job("resources.gpus: more than 64 on one node");
  if (r.cpu_milli == 0 || r.cpu_milli > 1'000'000)
    return wrong_job("resources.cpu_milli: expected 1 to 1000000");
  if (r.cpu_milli_min > r.cpu_milli)
    return wrong_job("resources.cpu_milli_min: is more than resources.cpu_milli");
  if (r.memory_mib < 16 || r.memory_mib > (64u << 20))
    return wrong_job("resources.memory_mib: expected at least 16");
  if (r.disk_mib < 16 || r.disk_mib > (64u << 20))
    return wrong_job("resources.disk_mib: expected at least 16");
  const bool is_version = std::all_of(
      r.compute_capability_min.begin(),
      r.compute_capability_min.end(),
      [](unsigned char c) { return std::isdigit(c) || c == '.'; }
  );
  if (!is_version || r.compute_capability_min.size() > 8)
    return wrong_job("resources.compute_capability_min: expected a number such as \"8.6\"");
  return {};
}

Status check_globs(const std::vector<std::string>& globs, const std::string& field) {
  if (globs.size() > kJobGlobs) return wrong_job(field + ": more than 128 patterns");
  for (const std::string& glob : globs) {
    if (glob.empty() || glob.size() > 4096 || glob.front() == '/' || glob == ".." ||
        glob.find("../") != std::string::npos || glob.find('\0') != std::string::npos)
      return wrong_job(
          field + ": '" + glob.substr(0, 60) + "' is not a pattern inside the job's folder",
          "patterns are relative to the folder and stay in it, e.g. 'runs/*.pt'"
      );
  }
  return {};
}

/// Plain, so that it means the same to a shell, to a glob and to the node.
bool is_plain_file_name(const std::string& path) {
  constexpr std::string_view kSpecial = "*?[]{}\\\"'`$";
  const bool has_special = std::any_of(path.begin(), path.end(), [&](unsigned char c) {
    return c <= ' ' || c == 0x7f || kSpecial.find(static_cast<char>(c)) != std::string_view::npos;
  });
  return path.size() <= warden_wire::kTellFileMax && is_safe_relative_path(path) && !has_special;
}

Status check_tell_file(const CheckpointSpec& c) {
  if (!is_plain_file_name(c.tell_file))
    return wrong_job(
        "checkpoint.tell_file: '" + c.tell_file.substr(0, 60) +
            "' is not the plain name of a file inside the job's folder",
        "name a file relative to the folder, without blanks, globs and '..', e.g. SAVE"
    );
  if (c.tell_file == c.complete_marker)
    return wrong_job(
        "checkpoint.tell_file: is checkpoint.complete_marker, too", "give them two names"
    );
  return {};
}

Status check_tell_hook(const std::string& hook) {
  if (hook.find('\0') != std::string::npos)
    return wrong_job(
        "checkpoint.tell_hook: contains a zero byte", "give lines for /bin/sh, e.g. 'sh save.sh'"
    );
  if (hook.size() > warden_wire::kTellHookMax)
    return wrong_job(
        "checkpoint.tell_hook: more than 4096 bytes", "put it into a script of the folder"
    );
  if (hook.find_first_not_of(" \t\r\n") == std::string::npos)
    return wrong_job(
        "checkpoint.tell_hook: has nothing to run", "give lines for /bin/sh, e.g. 'sh save.sh'"
    );
  return {};
}

/// A job is told to save in one way.
Status check_word(const CheckpointSpec& c, bool has_signal) {
  std::vector<std::string> ways;
  if (!c.tell_file.empty()) ways.emplace_back("file");
  if (!c.tell_hook.empty()) ways.emplace_back("hook");
  if (c.tell_api) ways.emplace_back("api");
  if (ways.empty()) return {};
  const std::string field = "checkpoint.tell_" + ways.front();
  if (ways.size() > 1)
    return wrong_job(
        field + ": contradicts checkpoint.tell_" + ways[1] + ": it is told to save in one way",
        "leave --tell-" + ways.front() + " (interrupt.tell_" + ways.front() + ") out, or --tell-" +
            ways[1] + " (interrupt.tell_" + ways[1] + ")"
    );
  if (c.is_told || has_signal)
    return wrong_job(
        field +
            ": contradicts checkpoint.signal and checkpoint.is_told: it is told to save in one "
            "way",
        "leave --signal and --tell out (interrupt.signal, interrupt.tell), or --tell-" +
            ways.front()
    );
  if (c.is_stateless)
    return wrong_job(field + ": contradicts is_stateless", "leave one of the two out");
  if (!c.tell_file.empty()) return check_tell_file(c);
  return c.tell_api ? Status() : check_tell_hook(c.tell_hook);
}

Status check_checkpoint(const CheckpointSpec& c) {
  RN_CHECK(check_globs(c.paths, "checkpoint.paths"));
  RN_CHECK(check_globs(c.temporary, "checkpoint.temporary"));
  RN_CHECK(check_globs(c.outputs, "checkpoint.outputs"));
  if (!c.complete_marker.empty() && !is_safe_relative_path(c.complete_marker))
    return wrong_job("checkpoint.complete_marker: is not a path inside the job's folder");
  if (c.copies > 8) return wrong_job("checkpoint.copies: more than 8");
  if (c.destinations.size() > kJobGlobs) return wrong_job("checkpoint.destinations: more than 128");
  if (c.quiet_ms > 600'000) return wrong_job("checkpoint.quiet_ms: more than ten minutes");
  const bool has_signal = c.signal != SaveSignal::kAuto && c.signal != SaveSignal::kNone;
  if (c.is_told && !has_signal)
    return wrong_job(
        "checkpoint.is_told: says that it saves when it is told, and no signal to tell it with",
        "name the signal (--signal USR1, interrupt.signal), or in place of both a file, a hook or "
        "the API (--tell-file, --tell-hook, --tell-api), or leave --tell out"
    );
  RN_CHECK(check_word(c, has_signal));
  if (c.is_told && c.is_stateless)
    return wrong_job("checkpoint.is_told: contradicts is_stateless", "leave one of the two out");
  if (c.is_stateless && !c.paths.empty())
    return wrong_job(
        "checkpoint.is_stateless: contradicts checkpoint.paths", "leave one of the two out"
    );
  if (c.is_stateless && !c.complete_marker.empty())
    return wrong_job(
        "checkpoint.is_stateless: contradicts checkpoint.complete_marker",
        "leave one of the two out"
    );
  return {};
}

Status check_after(const std::vector<AfterJob>& after) {
  if (after.size() > kAfterMax)
    return wrong_job(
        "after: more than " + std::to_string(kAfterMax) + " jobs",
        "let one job wait for them, and this one for that"
    );
  for (std::size_t i = 0; i < after.size(); ++i) {
    const std::string at = "after[" + std::to_string(i) + "]";
    const std::string& name = after[i].job;
    const bool is_name = !name.empty() && name.size() <= kJobRefBytes &&
                         std::all_of(name.begin(), name.end(), [](unsigned char c) {
                           return std::isalnum(c) || c == '-';
                         });
    if (!is_name)
      return wrong_job(
          at + ".job: expected the id or number of a job", "`reclaim ps --all` lists the jobs"
      );
    for (std::size_t before = 0; before < i; ++before) {
      if (after[before] == after[i])
        return wrong_job(at + ": says the same as after[" + std::to_string(before) + "]");
    }
  }
  return {};
}

}  // namespace

Status check_spec(const JobSpec& spec) {
  RN_CHECK(check_command(spec));
  RN_CHECK(check_env(spec));
  RN_CHECK(check_resources(spec.resources));
  RN_CHECK(check_checkpoint(spec.checkpoint));
  if (spec.priority > 7) return wrong_job("priority: expected 0 (highest) to 7");
  if (const auto why = warden_wire::why_no_work_folder(spec.work_dir); !why.empty())
    return wrong_job(
        "work_dir: '" + spec.work_dir.substr(0, 60) + "' " + std::string(why),
        "use a folder such as /work"
    );
  RN_CHECK(check_data_sets(spec.data, kMaxDataSetsOfJob, "data"));
  if (!spec.data.empty() && is_in_data_folder(spec.work_dir))
    return wrong_job("work_dir: lies where the job's data sets are", "use a folder such as /work");
  if (spec.notice_s > 900)
    return wrong_job("notice_s: more than 900", "owners grant at most 15 min");
  if (spec.idle_stop_s > 0 && spec.idle_stop_s < 60)
    return wrong_job("idle_stop_s: less than a minute", "for example 7200, two hours");
  if (spec.max_restarts > 1000) return wrong_job("max_restarts: more than 1000");
  if (spec.peers.size() > 64) return wrong_job("peers: more than 64");
  if (spec.only_labs.size() > 256) return wrong_job("only_labs: more than 256");
  return check_after(spec.after);
}

Status check_indices(const std::vector<std::uint32_t>& indices) {
  if (indices.empty())
    return wrong_job("indices: an array has a task at least", "submit it without an array");
  if (indices.size() > kArrayTasksMax)
    return wrong_job(
        "indices: more than " + std::to_string(kArrayTasksMax) + " tasks, each a job of its own",
        "submit it in pieces, or let each task do a part of the work"
    );
  const auto unordered =
      std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<std::uint32_t>());
  if (unordered != indices.end())
    return wrong_job(
        "indices: " + std::to_string(*unordered) + " is not below the one behind it",
        "list each once, in ascending order"
    );
  return {};
}

std::string few_of(const std::vector<std::string_view>& names) {
  std::string text;
  for (const std::string_view name : names) {
    if (text.size() > 200) return text + ", …";
    text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text.empty() ? "none yet" : text;
}

Error image_not_listed(std::string_view wanted, const std::vector<std::string_view>& listed) {
  return Error{
      ErrorCode::kDenied,
      "image: '" + std::string(wanted.substr(0, 100)) + "' is not on the allow list",
      "allowed images: " + few_of(listed) + "; an administrator adds one with `reclaim image add`"};
}

}  // namespace rn
