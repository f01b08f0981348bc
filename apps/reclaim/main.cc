// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "cli_commands.h"
#include "cli_complete.h"
#include "cli_completion.h"
#include "cli_condor_file.h"
#include "cli_config.h"
#include "cli_contract.h"
#include "cli_copy.h"
#include "cli_exec.h"
#include "cli_forward.h"
#include "cli_history.h"
#include "cli_live.h"
#include "cli_logs.h"
#include "cli_notebook.h"
#include "cli_notify.h"
#include "cli_offers.h"
#include "cli_plan.h"
#include "cli_print.h"
#include "cli_quota.h"
#include "cli_run.h"
#include "cli_run_flags.h"
#include "cli_submit.h"
#include "cli_take.h"
#include "cli_visit.h"
#include "command_line.h"
#include <unistd.h>

#include "base/printable.h"

namespace {

using namespace rn;
using namespace rn::cli;

constexpr std::uint32_t kRowsMax = 1000;
constexpr std::uint32_t kTailMax = 1'000'000;
constexpr std::uint32_t kEveryMaxS = 3600;
constexpr std::uint32_t kGpuMax = 63;
constexpr std::uint32_t kStopDeadlineMaxS = 900;  ///< of the coordinator

using Action = std::function<int(const Client&)>;

int with_login(const Action& action) {
  const auto login = load_login();
  if (!login) return complain(login.error());
  return action(Client(*login));
}

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

/// Commands are entered here, with what they do; main runs the one that was given.
class Commands {
 public:
  explicit Commands(CLI::App& app) : app_(app) {}

  CLI::App* add(const std::string& name, const std::string& what, Action action) {
    return add(app_, name, what, std::move(action));
  }

  CLI::App* add(CLI::App& parent, const std::string& name, const std::string& what, Action action) {
    return add_prepared(parent, name, what, [action = std::move(action)] {
      return with_login(action);
    });
  }

  /// One that looks at what it was given before it asks for a login.
  CLI::App* add_prepared(
      const std::string& name, const std::string& what, std::function<int()> action
  ) {
    return add_prepared(app_, name, what, std::move(action));
  }

  const CLI::App& app(const std::string& name) const { return *app_.get_subcommand(name); }

  int run() const {
    for (const auto& [command, action] : actions_) {
      // `nodes` is a command, and the parent of others.
      if (!command->parsed() || !command->get_subcommands().empty()) continue;
      return action();
    }
    return kUsageStatus;
  }

 private:
  CLI::App* add_prepared(
      CLI::App& parent,
      const std::string& name,
      const std::string& what,
      std::function<int()> action
  ) {
    CLI::App* command = parent.add_subcommand(name, what);
    actions_.emplace_back(command, std::move(action));
    return command;
  }

  CLI::App& app_;
  std::vector<std::pair<CLI::App*, std::function<int()>>> actions_;
};

void add_run(Commands& commands, RunFlags& f) {
  CLI::App* app = commands.add_prepared(
      "run",
      "Run a command on a lent machine: uploads this folder, streams the log, brings the outputs "
      "back.",
      [&f] { return run(f); }
  );
  add_run_flags(*app, f);
}

/// Where the options of all commands land.
struct Options {
  LoginOptions login;
  RunFlags run;
  SubmitFlags submit;
  RunFlags plan;
  std::string plan_file;
  OffersOptions offers;
  TopOptions top;
  TakeOptions take;
  ContractOptions contract;
  PsOptions ps;
  LogsOptions logs;
  StopOptions stop;
  ForwardOptions forward;
  ExecOptions exec;
  NotebookFlags notebook;
  EventsOptions events;
  HistoryOptions history;
  NotifyOptions notify;
  QuotaOptions quota;
  api::TokenRequest token;
  std::string job;
  std::string from;
  std::string to = ".";
  std::string why_node;
  std::string name;
  std::string archive;
  std::string base;
  bool is_json = false;
  bool is_sure = false;
};

void add_json(CLI::App* app, bool& is_json) {
  app->add_flag("--json", is_json, "as JSON");
}

void add_job(CLI::App* app, std::string& job) {
  app->add_option("job", job, "id or number")->required()->check(name_word)->type_name("JOB");
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
         "[WHEN:]JOB: not before that job has succeeded (WHEN: ok, fail, any, started), repeatable"
  )
      ->take_all();
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
      "refuse bigger folders",
      std::uint64_t{1},
      kUploadMibMax
  );
  app->footer(
      "docs/guests.md lists the fields of a job file, docs/slurm-scripts.md what becomes of lines "
      "#SBATCH, docs/htcondor-files.md of those of a submit file. JSON with 'command' is taken as "
      "the API's JobSpec."
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
}

void add_job_commands(Commands& commands, Options& o) {
  CLI::App* app = commands.add("ps", "List jobs.", [&o](const Client& c) { return ps(c, o.ps); });
  app->add_flag("-a,--all", o.ps.all, "finished ones too");
  add_number(*app, "-n,--limit", o.ps.limit, "at most so many", 1u, kRowsMax);
  add_json(app, o.ps.is_json);

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

  app = commands.add("show", "Everything about one job.", [&o](const Client& c) {
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

  app = commands.add("stop", "Stop jobs.", [&o](const Client& c) { return stop_jobs(c, o.stop); });
  app->add_option("job", o.stop.jobs, "ids or numbers; of an array, its id")
      ->required()
      ->check(name_word)
      ->type_name("JOB");
  app->add_flag("--save", o.stop.saves_first, "let it save first");
  add_number(*app, "--deadline", o.stop.deadline_s, "seconds for --save", 1u, kStopDeadlineMaxS)
      ->needs("--save");
  app->add_option("-m,--message", o.stop.reason, "why");
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
  app->footer(
      "Of a job that runs: from its guest as it is now, paths from its folder. Of one that does "
      "not: its outputs.\nExit code 5: something was left out, as links are."
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
  app->footer("It exits as 'run' does: with the job's own code.");
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
  app->footer("It goes on until Ctrl-C or the job's end, also when the job moves to another node.");
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

void add_site_commands(Commands& commands, Options& o) {
  CLI::App* app = commands.add("nodes", "List nodes.", [&o](const Client& c) {
    return o.why_node.empty() ? nodes(c, o.is_json) : node_hazard(c, o.why_node, o.is_json);
  });
  app->add_option(
         "--why", o.why_node, "NODE: how likely its owner takes it back soon, and how that is known"
  )
      ->type_name("NODE");
  add_json(app, o.is_json);
  app->footer("'reclaim nodes revoke NODE' takes one out for good.");
  CLI::App* revoke = commands.add(
      *app,
      "revoke",
      "Take a node out for good: its certificate counts no more, its jobs go elsewhere.",
      [&o](const Client& c) {
        RevokeNodeOptions options{o.name, o.is_json, {}};
        if (!o.is_sure && isatty(STDIN_FILENO) != 0) options.confirms = ask_terminal;
        return revoke_node(c, options);
      }
  );
  revoke->add_option("node", o.name, "id, or hostname")
      ->required()
      ->check(filled)
      ->type_name("NODE");
  revoke->add_flag("-y,--yes", o.is_sure, "on a terminal: do not ask");
  add_json(revoke, o.is_json);

  app = commands.add("offers", "List what is lent now.", [&o](const Client& c) {
    return offers(c, o.offers);
  });
  app->add_option("--gpu", o.offers.gpu, "where so many GPUs of so much memory are: 1, 24GB:2")
      ->check(filled);
  add_json(app, o.offers.is_json);
  app->footer("'reclaim plan' says where a job fits, and when.");

  app = commands.add(
      "top",
      "Show nodes, GPUs and jobs as they are, until q or Ctrl-C.",
      [&o](const Client& c) { return top(c, o.top); }
  );
  add_number(*app, "--every", o.top.every_s, "seconds between two looks", 1u, kEveryMaxS);
  app->add_flag("--once", o.top.is_once, "print it once, for scripts");
  add_json(app, o.top.is_json);

  app = commands.add("events", "What happened, from the audit log.", [&o](const Client& c) {
    return events(c, o.events);
  });
  app->add_option("--job", o.events.job, "of this job")->check(name_word)->type_name("JOB");
  app->add_option("--node", o.events.node, "of this node")->check(name_word)->type_name("NODE");
  app->add_option("--kind", o.events.kind, "kinds that begin so: job., reclaim.");
  add_number(*app, "-n,--limit", o.events.limit, "the newest so many", 1u, kRowsMax);
  add_json(app, o.events.is_json);

  app = commands.add("whoami", "Who the coordinator takes us for.", [&o](const Client& c) {
    return whoami(c, o.is_json);
  });
  add_json(app, o.is_json);
}

void add_take(Commands& commands, Options& o) {
  CLI::App* app = commands.add(
      "take",
      "Take a node of your lab, or GPUs of it, back from wherever you are.",
      [&o](const Client& c) { return take(c, o.take); }
  );
  app->add_option("node", o.take.node, "id, or hostname")->required()->check(filled);
  add_numbers(*app, "--gpu", o.take.gpus, "only this GPU; repeatable", 0u, kGpuMax);
  CLI::Option* const now =
      app->add_flag("--now", o.take.is_now, "at once: nothing is saved any more");
  app->add_option(
         "--in,--notice", o.take.in, "at that time: 10m (default: with its contract's notice)"
  )
      ->check(filled)
      ->excludes(now);
  app->add_flag("--detach", o.take.is_detached, "until it has begun, not until it is cleared");
  add_json(app, o.take.is_json);
  app->footer(
      "Exit codes: 0 cleared (with --detach: begun), 1 something of a guest is left, 5 refused or "
      "given\nback before, 6 not reached and nothing done, 7 told and not answered. Ctrl-C ends "
      "the "
      "watching, not\nthe order. Only 'reclaim-agent release' on the machine lends it again."
  );
}

CLI::App* add_contract_command(
    CLI::App& contract,
    Commands& commands,
    Options& o,
    const std::string& name,
    const std::string& what,
    int (*act)(const Client&, const ContractOptions&)
) {
  CLI::App* app = commands.add(contract, name, what, [&o, act](const Client& c) {
    ContractOptions options = o.contract;
    if (!o.is_sure && isatty(STDIN_FILENO) != 0) options.confirms = ask_terminal;
    return act(c, options);
  });
  app->add_option("node", o.contract.node, "id, or hostname")
      ->required()
      ->check(filled)
      ->type_name("NODE");
  add_json(app, o.contract.is_json);
  return app;
}

void add_contract_commands(CLI::App& app, Commands& commands, Options& o) {
  CLI::App* contract =
      app.add_subcommand("contract", "What a node of your lab lends: see it, and change it.");
  contract->require_subcommand(1);
  contract->footer(
      "A change that only lends less takes effect at once. Any other waits until somebody at the "
      "machine\nsays 'reclaim-agent contract accept'. Exit codes: 0 in force or waiting, 5 another "
      "contract is in force\nby now, or the machine refuses it, 6 not reached and nothing done, 7 "
      "told and not answered."
  );
  add_contract_command(*contract, commands, o, "get", "Print the one in force.", contract_get);
  CLI::App* set = add_contract_command(
      *contract, commands, o, "set", "Send the contract in a file.", contract_set
  );
  set->add_option("file", o.contract.file, "as for 'reclaim-agent contract set'")
      ->required()
      ->type_name("FILE");
  CLI::App* edit = add_contract_command(
      *contract, commands, o, "edit", "Change the one in force in your editor.", contract_edit
  );
  edit->footer("The editor is $VISUAL, or $EDITOR, or vi.");
  for (CLI::App* sub : {set, edit}) {
    sub->add_flag("--replace", o.contract.replaces, "take the place of a change that waits");
    sub->add_flag("-y,--yes", o.is_sure, "on a terminal: do not ask");
  }
  CLI::App* diff = add_contract_command(
      *contract,
      commands,
      o,
      "diff",
      "What waits at the machine, or what a file would change, and what that means.",
      contract_diff
  );
  diff->add_option("file", o.contract.file, "instead of what waits")->type_name("FILE");
}

void add_image_commands(CLI::App& app, Commands& commands, Options& o) {
  CLI::App* image = app.add_subcommand("image", "The allow list of images.");
  image->require_subcommand(1);
  CLI::App* add =
      commands.add(*image, "add", "Upload an archive and list it.", [&o](const Client& c) {
        return add_image_command(c, o.name, o.archive, o.base);
      });
  add->add_option("name", o.name, "its name")->required()->check(name_word);
  add->add_option("archive", o.archive, "what 'docker save' or 'docker export' wrote")
      ->required()
      ->check(filled)
      ->type_name("FILE");
  add->add_option("--base", o.base, "the listed image that it is built on (needed from users)")
      ->type_name("IMAGE");
  CLI::App* save =
      commands
          .add(*image, "save", "Fetch an image's archive, to build on it.", [&o](const Client& c) {
            return save_image(c, {o.name, o.archive, o.is_sure});
          });
  save->add_option("name", o.name, "its name")->required()->check(name_word)->type_name("IMAGE");
  save->add_option("file", o.archive, "where to write it")
      ->required()
      ->check(filled)
      ->type_name("FILE");
  save->add_flag("--force", o.is_sure, "replace a file that is there");
  CLI::App* ls = commands.add(*image, "ls", "List images.", [&o](const Client& c) {
    return list_images(c, o.is_json);
  });
  add_json(ls, o.is_json);
  CLI::App* rm = commands.add(*image, "rm", "Take an image off the list.", [&o](const Client& c) {
    return remove_image(c, o.name);
  });
  rm->add_option("name", o.name, "its name")->required()->check(name_word)->type_name("IMAGE");
}

void add_token_commands(CLI::App& app, Commands& commands, Options& o) {
  CLI::App* token = app.add_subcommand("token", "Join tokens of nodes and tokens of users.");
  token->require_subcommand(1);
  CLI::App* create = commands.add(
      *token,
      "create",
      "Make a one-use join token for a lab's node, or a user's token.",
      [&o](const Client& c) {
        if (!o.token.user.empty()) o.token.kind = "user";
        return create_token(c, o.token, o.is_json);
      }
  );
  create->add_option("--lab", o.token.lab, "the lab")
      ->required()
      ->check(name_word)
      ->type_name("LAB");
  CLI::Option* const user =
      create->add_option("--user", o.token.user, "make a user token for this user instead")
          ->check(name_word);
  create->add_option("--role", o.token.role, "of the user: viewer, user, owner, admin")
      ->capture_default_str()
      ->check(CLI::IsMember({"viewer", "user", "owner", "admin"}))
      ->needs(user);
  add_number(*create, "--ttl-s", o.token.ttl_s, "seconds to live; 0: a user token never expires");
  add_json(create, o.is_json);
  CLI::App* ls = commands.add(*token, "ls", "List tokens.", [&o](const Client& c) {
    return list_tokens(c, o.is_json);
  });
  add_json(ls, o.is_json);
  CLI::App* revoke = commands.add(*token, "revoke", "Revoke a token.", [&o](const Client& c) {
    return revoke_token(c, o.name);
  });
  revoke->add_option("id", o.name, "its id")->required()->check(name_word);
}

void add_notify_commands(CLI::App& app, Commands& commands, Options& o) {
  CLI::App* notify =
      app.add_subcommand("notify", "Who is told by mail or webhook of what becomes of jobs.");
  notify->require_subcommand(1);
  NotifyOptions& n = o.notify;
  CLI::App* add = commands.add(
      *notify,
      "add",
      "Have an address or a webhook told of your jobs, or of machines that you own.",
      [&n](const Client& c) { return add_notification(c, n); }
  );
  CLI::Option* const mail = add->add_option("--mail", n.mail, "an address")->check(filled);
  CLI::Option* const hook = add->add_option("--webhook", n.webhook, "a URL")->check(filled);
  mail->excludes(hook);
  add->add_option(
         "--on",
         n.on,
         "finished,failed,cancelled,moved,waiting,restarted,expiring,idle; owners also "
         "reclaimed,returned,wedged,refused,lost,lent,wanted,sick (default: "
         "finished,failed,moved,waiting,expiring,idle)"
  )
      ->delimiter(',')
      ->check(filled);
  add->add_option("--job", n.job, "of this job alone")->check(name_word);
  add_json(add, n.is_json);
  CLI::App* list = commands.add(*notify, "list", "List your rules.", [&n](const Client& c) {
    return list_notifications(c, n);
  });
  list->add_flag("--all", n.all, "those of all users, for admins");
  add_json(list, n.is_json);
  const auto with_rule = [&](const char* name, const char* what, auto action) {
    CLI::App* command =
        commands.add(*notify, name, what, [&n, action](const Client& c) { return action(c, n); });
    command->add_option("rule", n.rule, "its id")->required()->check(name_word);
    return command;
  };
  with_rule("confirm", "Give the code that an address was sent.", confirm_notification)
      ->add_option("code", n.code, "from the mail")
      ->required()
      ->check(filled);
  with_rule("test", "Send a test, and say what became of it.", test_notification);
  with_rule("remove", "Remove a rule.", remove_notification);
}

void add_quota_commands(Commands& commands, Options& o) {
  QuotaOptions& q = o.quota;
  CLI::App* app = commands.add(
      "quota",
      "Show what I may have of GPUs and jobs, and what I have.",
      [&q](const Client& c) { return show_quotas(c, q.is_json); }
  );
  add_json(app, q.is_json);
  app->footer(
      "Owners see their lab and its users, administrators everybody. docs/quotas.md says what a "
      "quota does."
  );
  CLI::App* set = commands.add(
      *app,
      "set",
      "Set what a user or a lab may have, in place of what was set before (administrators).",
      [&q](const Client& c) { return set_quota(c, q); }
  );
  set->add_option(
         "who", q.subject, "user:NAME or lab:NAME; user:* and lab:*: each that has none of its own"
  )
      ->required()
      ->check(filled);
  set->add_option("--model", q.model, "of GPUs alone with this in their model's name: H100")
      ->check(filled);
  add_number(*set, "--gpus", q.gpus, "GPUs held at once");
  add_number(*set, "--running", q.running, "jobs that run at once");
  add_number(*set, "--jobs", q.jobs, "jobs that wait and run");
  set->add_option("--gpu-hours", q.gpu_hours, "used within a time: 200, 200/7d (default: 7d)")
      ->check(filled);
  add_json(set, q.is_json);
  CLI::App* rm =
      commands.add(*app, "rm", "Remove a quota (administrators).", [&q](const Client& c) {
        return remove_quota(c, q);
      });
  rm->add_option("who", q.subject, "user:NAME, lab:NAME, user:* or lab:*")
      ->required()
      ->check(filled);
  rm->add_option("--model", q.model, "the one of these GPUs (default: the one of all)")
      ->check(filled);
}

void add_completion(CLI::App& app, Commands& commands, Options& o) {
  CLI::App* completion = commands.add_prepared(
      "completion",
      "Print a script by which a shell completes commands, flags, and what the site has.",
      [&app, &o] {
        const std::string script = completion_script(completed_commands(app), "reclaim", o.name);
        std::fputs(script.c_str(), stdout);
        return 0;
      }
  );
  completion->add_option("shell", o.name, "which one")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer(
      "bash: source <(reclaim completion bash)\n"
      "zsh:  source <(reclaim completion zsh), after compinit\n"
      "fish: reclaim completion fish | source\n"
      "Debian's package installs all three."
  );
  // What the scripts call; without a group it is not shown.
  CLI::App* live = commands.add_prepared("__complete", "What a shell asks for.", [&o] {
    return complete_live(o.name, o.from);
  });
  live->group("");
  live->add_option("kind", o.name)->required();
  live->add_option("prefix", o.from);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Run work on lent GPUs. 'reclaim COMMAND --help' explains a command.");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 success, 1 failure, 2 usage, 3 not found, 4 permission, 5 conflict,\n"
      "6 coordinator unreachable, 7 timeout, 8 no room or quota, 130 interrupted, 141 nobody\n"
      "reads the output; 'run' exits with the job's own code, 'exec' with its command's, 'plan' has its "
      "own.\n"
      "See docs/commands.md."
  );
  Commands commands(app);
  Options options;
  CLI::App* login_app = app.add_subcommand("login", "Remember a coordinator and a token.");
  login_app->add_option("url", options.login.url, "https://coordinator:7443")->required();
  add_secret(*login_app, "--token", options.login.token, "a user token")->required();
  login_app->add_option(
      "--ca-fingerprint", options.login.ca_fingerprint, "of the site's CA, if the token has none"
  );
  add_run(commands, options.run);
  add_submit(commands, options);
  add_plan(commands, options);
  add_job_commands(commands, options);
  add_copy(commands, options);
  add_forward(commands, options);
  add_attach(commands, options);
  add_exec(commands, options);
  add_notebook(commands, options);
  add_site_commands(commands, options);
  add_take(commands, options);
  add_contract_commands(app, commands, options);
  add_image_commands(app, commands, options);
  add_token_commands(app, commands, options);
  add_notify_commands(app, commands, options);
  add_quota_commands(commands, options);
  add_completion(app, commands, options);
  return run_command_line(
      app,
      argc,
      argv,
      "reclaim",
      [&] { return login_app->parsed() ? login(options.login) : commands.run(); },
      {{"plan", kPlanFailed}, {"exec", kExecFailed}}
  );
}
