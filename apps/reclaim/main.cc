// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "cli_commands.h"
#include "cli_config.h"
#include "cli_job_file.h"
#include "cli_print.h"
#include "cli_run.h"
#include <CLI/CLI.hpp>
#include <unistd.h>

#include "io/read_text.h"

namespace {

using namespace rn;
using namespace rn::cli;

constexpr int kUsage = 2;

/// The options of `run` as they were typed.
struct RunFlags {
  std::string image = "base";
  std::string gpu;
  std::string cpus;
  std::string cpus_min;
  std::string memory;
  std::string disk;
  std::string name;
  std::string signal;
  std::string notice;
  std::string max_duration;
  std::string marker;
  std::string capability;
  std::string folder = ".";
  std::vector<std::string> env;
  std::vector<std::string> checkpoints;
  std::vector<std::string> outputs;
  std::vector<std::string> temporary;
  std::vector<std::string> copies_at;
  std::vector<std::string> labs;
  std::vector<std::string> data;
  std::vector<std::string> peers;
  std::vector<std::string> command;
  std::uint32_t priority = 4;
  std::uint32_t copies = 1;
  std::uint32_t max_restarts = 20;
  std::uint64_t upload_mib = 1024;
  bool is_stateless = false;
  bool is_detached = false;
  bool has_no_upload = false;
  bool is_json = false;
};

Result<JobSpec> spec_of(const RunFlags& flags) {
  JobSpec spec;
  spec.command = flags.command;
  spec.image = flags.image;
  spec.name = flags.name;
  spec.priority = flags.priority;
  spec.max_restarts = flags.max_restarts;
  spec.checkpoint.paths = flags.checkpoints;
  spec.checkpoint.outputs = flags.outputs;
  spec.checkpoint.temporary = flags.temporary;
  spec.checkpoint.is_stateless = flags.is_stateless;
  spec.checkpoint.copies = flags.copies;
  spec.checkpoint.destinations = flags.copies_at;
  spec.checkpoint.complete_marker = flags.marker;
  spec.resources.compute_capability_min = flags.capability;
  spec.only_labs = flags.labs;
  spec.data = flags.data;
  if (!flags.gpu.empty()) RN_CHECK(parse_gpu(flags.gpu, spec.resources));
  if (!flags.cpus.empty()) {
    RN_TRY(spec.resources.cpu_milli, parse_cpu_milli(flags.cpus));
  }
  if (!flags.cpus_min.empty()) {
    RN_TRY(spec.resources.cpu_milli_min, parse_cpu_milli(flags.cpus_min));
  }
  if (!flags.memory.empty()) {
    RN_TRY(spec.resources.memory_mib, parse_memory_mib(flags.memory));
  }
  if (!flags.disk.empty()) {
    RN_TRY(spec.resources.disk_mib, parse_memory_mib(flags.disk));
  }
  if (!flags.signal.empty()) {
    RN_TRY(spec.checkpoint.signal, parse_signal(flags.signal));
  }
  if (!flags.notice.empty()) {
    RN_TRY(spec.notice_s, parse_duration_s(flags.notice));
  }
  if (!flags.max_duration.empty()) {
    RN_TRY(spec.max_duration_s, parse_duration_s(flags.max_duration));
  }
  for (const std::string& text : flags.peers) {
    RN_TRY(NetworkAllow peer, parse_peer(text));
    spec.peers.push_back(std::move(peer));
  }
  for (const std::string& pair : flags.env) {
    const auto equals = pair.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(
          ErrorCode::kInvalid, "--env '" + pair + "' is not NAME=VALUE", "for example --env SEED=7"
      );
    spec.env[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return spec;
}

int run(const Client& client, const RunFlags& flags) {
  RunOptions options;
  auto spec = spec_of(flags);
  if (!spec) return complain(spec.error());
  options.spec = *std::move(spec);
  options.folder = std::filesystem::absolute(flags.folder).lexically_normal().string();
  options.uploads = !flags.has_no_upload;
  options.is_detached = flags.is_detached;
  options.is_json = flags.is_json;
  options.upload_limit_bytes = flags.upload_mib << 20;
  return run_job(client, std::move(options));
}

struct SubmitFlags {
  std::string file;
  std::vector<std::string> data;
  bool is_json = false;
  bool waits = false;
};

int submit(const Client& client, const SubmitFlags& flags) {
  std::string text;
  std::filesystem::path folder = std::filesystem::current_path();
  if (flags.file == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    std::error_code ignored;
    const bool is_folder = std::filesystem::is_directory(flags.file, ignored);
    if (is_folder || access(flags.file.c_str(), R_OK) != 0) {
      return complain(Error{
          is_folder ? ErrorCode::kInvalid : ErrorCode::kNotFound,
          is_folder ? flags.file + " is a folder" : "cannot read " + flags.file,
          "give a job file, or - for standard input"});
    }
    text = io::read_text(flags.file);
    folder = std::filesystem::absolute(flags.file).parent_path();
  }
  auto job = parse_job_file(text);
  if (!job) {
    Error error = job.error().with(flags.file == "-" ? "the job" : flags.file);
    return complain(error.hinting("correct the file; 'reclaim submit --help' lists the fields"));
  }
  RunOptions options;
  options.spec = job->spec;
  options.spec.data.insert(options.spec.data.end(), flags.data.begin(), flags.data.end());
  options.uploads = !job->folder.empty();
  options.folder = (folder / job->folder).lexically_normal().string();
  options.is_detached = !flags.waits;
  options.is_json = flags.is_json;
  return run_job(client, std::move(options));
}

using Action = std::function<int(const Client&)>;

/// Commands are entered here, with what they do; main runs the one that was given.
class Commands {
 public:
  explicit Commands(CLI::App& app) : app_(app) {}

  CLI::App* add(const std::string& name, const std::string& what, Action action) {
    return add(app_, name, what, std::move(action));
  }

  CLI::App* add(CLI::App& parent, const std::string& name, const std::string& what, Action action) {
    CLI::App* command = parent.add_subcommand(name, what);
    actions_.emplace_back(command, std::move(action));
    return command;
  }

  int run() const {
    for (const auto& [command, action] : actions_) {
      // `nodes` is a command, and the parent of others.
      if (!command->parsed() || !command->get_subcommands().empty()) continue;
      const auto login = load_login();
      if (!login) return complain(login.error());
      return action(Client(*login));
    }
    return kUsage;
  }

 private:
  CLI::App& app_;
  std::vector<std::pair<CLI::App*, Action>> actions_;
};

void add_run(Commands& commands, RunFlags& f) {
  CLI::App* app = commands.add(
      "run",
      "Run a command on a lent machine: uploads this folder, streams the log, brings the outputs "
      "back.",
      [&f](const Client& client) { return run(client, f); }
  );
  app->footer(
      "Example: reclaim run --image base --cpus 2 --checkpoint 'checkpoint.pt' -- python3 train.py"
  );
  app->add_option("--image", f.image, "image of the allow list (reclaim image ls)")
      ->capture_default_str();
  app->add_option("--gpu", f.gpu, "number of GPUs and memory of each: 1, 24GB, 24GB:2");
  app->add_option("--compute-capability", f.capability, "of the GPU, at least: 8.0");
  app->add_option("--cpus", f.cpus, "cores wanted: 2, 0.5");
  app->add_option("--cpus-min", f.cpus_min, "cores that will do (default 0.1)");
  app->add_option("--memory", f.memory, "memory: 512MB, 4GB (default 1GB)");
  app->add_option("--disk", f.disk, "disk (default 2GB)");
  app->add_option("--name", f.name, "a name for people");
  app->add_option("--env", f.env, "NAME=VALUE, repeatable")->take_all();
  app->add_option("--priority", f.priority, "0 (first) to 7 (last)")
      ->capture_default_str()
      ->check(CLI::Range(0, 7));
  app->add_option(
      "--signal", f.signal, "signal on which it saves: auto (default), none, TERM, USR1, USR2"
  );
  app->add_option("--notice", f.notice, "notice wanted before a reclaim: 5m");
  app->add_option("--checkpoint", f.checkpoints, "glob of checkpoint files, repeatable")
      ->take_all();
  app->add_option("--complete-marker", f.marker, "file that it writes when a checkpoint is whole");
  app->add_option("--output", f.outputs, "glob of what is brought back (default: all that changed)")
      ->take_all();
  app->add_option("--temporary", f.temporary, "glob left out of checkpoints and outputs")
      ->take_all();
  app->add_option("--copies", f.copies, "durable copies of each generation")
      ->capture_default_str()
      ->check(CLI::Range(1, 8));
  app->add_option(
         "--copies-at", f.copies_at, "node or lab where copies may lie, repeatable (default: any)"
  )
      ->take_all();
  app->add_option("--lab", f.labs, "run only on this lab's machines, repeatable")->take_all();
  app->add_option(
         "--data", f.data, "data set of the node's (reclaim nodes), read as /data/NAME, repeatable"
  )
      ->take_all();
  app->add_option("--peer", f.peers, "address it wants to reach: 10.1.2.3:5000/udp; owners decide")
      ->take_all();
  app->add_option("--max-duration", f.max_duration, "stop it after: 2h");
  app->add_option("--max-restarts", f.max_restarts, "after crashes of its own")
      ->capture_default_str();
  app->add_option("--folder", f.folder, "folder to upload and to bring outputs to")
      ->capture_default_str();
  app->add_option("--max-upload-mib", f.upload_mib, "refuse bigger folders")->capture_default_str();
  app->add_flag("--stateless", f.is_stateless, "it saves nothing; start it again after a reclaim");
  app->add_flag("--no-upload", f.has_no_upload, "start in an empty folder");
  app->add_flag("-d,--detach", f.is_detached, "only submit");
  app->add_flag("--json", f.is_json, "with --detach: the answer as JSON");
  app->add_option("command", f.command, "the command, after --")->required();
  app->positionals_at_end();
}

/// Where the options of all commands land.
struct Options {
  LoginOptions login;
  RunFlags run;
  SubmitFlags submit;
  PsOptions ps;
  LogsOptions logs;
  StopOptions stop;
  EventsOptions events;
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
  app->add_option("job", job, "id or number")->required();
}

void add_submit(Commands& commands, Options& o) {
  CLI::App* app =
      commands.add("submit", "Submit a job file (YAML or JSON).", [&o](const Client& c) {
        return submit(c, o.submit);
      });
  app->add_option("file", o.submit.file, "the file, or - for standard input")->required();
  app->add_option("--data", o.submit.data, "data set beside those of the file, repeatable")
      ->take_all();
  app->add_flag("--wait", o.submit.waits, "watch it and bring its outputs back, as 'run' does");
  add_json(app, o.submit.is_json);
  app->footer(
      "Fields: name, workdir, image, gpu, resources {gpu, compute_capability, cpus, cpus_min, "
      "memory,\n"
      "disk_size}, env, run, priority, max_duration, max_restarts, interrupt {notice, signal,\n"
      "checkpoint, every}, checkpoint, complete_marker, stateless, copies, copies_at, outputs, "
      "temporary,\n"
      "data, labs, peers. JSON with 'command' is taken as the API's JobSpec."
  );
}

void add_job_commands(Commands& commands, Options& o) {
  CLI::App* app = commands.add("ps", "List jobs.", [&o](const Client& c) { return ps(c, o.ps); });
  app->add_flag("-a,--all", o.ps.all, "finished ones too");
  app->add_option("-n,--limit", o.ps.limit, "at most so many")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_json(app, o.ps.is_json);

  app = commands.add("show", "Everything about one job.", [&o](const Client& c) {
    return show_job(c, o.job, o.is_json);
  });
  add_job(app, o.job);
  add_json(app, o.is_json);

  app =
      commands.add("logs", "Print a job's log.", [&o](const Client& c) { return logs(c, o.logs); });
  add_job(app, o.logs.job);
  app->add_flag("-f,--follow", o.logs.follows, "go on until the job has ended");
  app->add_option("--attempt", o.logs.attempt, "of this attempt (default: the newest)");

  app = commands.add(
      "why",
      "Say in one sentence what a job does or waits for.",
      [&o](const Client& c) { return why(c, o.job, o.is_json); }
  );
  add_job(app, o.job);
  add_json(app, o.is_json);

  app = commands.add("stop", "Stop jobs.", [&o](const Client& c) { return stop_jobs(c, o.stop); });
  app->add_option("job", o.stop.jobs, "ids or numbers")->required();
  app->add_flag("--save", o.stop.saves_first, "let it save first");
  app->add_option("--deadline", o.stop.deadline_s, "seconds for --save")->capture_default_str();
  app->add_option("-m,--message", o.stop.reason, "why");

  app = commands.add("cp", "Copy a job's outputs: JOB:path FOLDER.", [&o](const Client& c) {
    return copy(c, o.from, o.to);
  });
  app->add_option("from", o.from, "JOB:path; JOB: for all")->required();
  app->add_option("to", o.to, "folder")->capture_default_str();
}

/// The answer of a person; anything but yes is no.
bool ask_terminal(const std::string& question) {
  std::fprintf(stderr, "%syes? [y/N] ", question.c_str());
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
  );
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
  revoke->add_option("node", o.name, "id, or hostname")->required();
  revoke->add_flag("-y,--yes", o.is_sure, "on a terminal: do not ask");
  add_json(revoke, o.is_json);

  app = commands.add("events", "What happened, from the audit log.", [&o](const Client& c) {
    return events(c, o.events);
  });
  app->add_option("--job", o.events.job, "of this job");
  app->add_option("--node", o.events.node, "of this node");
  app->add_option("--kind", o.events.kind, "kinds that begin so: job., reclaim.");
  app->add_option("-n,--limit", o.events.limit, "the newest so many")->capture_default_str();
  add_json(app, o.events.is_json);

  app = commands.add("whoami", "Who the coordinator takes us for.", [&o](const Client& c) {
    return whoami(c, o.is_json);
  });
  add_json(app, o.is_json);
}

void add_image_commands(CLI::App& app, Commands& commands, Options& o) {
  CLI::App* image = app.add_subcommand("image", "The allow list of images.");
  image->require_subcommand(1);
  CLI::App* add =
      commands.add(*image, "add", "Upload an archive and list it.", [&o](const Client& c) {
        return add_image_command(c, o.name, o.archive, o.base);
      });
  add->add_option("name", o.name, "its name")->required();
  add->add_option("archive", o.archive, "what 'docker save' or 'docker export' wrote")->required();
  add->add_option("--base", o.base, "the listed image that it is built on (needed from users)");
  CLI::App* save = commands.add(
      *image,
      "save",
      "Fetch an image's archive, to build on it.",
      [&o](const Client& c) { return save_image(c, o.name, o.archive); }
  );
  save->add_option("name", o.name, "its name")->required();
  save->add_option("file", o.archive, "where to write it")->required();
  CLI::App* ls = commands.add(*image, "ls", "List images.", [&o](const Client& c) {
    return list_images(c, o.is_json);
  });
  add_json(ls, o.is_json);
  CLI::App* rm = commands.add(*image, "rm", "Take an image off the list.", [&o](const Client& c) {
    return remove_image(c, o.name);
  });
  rm->add_option("name", o.name, "its name")->required();
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
  create->add_option("--lab", o.token.lab, "the lab")->required();
  create->add_option("--user", o.token.user, "make a user token for this user instead");
  create->add_option("--role", o.token.role, "of the user: viewer, user, owner, admin")
      ->capture_default_str();
  create->add_option("--ttl-s", o.token.ttl_s, "seconds to live; 0: a user token never expires")
      ->capture_default_str();
  add_json(create, o.is_json);
  CLI::App* ls = commands.add(*token, "ls", "List tokens.", [&o](const Client& c) {
    return list_tokens(c, o.is_json);
  });
  add_json(ls, o.is_json);
  CLI::App* revoke = commands.add(*token, "revoke", "Revoke a token.", [&o](const Client& c) {
    return revoke_token(c, o.name);
  });
  revoke->add_option("id", o.name, "its id")->required();
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app("Run work on lent GPUs. 'reclaim COMMAND --help' explains a command.");
  app.require_subcommand(1);
  app.set_version_flag("--version", "0.1.0");
  app.footer(
      "Exit codes: 0 success, 1 failure, 2 usage, 3 not found, 4 permission, 5 conflict,\n"
      "6 coordinator unreachable, 7 timeout, 8 quota; 'run' exits with the job's own code."
  );
  Commands commands(app);
  Options options;
  CLI::App* login_app = app.add_subcommand("login", "Remember a coordinator and a token.");
  login_app->add_option("url", options.login.url, "https://coordinator:7443")->required();
  login_app->add_option("--token", options.login.token, "a user token")->required();
  login_app->add_option(
      "--ca-fingerprint", options.login.ca_fingerprint, "of the site's CA, if the token has none"
  );
  add_run(commands, options.run);
  add_submit(commands, options);
  add_job_commands(commands, options);
  add_site_commands(commands, options);
  add_image_commands(app, commands, options);
  add_token_commands(app, commands, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : kUsage;
  }
  if (login_app->parsed()) return login(options.login);
  return commands.run();
}
