// SPDX-License-Identifier: Apache-2.0
#include "chaos_command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "sim/point_faults.h"
#include "sim/world.h"

namespace rn {

namespace {

using sim::ChaosOptions;
using sim::ChaosReport;
using Coverage = std::map<std::string, sim::World::Coverage, std::less<>>;

/// Of faults, in each run of many: longer ones find less in the same time.
constexpr double kHoursOfARun = 2;

unsigned long long number(std::uint64_t value) {
  return value;
}

ChaosOptions options_of(const ChaosArguments& arguments, std::uint64_t run, double hours) {
  ChaosOptions options;
  options.seed = arguments.seed + run;
  options.length = nanoseconds(static_cast<std::int64_t>(hours * 3600e9));
  options.jobs = arguments.jobs;
  options.has_strikes = arguments.has_strikes;
  options.echo = arguments.echo;
  return options;
}

void print_failure(const ChaosReport& report, const ChaosArguments& arguments, double hours) {
  std::printf(
      "FAIL  seed %llu after %.2f simulated hours\n",
      number(report.seed),
      hours_of(report.simulated)
  );
  for (const auto& violation : report.violations) std::printf("      %s\n", violation.c_str());
  const std::size_t shown = std::min<std::size_t>(report.history.size(), 60);
  for (std::size_t i = report.history.size() - shown; i < report.history.size(); ++i)
    std::printf("        %s\n", report.history[i].c_str());
  std::printf(
      "      replay: reclaim-sim chaos --echo --seed %llu --seeds 1 --hours %g --jobs %u%s%s\n",
      number(report.seed),
      hours,
      arguments.jobs,
      arguments.has_strikes ? "" : " --no-strikes",
      arguments.plant.empty() ? "" : (" --plant " + arguments.plant).c_str()
  );
}

void print_row(const std::string& point, const sim::World::Coverage& cell) {
  std::printf("%-34s %9llu", point.c_str(), number(cell.passed));
  for (std::size_t i = 0; i < sim::kPointFaults; ++i) {
    if (!applies(sim::PointFault(i), point)) {
      std::printf("      .");
    } else if (cell.hit[i] == 0) {
      std::printf("     0!");
    } else {
      std::printf(" %6llu", number(cell.hit[i]));
    }
  }
  std::printf("\n");
}

/// One row a crash point, one column a fault: how often it happened in that very moment. `.`: there
/// is no such cell; `0!`: never. Answers how many cells were never hit.
std::size_t print_cells(const Coverage& coverage) {
  std::printf("%-34s %9s", "crash point", "passed");
  for (const char* name : sim::kPointFaultNames) std::printf(" %6s", name);
  std::printf("\n");
  std::size_t cells = 0;
  std::uint64_t fewest = ~std::uint64_t{0};
  std::vector<std::string> never;
  for (const auto& [point, cell] : coverage) {
    print_row(point, cell);
    for (std::size_t i = 0; i < sim::kPointFaults; ++i) {
      if (!applies(sim::PointFault(i), point)) continue;
      ++cells;
      fewest = std::min(fewest, cell.hit[i]);
      if (cell.hit[i] == 0) never.push_back(point + " x " + sim::kPointFaultNames[i]);
    }
  }
  const auto crashed = std::count_if(coverage.begin(), coverage.end(), [](const auto& entry) {
    return entry.second.crashed() > 0;
  });
  std::printf(
      "%lld of %zu crash points were crashed at\n", static_cast<long long>(crashed), coverage.size()
  );
  std::printf(
      "%zu of %zu cells (crash point x fault) were hit, each %llu times at least\n",
      cells - never.size(),
      cells,
      number(fewest)
  );
  constexpr std::size_t kNamed = 12;
  for (std::size_t i = 0; i < std::min(never.size(), kNamed); ++i)
    std::printf("never hit: %s\n", never[i].c_str());
  if (never.size() > kNamed) std::printf("never hit: %zu more\n", never.size() - kNamed);
  return never.size();
}

bool write_csv(const std::string& path, const Coverage& coverage) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  std::fprintf(file, "point,fault,hit,passed\n");
  for (const auto& [point, cell] : coverage) {
    for (std::size_t i = 0; i < sim::kPointFaults; ++i) {
      if (applies(sim::PointFault(i), point))
        std::fprintf(
            file,
            "%s,%s,%llu,%llu\n",
            point.c_str(),
            sim::kPointFaultNames[i],
            number(cell.hit[i]),
            number(cell.passed)
        );
    }
  }
  return std::fclose(file) == 0;
}

double faults_per_run_h(const ChaosArguments& arguments) {
  return arguments.seeds > 0 ? arguments.hours : std::min(arguments.hours, kHoursOfARun);
}

/// Many runs, side by side. They count in the order of their seeds, so that what is printed does
/// not depend on which thread was the faster one.
class Campaign {
 public:
  explicit Campaign(const ChaosArguments& arguments)
      : arguments_(arguments), hours_of_run_(faults_per_run_h(arguments)) {}

  int run();

 private:
  double elapsed_s() const;
  std::optional<std::uint64_t> next();
  void work();
  void count(const ChaosReport& report);
  void fail(const ChaosReport& report);
  int report(std::uint32_t threads) const;

  const ChaosArguments& arguments_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  const double hours_of_run_;

  std::mutex mutex_;  // of all below
  std::uint64_t begun_ = 0;
  std::uint64_t counted_ = 0;
  std::map<std::uint64_t, ChaosReport> waiting_;
  bool is_over_ = false;
  bool has_failed_ = false;
  Coverage coverage_;
  std::map<std::string, std::uint64_t> faults_;
  double simulated_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t checks_ = 0;
  std::uint64_t fingerprint_ = 0;
};

int Campaign::run() {
  for (const std::string& point : sim::crash_points()) coverage_[point] = {};
  const std::uint32_t threads = arguments_.echo ? 1 : std::max(1U, arguments_.threads);
  std::vector<std::thread> workers;
  for (std::uint32_t i = 1; i < threads; ++i) workers.emplace_back([this] { work(); });
  work();
  for (std::thread& worker : workers) worker.join();
  return has_failed_ ? 1 : report(threads);
}

double Campaign::elapsed_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

/// The next run's number, or none: enough is done, or time is over.
std::optional<std::uint64_t> Campaign::next() {
  const std::lock_guard lock(mutex_);
  const bool is_late = arguments_.wall_seconds > 0 && elapsed_s() > arguments_.wall_seconds;
  if (is_over_ || is_late) return std::nullopt;
  if (arguments_.seeds > 0 && begun_ >= arguments_.seeds) return std::nullopt;
  return begun_++;
}

void Campaign::work() {
  while (const auto run = next()) {
    const ChaosOptions options = options_of(arguments_, *run, hours_of_run_);
    ChaosReport report = sim::run_chaos(options);
    const bool is_same = !arguments_.twice || !report.violations.empty() ||
                         sim::run_chaos(options).fingerprint == report.fingerprint;
    const std::lock_guard lock(mutex_);
    if (!is_same) report.violations.emplace_back("determinism: two runs of the seed differ");
    waiting_.emplace(*run, std::move(report));
    while (!is_over_ && !waiting_.empty() && waiting_.begin()->first == counted_) {
      count(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
    }
  }
}

void Campaign::count(const ChaosReport& report) {
  ++counted_;
  simulated_ += hours_of(report.simulated);
  if (!report.violations.empty()) return fail(report);
  events_ += report.events;
  checks_ += report.checks;
  fingerprint_ = (fingerprint_ * 0x100000001b3ULL) ^ report.fingerprint;
  for (const auto& [point, cell] : report.coverage) {
    coverage_[point].passed += cell.passed;
    for (std::size_t i = 0; i < sim::kPointFaults; ++i) coverage_[point].hit[i] += cell.hit[i];
  }
  for (const auto& [fault, count] : report.faults) faults_[fault] += count;
  is_over_ = arguments_.seeds == 0 && simulated_ >= arguments_.hours;
}

void Campaign::fail(const ChaosReport& report) {
  is_over_ = has_failed_ = true;
  print_failure(report, arguments_, hours_of_run_);
  std::printf(
      "caught after %.1f s, run %llu, %.1f simulated hours\n",
      elapsed_s(),
      number(counted_),
      simulated_
  );
}

int Campaign::report(std::uint32_t threads) const {
  const double took_s = elapsed_s();
  const std::size_t never = print_cells(coverage_);
  std::uint64_t faults = 0;
  for (const auto& [point, cell] : coverage_) {
    for (const std::uint64_t hit : cell.hit) faults += hit;
  }
  std::printf("at any moment:\n");
  for (const auto& [fault, count] : faults_) {
    faults += count;
    std::printf("%-34s %9llu\n", fault.c_str(), number(count));
  }
  std::printf(
      "%llu faults, fingerprint of all runs %016llx%s\n",
      number(faults),
      number(fingerprint_),
      arguments_.twice ? ", each run twice with the same one" : ""
  );
  std::printf(
      "%llu seeds from %llu, 0 violations, %.1f simulated cluster-hours in %.1f s (%.0f per wall "
      "hour and core, %u threads), %llu events, %llu checks\n",
      number(counted_),
      number(arguments_.seed),
      simulated_,
      took_s,
      simulated_ / took_s * 3600 / threads,
      threads,
      number(events_),
      number(checks_)
  );
  if (!arguments_.csv.empty() && !write_csv(arguments_.csv, coverage_)) {
    std::fprintf(
        stderr,
        "reclaim-sim: cannot write %s\n  next: name a file in a folder that exists\n",
        arguments_.csv.c_str()
    );
    return 1;
  }
  return never > 0 && arguments_.needs_every_cell ? 1 : 0;
}

}  // namespace

double hours_of(nanoseconds time) {
  return std::chrono::duration<double, std::ratio<3600>>(time).count();
}

int chaos_command(const ChaosArguments& arguments) {
  return Campaign(arguments).run();
}

int crash_points_command(const ChaosArguments& arguments) {
  std::set<std::string> left(sim::crash_points().begin(), sim::crash_points().end());
  const std::size_t all = left.size();
  double simulated = 0;
  std::uint64_t run = 0;
  for (; run < arguments.seeds && !left.empty(); ++run) {
    ChaosOptions options = options_of(arguments, run, arguments.hours);
    options.crash_at = left;
    const ChaosReport report = sim::run_chaos(options);
    simulated += hours_of(report.simulated);
    if (!report.violations.empty()) {
      print_failure(report, arguments, arguments.hours);
      return 1;
    }
    for (const auto& [point, cell] : report.coverage) {
      if (cell.crashed() > 0) left.erase(point);
    }
    std::printf("seed %llu: %zu points left\n", number(options.seed), left.size());
  }
  std::printf(
      "%zu of %zu crash points were crashed at, in %llu runs of %.1f simulated hours together\n",
      all - left.size(),
      all,
      number(run),
      simulated
  );
  for (const std::string& point : left) std::printf("FAIL  nothing crashed at %s\n", point.c_str());
  return left.empty() ? 0 : 1;
}

}  // namespace rn
