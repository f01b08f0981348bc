// SPDX-License-Identifier: Apache-2.0
// The hazard model and the checkpoint rule on recorded owners (docs/results.md, section Hazard).
//   hazard_traces FOLDER [--folds]
// FOLDER holds LAB.csv.gz with minute rows time,total_gpus,idle_gpus,… of the owners' own use, as
// in the HeliosArtifact repository of S-Lab (SC'21), reduced to these columns. Labs are ordered by
// name; the first, third, … are the fitting labs. Whatever was chosen by hand was chosen on their
// first 14 days; the others and days 15 to 21 are held back. With --folds, what it was chosen by is
// printed instead, and nothing of what is held back is looked at.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

#include "bench_report.h"
#include "forecast_folds.h"
#include "forecast_replay.h"
#include "schedule_replay.h"

namespace rn::bench {
namespace {

constexpr int kIdleMinutes = 10;
constexpr int kFitDays = 14;
constexpr int kDays = 21;

std::vector<Split> splits(std::size_t labs) {
  std::vector<bool> fit(labs);
  std::vector<bool> held(labs);
  for (std::size_t i = 0; i < labs; ++i) (i % 2 == 0 ? fit : held)[i] = true;
  const Split online{
      .learning = Learning::kOnline,
      .fit_days = kFitDays,
      .test_until_day = kDays,
      .fit_labs = fit};
  Split days = online;
  days.name = "held-back days of the fitting labs, learning on";
  days.test_labs = fit;
  Split unseen = online;
  unseen.name = "held-back days and labs, labs unknown before day 15, learning on";
  unseen.test_labs = held;
  Split frozen = unseen;
  frozen.name = "held-back days and labs, nothing learnt after day 14";
  frozen.learning = Learning::kFrozen;
  Split known = unseen;
  known.name = "held-back days and labs, labs watched from day 1";
  known.learning = Learning::kAllLabs;
  return {days, unseen, frozen, known};
}

/// Forecasts for nodes of which at most three reclaims were known.
void print_new_nodes(const Replay& replay) {
  std::printf("  nodes with at most 3 known reclaims, skill per lab and by hour of week:");
  for (std::size_t h = 0; h < std::size(kHorizons_s); ++h) {
    std::vector<ForecastRow> rows;
    for (const ForecastRow& row : replay.rows[h]) {
      if (row.known_reclaims <= 3) rows.push_back(row);
    }
    const CensoringCurve observed(rows);
    std::printf(
        "  %.0f min %+.3f %+.3f (n %zu)",
        kHorizons_s[h] / 60,
        skill(rows, observed, kModel, kConstantLab, kHorizons_s[h]).skill,
        skill(rows, observed, kModel, kHourOfWeek, kHorizons_s[h]).skill,
        rows.size()
    );
  }
  std::printf("\n");
}

void print_forecasts(const std::string& name, const Replay& replay) {
  std::printf("\n%s: %zu reclaims, %zu new spells\n", name.c_str(), replay.reclaims, replay.spells);
  std::printf(
      "  horizon      n    Brier    ECE   skill against constant rate per lab [5 %%, 95 %%]  per "
      "node"
      "  hour of week [5 %%, 95 %%]\n"
  );
  for (std::size_t h = 0; h < std::size(kHorizons_s); ++h) {
    const auto& rows = replay.rows[h];
    const CensoringCurve observed(rows);
    const double horizon_s = kHorizons_s[h];
    const BrierScore score = brier(rows, observed, kModel, horizon_s);
    const Skill lab = skill(rows, observed, kModel, kConstantLab, horizon_s);
    const Skill node = skill(rows, observed, kModel, kConstantNode, horizon_s);
    const Skill hour = skill(rows, observed, kModel, kHourOfWeek, horizon_s);
    std::printf(
        "  %5.0f min %6zu  %.5f  %.4f  %+.4f [%+.3f, %+.3f]  %+.4f  %+.4f [%+.3f, %+.3f]\n",
        horizon_s / 60,
        score.rows,
        score.brier,
        score.calibration_error,
        lab.skill,
        lab.low,
        lab.high,
        node.skill,
        hour.skill,
        hour.low,
        hour.high
    );
    std::printf("            calibration error of the references:");
    for (const std::size_t other : {kConstantLab, kConstantNode, kHourOfWeek}) {
      std::printf(" %.4f", brier(rows, observed, other, horizon_s).calibration_error);
    }
    const BrierScore hindsight = brier(rows, observed, kHindsightLab, horizon_s);
    std::printf(
        "; rates per lab that only these days tell: Brier %.5f, %.4f\n",
        hindsight.brier,
        hindsight.calibration_error
    );
  }
  print_new_nodes(replay);
  const KolmogorovSmirnov ks = ks_exponential(replay.residuals);
  double mean = 0;
  for (const double residual : replay.residuals) mean += residual;
  std::printf(
      "  hazard between reclaims against Exp(1): KS %.3f (p %.2g, n %zu), mean %.3f\n",
      ks.distance,
      ks.p_value,
      replay.residuals.size(),
      mean / static_cast<double>(std::max<std::size_t>(1, replay.residuals.size()))
  );
}

/// State, pause and uplink are not in the traces: these are assumptions, printed with the figures.
struct JobKind {
  double state_gb = 1;
  double pause_s = 1;
  double link_gbit_s = 1;
};

void print_schedules(const Replay& replay) {
  for (const JobKind& kind :
       {JobKind{1, 1, 1}, JobKind{4, 4, 1}, JobKind{16, 10, 1}, JobKind{16, 10, 10}}) {
    reclaim::CheckpointJob job;
    job.pause_s = kind.pause_s;
    job.slowdown = 0.05;
    job.dirty = {
        .state_bytes = kind.state_gb * 1e9, .write_rate = std::numeric_limits<double>::infinity()};
    const ScheduleScores scores = score_schedules(replay.rated, job, kind.link_gbit_s * 1.25e8);
    if (scores.spells == 0) continue;
    std::printf(
        "  %.0f GB, pause %.0f s, slowdown 0.05 while uploading, %.0f Gbit/s; %zu spells, %.0f h\n",
        kind.state_gb,
        kind.pause_s,
        kind.link_gbit_s,
        scores.spells,
        scores.lent_h
    );
    for (const ScheduleScore& rule : scores.rules) {
      std::printf(
          "    %-20s waste %6.2f %%  overhead %5.2f %%  %5.2f snapshots/h  regret %+6.1f %% "
          "(hindsight %+7.1f %%)  %5.2f x clairvoyant\n",
          rule.rule.c_str(),
          100 * rule.waste_share,
          100 * rule.overhead_share,
          rule.snapshots_per_hour,
          100 * (rule.waste_s / scores.oracle_waste_s - 1),
          100 * (rule.waste_s / scores.hindsight_waste_s - 1),
          rule.waste_s / scores.clairvoyant_waste_s
      );
    }
  }
}

/// What one update of a minute and one forecast cost, with what was learnt in the folds.
void print_cost(reclaim::HazardModel model, const LabTrace& lab, std::int64_t from_ms) {
  constexpr int kRounds = 20'000;
  const NodeId node = node_name(lab, 0);
  const LabId owner(lab.name);
  model.lend(node, owner, wall_from_ms(from_ms));
  double sum = 0;
  const auto ns_each = [&](const auto& call) {
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < kRounds; ++i) call(wall_from_ms(from_ms + i * kMinuteMs));
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
    return took.count() / kRounds;
  };
  const auto forecast = [&](double horizon_s) {
    return ns_each([&](WallTime at) {
      sum += model.survival(node, owner, at, horizon_s).probability();
    });
  };
  const double five_minutes_ns = forecast(kHorizons_s[0]);
  const double eight_hours_ns = forecast(kHorizons_s[3]);
  const double update_ns = ns_each([&](WallTime at) { model.advance(node, at); });
  std::printf(
      "\nmean of %d: update of a minute %.0f ns, forecast of 5 min %.0f ns, of 8 h %.0f ns "
      "(%.3g)\n",
      kRounds,
      update_ns,
      five_minutes_ns,
      eight_hours_ns,
      sum
  );
}

void run_folds(const std::vector<LabTrace>& labs) {
  const auto part = fitting_part(labs, kFitDays);
  const auto began = std::chrono::steady_clock::now();
  const auto passed_s = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  reclaim::HazardModel learnt;
  for (const Fold& fold : forecast_folds(part.size(), kFitDays)) {
    const double before_s = passed_s();
    Replay replay = replay_fold(part, fold, {}, {});
    print_forecasts(fold.name, replay);
    print_schedules(replay);
    std::printf("  took %.1f s\n", passed_s() - before_s);
    learnt = std::move(replay.model);
  }
  std::printf("\nall folds took %.1f s\n", passed_s());
  print_cost(std::move(learnt), part.front(), part.front().begins_ms + kFitDays * kDayMs);
}

int run(const std::string& folder, bool is_folds) {
  const auto labs = evaluate::read_owner_traces(
      folder, {.idle_minutes = kIdleMinutes, .gaps = evaluate::TraceGaps::kEndSpells}
  );
  if (!labs) {
    std::printf("SKIPPED: no traces: %s\n", labs.error().describe().c_str());
    return 77;
  }
  print_machine("hazard_traces: the hazard model and the checkpoint rule on recorded owners");
  std::string load;
  std::getline(std::ifstream("/proc/loadavg"), load);
  std::printf("load: %s\n", load.c_str());
  for (std::size_t i = 0; i < labs->size(); ++i) {
    const LabTrace& lab = (*labs)[i];
    std::printf(
        "lab %s: %zu nodes, %zu spells, %zu gaps, %s\n",
        lab.name.c_str(),
        lab.nodes,
        lab.spells.size(),
        lab.gaps,
        i % 2 == 0 ? "fitting" : "held back"
    );
  }
  if (is_folds) {
    run_folds(*labs);
    return 0;
  }
  for (const Split& split : splits(labs->size())) {
    const Replay replay = replay_forecasts(*labs, split, {}, {});
    print_forecasts(split.name, replay);
    print_schedules(replay);
  }
  return 0;
}

}  // namespace
}  // namespace rn::bench

int main(int argc, char** argv) {
  const bool is_folds = argc == 3 && std::string(argv[2]) == "--folds";
  if (argc != 2 && !is_folds) {
    std::printf("SKIPPED: no traces: give their folder (hazard_traces FOLDER [--folds])\n");
    return 77;
  }
  return rn::bench::run(argv[1], is_folds);
}
