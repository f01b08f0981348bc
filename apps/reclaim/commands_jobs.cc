// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <iostream>

#include "commands.h"
#include <unistd.h>

#include "base/printable.h"

namespace rn::cli {

namespace {

/// What is wrong in the options is said to who has not logged in, too.
int run(const RunFlags& flags) {
  auto options = options_of(flags);
  if (!options) return complain(options.error());
  return with_login([&](const Client& client) { return run_job(client, *std::move(options)); });
}

void print_warnings(const Submission& submission) {
  for (const std::string& warning : submission.warnings)
    std::fprintf(stderr, "warning: %s\n", printable(warning).c_str());
}

/// A file is checked for who has not logged in, too.
int submit(const SubmitFlags& flags) {
  auto submission = read_submission(flags);
  if (!submission) return complain(submission.error());
  print_warnings(*submission);
  if (flags.is_dry) return show_submission(*submission);
  return with_login([&](const Client& client) {
    if (!submission->jobs.empty())
      return submit_series(client, std::move(submission->jobs), kCondorClusterVariable);
    if (submission->tasks.indices.empty()) return run_job(client, std::move(submission->options));
    return submit_array(client, std::move(submission->options), submission->tasks);
  });
}

/// The job of a file, the first of an array, or one that is like the flags; which command it runs
/// says nothing of its place.
Result<JobSpec> planned_job(const std::string& file, RunFlags flags) {
  if (file.empty()) {
    flags.command = {"true"};
    return spec_of(flags);
  }
  SubmitFlags submit;
  submit.file = file;
  RN_TRY(Submission submission, read_submission(submit));
  print_warnings(submission);
  const std::size_t tasks = submission.tasks.indices.size();
  if (tasks > 0) std::fprintf(stderr, "planned: one of %zu jobs\n", tasks);
  if (!submission.jobs.empty())
    std::fprintf(stderr, "planned: the first of %zu jobs\n", submission.jobs.size());
  return std::move(submission.options.spec);
}

/// The first flag that was given although a file says it all; empty: none.
std::string flag_beside_file(const CLI::App& command, const std::string& file) {
  if (file.empty()) return {};
  for (const CLI::Option* option : command.get_options()) {
    const bool is_of_output = option->check_lname("json");
    if (option->nonpositional() && !is_of_output && option->count() > 0) return option->get_name();
  }
  return {};
}

int plan_job(
    const CLI::App& command, const std::string& file, const RunFlags& flags, bool is_json
) {
  if (const std::string flag = flag_beside_file(command, file); !flag.empty())
    return complain_of_plan(Error{
        ErrorCode::kInvalid,
        "'" + file + "' is taken for a job file, which says what " + flag + " would",
        "leave out the one or the other; the command is not given"});
  auto spec = planned_job(file, flags);
  if (!spec) return complain_of_plan(spec.error());
  const auto login = load_login();
  if (!login) return complain_of_plan(login.error());
  return plan(Client(*login), {*std::move(spec), file, is_json});
}

void add_logs(Commands& commands, Options& o) {
  CLI::App* app =
      commands.add("logs", "Print a job's log.", [&o](const Client& c) { return logs(c, o.logs); });
  add_job(app, o.logs.job);
  CLI::Option* const follow =
      app->add_flag("-f,--follow", o.logs.follows, "go on until the job has ended");
  add_number(*app, "--attempt", o.logs.attempt, "of this attempt (default: the newest)", 1u);
  app->add_option("--since", o.logs.since, "lines that came then or later: 5m, 2026-11-26T17:30Z")
      ->check(filled);
  app->add_option("--until", o.logs.until, "lines that came until then")
      ->check(filled)
      ->excludes(follow);
  add_number(*app, "--tail", o.logs.tail, "the last so many lines", 1u, kTailMax);
  app->add_flag("-t,--timestamps", o.logs.is_stamped, "when it came, to a second, before each line")
      ->excludes(follow);
  add_examples(
      app,
      {"reclaim logs -f 17              as it comes, until the job has ended",
       "reclaim logs 17 --since 10m     of the last ten minutes",
       "reclaim logs 17 --attempt 1     before it had to move"}
  );
}

}  // namespace

int with_login(const Action& action) {
  const auto login = load_login();
  if (!login) return complain(login.error());
  return action(Client(*login));
}

void add_examples(
    CLI::App* app, const std::vector<std::string>& examples, const std::string& more
) {
  std::string text = examples.size() == 1 ? "Example:" : "Examples:";
  for (const std::string& one : examples) text += "\n  " + one;
  if (!more.empty()) text += "\n\n" + more;
  app->footer(text + "\n\nExit codes: see 'reclaim --help'.");
}

void add_json(CLI::App* app, bool& is_json) {
  app->add_flag("--json", is_json, "as JSON");
}

void add_job(CLI::App* app, std::string& job) {
  app->add_option("job", job, "id or number")->required()->check(name_word)->type_name("JOB");
}

void add_run(Commands& commands, RunFlags& f) {
  CLI::App* app = commands.add_prepared(
      "run",
      "Run a command on a lent machine: uploads this folder, streams the log, brings the outputs "
      "back.",
      [&f] { return run(f); }
  );
  add_run_flags(*app, f);
}

void add_submit(Commands& commands, Options& o) {
  CLI::App* app = commands.add_prepared(
      "submit",
      "Submit a job file (YAML or JSON), a script with lines #SBATCH, or an HTCondor submit file.",
      [&o] { return submit(o.submit); }
  );
  app->add_option("file", o.submit.file, "the file, or - for standard input")
      ->required()
      ->check(filled)
      ->type_name("FILE");
  app->add_option("--data", o.submit.data, "data set beside those of the file, repeatable")
      ->take_all()
      ->type_name("DATA");
  app->add_option(
         "--after",
         o.submit.after,
         "not before that job has succeeded (WHEN: ok, fail, any, started), repeatable"
  )
      ->take_all()
      ->type_name("[WHEN:]JOB");
  app->add_option("--image", o.submit.image, "image of the allow list, in place of the file's")
      ->check(filled)
      ->type_name("IMAGE");
  add_notify(*app, o.submit.notify);
  app->add_flag("--wait", o.submit.waits, "watch it and bring its outputs back, as 'run' does");
  app->add_flag("--json", o.submit.is_json, "the answer as JSON")->excludes("--wait");
  app->add_flag("--dry-run", o.submit.is_dry, "only print the job as it would be submitted")
      ->excludes("--wait");
  add_number(
      *app,
      "--max-upload-mib",
      o.submit.upload_mib,
      "refuse a folder that is bigger than so many MiB",
      std::uint64_t{1},
      kUploadMibMax
  );
  app->footer(
      "Examples:\n"
      "  reclaim submit job.yaml\n"
      "  reclaim submit train.sbatch\n"
      "  reclaim submit --after 17 next.yaml     when job 17 has succeeded\n\n"
      "docs/guests.md lists the fields of a job file, docs/slurm-scripts.md says what becomes of "
      "lines\n#SBATCH, docs/htcondor-files.md of those of a submit file. JSON with 'command' is "
      "taken as the API's\nJobSpec."
  );
}

void add_plan(Commands& commands, Options& o) {
  CLI::App* app = commands.add_prepared(
      "plan",
      "Say what would become of a job before it is submitted: which nodes could take it, when it "
      "would start, how often it would be interrupted, and with which notice.",
      [&o, &commands] { return plan_job(commands.app("plan"), o.plan_file, o.plan, o.is_json); }
  );
  app->add_option(
         "file", o.plan_file, "a job file, or - for standard input (default: a job of these flags)"
  )
      ->check(filled)
      ->type_name("FILE");
  add_place_flags(*app, o.plan);
  add_json(app, o.is_json);
  app->footer(
      "Examples: reclaim plan train.yaml\n"
      "          reclaim plan --gpu 24GB --max-duration 8h\n"
      "The command is not given: it says nothing of the place.\n\n"
      "Exit codes: 0 it would start now, 1 it would wait, 2 it can never run here, 255 an error.\n"
      "docs/commands.md says what the figures mean."
  );
}

void add_job_commands(Commands& commands, Options& o) {
  CLI::App* app = commands.add("ps", "List jobs.", [&o](const Client& c) { return ps(c, o.ps); });
  app->add_flag("-a,--all", o.ps.all, "finished ones too");
  add_number(*app, "-n,--limit", o.ps.limit, "at most so many", 1u, kRowsMax);
  add_json(app, o.ps.is_json);
  add_examples(
      app, {"reclaim ps -a"}, "'reclaim top' shows them as they change, 'reclaim history' the past."
  );

  app = commands.add(
      "history",
      "List my jobs that have ended: when, where, attempts, work done again, exit code.",
      [&o](const Client& c) { return history(c, o.history); }
  );
  app->add_option("--since", o.history.since, "that ended in this time: 12h, 7d")->check(filled);
  app->add_option("--status", o.history.status, "that ended so")
      ->check(CLI::IsMember({"succeeded", "failed", "cancelled"}));
  add_number(*app, "-n,--limit", o.history.limit, "the newest so many", 1u, kRowsMax);
  add_json(app, o.history.is_json);
  add_examples(app, {"reclaim history --since 7d --status failed"});

  app = commands.add("show", "Show everything about one job.", [&o](const Client& c) {
    return show_job(c, o.job, o.is_json);
  });
  add_job(app, o.job);
  add_json(app, o.is_json);

  add_logs(commands, o);

  app = commands.add(
      "why",
      "Say in one sentence what a job does or waits for.",
      [&o](const Client& c) { return why(c, o.job, o.is_json); }
  );
  add_job(app, o.job);
  add_json(app, o.is_json);
  add_examples(
      app, {"reclaim why 17"}, "Also what keeps it from being saved, and when it is stopped."
  );

  app = commands.add("stop", "Stop jobs.", [&o](const Client& c) { return stop_jobs(c, o.stop); });
  app->add_option("job", o.stop.jobs, "ids or numbers; of an array, its id")
      ->required()
      ->check(name_word)
      ->type_name("JOB");
  app->add_flag("--save", o.stop.saves_first, "let it save first");
  add_number(*app, "--deadline", o.stop.deadline_s, "seconds for --save", 1u, kStopDeadlineMaxS)
      ->needs("--save");
  app->add_option("-m,--message", o.stop.reason, "why");
  add_examples(app, {"reclaim stop 17 18", "reclaim stop --save 17     lets it save first"});
}

void add_copy(Commands& commands, Options& o) {
  CLI::App* app = commands.add(
      "cp",
      "Copy files and folders out of a job, JOB:path FOLDER, or into one that runs, FILE JOB:path.",
      [&o](const Client& c) { return copy_command(c, o.from, o.to); }
  );
  app->add_option("from", o.from, "JOB:path; JOB: for all; or a file or folder here")
      ->required()
      ->check(filled)
      ->type_name("JOB:PATH");
  app->add_option("to", o.to, "folder or new name; or JOB:path")
      ->capture_default_str()
      ->check(filled)
      ->type_name("FOLDER");
  add_examples(
      app,
      {"reclaim cp 17: out                 all that it brought out, into the folder out",
       "reclaim cp 17:plots/loss.png .     one file",
       "reclaim cp config.yaml 17:         into one that runs"},
      "Of a job that runs: from its guest as it is now, paths from its folder. Of one that does "
      "not: its\noutputs. Exit code 5: something was left out, as links are."
  );
}

void add_attach(Commands& commands, Options& o) {
  CLI::App* app = commands.add(
      "attach",
      "Watch a job: its log, notices, moves and end. Ctrl-C leaves it running.",
      [&o](const Client& c) { return attach(c, o.job); }
  );
  app->add_option("job", o.job, "id or number; ARRAY/INDEX")
      ->required()
      ->check(task_word)
      ->type_name("JOB");
  add_examples(app, {"reclaim attach 17"}, "It exits as 'run' does: with the job's own code.");
}

void add_exec(Commands& commands, Options& o) {
  CLI::App* app = commands.add_prepared(
      "exec",
      "Run a command inside a running job, beside its own: in its folder, with its rights.",
      [&o] {
        const auto login = load_login();
        if (login) return exec_command(Client(*login), o.exec);
        complain(login.error());
        return kExecFailed;
      }
  );
  app->add_option("job", o.exec.job, "id or number; ARRAY/INDEX")
      ->required()
      ->check(task_word)
      ->type_name("JOB");
  app->add_option("command", o.exec.command, "the command, after --")->required();
  app->add_flag("-i,--stdin", o.exec.passes_input, "pass standard input on");
  CLI::Option* const terminal = app->add_flag(
      "-t,--tty",
      o.exec.wants_terminal,
      "give it a terminal, and -i (so where standard input and output are terminals)"
  );
  app->add_flag("-T,--no-tty", o.exec.refuses_terminal, "give it none")->excludes(terminal);
  app->footer(
      "Examples: reclaim exec 7 -- nvidia-smi\n"
      "          reclaim exec 7 -- bash\n\n"
      "Exit codes: the command's own, 128+N for signal N, 255 for everything else. On a terminal "
      "~. at the\nbeginning of a line leaves. What it runs ends with this command and with the "
      "guest."
  );
}

void add_forward(Commands& commands, Options& o) {
  CLI::App* app = commands.add_prepared(
      "forward",
      "Reach a port inside a running job from here: 127.0.0.1:LOCAL goes to its 127.0.0.1:PORT.",
      [&o] {
        const auto ports = parse_ports(o.forward.ports);
        if (!ports) return complain(ports.error());
        return with_login([&o](const Client& c) { return forward(c, o.forward); });
      }
  );
  add_job(app, o.forward.job);
  app->add_option("ports", o.forward.ports, "LOCAL is the same if it is left out; 0: a free one")
      ->required()
      ->type_name("[LOCAL:]PORT");
  add_examples(
      app,
      {"reclaim forward 17 6006           127.0.0.1:6006 here is the job's port 6006",
       "reclaim forward 17 9000:8888      its port 8888 is 9000 here"},
      "It goes on until Ctrl-C or the job's end, also when the job moves to another node."
  );
}

void add_notebook(Commands& commands, Options& o) {
  CLI::App* app = commands.add_prepared(
      "notebook",
      "Start Jupyter on a lent machine and print its address; of a JOB that there is, print it "
      "again.",
      [&o, &commands] {
        const Status good = check_notebook_flags(commands.app("notebook"), o.notebook);
        if (!good) return complain(good.error());
        const auto spec = notebook_spec(o.notebook);
        if (!spec) return complain(spec.error());
        return with_login([&o](const Client& c) { return notebook(c, o.notebook); });
      }
  );
  add_notebook_flags(*app, o.notebook);
}

/// The answer of a person; anything but yes is no.
bool ask_terminal(const std::string& question) {
  std::fprintf(stderr, "%syes? [y/N] ", printable_lines(question).c_str());
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}
}  // namespace rn::cli
