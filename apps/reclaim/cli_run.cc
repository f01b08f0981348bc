// SPDX-License-Identifier: Apache-2.0
#include "cli_run.h"

#include <cstdio>
#include <filesystem>
#include <iostream>

#include "cli_config.h"
#include "cli_fetch.h"
#include "cli_folder.h"
#include "cli_follow.h"
#include "cli_notify.h"
#include "cli_print.h"
#include "cli_upload.h"
#include "cli_visit.h"
#include <unistd.h>

#include "base/printable.h"
#include "io/real_clock.h"
#include "io/real_rng.h"
#include "model/job_rules.h"

namespace rn::cli {

namespace {

void print_follow_ups(const Job& job) {
  const std::string shown = printable(job.id.str());
  const char* id = shown.c_str();
  std::fprintf(
      stderr,
      "  reclaim logs -f %s   watch it\n  reclaim why %s       why it waits or runs where it does\n"
      "  reclaim cp %s: out   fetch its outputs\n  reclaim stop %s      stop it\n",
      id,
      id,
      id,
      id
  );
}

/// Says what a reclaim would cost, as far as the scripts show it.
void warn_of_lost_work(const RunOptions& options, const FolderScan& scan) {
  const CheckpointSpec& checkpoint = options.spec.checkpoint;
  if (checkpoint.is_stateless || !options.warns) return;
  const std::vector<std::string>& command = options.spec.command;
  if (checkpoint.paths.empty() && !seems_to_save(scan.source, scan.listing, command)) {
    std::fprintf(
        stderr,
        "warning: no script here shows a sign of saving its state (torch.save, save_checkpoint, "
        "...).\n"
        "  A reclaim would start it from the beginning. Name what it saves with --checkpoint GLOB, "
        "or\n"
        "  say --stateless if that is fine.\n"
    );
  } else if (!seems_to_resume(scan.source, scan.listing, command)) {
    std::fprintf(
        stderr,
        "warning: the scripts here save, but none shows a sign of reading it back (torch.load, "
        "--resume, ...).\n"
        "  A reclaim would start it from the beginning. What it saved lies in its folder then: let "
        "it read that\n"
        "  if RECLAIM_RESUME_FROM is set, or say --stateless if starting over is fine.\n"
    );
  }
}

/// What would fail after the job has run.
Status check_folder(const RunOptions& options) {
  if (options.spec.command.empty() || options.spec.command.front().empty())
    return fail(
        ErrorCode::kInvalid,
        "the command is empty",
        "say what to run after --, for example: reclaim run -- python3 train.py"
    );
  std::error_code failed;
  const auto there = std::filesystem::status(options.folder, failed);
  if (std::filesystem::is_directory(there)) {
    const bool is_whole = options.uploads && options.inputs.empty();
    return is_whole ? check_upload_folder(options.folder, home_folder()) : Status{};
  }
  if (std::filesystem::exists(there))
    return fail(ErrorCode::kInvalid, options.folder + " is no folder", "name a folder");
  return fail(
      ErrorCode::kNotFound,
      "there is no folder " + options.folder,
      "make it, or name another one (--folder, or workdir in a job file)"
  );
}

/// Before much is hashed and sent.
void say_size(const FolderScan& scan) {
  constexpr std::size_t kManyEntries = 1000;
  constexpr std::uint64_t kManyBytes = 100u << 20;
  if (scan.listing.files.size() < kManyEntries && scan.bytes < kManyBytes) return;
  std::fprintf(
      stderr,
      "uploading %s of %s; what the coordinator has already is not sent again, and .reclaimignore "
      "leaves files out\n",
      words_of_size(scan.listing).c_str(),
      scan.source.folder.empty() ? "the files that it names" : printable(scan.source.folder).c_str()
  );
}

/// The coordinator looks again when it takes the job.
Status check_image(const Client& client, const std::string& wanted) {
  RN_TRY(const api::ImageList list, client.get_as<api::ImageList>("/v1/images"));
  std::vector<std::string_view> names;
  for (const Image& image : list.images) {
    if (image.name == wanted || image.digest == wanted) return {};
    names.push_back(image.name);
  }
  return fail(image_not_listed(wanted, names));
}

/// Nothing is uploaded for a job that the coordinator would refuse.
Status prepare_job(const Client& client, RunOptions& options) {
  RN_CHECK(check_folder(options));
  RN_CHECK(check_spec(options.spec));
  if (!options.uploads) return {};
  RN_CHECK(check_image(client, options.spec.image));
  const std::uint64_t limit =
      options.upload_limit_bytes == 0 ? kDefaultUploadLimit : options.upload_limit_bytes;
  RN_TRY(
      FolderScan scan,
      options.inputs.empty() ? scan_folder(options.folder, limit)
                             : scan_inputs(options.inputs, limit)
  );
  if (const std::string left_out = words_of_left_out(scan); !left_out.empty())
    std::fprintf(stderr, "%s\n", printable(left_out).c_str());
  say_size(scan);
  RN_CHECK(hash_files(scan.source, scan.listing));
  warn_of_lost_work(options, scan);
  RN_TRY(options.spec.workspace, upload_folder(client, scan.source, scan.listing));
  return {};
}

/// Uploads for one of several jobs, unless the one before it has the same files.
Status prepare_next(const Client& client, std::vector<RunOptions>& jobs, std::size_t i) {
  RunOptions& job = jobs[i];
  const bool is_same =
      i > 0 && job.inputs == jobs[i - 1].inputs && job.folder == jobs[i - 1].folder;
  job.warns = i == 0;
  if (!is_same) return prepare_job(client, job);
  job.spec.workspace = jobs[i - 1].spec.workspace;
  return {};
}

void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings)
    std::fprintf(stderr, "warning: %s\n", printable_lines(warning).c_str());
}

enum class Choice { kDetach, kStop, kContinue };

Choice ask_after_interrupt(const Job& job) {
  if (::isatty(STDIN_FILENO) != 1) return Choice::kDetach;
  std::fprintf(stderr, "\nThe job goes on. [d]etach, [s]top it, or [c]ontinue watching? [d] ");
  std::string line;
  if (!std::getline(std::cin, line)) return Choice::kDetach;
  if (line == "s") return Choice::kStop;
  if (line == "c") return Choice::kContinue;
  (void)job;
  return Choice::kDetach;
}

Status stop(const Client& client, const JobId& job) {
  api::StopRequest request;
  request.reason = "stopped at the terminal";
  RN_CHECK(client.send("POST", "/v1/jobs/" + job.str() + "/stop", to_json(request)));
  return {};
}

/// Follows until the end or until the person leaves.
Result<Followed> watch(const Client& client, const JobId& job) {
  while (true) {
    FollowOptions options;
    options.job = job;
    RN_TRY(Followed followed, follow_job(client, options));
    if (!followed.was_interrupted || !followed.output) return followed;
    switch (ask_after_interrupt(followed.job)) {
      case Choice::kDetach:
        return followed;
      case Choice::kStop:
        RN_CHECK(stop(client, job));
        break;
      case Choice::kContinue:
        break;
    }
  }
}

void say_submitted(std::size_t jobs, std::uint64_t first) {
  std::fprintf(
      stderr,
      "submitted %zu jobs; the first has number %llu\n"
      "  reclaim ps          lists them\n  reclaim logs -f JOB  watches one\n",
      jobs,
      static_cast<unsigned long long>(first)
  );
}

}  // namespace

int exit_code_of_job(const Job& job) {
  if (job.state == JobState::kSucceeded) return 0;
  const int own = job.exit_code & 0xff;  // what a process can exit with
  if (own != 0) return own;
  return job.state == JobState::kCancelled ? kInterruptedStatus : 1;
}

Result<api::SubmitAnswer> submit_job(const Client& client, RunOptions& options) {
  RN_CHECK(prepare_job(client, options));
  io::RealRng rng;
  RN_TRY(api::SubmitAnswer submitted, client.submit(options.spec, rng.hex(16)));
  print_warnings(submitted.warnings);
  std::fprintf(
      stderr,
      "submitted job %s (number %llu)\n",
      printable(submitted.job.id.str()).c_str(),
      static_cast<unsigned long long>(submitted.job.number)
  );
  return submitted;
}

int run_job(const Client& client, RunOptions options) {
  const WallTime begun = io::RealClock{}.now().wall;
  const auto submitted = submit_job(client, options);
  if (!submitted) return complain(submitted.error());
  const Job& job = submitted->job;
  print_follow_ups(job);
  notify_of_job(client, job.id, options.notify);
  if (options.is_detached) {
    print_json(options.is_json ? to_json(*submitted) : job.id.str());
    return 0;
  }
  const auto followed = watch(client, job.id);
  if (!followed) return complain(followed.error());
  if (followed->was_interrupted || !followed->output) {
    const std::string id = printable(job.id.str());
    std::fprintf(stderr, "detached; the job goes on: reclaim logs -f %s\n", id.c_str());
    return followed->output ? 0 : end_of_output(followed->output.error());
  }
  const std::string folder = std::filesystem::absolute(options.folder).lexically_normal().string();
  const Status home = bring_home(client, followed->job, folder, begun);
  if (!home) return complain(home.error());
  return exit_code_of_job(followed->job);
}

int attach(const Client& client, const std::string& job) {
  const auto found = job_of_word(client, job);
  if (!found) return complain(found.error());
  const std::string number = std::to_string(found->number);
  if (is_terminal(found->state))
    return complain(Error{
        ErrorCode::kConflict,
        "job " + number + " is over: " + std::string(to_string(found->state)),
        "`reclaim logs " + number + "` shows what it said"});
  FollowOptions options;
  options.job = found->id;
  options.from_attempt = found->epoch.is_none() ? 0 : found->epoch.attempt;
  options.tells_nodes = true;
  const auto followed = follow_job(client, options);
  if (!followed) return complain(followed.error());
  const std::string id = printable(found->id.str());
  if (followed->was_interrupted || !followed->output) {
    std::fprintf(stderr, "detached; the job goes on: reclaim attach %s\n", id.c_str());
    return followed->output ? 0 : end_of_output(followed->output.error());
  }
  std::fprintf(stderr, "its outputs: reclaim cp %s: FOLDER\n", id.c_str());
  return exit_code_of_job(followed->job);
}

int submit_array(const Client& client, RunOptions options, const ArrayTasks& tasks) {
  const Status prepared = prepare_job(client, options);
  if (!prepared) return complain(prepared.error());
  io::RealRng rng;
  const api::ArrayRequest request{
      .spec = std::move(options.spec), .indices = tasks.indices, .at_most = tasks.at_most};
  const auto submitted = client.submit(request, rng.hex(16));
  if (!submitted) return complain(submitted.error());
  print_warnings(submitted->warnings);
  const std::string shown = printable(submitted->array);
  const char* id = shown.c_str();
  const std::uint64_t first = submitted->tasks.empty() ? 0 : submitted->tasks.front().number;
  std::fprintf(
      stderr,
      "submitted array %s: %zu jobs, from number %llu on\n"
      "  reclaim ps           lists them\n  reclaim logs -f JOB  watches one\n"
      "  reclaim stop %s      stops all\n",
      id,
      submitted->tasks.size(),
      static_cast<unsigned long long>(first),
      id
  );
  print_json(options.is_json ? to_json(*submitted) : submitted->array);
  return 0;
}

int submit_series(const Client& client, std::vector<RunOptions> jobs, const std::string& variable) {
  for (const RunOptions& job : jobs) {
    if (const Status good = check_spec(job.spec); !good) return complain(good.error());
  }
  io::RealRng rng;
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (i > 0) jobs[i].spec.env[variable] = std::to_string(first);
    const Status prepared = prepare_next(client, jobs, i);
    const auto submitted = prepared ? client.submit(jobs[i].spec, rng.hex(16))
                                    : Result<api::SubmitAnswer>(fail(prepared.error()));
    if (!submitted) {
      const std::string left = std::to_string(i) + " to " + std::to_string(jobs.size() - 1);
      Error error = submitted.error().with("jobs " + left + " of the file are not submitted");
      if (i > 0) error.hint = "queue these alone, or stop the others ('reclaim ps') and repeat";
      return complain(error);
    }
    if (i == 0) {
      first = submitted->job.number;
      print_warnings(submitted->warnings);
    }
    print_json(jobs[i].is_json ? to_json(*submitted) : submitted->job.id.str());
  }
  say_submitted(jobs.size(), first);
  return 0;
}

}  // namespace rn::cli
