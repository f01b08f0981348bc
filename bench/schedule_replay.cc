// SPDX-License-Identifier: Apache-2.0
#include "schedule_replay.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "reclaim/checkpoint_clock.h"

namespace rn::bench {
namespace {

constexpr double kTick_s = 10;
constexpr double kOracleStep_s = 30;

double length_s(const LentSpell& spell) {
  return static_cast<double>(spell.to_ms - spell.from_ms) / 1000;
}

/// Ages of the snapshots in one spell.
using Rule = std::function<std::vector<double>(const RatedSpell&)>;

struct Setting {
  reclaim::CheckpointJob job;
  double rate = 0;
  reclaim::IntervalLimits limits;
  reclaim::OracleCosts costs;
};

/// Interval by plan_intervals for the hazard of each minute, Φ, and the skip decisions.
std::vector<double> planned(
    const RatedSpell& rated, const Setting& setting, const std::function<double(double)>& hazard
) {
  std::vector<double> ages;
  std::vector<double> interval;
  reclaim::CheckpointClock clock;
  reclaim::CheckpointJob job = setting.job;
  const reclaim::UplinkShare uplink{
      .upload_bytes_per_s = setting.rate, .checkpoint_bytes_per_s = setting.rate};
  double saved = 0;
  const double end = length_s(rated.spell);
  for (double age = 0; age < end; age += kTick_s) {
    if (std::fmod(age, 60) < kTick_s) {
      job.hazard = hazard(age);
      interval = reclaim::plan_intervals({&job, 1}, uplink, setting.limits, interval).interval_s;
    }
    clock.advance(kTick_s, interval[0]);
    const bool is_in_flight = !ages.empty() && age < ages.back() + setting.costs.latency_s;
    if (!ages.empty() && !is_in_flight) saved = ages.back();
    const auto answer = reclaim::judge_snapshot(
        {.is_due = clock.is_due(),
         .is_in_flight = is_in_flight,
         .hazard = job.hazard,
         .exposed_s = age - saved,
         .interval_s = interval[0],
         .cost_s = setting.costs.cost_s,
         .dirty_bytes = job.dirty.bytes(age - saved),
         .upload_s = setting.costs.latency_s}
    );
    if (answer != reclaim::SnapshotAnswer::kTake) continue;
    clock.snapshot_taken();
    ages.push_back(age);
  }
  return ages;
}

std::vector<double> periodic(const RatedSpell& rated, double interval_s) {
  std::vector<double> ages;
  for (double age = interval_s; age < length_s(rated.spell); age += interval_s) ages.push_back(age);
  return ages;
}

ScheduleScore score(
    const std::string& name,
    const std::vector<RatedSpell>& spells,
    const Setting& setting,
    const Rule& rule
) {
  ScheduleScore result{.rule = name};
  double lent = 0;
  double snapshots = 0;
  for (const RatedSpell& rated : spells) {
    const double end = length_s(rated.spell);
    const std::vector<double> ages = rule(rated);
    lent += end;
    result.waste_s += end - reclaim::saved_work(ages, setting.costs, end);
    snapshots += static_cast<double>(std::count_if(ages.begin(), ages.end(), [end](double age) {
      return age < end;
    }));
  }
  result.waste_share = result.waste_s / lent;
  result.overhead_share = snapshots * setting.costs.cost_s / lent;
  result.snapshots_per_hour = snapshots / lent * 3600;
  return result;
}

/// Of a lab's spells, given their sorted lengths.
using Survival = std::function<double(double)>;
using Distribution = std::function<Survival(const std::vector<double>&)>;

Survival empirical(const std::vector<double>& ends) {
  return [ends](double age) {
    const auto first = std::lower_bound(ends.begin(), ends.end(), age);
    return static_cast<double>(ends.end() - first) / static_cast<double>(ends.size());
  };
}

/// Departures over exposure in bands of age: 0 to 5 minutes, and then each twice as long.
Survival banded(const std::vector<double>& ends) {
  std::vector<double> starts;
  std::vector<double> rates;
  double from = 0;
  double to = 300;
  while (from < ends.back()) {
    double events = 0;
    double exposure = 0;
    for (const double end : ends) {
      exposure += std::clamp(end, from, to) - from;
      events += end > from && end <= to ? 1 : 0;
    }
    starts.push_back(from);
    rates.push_back(events / exposure);
    from = to;
    to *= 2;
  }
  return [starts, rates](double age) {
    double hazard = 0;
    for (std::size_t i = 0; i < starts.size() && starts[i] < age; ++i) {
      const double band_end = i + 1 < starts.size() ? std::min(age, starts[i + 1]) : age;
      hazard += rates[i] * (band_end - starts[i]);
    }
    return std::exp(-hazard);
  };
}

double oracle_waste(
    const std::vector<RatedSpell>& spells, const Setting& setting, const Distribution& distribution
) {
  std::map<std::size_t, std::vector<double>> by_lab;
  for (const RatedSpell& rated : spells) {
    by_lab[rated.spell.lab].push_back(length_s(rated.spell));
  }
  double waste = 0;
  for (auto& [lab, ends] : by_lab) {
    std::sort(ends.begin(), ends.end());
    const auto best =
        reclaim::best_schedule(distribution(ends), setting.costs, ends.back() + 60, kOracleStep_s);
    for (const double end : ends) {
      waste += end - reclaim::saved_work(best.ages_s, setting.costs, end);
    }
  }
  return waste;
}

ScheduleScore best_periodic(const std::vector<RatedSpell>& spells, const Setting& setting) {
  ScheduleScore best;
  for (const double minutes : {5, 10, 15, 20, 30, 45, 60, 90, 120}) {
    const double interval_s = std::max(minutes * 60, setting.costs.min_interval_s);
    const ScheduleScore one =
        score("best fixed interval", spells, setting, [interval_s](const RatedSpell& rated) {
          return periodic(rated, interval_s);
        });
    if (best.rule.empty() || one.waste_s < best.waste_s) best = one;
  }
  return best;
}

}  // namespace

ScheduleScores score_schedules(
    const std::vector<RatedSpell>& spells,
    const reclaim::CheckpointJob& job,
    double upload_bytes_per_s
) {
  Setting setting{.job = job, .rate = upload_bytes_per_s};
  const double bytes = job.dirty.bytes(setting.limits.max_interval_s);
  setting.costs = {
      .cost_s = reclaim::checkpoint_cost(job, setting.limits.max_interval_s, upload_bytes_per_s),
      .latency_s = job.pause_s + bytes / upload_bytes_per_s,
      .max_interval_s = setting.limits.max_interval_s};
  setting.costs.min_interval_s = setting.costs.cost_s / setting.limits.max_overhead;

  ScheduleScores scores{.spells = spells.size()};
  for (const RatedSpell& rated : spells) {
    const double end = length_s(rated.spell);
    scores.lent_h += end / 3600;
    scores.clairvoyant_waste_s += std::min(end, setting.costs.latency_s);
  }
  scores.rules.push_back(score("hazard and phase", spells, setting, [&](const RatedSpell& rated) {
    return planned(rated, setting, [&rated](double age) {
      return rated.hazard[static_cast<std::size_t>(age / 60)];
    });
  }));
  scores.rules.push_back(score("constant rate", spells, setting, [&](const RatedSpell& rated) {
    return planned(rated, setting, [&rated](double) { return rated.constant_rate; });
  }));
  for (const double wrong : {3.0, 1 / 3.0}) {
    const char* name = wrong > 1 ? "hazard x 3" : "hazard / 3";
    scores.rules.push_back(score(name, spells, setting, [&](const RatedSpell& rated) {
      return planned(rated, setting, [&rated, wrong](double age) {
        return wrong * rated.hazard[static_cast<std::size_t>(age / 60)];
      });
    }));
  }
  // Every spell with the hazards of another one.
  scores.rules.push_back(score("hazards shuffled", spells, setting, [&](const RatedSpell& rated) {
    const auto own = static_cast<std::size_t>(&rated - spells.data());
    const std::vector<double>& other = spells[(own + spells.size() / 2) % spells.size()].hazard;
    return planned(rated, setting, [&other](double age) {
      return other[std::min(other.size() - 1, static_cast<std::size_t>(age / 60))];
    });
  }));
  scores.rules.push_back(score("every 30 min", spells, setting, [](const RatedSpell& rated) {
    return periodic(rated, 1800);
  }));
  scores.rules.push_back(best_periodic(spells, setting));
  scores.oracle_waste_s = oracle_waste(spells, setting, banded);
  scores.hindsight_waste_s = oracle_waste(spells, setting, empirical);
  return scores;
}

}  // namespace rn::bench
