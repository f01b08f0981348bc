// SPDX-License-Identifier: Apache-2.0
// reclaim-sim: the daemons' production cores in a simulated site. See --help.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "command_line.h"
#include "evaluate_command.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/planted.h"
#include "base/printable.h"
#include "io/real_fs.h"
#include "sim/chaos.h"
#include "sim/scenario.h"

namespace {

using rn::sim::ChaosOptions;
using rn::sim::ChaosReport;

struct Arguments {
  std::vector<std::string> files;
  std::uint64_t seed = 1;
  std::uint64_t seeds = 10;
  double hours = 2;
  std::uint32_t jobs = ChaosOptions{}.jobs;
  double wall_seconds = 0;
  bool echo = false;
  bool twice = false;
  std::string plant;
};

double hours_of(rn::nanoseconds time) {
  return std::chrono::duration<double, std::ratio<3600>>(time).count();
}

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

int play(const Arguments& arguments) {
  int failures = 0;
  for (const std::string& path : arguments.files) {
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
          hours_of(outcome->simulated) * 60,
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

void print_failure(const ChaosReport& report, const Arguments& arguments) {
  std::printf(
      "FAIL  seed %llu after %.2f simulated hours\n",
      static_cast<unsigned long long>(report.seed),
      hours_of(report.simulated)
  );
  for (const auto& violation : report.violations) std::printf("      %s\n", violation.c_str());
  const std::size_t shown = std::min<std::size_t>(report.history.size(), 60);
  for (std::size_t i = report.history.size() - shown; i < report.history.size(); ++i)
    std::printf("        %s\n", report.history[i].c_str());
  std::printf(
      "      replay: reclaim-sim chaos --echo --seed %llu --seeds 1 --hours %g --jobs %u%s\n",
      static_cast<unsigned long long>(report.seed),
      arguments.hours,
      arguments.jobs,
      arguments.plant.empty() ? "" : (" --plant " + arguments.plant).c_str()
  );
}

using Coverage = std::map<std::string, rn::sim::World::Coverage, std::less<>>;

void print_coverage(const Coverage& coverage, const std::map<std::string, std::uint64_t>& faults) {
  std::printf("%-34s %12s %9s\n", "crash point", "passed", "crashed");
  for (const auto& [point, cell] : coverage) {
    std::printf(
        "%-34s %12llu %9llu\n",
        point.c_str(),
        static_cast<unsigned long long>(cell.passed),
        static_cast<unsigned long long>(cell.crashed)
    );
  }
  const auto hit = std::count_if(coverage.begin(), coverage.end(), [](const auto& entry) {
    return entry.second.crashed > 0;
  });
  std::printf(
      "%lld of %zu crash points were crashed at\n", static_cast<long long>(hit), coverage.size()
  );
  for (const auto& [fault, count] : faults)
    std::printf("%-34s %22llu\n", fault.c_str(), static_cast<unsigned long long>(count));
}

int chaos(const Arguments& arguments) {
  const auto began = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  Coverage coverage;
  for (const std::string& point : rn::sim::crash_points()) coverage[point] = {};
  std::map<std::string, std::uint64_t> faults;
  double simulated = 0;
  std::uint64_t events = 0;
  std::uint64_t checks = 0;
  std::uint64_t run = 0;
  for (; run < arguments.seeds; ++run) {
    if (arguments.wall_seconds > 0 && elapsed() > arguments.wall_seconds) break;
    ChaosOptions options;
    options.seed = arguments.seed + run;
    options.length = rn::nanoseconds(static_cast<std::int64_t>(arguments.hours * 3600e9));
    options.jobs = arguments.jobs;
    options.echo = arguments.echo;
    const ChaosReport report = rn::sim::run_chaos(options);
    if (!report.violations.empty()) {
      print_failure(report, arguments);
      std::printf(
          "caught after %.1f s, run %llu\n", elapsed(), static_cast<unsigned long long>(run) + 1
      );
      return 1;
    }
    if (arguments.twice && rn::sim::run_chaos(options).fingerprint != report.fingerprint) {
      std::printf(
          "FAIL  seed %llu is not deterministic\n", static_cast<unsigned long long>(options.seed)
      );
      return 1;
    }
    simulated += hours_of(report.simulated);
    events += report.events;
    checks += report.checks;
    for (const auto& [point, cell] : report.coverage) {
      coverage[point].passed += cell.passed;
      coverage[point].crashed += cell.crashed;
    }
    for (const auto& [fault, count] : report.faults) faults[fault] += count;
  }
  print_coverage(coverage, faults);
  std::printf(
      "%llu seeds from %llu, 0 violations, %.1f simulated cluster-hours in %.1f s (%.0f per wall "
      "hour and core), %llu events, %llu checks\n",
      static_cast<unsigned long long>(run),
      static_cast<unsigned long long>(arguments.seed),
      simulated,
      elapsed(),
      simulated / elapsed() * 3600,
      static_cast<unsigned long long>(events),
      static_cast<unsigned long long>(checks)
  );
  return 0;
}

/// Runs, each crashing where a point that no run has crashed at yet is first passed, until none is
/// left.
int crash_points(const Arguments& arguments) {
  std::set<std::string> left(rn::sim::crash_points().begin(), rn::sim::crash_points().end());
  const std::size_t all = left.size();
  double simulated = 0;
  std::uint64_t run = 0;
  for (; run < arguments.seeds && !left.empty(); ++run) {
    ChaosOptions options;
    options.seed = arguments.seed + run;
    options.length = rn::nanoseconds(static_cast<std::int64_t>(arguments.hours * 3600e9));
    options.jobs = arguments.jobs;
    options.crash_at = left;
    options.echo = arguments.echo;
    const ChaosReport report = rn::sim::run_chaos(options);
    simulated += hours_of(report.simulated);
    if (!report.violations.empty()) {
      print_failure(report, arguments);
      return 1;
    }
    for (const auto& [point, cell] : report.coverage) {
      if (cell.crashed > 0) left.erase(point);
    }
    std::printf(
        "seed %llu: %zu points left\n", static_cast<unsigned long long>(options.seed), left.size()
    );
  }
  std::printf(
      "%zu of %zu crash points were crashed at, in %llu runs of %.1f simulated hours together\n",
      all - left.size(),
      all,
      static_cast<unsigned long long>(run),
      simulated
  );
  for (const std::string& point : left) std::printf("FAIL  nothing crashed at %s\n", point.c_str());
  return left.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Simulates a whole site on the daemons' own cores: scenarios, faults at scale with "
      "invariants checked after every event, and evaluations beside other policies."
  );
  Arguments arguments;
  app.require_subcommand(1);
  const auto common = [&](CLI::App* command) {
    command->add_option("--seed", arguments.seed, "first seed");
    command->add_flag("--echo", arguments.echo, "print the history while it happens");
#ifdef RN_PLANTED
    command->add_option("--plant", arguments.plant, "switch one known bug on");
#endif
  };
  CLI::App* scenario = app.add_subcommand("scenario", "play scenario files");
  scenario->add_option("files", arguments.files, "*.scn")->required();
  common(scenario);
  CLI::App* swarm = app.add_subcommand("chaos", "seeded runs with swarm faults");
  swarm->add_option("--seeds", arguments.seeds, "how many seeds at most");
  swarm->add_option("--hours", arguments.hours, "simulated hours of faults per seed");
  swarm->add_option("--jobs", arguments.jobs, "trainings per seed")->check(CLI::Range(1, 1000));
  swarm->add_option(
      "--wall-seconds", arguments.wall_seconds, "stop beginning new seeds after so long"
  );
  swarm->add_flag("--twice", arguments.twice, "run every seed twice and compare fingerprints");
  common(swarm);
  CLI::App* points = app.add_subcommand(
      "crash-points",
      "seeded runs that crash at each named point at least once, or fail by its name"
  );
  points->add_option("--seeds", arguments.seeds, "how many seeds at most");
  points->add_option("--hours", arguments.hours, "simulated hours of faults per seed");
  points->add_option("--jobs", arguments.jobs, "trainings per seed")->check(CLI::Range(1, 1000));
  common(points);
  const auto evaluate = rn::add_evaluate(app);
  return rn::run_command_line(app, argc, argv, "reclaim-sim", [&] {
    rn::log::set_level(rn::log::Level::kError);
#ifdef RN_PLANTED
    if (!arguments.plant.empty()) rn::plant(arguments.plant.c_str());
#endif
    if (const int status = evaluate(); status >= 0) return status;
    if (points->parsed()) return crash_points(arguments);
    return scenario->parsed() ? play(arguments) : chaos(arguments);
  });
}
