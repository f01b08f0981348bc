// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "cli_condor_job.h"

namespace rn::cli {

namespace {

struct Instead {
  std::string_view name;
  std::string_view what;  ///< empty: it changes nothing for a job here
};

struct Refused {
  std::string_view name;
  CondorRefusal why;
};

constexpr std::string_view kCondorNoMail =
    "no mail is sent; 'reclaim ps' and 'reclaim logs -f' tell";
constexpr std::string_view kAnyMachine =
    "machines cannot be chosen by expressions; it runs on any that has room";
constexpr std::string_view kInLog =
    "what it prints is kept in its log, both outputs in order ('reclaim logs JOB'), in no file";
constexpr std::string_view kNoExpression =
    "expressions about a job are not evaluated while it waits and runs";
constexpr std::string_view kCondorNoShare = "its place in the queue stays as it is";
constexpr std::string_view kNoSecrets = "no credentials are passed on";
constexpr std::string_view kAllAtOnce =
    "all jobs are queued at once; as many run as there is room for";
constexpr std::string_view kNoAttribute = "attributes are not kept with the job; it is left out";
constexpr std::string_view kNoResource =
    "only cores, memory, disk and GPUs can be asked for; it is left out";
constexpr std::string_view kCondorNoMeaning = "it has no meaning here and is left out";

// What becomes a part of the job (cli_condor_job.cc).
constexpr std::string_view kTaken[] = {
    "allowed_execute_duration",
    "allowed_job_duration",
    "arguments",
    "args",
    "batch_name",
    "checkpoint_exit_code",
    "container_image",
    "docker_image",
    "env",
    "environment",
    "executable",
    "getenv",
    "gpus_minimum_capability",
    "gpus_minimum_memory",
    "initial_dir",
    "initialdir",
    "input",
    "job_max_vacate_time",
    "jobbatchname",
    "kill_sig",
    "max_retries",
    "my.jobbatchname",
    "my.maxruntime",
    "my.successcheckpointexitcode",
    "request_cpus",
    "request_disk",
    "request_gpus",
    "request_memory",
    "should_transfer_files",
    "transfer_checkpoint_files",
    "transfer_executable",
    "transfer_input_files",
    "transfer_output_files",
    "universe",
    "when_to_transfer_output",
};

constexpr Instead kInsteads[] = {
    {"accounting_group", kCondorNoShare},
    {"accounting_group_user", kCondorNoShare},
    {"concurrency_limits", "they are not counted; it does not wait for one"},
    {"copy_to_spool", {}},
    {"coresize", kCondorNoMeaning},
    {"cuda_version", kAnyMachine},
    {"description", "it is not kept with the job"},
    {"dont_encrypt_input_files", {}},
    {"dont_encrypt_output_files", {}},
    {"encrypt_execute_directory", {}},
    {"encrypt_input_files", {}},
    {"encrypt_output_files", {}},
    {"error", kInLog},
    {"gpus_maximum_capability", kAnyMachine},
    {"gpus_maximum_memory", kAnyMachine},
    {"gpus_minimum_runtime", kAnyMachine},
    {"image_size", kCondorNoMeaning},
    {"job_lease_duration", kCondorNoMeaning},
    {"keep_claim_idle", kCondorNoMeaning},
    {"leave_in_queue", "its outputs and logs are kept as long as the coordinator keeps them"},
    {"log", "what happens to it is in 'reclaim events --job JOB', in no file"},
    {"log_xml", {}},
    {"max_idle", kAllAtOnce},
    {"max_materialize", kAllAtOnce},
    {"max_transfer_input_mb", "--max-upload-mib of the submit bounds what is uploaded"},
    {"max_transfer_output_mb", kCondorNoMeaning},
    {"my.wantftoncheckpoint", {}},
    {"nice_user", kCondorNoShare},
    {"next_job_start_delay", kAllAtOnce},
    {"notification", kCondorNoMail},
    {"notify_user", kCondorNoMail},
    {"on_exit_hold", kNoExpression},
    {"on_exit_hold_reason", kNoExpression},
    {"on_exit_hold_subcode", kNoExpression},
    {"on_exit_remove", "it has failed after an exit code other than 0; max_retries is taken"},
    {"output", kInLog},
    {"periodic_hold", kNoExpression},
    {"periodic_hold_reason", kNoExpression},
    {"periodic_hold_subcode", kNoExpression},
    {"periodic_release", kNoExpression},
    {"periodic_remove", kNoExpression},
    {"periodic_vacate", kNoExpression},
    {"priority", kCondorNoShare},
    {"rank", kAnyMachine},
    {"remove_kill_sig", kCondorNoMeaning},
    {"request_gpu_memory", "say gpus_minimum_memory"},
    {"require_gpus", "say gpus_minimum_memory and gpus_minimum_capability; any other GPU will do"},
    {"requirements", kAnyMachine},
    {"retry_request_memory", "it is tried again with the same memory"},
    {"retry_until", "it is tried again after any exit code but 0"},
    {"run_as_owner", {}},
    {"skip_filechecks", {}},
    {"stack_size", kCondorNoMeaning},
    {"stream_error", {}},
    {"stream_input", {}},
    {"stream_output", {}},
    {"submit_event_notes", "it is not kept with the job"},
    {"transfer_error", {}},
    {"transfer_input", {}},
    {"transfer_output", {}},
    {"transfer_output_remaps", "outputs keep their names"},
    {"use_oauth_services", kNoSecrets},
    {"use_x509userproxy", kNoSecrets},
    {"want_graceful_removal", {}},
    {"x509userproxy", kNoSecrets},
};

constexpr CondorRefusal kCondorNoWait = {
    "a job cannot be made to wait for a time",
    "leave it out and submit it then, for example with at(1) or cron"};
constexpr CondorRefusal kNoSignalExit = {
    "a save is told by an exit code, not by a signal",
    "end with a code after a save, and say checkpoint_exit_code = 85"};

constexpr Refused kRefusals[] = {
    {"checkpoint_exit_signal", kNoSignalExit},
    {"cron_day_of_month", kCondorNoWait},
    {"cron_day_of_week", kCondorNoWait},
    {"cron_hour", kCondorNoWait},
    {"cron_minute", kCondorNoWait},
    {"cron_month", kCondorNoWait},
    {"deferral_time", kCondorNoWait},
    {"docker_network_type",
     {"a job has no network but what an owner opens", "leave it out; 'peers' of a job file asks"}},
    {"hold", {"a job cannot be held", "leave it out, and submit it when it may run"}},
    {"machine_count",
     {"a job runs on one machine", "ask for more cores and GPUs there, or queue several jobs"}},
    {"my.successcheckpointexitbysignal", kNoSignalExit},
    {"noop_job", {"nothing is to be run", "leave it out, and say reclaim submit --dry-run"}},
    {"output_destination",
     {"outputs are brought home by 'reclaim cp' and --wait, and nowhere else", "leave it out"}},
    {"preserve_relative_paths",
     {"files lie in the job's folder under their base names",
      "name the folder that they are in: transfer_input_files = FOLDER"}},
    {"success_exit_code",
     {"a job succeeds with exit code 0", "let the program end with 0, or with a wrapper"}},
};

template <class Table>
auto condor_row(const Table& table, std::string_view name) {
  return std::find_if(std::begin(table), std::end(table), [&](const auto& row) {
    return row.name == name;
  });
}

}  // namespace

bool takes_condor_command(std::string_view name) {
  return std::find(std::begin(kTaken), std::end(kTaken), name) != std::end(kTaken);
}

bool is_condor_command(const std::string& name) {
  return name.starts_with("my.") || name.starts_with("request_") || takes_condor_command(name) ||
         condor_row(kInsteads, name) != std::end(kInsteads) ||
         condor_row(kRefusals, name) != std::end(kRefusals);
}

std::vector<std::string> condor_command_names() {
  std::vector<std::string> names;
  for (const std::string_view name : kTaken) names.emplace_back(name);
  for (const Instead& row : kInsteads) names.emplace_back(row.name);
  for (const Refused& row : kRefusals) names.emplace_back(row.name);
  return names;
}

std::string_view condor_instead(const std::string& name) {
  const auto* const found = condor_row(kInsteads, name);
  if (found != std::end(kInsteads)) return found->what;
  if (takes_condor_command(name) || condor_row(kRefusals, name) != std::end(kRefusals)) return {};
  if (name.starts_with("my.")) return kNoAttribute;
  return name.starts_with("request_") ? kNoResource : std::string_view();
}

CondorRefusal condor_refusal(const std::string& name) {
  const auto* const found = condor_row(kRefusals, name);
  return found == std::end(kRefusals) ? CondorRefusal{} : found->why;
}

}  // namespace rn::cli
