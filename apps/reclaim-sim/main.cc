// SPDX-License-Identifier: Apache-2.0
// reclaim-sim: the daemons' production cores in a simulated site. See --help.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "chaos_command.h"
#include "command_line.h"
#include "evaluate_command.h"
#include "replay_command.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/planted.h"
#include "base/printable.h"
#include "io/real_fs.h"
#include "sim/scenario.h"

namespace {

constexpr std::uint64_t kScenarioBytesMax = 1u << 20;

rn::Result<std::vector<rn::sim::ScenarioCommand>> read_scenario(const std::string& path) {
  rn::io::RealFileSystem fs;
  std::error_code ignored;
  const auto text =
      rn::read_all(fs, std::filesystem::absolute(path, ignored).string(), kScenarioBytesMax);
  if (!text) return rn::fail(text.error().hinting("name scenario files, as tests/scenarios/*.scn"));
  auto commands = rn::sim::parse_scenario(std::string(rn::as_text(*text)));
  if (!commands)
    return rn::fail(commands.error().with(path).hinting("docs/scenarios.md lists the commands"));
  if (commands->empty())
    return rn::fail(
        rn::ErrorCode::kInvalid, path + ": has no command", "docs/scenarios.md lists the commands"
    );
  return commands;
}

int play(const std::vector<std::string>& files, const rn::ChaosArguments& arguments) {
  int failures = 0;
  for (const std::string& path : files) {
    const auto commands = read_scenario(path);
    if (!commands) {
      std::fprintf(
          stderr,
          "reclaim-sim: %s\n  next: %s\n",
          rn::printable_lines(commands.error().message).c_str(),
          commands.error().hint.c_str()
      );
      return rn::kUsageStatus;
    }
    const auto outcome = rn::sim::play_scenario(*commands, arguments.seed, arguments.echo);
    if (outcome) {
      std::printf(
          "ok    %s  seed %llu  %.1f simulated min  %llu events  fingerprint %016llx\n",
          path.c_str(),
          static_cast<unsigned long long>(arguments.seed),
          rn::hours_of(outcome->simulated) * 60,
          static_cast<unsigned long long>(outcome->events),
          static_cast<unsigned long long>(outcome->fingerprint)
      );
      continue;
    }
    ++failures;
    std::printf("FAIL  %s  %s\n", path.c_str(), outcome.error().describe().c_str());
    std::printf(
        "      replay: reclaim-sim scenario --echo --seed %llu %s\n",
        static_cast<unsigned long long>(arguments.seed),
        path.c_str()
    );
  }
  return failures == 0 ? 0 : 1;
}

/// The commands of seeded runs; answers that of crash points, the other is "chaos".
CLI::App* add_chaos(
    CLI::App& app, rn::ChaosArguments& arguments, const std::function<void(CLI::App*)>& common
) {
  const auto of_runs = [&](CLI::App* command) {
    command->add_option("--jobs", arguments.jobs, "trainings per seed")->check(CLI::Range(1, 1000));
    command->add_flag(
        "!--no-strikes",
        arguments.has_strikes,
        "at crash points processes are killed, and nothing else happens there"
    );
  };
  CLI::App* swarm = app.add_subcommand("chaos", "seeded runs with swarm faults");
  swarm
      ->add_option(
          "--hours",
          arguments.hours,
          "simulated hours together (2), in runs of two hours of faults each; with --seeds: hours "
          "of faults per seed"
      )
      ->check(CLI::PositiveNumber);
  swarm->add_option(
      "--seeds", arguments.seeds, "how many seeds, instead of as many as --hours take"
  );
  swarm->add_option(
      "--wall-seconds", arguments.wall_seconds, "stop beginning new seeds after so long"
  );
  swarm->add_option("--threads", arguments.threads, "how many runs side by side (1)")
      ->check(CLI::Range(1, 1024));
  swarm->add_flag("--twice", arguments.twice, "run every seed twice and compare fingerprints");
  swarm->add_flag(
      "--every-cell",
      arguments.needs_every_cell,
      "exit with 1 if a cell of the table (crash point x fault) was never hit"
  );
  swarm->add_option("--csv", arguments.csv, "write the table into this file, too");
  of_runs(swarm);
  common(swarm);
  CLI::App* points = app.add_subcommand(
      "crash-points",
      "seeded runs that crash at each named point at least once, or fail by its name"
  );
  points->add_option("--seeds", arguments.seeds, "how many seeds at most (10)");
  points->add_option("--hours", arguments.hours, "simulated hours of faults per seed (2)");
  of_runs(points);
  common(points);
  return points;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Simulates a whole site on the daemons' own cores: scenarios, faults at scale with "
      "invariants checked after every event, and evaluations beside other policies."
  );
  rn::ChaosArguments arguments;
  std::vector<std::string> files;
  app.require_subcommand(1);
  const auto common = [&](CLI::App* command) {
    command->add_option("--seed", arguments.seed, "first seed");
    command->add_flag("--echo", arguments.echo, "print the history while it happens");
#ifdef RN_PLANTED
    command->add_option("--plant", arguments.plant, "switch one known bug on");
#endif
  };
  CLI::App* scenario = app.add_subcommand("scenario", "play scenario files");
  scenario->add_option("files", files, "*.scn")->required();
  common(scenario);
  const CLI::App* points = add_chaos(app, arguments, common);
  const auto evaluate = rn::add_evaluate(app);
  const auto replay = rn::add_replay(app);
  return rn::run_command_line(app, argc, argv, "reclaim-sim", [&] {
    rn::log::set_level(rn::log::Level::kError);
#ifdef RN_PLANTED
    if (!arguments.plant.empty()) rn::plant(arguments.plant.c_str());
#endif
    if (const int status = evaluate(); status >= 0) return status;
    if (const int status = replay(); status >= 0) return status;
    if (points->parsed()) {
      if (arguments.seeds == 0) arguments.seeds = 10;
      return rn::crash_points_command(arguments);
    }
    return scenario->parsed() ? play(files, arguments) : rn::chaos_command(arguments);
  });
}
