// SPDX-License-Identifier: Apache-2.0
#include "cli_submit.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <utility>

#include "cli_condor_file.h"
#include "cli_condor_lines.h"
#include "cli_job_file.h"
#include "cli_print.h"
#include "cli_run_flags.h"
#include "cli_slurm_lines.h"
#include "cli_slurm_script.h"

#include "base/printable.h"
#include "model/codec.h"
#include "model/job_rules.h"

namespace rn::cli {

namespace {

Result<std::string> read_standard_input() {
  std::string text(kJobFileMaxBytes + 1, '\0');
  std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::cin.gcount()));
  if (text.size() > kJobFileMaxBytes) return fail(job_file_too_long("the job"));
  return text;
}

std::optional<std::string> own_variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

/// sbatch's rule: the folder is the one in which the command was given, and not the script's.
Result<Submission> read_script(const std::string& text, const std::string& name) {
  SlurmPlace place;
  place.script = std::filesystem::path(name).filename().string();
  place.folder = std::filesystem::current_path().string();
  place.variable = own_variable;
  RN_TRY(SlurmJob job, parse_slurm_script(text, place));
  Submission submission;
  submission.options.spec = std::move(job.spec);
  submission.options.folder = std::move(job.folder);
  submission.tasks = {std::move(job.tasks), job.at_most};
  submission.warnings = std::move(job.warnings);
  return submission;
}

/// condor_submit's rule is the same.
Result<Submission> read_condor(const std::string& text) {
  CondorPlace place;
  place.folder = std::filesystem::current_path().string();
  place.variable = own_variable;
  place.read = read_job_file;
  RN_TRY(CondorFile file, parse_condor_file(text, place));
  Submission submission;
  for (CondorJob& job : file.jobs) {
    RunOptions options;
    options.spec = std::move(job.spec);
    options.folder = std::move(job.folder);
    options.uploads = !job.inputs.empty();
    options.inputs = std::move(job.inputs);
    submission.jobs.push_back(std::move(options));
  }
  submission.options = submission.jobs.front();
  if (submission.jobs.size() == 1) submission.jobs.clear();
  submission.warnings = std::move(file.warnings);
  return submission;
}

Result<Submission> read_fields(const std::string& text, const std::filesystem::path& folder) {
  RN_TRY(JobFile job, parse_job_file(text));
  Submission submission;
  submission.options.spec = std::move(job.spec);
  submission.options.notify = std::move(job.notify);
  submission.options.uploads = !job.folder.empty();
  submission.options.folder = (folder / job.folder).lexically_normal().string();
  return submission;
}

Result<Submission> read_text(const std::string& text, const SubmitFlags& flags) {
  const bool is_input = flags.file == "-";
  if (is_slurm_script(text)) return read_script(text, is_input ? "" : flags.file);
  if (has_slurm_lines(text))
    return fail(
        ErrorCode::kInvalid,
        "has lines #SBATCH, and its first line names no shell",
        "begin it with #!/bin/bash"
    );
  if (is_condor_file(text)) return read_condor(text);
  const auto folder = is_input ? std::filesystem::current_path()
                               : std::filesystem::absolute(flags.file).parent_path();
  return read_fields(text, folder);
}

Status set_flags(const SubmitFlags& flags, RunOptions& options) {
  options.spec.data.insert(options.spec.data.end(), flags.data.begin(), flags.data.end());
  options.notify.insert(options.notify.end(), flags.notify.begin(), flags.notify.end());
  RN_CHECK(check_notify(options.notify));
  if (!flags.image.empty()) options.spec.image = flags.image;
  for (const std::string& text : flags.after) {
    auto after = parse_after(text);
    if (!after) return fail(after.error().with("--after"));
    options.spec.after.push_back(*std::move(after));
  }
  options.is_detached = !flags.waits;
  options.is_json = flags.is_json;
  options.upload_limit_bytes = flags.upload_mib << 20;
  return {};
}

/// What would go into the job's folder.
std::string words_of_upload(const RunOptions& options) {
  constexpr std::size_t kNamed = 5;
  if (options.inputs.empty()) return options.folder;
  std::string words;
  for (std::size_t i = 0; i < std::min(kNamed, options.inputs.size()); ++i)
    words += (i == 0 ? "" : ", ") + options.inputs[i].from;
  if (options.inputs.size() > kNamed)
    words += " and " + std::to_string(options.inputs.size() - kNamed) + " more";
  return words;
}

}  // namespace

Result<Submission> read_submission(const SubmitFlags& flags) {
  RN_CHECK(check_text("--data", flags.data));
  RN_CHECK(check_text("--image", {flags.image}));
  RN_CHECK(check_text("--after", flags.after));
  const std::string name = flags.file == "-" ? "the job" : flags.file;
  RN_TRY(
      const std::string text, flags.file == "-" ? read_standard_input() : read_job_file(flags.file)
  );
  auto submission = read_text(text, flags);
  if (!submission) {
    const Error error = submission.error().with(name);
    return fail(error.hinting("correct the file; docs/guests.md lists the fields"));
  }
  for (std::string& warning : submission->warnings) warning = name + ": " + warning;
  RN_CHECK(set_flags(flags, submission->options));
  for (RunOptions& job : submission->jobs) RN_CHECK(set_flags(flags, job));
  const bool is_many = !submission->tasks.indices.empty() || !submission->jobs.empty();
  if (!submission->options.notify.empty() && is_many)
    return fail(
        ErrorCode::kInvalid,
        "--notify: " + name + " is an array of jobs",
        "leave it out; 'reclaim notify add' has all your jobs told of"
    );
  if (flags.waits && is_many)
    return fail(
        ErrorCode::kInvalid,
        "--wait: " + name + " is an array of jobs, and one is watched at a time",
        "leave --wait out; 'reclaim ps' lists them, 'reclaim logs -f JOB' watches one"
    );
  return submission;
}

int show_submission(const Submission& submission) {
  const RunOptions& options = submission.options;
  const auto& [indices, at_most] = submission.tasks;
  if (const Status good = check_spec(options.spec); !good) return complain(good.error());
  const api::ArrayRequest array{.spec = options.spec, .indices = indices, .at_most = at_most};
  print_json(indices.empty() ? to_json(options.spec) : to_json(array));
  std::string words = "nothing was submitted";
  if (options.uploads) words += "; " + words_of_upload(options) + " would be uploaded";
  if (!submission.jobs.empty())
    words += "; this is the first of " + std::to_string(submission.jobs.size()) + " jobs";
  if (!indices.empty()) words += "; an array of " + std::to_string(indices.size()) + " jobs";
  std::fprintf(stderr, "%s\n", printable(words).c_str());
  return 0;
}

}  // namespace rn::cli
