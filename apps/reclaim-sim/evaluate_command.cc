// SPDX-License-Identifier: Apache-2.0
#include "evaluate_command.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "evaluate/evaluation.h"

namespace rn {

namespace {

struct Wanted {
  evaluate::SettingOptions setting;
  std::vector<std::string> policies = {"reclaimnet"};
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

int carry_out(const Wanted& wanted) {
  std::ofstream csv;
  std::ofstream json;
  std::ofstream log;
  const std::array<std::pair<const std::string*, std::ofstream*>, 3> outputs = {
      {{&wanted.csv, &csv}, {&wanted.json, &json}, {&wanted.log, &log}}};
  for (const auto& [path, file] : outputs) {
    if (const auto error = open(*path, *file)) return complain(*error);
  }
  if (csv.is_open()) csv << evaluate::csv_header() << "\n";
  std::function<void(const std::string&)> rows;
  if (log.is_open()) rows = [&](const std::string& row) { log << row << "\n"; };
  for (std::uint64_t seed = wanted.seed; seed < wanted.seed + wanted.seeds; ++seed) {
    for (const std::string& policy : wanted.policies) {
      const auto outcome = evaluate::evaluate(wanted.setting, policy, seed, rows);
      if (!outcome) return complain(outcome.error());
      std::printf("%s", evaluate::words(*outcome).c_str());
      std::fflush(stdout);
      if (csv.is_open()) csv << evaluate::csv_row(*outcome) << "\n" << std::flush;
      if (json.is_open()) json << evaluate::to_json_line(*outcome) << "\n" << std::flush;
    }
  }
  for (std::ofstream* file : {&csv, &json, &log}) {
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
  command->add_option("--policy", wanted->policies, "by name; several for a comparison");
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
  return [wanted, command]() -> int { return command->parsed() ? carry_out(*wanted) : -1; };
}

}  // namespace rn
