// SPDX-License-Identifier: Apache-2.0
// How often a job whose machine was taken back loses the next one, too, by where it was sent:
// recorded owners (bench/owner_trace.h), the hazard model learning on from the first minute.
//   evacuation_owners FOLDER [seed, default 1]
// FOLDER as for hazard_traces. Whenever a machine is taken back after the first week, its job goes
// to one of the machines that are lent and free then; every second lent machine, drawn, has a job
// already. All rules see the same moments and the same free machines.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench_report.h"
#include "owner_trace.h"

#include "base/rng.h"
#include "reclaim/evacuation.h"
#include "reclaim/hazard.h"

namespace {

using namespace rn;  // NOLINT: a program
using bench::LabTrace;
using bench::LentSpell;

constexpr int kIdleMinutes = 10;
constexpr int kLearnDays = 7;
constexpr double kHour_s = 3600;
constexpr std::array<double, 6> kCurve_s = {300, 1800, 3600, 7200, 28800, 86400};
constexpr std::array<const char*, 6> kRules = {
    "random", "most free", "nearest", "max survival", "joint choice", "oracle"};

using NodeKey = std::pair<std::size_t, std::size_t>;  // lab, node

struct Event {
  std::int64_t at_ms = 0;
  bool is_end = false;
  const LentSpell* spell = nullptr;
};

struct Place {
  NodeKey key;
  const LentSpell* spell = nullptr;
};

struct Outcome {
  std::size_t n_1h = 0;  ///< whose first hour was seen
  std::size_t lost_1h = 0;
  std::size_t n_4h = 0;
  std::size_t lost_4h = 0;
  double stay_s = 0;  ///< sum, of at most 4 h
};

class Play {
 public:
  Play(const std::vector<LabTrace>& labs, std::uint64_t seed) : labs_(labs), rng_(seed) {
    for (const LabTrace& lab : labs) {
      for (const LentSpell& spell : lab.spells) {
        events_.push_back({spell.from_ms, false, &spell});
        events_.push_back({spell.to_ms, true, &spell});
      }
    }
    std::stable_sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
      return a.at_ms != b.at_ms ? a.at_ms < b.at_ms : a.is_end && !b.is_end;
    });
    test_ms_ = labs.front().begins_ms + kLearnDays * bench::kDayMs;
  }

  void run() {
    std::int64_t day_ms = labs_.front().begins_ms;
    for (std::size_t next = 0; next < events_.size();) {
      const std::int64_t now = events_[next].at_ms;
      for (; day_ms <= now; day_ms += bench::kDayMs) {
        model_.advance_all(wall_from_ms(day_ms));
        model_.refit_strengths(wall_from_ms(day_ms));
      }
      std::vector<NodeKey> taken;
      std::vector<const LentSpell*> back;
      for (; next < events_.size() && events_[next].at_ms == now; ++next) {
        const LentSpell& spell = *events_[next].spell;
        const NodeKey key{spell.lab, spell.node};
        if (!events_[next].is_end) {
          back.push_back(&spell);
          continue;
        }
        lent_.erase(key);
        if (spell.is_reclaimed) taken.push_back(key);
        if (!spell.is_reclaimed) model_.withdrawn(name(key), wall_from_ms(now));
      }
      // What departs in one minute departs together: who is left is asked about before the model
      // has heard of it, as when the reports are on their way.
      if (now >= test_ms_ && !taken.empty()) displace(taken, now);
      for (const NodeKey& key : taken) model_.reclaimed(name(key), wall_from_ms(now));
      for (const LentSpell* spell : back) {
        const NodeKey key{spell->lab, spell->node};
        lent_[key] = spell;
        model_.lend(name(key), LabId(labs_[key.first].name), wall_from_ms(now));
      }
    }
  }

  void print() const {
    std::printf(
        "  rule            n     2nd within 1 h [95 %%]          within 4 h [95 %%]      mean stay "
        "of 4 h\n"
    );
    for (std::size_t r = 0; r < kRules.size(); ++r) {
      const Outcome& o = outcomes_[r];
      std::printf("  %-13s %5zu", kRules[r], o.n_4h);
      print_share(o.lost_1h, o.n_1h);
      print_share(o.lost_4h, o.n_4h);
      std::printf("   %5.0f min\n", o.n_4h == 0 ? 0 : o.stay_s / 60 / static_cast<double>(o.n_4h));
    }
    std::printf("  %zu displacements, of which %zu found no free machine\n", moments_, nowhere_);
  }

 private:
  static void print_share(std::size_t hits, std::size_t n) {
    if (n == 0) return;
    const double p = static_cast<double>(hits) / static_cast<double>(n);
    const double z = 1.96;
    const double count = static_cast<double>(n);
    const double middle = (p + z * z / (2 * count)) / (1 + z * z / count);
    const double half =
        z * std::sqrt(p * (1 - p) / count + z * z / (4 * count * count)) / (1 + z * z / count);
    std::printf(
        "   %5.1f %% [%4.1f, %4.1f]", 100 * p, 100 * (middle - half), 100 * (middle + half)
    );
  }

  NodeId name(const NodeKey& key) const {
    return NodeId(labs_[key.first].name + "-" + std::to_string(key.second));
  }

  void displace(const std::vector<NodeKey>& taken, std::int64_t now) {
    moments_ += taken.size();
    std::vector<Place> free;
    std::map<std::size_t, std::size_t> busy;  // by lab
    for (const auto& [key, spell] : lent_) {
      if (rng_.below(2) == 0) {
        ++busy[key.first];
      } else {
        free.push_back({key, spell});
      }
    }
    if (free.empty()) {
      nowhere_ += taken.size();
      return;
    }
    const std::size_t jobs = std::min(taken.size(), free.size());
    nowhere_ += taken.size() - jobs;
    const std::vector<NodeKey> sources(
        taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(jobs)
    );
    const auto curves = forecasts(free, now);
    for (std::size_t r = 0; r < kRules.size(); ++r) {
      const auto chosen =
          r == 4 ? joint(sources, free, busy, curves) : one_by_one(r, sources, free, curves);
      for (const auto& place : chosen) {
        if (place) count(outcomes_[r], free[*place], now);
      }
    }
  }

  struct Forecast {
    double mean_4h = 0;
    reclaim::StayCurve curve;
  };

  std::vector<Forecast> forecasts(const std::vector<Place>& free, std::int64_t now) {
    std::vector<Forecast> result;
    for (const Place& place : free) {
      const LabId lab(labs_[place.key.first].name);
      model_.advance(name(place.key), wall_from_ms(now));
      Forecast f;
      f.mean_4h =
          model_.survival(name(place.key), lab, wall_from_ms(now), 4 * kHour_s).probability();
      for (const double at_s : kCurve_s)
        f.curve.samples.push_back(
            {at_s, model_.survival(name(place.key), lab, wall_from_ms(now), at_s).quantile(0.25)}
        );
      result.push_back(std::move(f));
    }
    return result;
  }

  static double distance(const NodeKey& from, const NodeKey& to) {
    if (from.first == to.first) return 0;
    const double buildings =
        std::abs(static_cast<double>(from.first / 2) - static_cast<double>(to.first / 2));
    return 1 + buildings;
  }

  std::vector<std::optional<std::size_t>> one_by_one(
      std::size_t rule,
      const std::vector<NodeKey>& sources,
      const std::vector<Place>& free,
      const std::vector<Forecast>& curves
  ) {
    std::map<std::size_t, double> in_lab;
    for (const Place& place : free) in_lab[place.key.first] += 1;
    std::vector<bool> is_used(free.size());
    std::vector<std::optional<std::size_t>> result;
    for (const NodeKey& source : sources) {
      std::optional<std::size_t> best;
      double best_score = -std::numeric_limits<double>::infinity();
      for (std::size_t i = 0; i < free.size(); ++i) {
        // Ties are drawn, for all rules alike.
        double score = 1e-6 * rng_.unit();
        if (rule == 0) score = rng_.unit();
        if (rule == 1) score += in_lab[free[i].key.first];
        if (rule == 2) score -= distance(source, free[i].key);
        if (rule == 3) score += curves[i].mean_4h;
        if (rule == 5) score += static_cast<double>(free[i].spell->to_ms);
        if (is_used[i] || score <= best_score) continue;
        best_score = score;
        best = i;
      }
      if (best) {
        is_used[*best] = true;
        in_lab[free[*best].key.first] -= 1;
      }
      result.push_back(best);
    }
    return result;
  }

  /// One source that stands for all: what moves is small beside what the notice admits.
  std::vector<std::optional<std::size_t>> joint(
      const std::vector<NodeKey>& sources,
      const std::vector<Place>& free,
      const std::map<std::size_t, std::size_t>& busy,
      const std::vector<Forecast>& curves
  ) const {
    reclaim::EvacuationSite site;
    std::map<std::size_t, std::size_t> group_of;
    site.nodes.push_back({.node = NodeId("source"), .name = "source"});
    for (std::size_t i = 0; i < free.size(); ++i) {
      const std::size_t lab = free[i].key.first;
      if (!group_of.contains(lab)) {
        group_of[lab] = site.groups.size();
        const auto jobs = busy.find(lab);
        site.groups.push_back(
            {.name = labs_[lab].name,
             .jobs = jobs == busy.end() ? 0 : static_cast<double>(jobs->second)}
        );
      }
      reclaim::EvacuationNode node;
      node.node = name(free[i].key);
      node.free = {.guests = 1, .gpus = 8, .cpu_milli = 1000, .memory_mib = 1000};
      node.room_bytes = 1e12;
      node.stays = curves[i].curve;
      node.groups = {group_of[lab]};
      // As the coordinator has it: all of a lab goes at most as likely as its most staying machine.
      double& chance = site.groups[group_of[lab]].reclaim_chance;
      const double stays =
          std::exp(std::log(std::max(1e-9, curves[i].curve.samples[3].cautious)) * 2);
      chance = chance == 0 ? 1 - stays : std::min(chance, 1 - stays);
      site.nodes.push_back(std::move(node));
    }
    site.path = [](std::size_t, std::size_t) { return std::vector<std::uint32_t>(); };
    std::vector<reclaim::EvacuatingJob> jobs;
    for (std::size_t j = 0; j < sources.size(); ++j) {
      reclaim::EvacuatingJob job;
      job.notice_s = 300;
      job.needs = {.guests = 1, .gpus = 8, .cpu_milli = 100, .memory_mib = 100};
      job.options.resize(site.nodes.size());
      for (std::size_t n = 1; n < site.nodes.size(); ++n)
        job.options[n] = {.can_run = true, .can_store = true, .has_parent = false, .bytes = 1e9};
      jobs.push_back(std::move(job));
    }
    std::vector<std::optional<std::size_t>> result;
    for (const auto& choice : reclaim::choose_evacuation(site, jobs))
      result.push_back(choice.destination ? std::optional(*choice.destination - 1) : std::nullopt);
    return result;
  }

  static void count(Outcome& o, const Place& place, std::int64_t now) {
    const double left_s = static_cast<double>(place.spell->to_ms - now) / 1e3;
    const bool is_reclaimed = place.spell->is_reclaimed;
    if (is_reclaimed || left_s >= kHour_s) {
      ++o.n_1h;
      o.lost_1h += left_s < kHour_s ? 1 : 0;
    }
    if (!is_reclaimed && left_s < 4 * kHour_s) return;
    ++o.n_4h;
    o.lost_4h += left_s < 4 * kHour_s ? 1 : 0;
    o.stay_s += std::min(left_s, 4 * kHour_s);
  }

  const std::vector<LabTrace>& labs_;
  SeededRng rng_;
  std::vector<Event> events_;
  std::int64_t test_ms_ = 0;
  reclaim::HazardModel model_;
  std::map<NodeKey, const LentSpell*> lent_;
  std::array<Outcome, kRules.size()> outcomes_{};
  std::size_t moments_ = 0;
  std::size_t nowhere_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: evacuation_owners FOLDER [seed]\n");
    return 2;
  }
  const auto labs = bench::read_owner_traces(argv[1], kIdleMinutes);
  if (!labs) {
    std::fprintf(stderr, "%s\n", labs.error().describe().c_str());
    return 1;
  }
  bench::print_machine("second displacements by rule, recorded owners");
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  std::size_t nodes = 0;
  for (const LabTrace& lab : *labs) nodes += lab.nodes;
  std::printf(
      "%zu labs, %zu machines, days %d to 21, seed %lu\n",
      labs->size(),
      nodes,
      kLearnDays + 1,
      static_cast<unsigned long>(seed)
  );
  Play play(*labs, seed);
  play.run();
  play.print();
}
