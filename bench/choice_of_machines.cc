// SPDX-License-Identifier: Apache-2.0
// How soon the machine is taken back that a rule would choose of all that are lent
// (docs/evaluation.md).
//   choice_of_machines [NODES DAYS SEEDS]
// Owners and notices are those of `reclaim-sim evaluate` (mixed); nothing is placed, so that the
// rules do not disturb each other: every half hour from noon of the first day on each chooses one.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "bench_report.h"

#include "base/rng.h"
#include "evaluate/campus.h"
#include "evaluate/interruptions.h"
#include "evaluate/people.h"
#include "reclaim/hazard.h"

namespace rn::bench {
namespace {

using evaluate::Interruption;

constexpr double kLook_s = 300;
constexpr double kChoose_s = 1800;
constexpr double kDay_s = 86'400;
constexpr double kIdle_s = 600;
constexpr double kPlaced_s = 4 * 3600;  // for how long a job of unknown length is placed
constexpr std::array<double, 3> kWithin_s = {3600, kPlaced_s, 12 * 3600};

struct Chosen {
  std::size_t times = 0;
  std::array<std::size_t, 3> taken{};
  double forecast = 0;  ///< sum of the chances of being taken within kPlaced_s
};

using Table = std::map<std::string, Chosen>;

WallTime at(double seconds) {
  constexpr std::int64_t kMonday_ms = 4 * 86'400'000LL;
  return wall_from_ms(kMonday_ms + static_cast<std::int64_t>(seconds * 1000));
}

class Site {
 public:
  Site(unsigned nodes, double days, std::uint64_t seed) : days_(days), dice_(seed) {
    const auto labs = std::max(1U, nodes * 12 / 54);
    const auto campus = evaluate::make_campus({.nodes = nodes, .labs = labs, .days = days}, seed);
    const auto uses = evaluate::make_owner_uses(campus, {.days = days}, seed);
    const auto mixed = *evaluate::find_notices("mixed");
    for (unsigned n = 0; n < nodes; ++n) {
      nodes_.push_back({NodeId("n-" + std::to_string(n)), LabId(campus.nodes[n].lab)});
      changes_.emplace(0, Change{n, nullptr});
    }
    interruptions_ = evaluate::interruptions_of(uses, mixed, seed, kIdle_s);
    for (const Interruption& one : interruptions_) {
      changes_.emplace(one.deadline_s, Change{one.node, &one});
      changes_.emplace(one.returns_s, Change{one.node, nullptr});
      nodes_[one.node].taken_s.push_back(one.deadline_s);
    }
  }

  void play(Table& table) {
    auto next = changes_.begin();
    for (double now = 0; now < (days_ - 0.5) * kDay_s; now += kLook_s) {
      for (; next != changes_.end() && next->first <= now; ++next) apply(*next);
      for (reclaim::HazardModel* model : {&all_, &unannounced_}) {
        model->advance_all(at(now));
        if (std::fmod(now, kDay_s) == 0) model->refit_strengths(at(now));
      }
      if (now >= kDay_s / 2 && std::fmod(now, kChoose_s) == 0) choose(now, table);
    }
  }

 private:
  struct Node {
    NodeId id;
    LabId lab;
    std::vector<double> taken_s = {};
    double lent_since_s = -1;  ///< negative: not lent
  };

  struct Change {
    std::size_t node = 0;
    const Interruption* taken = nullptr;  ///< none: it is lent from here on
  };

  void apply(const std::pair<const double, Change>& change) {
    Node& node = nodes_[change.second.node];
    const WallTime when = at(change.first);
    const Interruption* const taken = change.second.taken;
    const bool is_announced = taken != nullptr && taken->kind == ReclaimKind::kAnnounced;
    node.lent_since_s = taken == nullptr ? change.first : -1;
    for (reclaim::HazardModel* model : {&all_, &unannounced_}) {
      if (taken == nullptr) model->lend(node.id, node.lab, when);
      if (taken != nullptr && is_announced && model == &unannounced_)
        model->withdrawn(node.id, when);
      if (taken != nullptr && (!is_announced || model == &all_)) model->reclaimed(node.id, when);
    }
  }

  void choose(double now, Table& table) {
    std::vector<const Node*> lent;
    for (const Node& node : nodes_) {
      if (node.lent_since_s >= 0) lent.push_back(&node);
    }
    if (lent.size() < 2) return;
    note(table["by lot"], *lent[dice_.below(lent.size())], now, 0);
    const auto longest = std::min_element(lent.begin(), lent.end(), [](auto* a, auto* b) {
      return a->lent_since_s < b->lent_since_s;
    });
    note(table["longest absent owner"], **longest, now, 0);
    by_forecast(all_, lent, now, table["hazard of all departures"]);
    by_forecast(unannounced_, lent, now, table["hazard of unannounced ones"]);
  }

  static void by_forecast(
      const reclaim::HazardModel& model,
      const std::vector<const Node*>& lent,
      double now,
      Chosen& chosen
  ) {
    const Node* best = nullptr;
    double most = -1;
    double chance = 0;
    for (const Node* node : lent) {
      const auto stays = model.survival(node->id, node->lab, at(now), kPlaced_s);
      if (stays.quantile(0.25) <= most) continue;
      most = stays.quantile(0.25);
      best = node;
      chance = 1 - stays.probability();
    }
    note(chosen, *best, now, chance);
  }

  static void note(Chosen& chosen, const Node& node, double now, double chance) {
    const auto next = std::upper_bound(node.taken_s.begin(), node.taken_s.end(), now);
    ++chosen.times;
    chosen.forecast += chance;
    if (next == node.taken_s.end()) return;
    for (std::size_t i = 0; i < kWithin_s.size(); ++i) {
      if (*next - now <= kWithin_s[i]) ++chosen.taken[i];
    }
  }

  double days_;
  SeededRng dice_;
  std::vector<Node> nodes_;
  std::vector<Interruption> interruptions_;
  std::multimap<double, Change> changes_;
  reclaim::HazardModel all_;
  reclaim::HazardModel unannounced_;
};

void run(unsigned nodes, double days, std::uint64_t seeds) {
  print_machine("choice_of_machines: how soon the chosen machine is taken back");
  Table table;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) Site(nodes, days, seed).play(table);
  std::printf("%u nodes, %.0f days, seeds 1 to %llu\n", nodes, days, (unsigned long long)seeds);
  for (const auto& [rule, chosen] : table) {
    const auto times = static_cast<double>(chosen.times);
    const auto share = [times](double count) { return 100 * count / times; };
    std::printf(
        "%-27s %5zu choices, taken within 1 h %4.1f %%, 4 h %4.1f %%, 12 h %4.1f %%; forecast for "
        "4 h %4.1f %%\n",
        rule.c_str(),
        chosen.times,
        share(static_cast<double>(chosen.taken[0])),
        share(static_cast<double>(chosen.taken[1])),
        share(static_cast<double>(chosen.taken[2])),
        share(chosen.forecast)
    );
  }
}

}  // namespace
}  // namespace rn::bench

int main(int argc, char** argv) {
  const bool is_told = argc == 4;
  rn::bench::run(
      is_told ? static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10)) : 16,
      is_told ? std::strtod(argv[2], nullptr) : 5,
      is_told ? std::strtoul(argv[3], nullptr, 10) : 20
  );
}
