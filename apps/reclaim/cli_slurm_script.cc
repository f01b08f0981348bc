// SPDX-License-Identifier: Apache-2.0
#include "cli_slurm_script.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>

#include "cli_slurm_lines.h"
#include "cli_slurm_values.h"

#include "base/printable.h"
#include "base/utf8.h"
#include "base/whole_number.h"
#include "model/codec_detail.h"

namespace rn::cli {

namespace {

// One machine has no more of these (model/job_rules.cc), so that products stay within 64 bits.
constexpr std::uint64_t kSlurmGpusMax = 64;
constexpr std::uint64_t kSlurmCoresMax = 1000;
constexpr std::uint64_t kSlurmMibMin = 16;
constexpr std::uint64_t kSlurmIndexMax = 4'000'000;  ///< of Slurm itself
constexpr std::uint32_t kSlurmNoticeMax = 900;
constexpr std::uint64_t kSlurmSignalSeconds =
    60;  ///< sbatch's own, where a line names a signal alone
constexpr std::size_t kSlurmNameBytes = 128;

/// A number, and the line that says it.
struct Said {
  std::uint64_t value = 0;
  const SlurmOption* by = nullptr;

  explicit operator bool() const { return by != nullptr; }
};

Error refused(const SlurmOption& option, const std::string& what, const std::string& next) {
  return {
      ErrorCode::kInvalid,
      "line " + std::to_string(option.line) + ": " + option.written + ": " + what,
      next};
}

class Mapping {
 public:
  Mapping(SlurmScript script, const SlurmPlace& place)
      : script_(std::move(script)), place_(place) {}

  Result<SlurmJob> map();

 private:
  using Reader = Status (Mapping::*)(const SlurmOption& option);
  static const std::map<std::string_view, Reader>& readers();

  Status take_array(const SlurmOption& option);
  Status take_begin(const SlurmOption& option);
  Status take_chdir(const SlurmOption& option);
  Status take_count(const SlurmOption& option);
  Status take_export(const SlurmOption& option);
  Status take_gpus(const SlurmOption& option);
  Status take_image(const SlurmOption& option);
  Status take_memory(const SlurmOption& option);
  Status take_name(const SlurmOption& option);
  Status take_no_requeue(const SlurmOption& option);
  Status take_nodes(const SlurmOption& option);
  Status take_signal(const SlurmOption& option);
  Status take_time(const SlurmOption& option);
  Status take_tmp(const SlurmOption& option);
  Status take_dependency(const SlurmOption& option);
  Status take_kill_on_invalid(const SlurmOption& option);
  Status refuse_hold(const SlurmOption& option);
  Status refuse_input(const SlurmOption& option);
  Status refuse_test(const SlurmOption& option);
  Status refuse_wrap(const SlurmOption& option);

  Status read_options();
  Status take_tasks(
      const SlurmOption& option, const std::string& range, std::set<std::uint32_t>& out
  );
  Status count_tasks();
  Status count_cores();
  Status count_memory();
  void read_commands();
  void set_variables();
  Status set_command();

  Said& said(const std::string& option) { return said_[option]; }

  void warn(const SlurmOption& option, std::string_view what) {
    warn(option.line, option.written + ": " + std::string(what));
  }

  void warn(std::size_t line, const std::string& what) {
    job_.warnings.push_back("line " + std::to_string(line) + ": " + what);
  }

  SlurmScript script_;
  const SlurmPlace& place_;
  SlurmJob job_;
  std::map<std::string, Said> said_;
  std::uint64_t tasks_ = 1;
};

const std::map<std::string_view, Mapping::Reader>& Mapping::readers() {
  static const std::map<std::string_view, Reader> kReaders = {
      {"array", &Mapping::take_array},
      {"begin", &Mapping::take_begin},
      {"chdir", &Mapping::take_chdir},
      {"workdir", &Mapping::take_chdir},
      {"container-image", &Mapping::take_image},
      {"cpus-per-gpu", &Mapping::take_count},
      {"cpus-per-task", &Mapping::take_count},
      {"ntasks", &Mapping::take_count},
      {"ntasks-per-node", &Mapping::take_count},
      {"dependency", &Mapping::take_dependency},
      {"export", &Mapping::take_export},
      {"gpus", &Mapping::take_gpus},
      {"gpus-per-node", &Mapping::take_gpus},
      {"gpus-per-task", &Mapping::take_gpus},
      {"gres", &Mapping::take_gpus},
      {"hold", &Mapping::refuse_hold},
      {"input", &Mapping::refuse_input},
      {"job-name", &Mapping::take_name},
      {"kill-on-invalid-dep", &Mapping::take_kill_on_invalid},
      {"mem", &Mapping::take_memory},
      {"mem-per-cpu", &Mapping::take_memory},
      {"mem-per-gpu", &Mapping::take_memory},
      {"no-requeue", &Mapping::take_no_requeue},
      {"nodes", &Mapping::take_nodes},
      {"signal", &Mapping::take_signal},
      {"test-only", &Mapping::refuse_test},
      {"time", &Mapping::take_time},
      {"tmp", &Mapping::take_tmp},
      {"wrap", &Mapping::refuse_wrap}};
  return kReaders;
}

Status Mapping::read_options() {
  for (const SlurmOption& option : script_.options) {
    if (option.kind == nullptr) {
      const std::string near = option.name.size() > kSlurmNameBytes
                                   ? ""
                                   : detail::nearest_word(option.name, slurm_option_names());
      warn(
          option,
          "sbatch has no such option" + (near.empty() ? "" : " (did you mean --" + near + "?)") +
              "; it is left out"
      );
    } else if (!option.kind->instead.empty()) {
      warn(option, option.kind->instead);
    } else if (const auto found = readers().find(option.kind->name); found != readers().end()) {
      RN_CHECK((this->*found->second)(option));
    }
    // Others change nothing for a job on one machine.
  }
  for (const std::size_t line : script_.too_late)
    warn(line, "stands after the first command, where sbatch does not look either; it is left out");
  return {};
}

// ---- lines that are taken

Status Mapping::take_name(const SlurmOption& option) {
  if (option.value.size() > kSlurmNameBytes)
    return fail(refused(option, "more than 128 bytes", "give it a shorter name"));
  job_.spec.name = option.value;
  return {};
}

Status Mapping::take_chdir(const SlurmOption& option) {
  job_.folder = option.value;
  return {};
}

Status Mapping::take_image(const SlurmOption& option) {
  job_.spec.image = option.value;
  return {};
}

Status Mapping::take_count(const SlurmOption& option) {
  const auto count = whole_number<std::uint64_t>(option.value, 1, kSlurmCoresMax);
  if (!count)
    return fail(refused(option, count.error().message, "for example --" + option.name + "=4"));
  said(option.name) = {*count, &option};
  return {};
}

Status Mapping::take_nodes(const SlurmOption& option) {
  const std::string least = option.value.substr(0, option.value.find('-'));
  const auto nodes = whole_number<std::uint32_t>(least, 1);
  if (!nodes) return fail(refused(option, nodes.error().message, "say --nodes=1"));
  if (*nodes == 1) return {};
  return fail(refused(
      option,
      "a job runs on one machine",
      "ask for --nodes=1 and more GPUs there, or make an --array of jobs that do not speak to each "
      "other"
  ));
}

Status Mapping::take_gpus(const SlurmOption& option) {
  std::uint64_t count = 0;
  std::string models;
  const bool is_gres = option.name == "gres";
  bool has_gpus = !is_gres;
  for (const std::string& item : slurm_parts(option.value, ',')) {
    SlurmParts parts = slurm_parts(item, ':');
    if (is_gres && (parts.front() == "gpu" || parts.front() == "gres/gpu")) {
      parts.erase(parts.begin());
      has_gpus = true;
      if (parts.empty()) parts.emplace_back("1");
    } else if (is_gres) {
      if (item != "none")
        warn(option, "only GPUs are lent; '" + slurm_excerpt(item) + "' is left out");
      continue;
    }
    const std::string& last = parts.back();
    const bool is_count = last.find_first_not_of("0123456789") == std::string::npos;
    const auto number = slurm_digits(is_count ? last : "1", kSlurmGpusMax);
    const bool is_model = parts.size() == 1 && !is_count &&
                          std::isalnum(static_cast<unsigned char>(last.front())) != 0;
    if (!number || !(is_count || is_model) || parts.size() > 2 || parts.front().empty())
      return fail(refused(
          option,
          "'" + slurm_excerpt(item) + "' is no number of GPUs up to 64 on one machine",
          "for example --gres=gpu:2"
      ));
    if (is_model || parts.size() == 2) models += (models.empty() ? "" : ", ") + parts.front();
    count += *number;
  }
  if (count > kSlurmGpusMax)
    return fail(refused(option, "more than 64 GPUs on one machine", "ask for fewer"));
  if (!models.empty())
    warn(
        option,
        "models cannot be asked for; any GPU will do in place of " + slurm_excerpt(models) +
            " (a job file can ask for memory: gpu: 40GB:" + std::to_string(count) + ")"
    );
  if (has_gpus) said(option.name) = {count, &option};
  return {};
}

Status Mapping::take_memory(const SlurmOption& option) {
  const auto mib = slurm_mib(option.value);
  if (!mib)
    return fail(refused(option, "is no amount of memory up to 64T", "for example 16G or 500M"));
  if (*mib == 0)
    return fail(refused(
        option,
        "a whole machine's memory cannot be asked for, because its owner uses it, too",
        "say how much it needs, for example --mem=16G"
    ));
  said(option.name) = {*mib, &option};
  return {};
}

Status Mapping::take_tmp(const SlurmOption& option) {
  const auto mib = slurm_mib(option.value);
  if (!mib) return fail(refused(option, "is no amount of disk up to 64T", "for example 50G"));
  job_.spec.resources.disk_mib = std::max(job_.spec.resources.disk_mib, *mib);
  return {};
}

Status Mapping::take_time(const SlurmOption& option) {
  const auto limit_s = slurm_seconds(option.value);
  if (!limit_s)
    return fail(refused(
        option,
        "is no time up to ten years",
        "minutes, or hours:minutes:seconds, or days-hours, for example 2-12:00:00"
    ));
  job_.spec.max_duration_s = static_cast<std::uint32_t>(*limit_s);
  said("time") = {*limit_s, &option};
  return {};
}

Status Mapping::take_signal(const SlurmOption& option) {
  std::string text = slurm_upper(option.value);
  if (text.starts_with("B:") || text.starts_with("R:") || text.starts_with("RB:") ||
      text.starts_with("BR:"))
    text.erase(0, text.find(':') + 1);
  const auto at = text.find('@');
  const auto before_s =
      at == std::string::npos ? kSlurmSignalSeconds : slurm_digits(text.substr(at + 1), 65'535);
  const std::string name = text.substr(0, at);
  if (!before_s || name.empty() || name == "SIG")
    return fail(refused(option, "is no signal and time", "for example --signal=USR1@120"));
  if (const auto signal = save_signal_named(name)) {
    job_.spec.checkpoint.signal = *signal;
  } else {
    warn(option, "it is sent what it catches of USR1, USR2 and TERM");
  }
  if (*before_s > kSlurmNoticeMax) warn(option, "owners grant at most 900 s of notice");
  job_.spec.notice_s =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(*before_s, kSlurmNoticeMax));
  said("signal") = {*before_s, &option};
  return {};
}

Status Mapping::take_no_requeue(const SlurmOption& option) {
  job_.spec.max_restarts = 0;
  warn(option, "an exit code that asks for another run fails it; after a reclaim it goes on");
  return {};
}

Status Mapping::take_export(const SlurmOption& option) {
  for (const std::string& item : slurm_parts(option.value, ',')) {
    const auto equals = item.find('=');
    const std::string name = item.substr(0, equals);
    if (equals != std::string::npos && equals > 0) {
      job_.spec.env[name] = item.substr(equals + 1);
    } else if (slurm_upper(item) == "ALL") {
      warn(option, "only variables that it names are passed on; others are those of the image");
    } else if (slurm_upper(item) != "NONE" && slurm_upper(item) != "NIL" && !item.empty()) {
      const auto value = place_.variable ? place_.variable(name) : std::nullopt;
      if (!value || !is_utf8(*value)) {
        warn(
            option,
            slurm_excerpt(name) + (value ? " is not text in UTF-8" : " is not set here") +
                "; it is left out"
        );
        continue;
      }
      job_.spec.env[name] = *value;
    }
  }
  return {};
}

Status Mapping::take_tasks(
    const SlurmOption& option, const std::string& range, std::set<std::uint32_t>& out
) {
  const auto colon = range.find(':');
  const SlurmParts ends = slurm_parts(range.substr(0, colon), '-');
  const auto first = slurm_digits(ends.front(), kSlurmIndexMax);
  const auto last = slurm_digits(ends.back(), kSlurmIndexMax);
  const auto step =
      slurm_digits(colon == std::string::npos ? "1" : range.substr(colon + 1), kSlurmIndexMax);
  const bool is_one = ends.size() == 1 && colon == std::string::npos;
  if (!first || !last || !step || *step == 0 || *last < *first || (!is_one && ends.size() != 2))
    return fail(refused(
        option,
        "'" + slurm_excerpt(range) + "' is no range of tasks up to 4000000",
        "for example --array=0-9, 1,3,5 or 0-30:10"
    ));
  const std::uint64_t count = (*last - *first) / *step + 1;
  if (count + out.size() > kArrayTasksMax)
    return fail(refused(
        option,
        "more than " + std::to_string(kArrayTasksMax) + " tasks, each a job of its own",
        "submit it in pieces, or let each task do a part of the work"
    ));
  for (std::uint64_t task = *first; task <= *last; task += *step)
    out.insert(static_cast<std::uint32_t>(task));
  return {};
}

Status Mapping::take_array(const SlurmOption& option) {
  const auto percent = option.value.find('%');
  std::set<std::uint32_t> tasks;
  for (const std::string& range : slurm_parts(option.value.substr(0, percent), ','))
    RN_CHECK(take_tasks(option, range, tasks));
  job_.tasks.assign(tasks.begin(), tasks.end());
  job_.at_most = 0;
  if (percent == std::string::npos) return {};
  const auto at_once = slurm_digits(option.value.substr(percent + 1), kSlurmIndexMax);
  if (!at_once || *at_once == 0)
    return fail(refused(option, "no number of tasks behind %", "for example --array=0-9%4"));
  job_.at_most = static_cast<std::uint32_t>(*at_once);
  return {};
}

// ---- lines without which the job would be another one

Status Mapping::take_begin(const SlurmOption& option) {
  if (slurm_upper(option.value) == "NOW") return {};
  return fail(refused(
      option,
      "a job cannot be made to wait for a time",
      "leave it out and submit it then, for example with at(1) or cron"
  ));
}

/// "afterok:17:18,afterany:19": all of it must happen. The last line counts, as in sbatch.
Status Mapping::take_dependency(const SlurmOption& option) {
  static const std::map<std::string, AfterWhen> kWhen = {
      {"after", AfterWhen::kStarted},
      {"afterany", AfterWhen::kAny},
      {"afterok", AfterWhen::kOk},
      {"afternotok", AfterWhen::kFail}};
  job_.spec.after.clear();
  for (const std::string& item : slurm_parts(option.value, ',')) {
    const SlurmParts parts = slurm_parts(item, ':');
    const auto when = kWhen.find(parts.front());
    if (when == kWhen.end() || parts.size() < 2)
      return fail(refused(
          option,
          "'" + slurm_excerpt(item) +
              "' is none of afterok, afternotok, afterany and after, with "
              "the jobs behind it",
          "for example --dependency=afterok:17:18, which waits for both"
      ));
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const bool is_id = !parts[i].empty() && parts[i].size() <= kSlurmNameBytes &&
                         std::all_of(parts[i].begin(), parts[i].end(), [](unsigned char c) {
                           return std::isalnum(c) != 0 || c == '-';
                         });
      if (!is_id)
        return fail(refused(
            option,
            "'" + slurm_excerpt(parts[i]) + "' is no number or id of a job, as 'reclaim ps' has it",
            "name each job alone, without +MINUTES, _TASK and '?'"
        ));
      const AfterJob after{.job = parts[i], .when = when->second};
      auto& all = job_.spec.after;
      if (std::find(all.begin(), all.end(), after) == all.end()) all.push_back(after);
    }
  }
  if (job_.spec.after.size() <= kAfterMax) return {};
  return fail(refused(
      option,
      "more than " + std::to_string(kAfterMax) + " jobs to wait for",
      "let one job wait for them, and this one for that"
  ));
}

Status Mapping::take_kill_on_invalid(const SlurmOption& option) {
  if (slurm_upper(option.value) == "YES") return {};
  warn(option, "it is cancelled when what it waits for can happen no more");
  return {};
}

Status Mapping::refuse_hold(const SlurmOption& option) {
  return fail(refused(option, "a job cannot be held", "leave it out, and submit it when it may run")
  );
}

Status Mapping::refuse_input(const SlurmOption& option) {
  return fail(refused(
      option,
      "its standard input is empty",
      "leave it out, and name the file behind the command: < FILE"
  ));
}

Status Mapping::refuse_test(const SlurmOption& option) {
  return fail(refused(
      option, "nothing is to be submitted", "leave it out, and say reclaim submit --dry-run"
  ));
}

Status Mapping::refuse_wrap(const SlurmOption& option) {
  return fail(
      refused(option, "the script itself is what is run", "put the command below these lines")
  );
}

// ---- what lines mean together

Status Mapping::count_tasks() {
  const Said all = said("ntasks");
  const Said each = said("ntasks-per-node");
  if (all && each && all.value > each.value)
    return fail(refused(
        *all.by,
        "with " + each.by->written + " it takes more than one machine",
        "a job runs on one: ask for fewer tasks"
    ));
  tasks_ = all ? all.value : each ? each.value : 1;
  return {};
}

Status Mapping::count_cores() {
  std::uint64_t gpus = 0;
  for (const char* option : {"gpus", "gres", "gpus-per-node"})
    gpus = std::max(gpus, said(option).value);
  if (const Said each = said("gpus-per-task")) {
    gpus = std::max(gpus, each.value * tasks_);
    if (tasks_ > 1)
      warn(*each.by, "each task sees all GPUs of the job; take that of SLURM_LOCALID");
    if (gpus > kSlurmGpusMax)
      return fail(refused(*each.by, "more than 64 GPUs on one machine", "ask for fewer"));
  }
  const Said per_gpu = said("cpus-per-gpu");
  const Said per_task = said("cpus-per-task");
  const std::uint64_t cores =
      per_gpu && gpus > 0 ? per_gpu.value * gpus : tasks_ * (per_task ? per_task.value : 1);
  if (cores > kSlurmCoresMax) {
    // More than tasks alone can be: one of the two was said.
    const Said& by = per_gpu ? per_gpu : per_task;
    return fail(refused(
        *by.by, std::to_string(cores) + " cores on one machine", "ask for fewer; 1000 at most"
    ));
  }
  job_.spec.resources.gpus = static_cast<std::uint32_t>(gpus);
  job_.spec.resources.cpu_milli = static_cast<std::uint32_t>(cores * 1000);
  return {};
}

Status Mapping::count_memory() {
  const Said whole = said("mem");
  const Said per_core = said("mem-per-cpu");
  const Said per_gpu = said("mem-per-gpu");
  const Resources& resources = job_.spec.resources;
  if ((whole && (per_core || per_gpu)) || (per_core && per_gpu))
    return fail(refused(
        per_gpu ? *per_gpu.by : *per_core.by,
        "memory is said in more than one way",
        "keep one of --mem, --mem-per-cpu and --mem-per-gpu"
    ));
  std::uint64_t mib = whole.value;
  if (per_core) mib = per_core.value * (resources.cpu_milli / 1000);
  if (per_gpu) mib = per_gpu.value * std::max(1u, resources.gpus);
  if (mib > kSlurmMibMax)
    return fail(refused(
        per_gpu ? *per_gpu.by : *per_core.by, "more than 64 TiB on one machine", "ask for less"
    ));
  if (mib == 0) {
    job_.warnings.push_back(
        "no line says how much memory it needs: it gets " +
        std::to_string(resources.memory_mib / 1024) + " GiB; for example #SBATCH --mem=16G"
    );
    return {};
  }
  job_.spec.resources.memory_mib = std::max(mib, kSlurmMibMin);
  return {};
}

/// What commands would look for in vain. A word within a text that is no command is told, too:
/// these are warnings.
void Mapping::read_commands() {
  static const std::map<std::string_view, std::string_view> kCommands = {
      {"module", "nothing is loaded; the job has what its image has (reclaim image ls)"},
      {"ml", "nothing is loaded; the job has what its image has (reclaim image ls)"},
      {"sbatch", "a job cannot submit another one"},
      {"salloc", "a job cannot submit another one"},
      {"mpirun", "runs if the image has it, and starts processes on this machine alone"},
      {"mpiexec", "runs if the image has it, and starts processes on this machine alone"},
      {"apptainer", "containers cannot be started; its image is that of --container-image"},
      {"singularity", "containers cannot be started; its image is that of --container-image"},
      {"docker", "containers cannot be started; its image is that of --container-image"}};
  std::set<std::string_view> told;
  bool has_named_folder = job_.folder.size() < 2;
  for (std::size_t i = 1; i < script_.lines.size(); ++i) {
    const std::string& line = script_.lines[i];
    const auto begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos || line[begin] == '#') continue;
    const auto end = line.find_first_of(" \t;&|<>()", begin);
    const std::string_view word =
        std::string_view(line).substr(begin, end == std::string::npos ? end : end - begin);
    const auto found = kCommands.find(word);
    if (found != kCommands.end() && told.insert(found->first).second)
      warn(i + 1, std::string(found->first) + ": " + std::string(found->second));
    if (has_named_folder || line.find(job_.folder) == std::string::npos) continue;
    has_named_folder = true;
    warn(
        i + 1,
        "names " + slurm_excerpt(job_.folder) + ": in the job this folder is " +
            job_.spec.work_dir + " ($SLURM_SUBMIT_DIR)"
    );
  }
}

/// What is known now; the rest is slurm_prelude()'s.
void Mapping::set_variables() {
  auto& env = job_.spec.env;
  const std::string tasks = std::to_string(tasks_);
  env["SLURM_JOB_NAME"] = job_.spec.name;
  env["SLURM_SUBMIT_DIR"] = job_.spec.work_dir;
  env["SLURM_JOB_NODELIST"] = env["SLURM_NODELIST"] = env["SLURMD_NODENAME"] = "localhost";
  env["SLURM_JOB_NUM_NODES"] = env["SLURM_NNODES"] = "1";
  env["SLURM_NODEID"] = env["SLURM_PROCID"] = env["SLURM_LOCALID"] = "0";
  env["SLURM_TASKS_PER_NODE"] = tasks;
  if (said("ntasks") || said("ntasks-per-node")) env["SLURM_NTASKS"] = env["SLURM_NPROCS"] = tasks;
  const auto set = [&](const char* name, const char* option) {
    if (const Said value = said(option)) env[name] = std::to_string(value.value);
  };
  set("SLURM_NTASKS_PER_NODE", "ntasks-per-node");
  set("SLURM_CPUS_PER_TASK", "cpus-per-task");
  set("SLURM_CPUS_PER_GPU", "cpus-per-gpu");
  set("SLURM_GPUS", "gpus");
  set("SLURM_GPUS_PER_NODE", "gpus-per-node");
  set("SLURM_GPUS_PER_TASK", "gpus-per-task");
  set("SLURM_MEM_PER_NODE", "mem");
  set("SLURM_MEM_PER_CPU", "mem-per-cpu");
  set("SLURM_MEM_PER_GPU", "mem-per-gpu");
}

Status Mapping::set_command() {
  // Behind env(1) comes the shell, as its last word: "#!/usr/bin/env -S bash -l".
  static const std::set<std::string> kShells = {"sh", "bash", "dash", "ash", "ksh"};
  std::string shell;
  for (const std::string& part : script_.interpreter) {
    for (const std::string& word : slurm_parts(part, ' ')) {
      const std::string name = word.substr(word.rfind('/') + 1);
      if (name.empty() || name == "env" || name.front() == '-' || !shell.empty()) continue;
      shell = name;
    }
  }
  if (!kShells.contains(shell))
    return fail(
        ErrorCode::kInvalid,
        "line 1: '" + slurm_excerpt(script_.lines.front()) + "' is none of sh, bash, dash and ksh",
        "call it from a script that begins with #!/bin/bash, or by reclaim run -- COMMAND"
    );
  std::string text = slurm_prelude();
  for (std::size_t i = 1; i < script_.lines.size(); ++i) text += "\n" + script_.lines[i];
  job_.spec.command = script_.interpreter;
  const std::string own_name = place_.script.empty() ? "sbatch" : printable(place_.script);
  job_.spec.command.insert(job_.spec.command.end(), {"-c", text + "\n", own_name});
  return {};
}

Result<SlurmJob> Mapping::map() {
  const std::string name = printable(place_.script);
  job_.spec.name = name.empty() || name.size() > kSlurmNameBytes ? "sbatch" : name;
  RN_CHECK(read_options());
  RN_CHECK(count_tasks());
  RN_CHECK(count_cores());
  RN_CHECK(count_memory());
  if (said("signal") && said("time").value > 0)
    warn(
        *said("signal").by,
        "it is sent when the owner takes the machine back, not before --time is over"
    );
  job_.folder = (std::filesystem::path(place_.folder) / job_.folder).lexically_normal().string();
  if (job_.folder.size() > 1 && job_.folder.back() == '/') job_.folder.pop_back();
  read_commands();
  set_variables();
  RN_CHECK(set_command());
  return std::move(job_);
}

}  // namespace

Result<SlurmJob> parse_slurm_script(std::string_view text, const SlurmPlace& place) {
  RN_TRY(SlurmScript script, read_slurm_script(text));
  return Mapping(std::move(script), place).map();
}

}  // namespace rn::cli
