// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
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

// What the commands are called and take, one function for each or for a few that belong together.
namespace rn::cli {

constexpr std::uint32_t kRowsMax = 1000;
constexpr std::uint32_t kTailMax = 1'000'000;
constexpr std::uint32_t kEveryMaxS = 3600;
constexpr std::uint32_t kGpuMax = 63;
constexpr std::uint32_t kStopDeadlineMaxS = 900;  ///< of the coordinator

using Action = std::function<int(const Client&)>;

/// As who has logged in; else it says what to do.
int with_login(const Action& action);

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

/// A command's help ends with examples, what else is to be known, and where its exit codes are.
void add_examples(
    CLI::App* app, const std::vector<std::string>& examples, const std::string& more = {}
);

void add_json(CLI::App* app, bool& is_json);
/// The job that a command is for, required.
void add_job(CLI::App* app, std::string& job);

/// Yes or no, by whoever is at the terminal.
bool ask_terminal(const std::string& question);

void add_run(Commands& commands, RunFlags& flags);
void add_submit(Commands& commands, Options& options);
void add_plan(Commands& commands, Options& options);
void add_job_commands(Commands& commands, Options& options);
void add_copy(Commands& commands, Options& options);
void add_forward(Commands& commands, Options& options);
void add_attach(Commands& commands, Options& options);
void add_exec(Commands& commands, Options& options);
void add_notebook(Commands& commands, Options& options);

void add_site_commands(Commands& commands, Options& options);
void add_take(Commands& commands, Options& options);
void add_contract_commands(CLI::App& app, Commands& commands, Options& options);
void add_image_commands(CLI::App& app, Commands& commands, Options& options);
void add_token_commands(CLI::App& app, Commands& commands, Options& options);
void add_notify_commands(CLI::App& app, Commands& commands, Options& options);
void add_quota_commands(Commands& commands, Options& options);
void add_completion(CLI::App& app, Commands& commands, Options& options);

}  // namespace rn::cli
