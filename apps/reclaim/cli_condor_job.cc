// SPDX-License-Identifier: Apache-2.0
#include "cli_condor_job.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <initializer_list>
#include <set>

#include "cli_condor_lines.h"
#include "cli_condor_values.h"
#include "cli_slurm_values.h"

#include "base/printable.h"
#include "base/utf8.h"
#include "base/whole_number.h"

namespace rn::cli {

namespace {

// One machine has no more of these (model/job_rules.cc).
constexpr std::uint32_t kCondorGpusMax = 64;
constexpr std::uint32_t kCondorCoresMax = 1000;
constexpr std::uint64_t kCondorMibMin = 16;
constexpr std::uint32_t kCondorNoticeMax = 900;
constexpr std::uint32_t kCondorRetriesMax = 1000;
constexpr std::uint32_t kCondorSecondsMax = 10u * 365 * 86'400;
constexpr std::size_t kCondorNameBytes = 100;  ///< with its number a name has 128 at most
constexpr std::uint32_t kSavedCode = 85;       ///< docs/guests.md
/// kCondorClusterVariable, and for the first job its own number.
constexpr const char* kClusterOfShell = "\"${_CONDOR_CLUSTER_ID:-$RECLAIM_JOB_NUMBER}\"";

Error refused(const CondorSetting& by, const std::string& what, const std::string& next) {
  return {
      ErrorCode::kInvalid,
      "line " + std::to_string(by.line) + ": " + by.written + ": " + what,
      next};
}

/// The same as what is wrong with a value of this line.
Error refused(const CondorSetting& by, const Error& error) {
  return refused(by, error.message, error.hint);
}

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

/// Where programs lie that an image has, and which nobody submits.
bool is_of_system(const std::string& path) {
  static const std::set<std::string, std::less<>> kRoots = {
      "/bin/", "/lib/", "/lib64/", "/opt/", "/sbin/", "/usr/"};
  return kRoots.contains(std::string_view(path).substr(0, path.find('/', 1) + 1));
}

bool is_shell_name(const std::string& name) {
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_';
         });
}

bool has_cluster(const std::string& text) {
  return text.find(kCondorCluster) != std::string::npos;
}

/// A pattern that matches this path, whatever the number of its cluster is.
std::string glob_of(const std::string& path) {
  std::string glob;
  for (const char c : path) {
    if (c == '*' || c == '?' || c == '[' || c == ']' || c == '\\') glob += '\\';
    glob += c == kCondorCluster ? '*' : c;
  }
  return glob;
}

class CondorMapping {
 public:
  CondorMapping(const CondorSettings& settings, const CondorPlace& place, const CondorWarn& warn)
      : settings_(settings), place_(place), tell_(warn) {}

  Result<CondorJob> map() {
    RN_CHECK(look_at_all());
    RN_CHECK(take_place());
    RN_CHECK(take_cores_and_gpus());
    RN_CHECK(take_memory_and_disk());
    RN_CHECK(take_program());
    RN_CHECK(take_inputs());
    RN_CHECK(take_outputs());
    RN_CHECK(take_variables());
    RN_CHECK(take_codes());
    RN_CHECK(take_times());
    take_signal();
    take_name();
    set_command();
    return std::move(job_);
  }

 private:
  Status look_at_all();
  Status take_place();
  Status take_cores_and_gpus();
  Status take_memory_and_disk();
  Status take_program();
  Status take_inputs();
  Status take_outputs();
  Status take_variables();
  Status take_own_variables(const CondorSetting& by);
  Status take_codes();
  Status take_times();
  void take_signal();
  void take_name();
  void set_command();
  std::string command_line() const;

  /// The first of these that is said, with a value; null if none is.
  const CondorSetting* find(std::initializer_list<const char*> names) const;
  Result<std::uint32_t> number(const CondorSetting& by, std::uint32_t least, std::uint32_t most);
  Result<std::uint64_t> mib(const CondorSetting& by, const char* unit);
  Status add_input(const CondorSetting& by, const std::string& path, std::string& name);
  Status add_globs(const CondorSetting& by, std::vector<std::string>& globs) const;

  void warn(const CondorSetting& by, std::string_view what) const {
    tell_("line " + std::to_string(by.line) + ": " + by.written + ": " + std::string(what));
  }

  const CondorSettings& settings_;
  const CondorPlace& place_;
  const CondorWarn& tell_;
  CondorJob job_;
  bool is_container_ = false;
  std::vector<std::string> words_;
  std::string input_;    ///< its standard input, in its folder
  std::string exports_;  ///< variables with the number of the cluster, for a shell
  std::uint32_t saved_code_ = 0;
  std::uint32_t retries_ = 0;
};

const CondorSetting* CondorMapping::find(std::initializer_list<const char*> names) const {
  for (const char* name : names) {
    const auto found = settings_.find(name);
    if (found != settings_.end() && !found->second.value.empty()) return &found->second;
  }
  return nullptr;
}

Result<std::uint32_t> CondorMapping::number(
    const CondorSetting& by, std::uint32_t least, std::uint32_t most
) {
  const auto value = whole_number<std::uint32_t>(by.value, least, most);
  if (value) return *value;
  return fail(refused(by, value.error().message, "write a number; expressions are not evaluated"));
}

/// `unit` is what a bare number counts.
Result<std::uint64_t> CondorMapping::mib(const CondorSetting& by, const char* unit) {
  std::string text = condor_unquoted(by.value);
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  if (text.find_first_not_of("0123456789") == std::string::npos) text += unit;
  const auto amount = slurm_mib(text);
  if (amount && *amount > 0) return *amount;
  return fail(refused(
      by, "is no amount up to 64T", "for example 4GB or 500MB; expressions are not evaluated"
  ));
}

Status CondorMapping::look_at_all() {
  for (const auto& [name, by] : settings_) {
    const CondorRefusal why = condor_refusal(name);
    const bool is_off = by.value.empty() || condor_flag(by.value) == false ||
                        (name == "machine_count" && by.value == "1");
    if (!why.what.empty() && !is_off)
      return fail(refused(by, std::string(why.what), std::string(why.next)));
    const bool is_quiet = by.value.empty() || condor_lower(by.value) == "never";
    const std::string_view instead = condor_instead(name);
    if (!instead.empty() && !is_quiet) warn(by, instead);
  }
  return {};
}

// ---- where it runs, and with what

Status CondorMapping::take_place() {
  job_.folder = place_.folder;
  if (const CondorSetting* by = find({"initialdir", "initial_dir"})) {
    if (has_cluster(by->value))
      return fail(refused(*by, "$(Cluster) is known only when it runs", "name a folder without it")
      );
    job_.folder = (std::filesystem::path(place_.folder) / by->value).lexically_normal().string();
    if (job_.folder.size() > 1 && job_.folder.back() == '/') job_.folder.pop_back();
  }
  const CondorSetting* const image = find({"container_image", "docker_image"});
  if (image != nullptr) {
    std::string name = condor_unquoted(image->value);
    if (has_cluster(name))
      return fail(refused(*image, "$(Cluster) is in no image's name", "name one of 'image ls'"));
    if (name.starts_with("docker://")) name.erase(0, 9);
    job_.spec.image = name;
  }
  is_container_ = image != nullptr;
  const CondorSetting* const by = find({"universe"});
  if (by == nullptr) return {};
  const std::string universe = condor_lower(by->value);
  is_container_ = is_container_ || universe == "container" || universe == "docker";
  if (is_container_ || universe == "vanilla" || universe == "5") return {};
  if (universe == "parallel" || universe == "mpi")
    return fail(refused(
        *by,
        "a job runs on one machine",
        "ask for more cores and GPUs there, or queue jobs that do not speak to each other"
    ));
  return fail(refused(
      *by, "jobs of this universe cannot run here", "vanilla and container jobs can; else leave it"
  ));
}

Status CondorMapping::take_cores_and_gpus() {
  Resources& resources = job_.spec.resources;
  if (const CondorSetting* by = find({"request_cpus"})) {
    RN_TRY(const std::uint32_t cores, number(*by, 1, kCondorCoresMax));
    resources.cpu_milli = cores * 1000;
  }
  if (const CondorSetting* by = find({"request_gpus"})) {
    RN_TRY(resources.gpus, number(*by, 0, kCondorGpusMax));
  }
  if (const CondorSetting* by = find({"gpus_minimum_memory"})) {
    RN_TRY(resources.gpu_memory_mib, mib(*by, "M"));
  }
  const CondorSetting* const by = find({"gpus_minimum_capability"});
  if (by == nullptr) return {};
  const bool is_version =
      by->value.size() <= 8 && by->value.find_first_not_of("0123456789.") == std::string::npos;
  if (!is_version) return fail(refused(*by, "is no version", "for example 8.0"));
  resources.compute_capability_min = by->value;
  return {};
}

Status CondorMapping::take_memory_and_disk() {
  Resources& resources = job_.spec.resources;
  if (const CondorSetting* by = find({"request_memory"})) {
    RN_TRY(const std::uint64_t memory, mib(*by, "M"));
    resources.memory_mib = std::max(memory, kCondorMibMin);
  } else {
    tell_(
        "no line says how much memory it needs: it gets " +
        std::to_string(resources.memory_mib / 1024) + " GiB; for example request_memory = 16GB"
    );
  }
  if (const CondorSetting* by = find({"request_disk"})) {
    RN_TRY(const std::uint64_t disk, mib(*by, "K"));
    resources.disk_mib = std::max(resources.disk_mib, disk);
  }
  return {};
}

// ---- what it runs, and on which files

/// `name` is what it is called in the job's folder; empty: what is in the folder.
Status CondorMapping::add_input(
    const CondorSetting& by, const std::string& path, std::string& name
) {
  if (path.find("://") != std::string::npos)
    return fail(refused(
        by,
        "nothing is fetched from elsewhere",
        "fetch '" + condor_excerpt(path) + "' first and name the file, or use a data set (--data)"
    ));
  if (has_cluster(path))
    return fail(refused(by, "$(Cluster) is known only when it runs", "name a file without it"));
  const auto whole = (std::filesystem::path(job_.folder) / path).lexically_normal().string();
  const bool is_contents = whole.ends_with('/');
  InputFile input;
  input.from = is_contents && whole.size() > 1 ? whole.substr(0, whole.size() - 1) : whole;
  input.as = is_contents ? "" : base_name(whole);
  name = input.as;
  job_.inputs.push_back(std::move(input));
  return {};
}

Status CondorMapping::take_program() {
  const CondorSetting* const by = find({"executable"});
  if (by == nullptr)
    return fail(
        ErrorCode::kInvalid, "names no executable", "add a line such as: executable = run.sh"
    );
  const std::string path = condor_unquoted(by->value);
  const CondorSetting* const transfer = find({"transfer_executable"});
  const bool is_left = transfer != nullptr && condor_flag(transfer->value) == false;
  const bool is_whole = path.starts_with('/');
  const bool is_of_image = is_left || (is_whole && (is_container_ || is_of_system(path)));
  if (path.empty() || path.ends_with('/') || path.ends_with('.') || has_cluster(path))
    return fail(refused(*by, "is no name of a file", "name the program that is to run"));
  if (is_of_image) {
    if (!is_left && !is_container_) warn(*by, "the image's own is run, and not this machine's");
    words_ = {path};
  } else {
    // The folder is that of the submit, whatever initialdir says.
    const auto whole = (std::filesystem::path(place_.folder) / path).lexically_normal().string();
    job_.inputs.push_back({whole, base_name(whole), true});
    words_ = {"./" + base_name(whole)};
  }
  const CondorSetting* const arguments = find({"arguments", "args"});
  if (arguments == nullptr) return {};
  const auto words = condor_arguments(arguments->value);
  if (!words) return fail(refused(*arguments, words.error()));
  words_.insert(words_.end(), words->begin(), words->end());
  return {};
}

Status CondorMapping::take_inputs() {
  if (const CondorSetting* by = find({"should_transfer_files"})) {
    const std::string word = condor_lower(by->value);
    if (condor_flag(word) == false)
      return fail(refused(
          *by,
          "there is no file system that all machines share",
          "say YES, and name in transfer_input_files what it reads"
      ));
    if (word != "if_needed" && condor_flag(word) != true)
      return fail(refused(*by, "is none of YES, IF_NEEDED and NO", "say YES"));
  }
  if (const CondorSetting* by = find({"transfer_input_files"})) {
    std::string name;
    for (const std::string& path : condor_list(condor_unquoted(by->value)))
      RN_CHECK(add_input(*by, path, name));
  }
  const CondorSetting* const by = find({"input"});
  if (by == nullptr || by->value == "/dev/null") return {};
  RN_CHECK(add_input(*by, condor_unquoted(by->value), input_));
  if (input_.empty()) return fail(refused(*by, "is a folder", "name a file"));
  return {};
}

/// Each path as a file, and as a folder with all that is in it.
Status CondorMapping::add_globs(const CondorSetting& by, std::vector<std::string>& globs) const {
  for (std::string path : condor_list(condor_unquoted(by.value))) {
    path = std::filesystem::path(path).lexically_normal().string();
    while (path.ends_with('/')) path.pop_back();
    if (path.empty() || path.starts_with("..") || path.starts_with('/'))
      return fail(refused(
          by, "lies outside of the job's folder", "name what it writes there: a relative path"
      ));
    if (path == ".") continue;
    globs.push_back(glob_of(path));
    globs.push_back(glob_of(path) + "/");
  }
  return {};
}

Status CondorMapping::take_outputs() {
  if (const CondorSetting* by = find({"when_to_transfer_output"})) {
    const std::string when = condor_lower(by->value);
    if (when == "on_exit") {
      warn(*by, "what it wrote is brought home only if it ends with 0; its log always");
    } else if (when != "on_exit_or_evict" && when != "on_success") {
      return fail(
          refused(*by, "is none of ON_EXIT, ON_EXIT_OR_EVICT and ON_SUCCESS", "say ON_SUCCESS")
      );
    }
  }
  CheckpointSpec& checkpoint = job_.spec.checkpoint;
  if (const CondorSetting* by = find({"transfer_checkpoint_files"}))
    RN_CHECK(add_globs(*by, checkpoint.paths));
  const CondorSetting* const by = find({"transfer_output_files"});
  if (by == nullptr) return {};
  RN_CHECK(add_globs(*by, checkpoint.outputs));
  // An empty list in quotes: nothing comes home.
  if (condor_trimmed(condor_unquoted(by->value)).empty())
    checkpoint.outputs.emplace_back(".condor-no-outputs/");
  return {};
}

Status CondorMapping::take_own_variables(const CondorSetting& by) {
  const auto flag = condor_flag(by.value);
  if (flag == false) return {};
  const std::string_view kNamedAlone =
      "only variables that it names are passed on; others are those of the image";
  if (flag == true) {
    warn(by, kNamedAlone);
    return {};
  }
  for (const std::string& name : condor_list(by.value, true)) {
    if (name.find('*') != std::string::npos || name.starts_with('!')) {
      warn(by, kNamedAlone);
      continue;
    }
    const auto value = place_.variable ? place_.variable(name) : std::nullopt;
    if (value && is_utf8(*value) && !has_cluster(*value)) {
      job_.spec.env[name] = *value;
    } else {
      warn(by, condor_excerpt(name) + " is not set here, or no text; it is left out");
    }
  }
  return {};
}

Status CondorMapping::take_variables() {
  auto& env = job_.spec.env;
  env["_CONDOR_SCRATCH_DIR"] = env["_CONDOR_JOB_IWD"] = job_.spec.work_dir;
  if (const CondorSetting* by = find({"getenv"})) RN_CHECK(take_own_variables(*by));
  const CondorSetting* const by = find({"environment", "env"});
  if (by == nullptr) return {};
  const auto variables = condor_environment(by->value);
  if (!variables) return fail(refused(*by, variables.error()));
  for (const auto& [name, value] : *variables) {
    if (!has_cluster(name + value)) {
      env[name] = value;
      continue;
    }
    if (!is_shell_name(name))
      return fail(refused(*by, "is no name of a variable", "letters, digits and _ are"));
    env.erase(name);
    exports_ += "export " + name + "=" + condor_shell_word(value, kClusterOfShell) + "; ";
  }
  return {};
}

// ---- how it ends

Status CondorMapping::take_codes() {
  if (const CondorSetting* by = find({"checkpoint_exit_code", "my.successcheckpointexitcode"})) {
    RN_TRY(saved_code_, number(*by, 1, 255));
  }
  const CondorSetting* const by = find({"max_retries"});
  if (by == nullptr) return {};
  RN_TRY(retries_, number(*by, 0, kCondorRetriesMax));
  if (retries_ == 0) return {};
  job_.spec.max_restarts = retries_;
  warn(*by, "it goes on from what it saved; when it has failed for the last time its code is 99");
  return {};
}

Status CondorMapping::take_times() {
  for (const char* name : {"allowed_execute_duration", "allowed_job_duration", "my.maxruntime"}) {
    const CondorSetting* const by = find({name});
    if (by == nullptr) continue;
    RN_TRY(const std::uint32_t limit_s, number(*by, 1, kCondorSecondsMax));
    std::uint32_t& duration_s = job_.spec.max_duration_s;
    duration_s = duration_s == 0 ? limit_s : std::min(duration_s, limit_s);
  }
  const CondorSetting* const by = find({"job_max_vacate_time"});
  if (by == nullptr) return {};
  RN_TRY(const std::uint32_t notice_s, number(*by, 0, kCondorSecondsMax));
  if (notice_s > kCondorNoticeMax) warn(*by, "owners grant at most 900 s of notice");
  job_.spec.notice_s = std::min(notice_s, kCondorNoticeMax);
  return {};
}

void CondorMapping::take_signal() {
  const CondorSetting* const by = find({"kill_sig"});
  if (by == nullptr) return;
  const auto signal = save_signal_named(slurm_upper(condor_unquoted(by->value)));
  if (signal) {
    job_.spec.checkpoint.signal = *signal;
  } else {
    warn(*by, "it is sent what it catches of USR1, USR2 and TERM");
  }
}

void CondorMapping::take_name() {
  const std::string program = printable(base_name(words_.front()));
  job_.spec.name = program.size() > kCondorNameBytes ? "condor" : program;
  const CondorSetting* const by = find({"batch_name", "jobbatchname", "my.jobbatchname"});
  if (by == nullptr) return;
  const std::string name = printable(condor_unquoted(by->value));
  if (name.empty() || name.size() > kCondorNameBytes || has_cluster(by->value)) {
    warn(*by, "is no name of at most 100 bytes; it is called after its program");
  } else {
    job_.spec.name = name;
  }
}

// ---- its command

/// For /bin/sh: the program, its input, and what its exit codes mean here.
std::string CondorMapping::command_line() const {
  std::string run;
  for (const std::string& word : words_)
    run += (run.empty() ? "" : " ") + condor_shell_word(word, kClusterOfShell);
  if (!input_.empty()) run += " <" + condor_shell_word(input_, kClusterOfShell);
  const bool has_other_code = saved_code_ != 0 && (saved_code_ != kSavedCode || retries_ > 0);
  if (retries_ == 0 && !has_other_code) return exports_ + "exec " + run;
  std::string line = exports_ + run + "; _rn=$?; case $_rn in ";
  if (has_other_code)
    line += std::to_string(saved_code_) + ") exit " + std::to_string(kSavedCode) + " ;; ";
  if (retries_ > 0)
    return line + "0) exit 0 ;; *) echo \"it ended with exit code $_rn\" >&2; exit 99 ;; esac";
  return line + "*) exit $_rn ;; esac";
}

void CondorMapping::set_command() {
  const bool has_other_code = saved_code_ != 0 && saved_code_ != kSavedCode;
  const bool needs_shell = !input_.empty() || !exports_.empty() || retries_ > 0 || has_other_code ||
                           std::any_of(words_.begin(), words_.end(), has_cluster);
  if (needs_shell) {
    job_.spec.command = {"/bin/sh", "-c", command_line(), "condor"};
  } else {
    job_.spec.command = std::move(words_);
  }
}

}  // namespace

Result<CondorJob> condor_job(
    const CondorSettings& settings, const CondorPlace& place, const CondorWarn& warn
) {
  return CondorMapping(settings, place, warn).map();
}

}  // namespace rn::cli
