// SPDX-License-Identifier: Apache-2.0
// Evacuations over six uplinks and the link that two buildings share, at loads from half of what
// the links carry to three times as much: what arrives before its deadline under our admission and
// rates, and under what others do. Fluid links without background, the same arrivals for all, and a
// bound that nobody can pass who knows all arrivals beforehand (deadline_bounds.h). Then sets that
// are known at once, as when a lab takes its machines back together: what we admit, and what the
// best set could be worth.
//   deadline_rates [evenings per load, default 10 [the first one's seed, default 1]]

#include "reclaim/deadline_rates.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <vector>

#include "bench_report.h"
#include "deadline_bounds.h"

#include "base/rng.h"

namespace rn::reclaim {
namespace {

constexpr double kTick_s = 0.2;
constexpr double kEvening_s = 600;
constexpr LinkGuard kNoGuard{.margin_share = 0, .burst_share = 0};

double uniform(Rng& rng, double from, double to) {
  return from + (to - from) * rng.unit();
}

std::vector<Link> the_links() {
  std::vector<Link> links(6, Link{.capacity = 125e6});
  links.push_back({.capacity = 250e6});
  return links;
}

constexpr double kFits_per_s = 375e6;  ///< of the uplinks of six, from two of which each is sent
constexpr double kMean_bytes = 600e6;

/// Between two uplinks, over the buildings' link if it has to.
Transfer a_transfer(Rng& rng, std::uint64_t id) {
  Transfer one;
  one.id = id;
  one.bytes = uniform(rng, 50e6, 2 * kMean_bytes - 50e6);
  one.deadline_s = uniform(rng, 15, 120);
  one.value = uniform(rng, 1, 50);
  const auto from = static_cast<std::uint32_t>(rng.below(6));
  const auto to = static_cast<std::uint32_t>((from + 1 + rng.below(5)) % 6);
  one.links = {from, to};
  if (from / 3 != to / 3) one.links.push_back(6);
  return one;
}

Evening an_evening(std::uint64_t seed, double load) {
  SeededRng rng(seed);
  Evening evening{the_links(), {}};
  const double per_s = load * kFits_per_s / kMean_bytes;
  for (double t = 0; t < kEvening_s; t += -std::log(1 - rng.unit()) / per_s)
    evening.arrivals.push_back({t, a_transfer(rng, evening.arrivals.size())});
  return evening;
}

/// Rates for what is under way, until the next tick; below 0: refused, and so not waited for.
using Policy = std::function<std::vector<double>(double, const std::vector<Transfer>&)>;

/// Whole links to one after the other, in this order.
template <class Before>
std::vector<double> in_order(
    const std::vector<Transfer>& set, const std::vector<Link>& links, Before before
) {
  std::vector<std::size_t> order(set.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), before);
  std::vector<double> left;
  for (const Link& link : links) left.push_back(link.capacity);
  std::vector<double> rates(set.size());
  for (const std::size_t i : order) {
    double rate = set[i].bytes / kTick_s;
    for (const std::uint32_t link : set[i].links) rate = std::min(rate, left[link]);
    for (const std::uint32_t link : set[i].links) left[link] -= rate;
    rates[i] = rate;
  }
  return rates;
}

/// Max-min fair: what TCP with equal round trips comes to.
std::vector<double> fair(const std::vector<Transfer>& set, const std::vector<Link>& links) {
  std::vector<double> left;
  for (const Link& link : links) left.push_back(link.capacity);
  std::vector<double> rates(set.size());
  std::vector<bool> is_done(set.size());
  for (std::size_t fixed = 0; fixed < set.size();) {
    std::vector<int> users(links.size());
    for (std::size_t i = 0; i < set.size(); ++i) {
      for (const std::uint32_t link : set[i].links) users[link] += is_done[i] ? 0 : 1;
    }
    double least = 1e300;
    for (std::size_t link = 0; link < links.size(); ++link) {
      if (users[link] > 0) least = std::min(least, left[link] / users[link]);
    }
    for (std::size_t i = 0; i < set.size(); ++i) {
      const bool is_tight = std::any_of(set[i].links.begin(), set[i].links.end(), [&](auto link) {
        return left[link] / users[link] <= least * (1 + 1e-9);
      });
      if (is_done[i] || !is_tight) continue;
      rates[i] = least;
      is_done[i] = true;
      ++fixed;
    }
    for (std::size_t link = 0; link < links.size(); ++link) left[link] = links[link].capacity;
    for (std::size_t i = 0; i < set.size(); ++i) {
      for (const std::uint32_t link : set[i].links) left[link] -= rates[i];
    }
  }
  return rates;
}

struct Outcome {
  double arrivals = 0;
  double value = 0;
  double met = 0;
  double met_value = 0;
  double admitted = 0;
  double missed = 0;  ///< of the admitted
  double bound = 0;   ///< of met_value, if it was asked for
  std::vector<double> plan_us;

  void add(const Outcome& other) {
    arrivals += other.arrivals;
    value += other.value;
    met += other.met;
    met_value += other.met_value;
    admitted += other.admitted;
    missed += other.missed;
    bound += other.bound;
    plan_us.insert(plan_us.end(), other.plan_us.begin(), other.plan_us.end());
  }
};

/// A transfer whose deadline passed is given up.
Outcome play(const Evening& evening, const Policy& policy) {
  Outcome out;
  std::vector<Transfer> under_way;
  std::size_t next = 0;
  for (int tick = 0; tick * kTick_s < kEvening_s + 130; ++tick) {
    const double now_s = tick * kTick_s;
    for (; next < evening.arrivals.size() && evening.arrivals[next].at_s <= now_s; ++next) {
      under_way.push_back(evening.arrivals[next].transfer);
      ++out.arrivals;
      out.value += under_way.back().value;
    }
    const auto start = std::chrono::steady_clock::now();
    const std::vector<double> rates = policy(now_s, under_way);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    out.plan_us.push_back(took.count());
    std::vector<Transfer> left;
    for (std::size_t i = 0; i < under_way.size(); ++i) {
      Transfer one = under_way[i];
      if (rates[i] < 0) continue;
      one.bytes -= rates[i] * kTick_s;
      one.deadline_s -= kTick_s;
      const bool is_met = one.bytes <= 1;
      out.met += is_met ? 1 : 0;
      out.met_value += is_met ? one.value : 0;
      if (!is_met && one.deadline_s > 0) left.push_back(one);
    }
    under_way = std::move(left);
  }
  return out;
}

Outcome play_ours(const Evening& evening) {
  RatePlanner planner(kNoGuard);
  std::set<std::uint64_t> promised;
  double missed = 0;
  Outcome out = play(evening, [&](double now_s, const std::vector<Transfer>& set) {
    RatePlan plan = planner.plan(now_s, set, evening.links, kTick_s);
    for (std::size_t i = 0; i < set.size(); ++i) {
      if (plan.is_admitted[i]) promised.insert(set[i].id);
      if (plan.is_admitted[i]) continue;
      missed += promised.erase(set[i].id) > 0 ? 1 : 0;
      plan.rates[i] = -1;
    }
    return plan.rates;
  });
  out.admitted = static_cast<double>(promised.size()) + missed;
  out.missed = missed;
  return out;
}

void print(const char* what, double load, const Outcome& out) {
  std::printf(
      "%-26s %4.2f %7.0f %8.1f %% %8.1f %% %9.0f %7.0f %9.0f %9.0f\n",
      what,
      load,
      out.arrivals,
      100 * out.met / out.arrivals,
      100 * out.met_value / out.value,
      out.admitted,
      out.missed,
      bench::quantile(out.plan_us, 0.5),
      bench::quantile(out.plan_us, 0.99)
  );
}

void compare(double load, std::uint64_t evenings, std::uint64_t first) {
  Outcome ours;
  Outcome shared;
  Outcome by_value;
  Outcome by_deadline;
  Outcome first_come;
  for (std::uint64_t seed = first; seed < first + evenings; ++seed) {
    const Evening evening = an_evening(seed, load);
    const auto ordered = [&](auto is_before) {
      return [&evening, is_before](double, const std::vector<Transfer>& set) {
        return in_order(set, evening.links, [&](auto a, auto b) {
          return is_before(set[a], set[b]);
        });
      };
    };
    ours.add(play_ours(evening));
    ours.bound += value_bound(evening);
    shared.add(play(evening, [&](double, const auto& set) { return fair(set, evening.links); }));
    by_value.add(play(evening, ordered([](auto& a, auto& b) { return a.value > b.value; })));
    by_deadline.add(play(evening, ordered([](auto& a, auto& b) {
                           return a.deadline_s < b.deadline_s;
                         })));
    first_come.add(play(evening, ordered([](auto& a, auto& b) { return a.id < b.id; })));
  }
  print("admission and rates", load, ours);
  std::printf(
      "%-26s %4.2f %7.0f %10s %8.1f %%  ours is %.1f %% of it\n",
      "no more than, knowing all",
      load,
      ours.arrivals,
      "",
      100 * ours.bound / ours.value,
      100 * ours.met_value / ours.bound
  );
  print("fair share", load, shared);
  print("strict priority by value", load, by_value);
  print("EDF without admission", load, by_deadline);
  print("first come, first served", load, first_come);
  std::fflush(stdout);
}

/// Sixteen that are known at once, with notices as long as `load` wants them.
void compare_known_at_once(double load, std::uint64_t sets, std::uint64_t first) {
  constexpr std::size_t kTogether = 16;
  const double notice_s = static_cast<double>(kTogether) * kMean_bytes / kFits_per_s / load;
  std::vector<double> ratios;
  double ours = 0;
  double best = 0;
  for (std::uint64_t seed = first; seed < first + sets; ++seed) {
    SeededRng rng(seed);
    std::vector<Transfer> set;
    for (std::size_t i = 0; i < kTogether; ++i) {
      set.push_back(a_transfer(rng, i));
      set.back().deadline_s = notice_s * uniform(rng, 0.2, 1.8);
    }
    RatePlanner planner(kNoGuard);
    const double got = planner.plan(0, set, the_links(), kTick_s).admitted_value;
    const double bound = best_set_bound(set, the_links());
    ours += got;
    best += bound;
    ratios.push_back(got / bound);
  }
  std::printf(
      "%-26s %4.2f %7zu  together %5.1f %%  median %5.1f %%  worst twentieth %5.1f %%  worst %5.1f "
      "%%\n",
      "known at once, of the bound",
      load,
      ratios.size(),
      100 * ours / best,
      100 * bench::quantile(ratios, 0.5),
      100 * bench::quantile(ratios, 0.05),
      100 * bench::quantile(ratios, 0)
  );
}

}  // namespace
}  // namespace rn::reclaim

int main(int argc, char** argv) {
  const std::uint64_t evenings = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10;
  const std::uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  rn::bench::print_machine("evacuations that arrive before their deadlines");
  std::printf(
      "%-26s %4s %7s %10s %10s %9s %7s %9s %9s\n",
      "rule",
      "load",
      "n",
      "in time",
      "of value",
      "admitted",
      "missed",
      "plan p50",
      "p99 [us]"
  );
  for (const double load : {0.5, 0.75, 1.0, 1.5, 3.0}) rn::reclaim::compare(load, evenings, first);
  for (const double load : {0.5, 0.75, 1.0, 1.5, 3.0})
    rn::reclaim::compare_known_at_once(load, 20 * evenings, first);
  return 0;
}
