// SPDX-License-Identifier: Apache-2.0
#include "evaluate_command.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "evaluate/evaluation.h"
#include "evaluate/policies.h"
#include "evaluate/sweep.h"

namespace rn {

namespace {

struct Wanted {
  evaluate::SettingOptions setting;
  std::vector<std::string> policies = {"reclaimnet"};
  std::vector<std::string> sweeps;
  std::uint64_t seed = 1;
  std::uint64_t seeds = 1;
  std::string csv;
  std::string json;
  std::string log;
};

int complain(const Error& error) {
  std::fprintf(
      stderr,
      "reclaim-sim: %s\n  next: %s\n",
      printable_lines(error.message).c_str(),
      error.hint.empty() ? "docs/evaluation.md" : error.hint.c_str()
  );
  return kUsageStatus;
}

std::optional<Error> open(const std::string& path, std::ofstream& file) {
  if (path.empty()) return std::nullopt;
  file.open(path);
  if (file) return std::nullopt;
  return Error{ErrorCode::kUnavailable, path + ": cannot be written", "name another file"};
}

struct Outputs {
  std::ofstream csv;
  std::ofstream json;
  std::ofstream log;

  void write(const evaluate::Outcome& outcome) {
    if (csv.is_open()) csv << evaluate::csv_row(outcome) << "\n" << std::flush;
    if (json.is_open()) json << evaluate::to_json_line(outcome) << "\n" << std::flush;
  }
};

/// What is to be played, by the name that it has in the outputs, and by the policy's own.
using Names = std::vector<std::pair<std::string, std::string>>;

/// Families are swept, once each, and those that are wanted at their best are known by it then.
Result<Names> sweep_families(const Wanted& wanted, Outputs& outputs) {
  std::map<std::string, std::string> best;
  const auto sweep_one = [&](const std::string& name) -> Status {
    const std::string family = evaluate::swept_family(name);
    if (best.contains(family)) return {};
    RN_TRY(
        const evaluate::Sweep sweep,
        evaluate::sweep(
            wanted.setting,
            family.empty() ? name : family,
            wanted.seed,
            wanted.seeds,
            [&](const evaluate::Outcome& outcome) { outputs.write(outcome); }
        )
    );
    std::printf("%s", evaluate::words(sweep).c_str());
    std::fflush(stdout);
    best[family] = sweep.all[sweep.best].policy;
    return {};
  };
  for (const std::string& name : wanted.sweeps) RN_CHECK(sweep_one(name));
  Names names;
  for (const std::string& policy : wanted.policies) {
    const std::string family = evaluate::swept_family(policy);
    if (!policy.ends_with("-best") || family.empty()) {
      names.emplace_back("", policy);
      continue;
    }
    RN_CHECK(sweep_one(family));
    names.emplace_back(policy, best.at(family));
  }
  return names;
}

Status play(const Wanted& wanted, Outputs& outputs) {
  RN_TRY(const Names names, sweep_families(wanted, outputs));
  std::function<void(const std::string&)> rows;
  if (outputs.log.is_open()) rows = [&](const std::string& row) { outputs.log << row << "\n"; };
  evaluate::Losses losses;
  for (std::uint64_t seed = wanted.seed; seed < wanted.seed + wanted.seeds; ++seed) {
    for (const auto& [name, policy] : names) {
      RN_TRY(evaluate::Outcome outcome, evaluate::evaluate(wanted.setting, policy, seed, rows));
      if (!name.empty()) outcome.policy = name;
      std::printf("%s", evaluate::words(outcome).c_str());
      std::fflush(stdout);
      outputs.write(outcome);
      losses[outcome.policy].push_back(outcome.figures.all.lost_gpu_s / 3600);
    }
  }
  std::printf("%s", evaluate::pipeline_check(losses).c_str());
  return {};
}

int carry_out(Wanted wanted, bool names_policies) {
  Outputs outputs;
  const std::array<std::pair<const std::string*, std::ofstream*>, 3> files = {
      {{&wanted.csv, &outputs.csv}, {&wanted.json, &outputs.json}, {&wanted.log, &outputs.log}}};
  for (const auto& [path, file] : files) {
    if (const auto error = open(*path, *file)) return complain(*error);
  }
  if (outputs.csv.is_open()) outputs.csv << evaluate::csv_header() << "\n";
  if (!wanted.sweeps.empty() && !names_policies) wanted.policies.clear();
  if (const Status played = play(wanted, outputs); !played) return complain(played.error());
  for (const auto& [path, file] : files) {
    if (file->is_open() && !file->flush())
      return complain({ErrorCode::kExhausted, "an output could not be written whole", "make room"});
  }
  return 0;
}

}  // namespace

std::function<int()> add_evaluate(CLI::App& app) {
  auto wanted = std::make_shared<Wanted>();
  CLI::App* command = app.add_subcommand(
      "evaluate", "plays policies on the same sites, owners and jobs, and prints what came of it"
  );
  auto& setting = wanted->setting;
  CLI::Option* const policies = command->add_option(
      "--policy",
      wanted->policies,
      "by name; several for a comparison: " + evaluate::known_policies() +
          "; FAMILY-best for each of the last, at the interval that a sweep finds best"
  );
  command->add_option(
      "--sweep",
      wanted->sweeps,
      "families of policies with an interval (s1, s2, condor-vacate, bamboo, bamboo-one-lab, "
      "warm-shadow): each interval from 60 to 7200 s, and which is best"
  );
  command->add_option("--seed", wanted->seed, "first seed");
  command->add_option("--seeds", wanted->seeds, "how many")->check(CLI::Range(1, 10'000));
  command->add_option("--nodes", setting.campus.nodes, "of the campus")->check(CLI::Range(1, 2000));
  command->add_option("--labs", setting.campus.labs, "of the campus")->check(CLI::Range(1, 500));
  command->add_option("--buildings", setting.campus.buildings, "of the campus")
      ->check(CLI::Range(1, 100));
  command->add_option("--days", setting.days, "simulated")->check(CLI::Range(0.1, 1000.0));
  command->add_option("--users", setting.users, "who submit")->check(CLI::Range(1, 10'000));
  command->add_option("--jobs-a-day", setting.jobs_a_day, "of a user who submits")
      ->check(CLI::Range(0.0, 1000.0));
  command->add_option("--notices", setting.notices, "emergency-heavy, mixed, generous or gpunion");
  command->add_option("--owners", setting.owners, "LAB.csv.gz of recorded owners");
  command->add_flag(
      "--gaps-end", setting.ends_gaps, "nothing is lent where minutes are missing in these"
  );
  command->add_option("--jobs", setting.jobs, "recorded jobs");
  command->add_option("--spot", setting.spot, "recorded spot machines in place of owners");
  command->add_option("--line-factor", setting.line_factor, "lines carry so many times as much")
      ->check(CLI::Range(0.01, 100.0));
  command->add_option("--state-factor", setting.state_factor, "states are so many times as large")
      ->check(CLI::Range(0.01, 100.0));
  command->add_option("--csv", wanted->csv, "one row for each run");
  command->add_option("--json", wanted->json, "one line for each run");
  command->add_option("--log", wanted->log, "all that happened (docs/formats/evaluation-log.md)");
  return [wanted, command, policies]() -> int {
    return command->parsed() ? carry_out(*wanted, policies->count() > 0) : -1;
  };
}

}  // namespace rn
