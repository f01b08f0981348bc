// SPDX-License-Identifier: Apache-2.0
#include "reclaim/evacuation_search.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace rn::reclaim {

namespace {

constexpr double kNoticeably = 1e-6;  // useful seconds: less is rounding

class Search {
 public:
  Search(
      const EvacuationSite& site,
      const std::vector<EvacuatingJob>& jobs,
      const EvacuationPolicy& policy,
      Ledger& ledger
  )
      : site_(site),
        jobs_(jobs),
        policy_(policy),
        ledger_(ledger),
        empty_(ledger),
        at_(jobs.size()) {}

  std::vector<Where> run() {
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      const Preference alone = preference_of(j);
      const double nothing = ledger_.worth_of_nothing(j);
      most_.push_back(alone.best ? std::max(alone.utility, nothing) : nothing);
    }
    // Where links are short the most valuable transfers may be the worst ones to begin with.
    for (const Order order : {Order::kRegret, Order::kRegretPerByte, Order::kFewestBytes}) {
      searches_left_ = policy_.searches_max;
      choose_greedily(order);
      while (improve()) {
      }
      const bool is_easy = std::all_of(at_.begin(), at_.end(), [](Where at) { return !!at; });
      remember();
      for (std::size_t j = 0; j < jobs_.size(); ++j) {
        if (at_[j]) give_up(j);
      }
      if (is_easy) break;
    }
    search_on();
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (best_[j]) take(j, *best_[j]);
    }
    return best_;
  }

 private:
  void take(std::size_t j, std::size_t n) {
    ledger_.send(j, n);
    ledger_.place(j, n);
    at_[j] = n;
  }

  void give_up(std::size_t j) {
    ledger_.unsend(j, *at_[j]);
    ledger_.unplace(j, *at_[j]);
    at_[j].reset();
  }

  enum class Order : std::uint8_t { kRegret, kRegretPerByte, kFewestBytes };

  double claim_of(std::size_t j, const Preference& p, Order order) const {
    const double bytes = 1 + jobs_[j].options[*p.best].bytes;
    switch (order) {
      case Order::kRegret:
        return p.regret;
      case Order::kRegretPerByte:
        return p.regret / bytes;
      case Order::kFewestBytes:
        return 1 / bytes;
    }
    return 0;
  }

  Preference preference_of(std::size_t j, Where except = std::nullopt) {
    if (searches_left_ > 0) --searches_left_;
    return reclaim::preference_of(ledger_, j, site_.nodes.size(), except);
  }

  void choose_greedily(Order order) {
    std::vector<std::size_t> waiting(jobs_.size());
    for (std::size_t j = 0; j < waiting.size(); ++j) waiting[j] = j;
    while (!waiting.empty()) {
      std::size_t chosen = waiting.size();
      Where best;
      double claim = 0;
      for (std::size_t i = 0; i < waiting.size(); ++i) {
        const Preference p = preference_of(waiting[i]);
        if (!p.best) continue;
        const double one = claim_of(waiting[i], p, order);
        if (chosen < waiting.size() && one <= claim) continue;
        chosen = i;
        claim = one;
        best = p.best;
      }
      if (chosen == waiting.size()) return;
      take(waiting[chosen], *best);
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
  }

  void remember() {
    const double worth = value_of(empty_, jobs_, at_).value_or(-1e300);
    if (!best_.empty() && worth <= best_worth_ + kNoticeably) return;
    best_ = at_;
    best_worth_ = worth;
  }

  /// Branch and bound, as far as the budget goes: all of a small case. The earliest deadline first,
  /// so that nobody who is booked later makes another one wait, and what is booked keeps its worth.
  void search_on() {
    searches_left_ = policy_.searches_max;
    std::vector<std::size_t> order(jobs_.size());
    for (std::size_t j = 0; j < order.size(); ++j) order[j] = j;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return jobs_[a].notice_s < jobs_[b].notice_s;
    });
    branch(order, 0, 0, std::accumulate(most_.begin(), most_.end(), 0.0));
  }

  void branch(
      const std::vector<std::size_t>& order, std::size_t depth, double worth, double at_most
  ) {
    if (worth + at_most <= best_worth_ + kNoticeably) return;
    if (depth == order.size()) {
      best_ = at_;
      best_worth_ = worth;
      return;
    }
    if (searches_left_ == 0) return;
    --searches_left_;
    const std::size_t j = order[depth];
    std::vector<std::pair<double, std::size_t>> options;
    for (std::size_t n = 0; n < site_.nodes.size(); ++n) {
      if (const auto utility = ledger_.assess(j, n)) options.emplace_back(-*utility, n);
    }
    std::sort(options.begin(), options.end());
    for (const auto& [cost, n] : options) {
      take(j, n);
      branch(order, depth + 1, worth - cost, at_most - most_[j]);
      give_up(j);
    }
    branch(order, depth + 1, worth + ledger_.worth_of_nothing(j), at_most - most_[j]);
  }

  double worth_of(std::size_t j) {
    if (!at_[j]) return ledger_.worth_of_nothing(j);
    const std::size_t n = *at_[j];
    give_up(j);
    const double worth = ledger_.assess(j, n).value_or(ledger_.worth_of_nothing(j));
    take(j, n);
    return worth;
  }

  /// Moves of one job, and of one that makes another one move on, by which more is won than lost.
  /// False if there was none.
  bool improve() {
    bool is_better = false;
    for (std::size_t j = 0; j < jobs_.size() && searches_left_ > 0; ++j)
      is_better = moves_alone(j) || is_better;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      for (std::size_t other = 0; other < jobs_.size(); ++other) {
        if (other == j || !at_[other] || searches_left_ == 0) continue;
        // What is in another one's way stands at its place, or is on its links.
        const bool is_near = at_[other] != at_[j];
        if (is_near && displaces(j, other, at_[other])) is_better = true;
        if (at_[other] && !at_[j] && displaces(j, other, std::nullopt)) is_better = true;
      }
    }
    return is_better;
  }

  bool moves_alone(std::size_t j) {
    const double before = worth_of(j);
    const Where from = at_[j];
    if (from) give_up(j);
    const Preference p = preference_of(j);
    const bool is_better = p.best && p.best != from && p.utility > before + kNoticeably;
    if (is_better) {
      take(j, *p.best);
    } else if (from) {
      take(j, *from);
    }
    return is_better;
  }

  /// `j` goes to `to`, or where it is best once `other` is out of the way, and `other` to what is
  /// best for it then.
  bool displaces(std::size_t j, std::size_t other, Where to) {
    const double before = worth_of(j) + worth_of(other);
    const Where from = at_[j];
    const std::size_t others = *at_[other];
    if (from) give_up(j);
    give_up(other);
    if (!to) to = preference_of(j).best;
    const auto first = to ? ledger_.assess(j, *to) : std::nullopt;
    if (first) {
      take(j, *to);
      const Preference next = preference_of(other);
      const double worth = next.best ? next.utility : ledger_.worth_of_nothing(other);
      if (*first + worth > before + kNoticeably) {
        if (next.best) take(other, *next.best);
        return true;
      }
      give_up(j);
    }
    if (from) take(j, *from);
    take(other, others);
    return false;
  }

  const EvacuationSite& site_;
  const std::vector<EvacuatingJob>& jobs_;
  const EvacuationPolicy& policy_;
  Ledger& ledger_;
  const Ledger empty_;  ///< as that was at first: nothing is booked
  std::vector<Where> at_;
  std::vector<double> most_;  ///< what each would be worth if there were no others
  std::vector<Where> best_;
  double best_worth_ = 0;
  std::size_t searches_left_ = 0;
};

}  // namespace

Preference preference_of(const Ledger& ledger, std::size_t job, std::size_t nodes, Where except) {
  Preference p;
  double second = ledger.worth_of_nothing(job);
  for (std::size_t n = 0; n < nodes; ++n) {
    if (n == except) continue;
    const auto utility = ledger.assess(job, n);
    if (!utility) continue;
    if (!p.best || *utility > p.utility) {
      if (p.best) {
        second = p.utility;
        p.second = p.best;
      }
      p.best = n;
      p.utility = *utility;
    } else if (!p.second || *utility > second) {
      second = *utility;
      p.second = n;
    }
  }
  p.regret = p.best ? p.utility - second : 0;
  return p;
}

std::vector<Where> search_destinations(
    const EvacuationSite& site,
    const std::vector<EvacuatingJob>& jobs,
    const EvacuationPolicy& policy,
    Ledger& ledger
) {
  return Search(site, jobs, policy, ledger).run();
}

}  // namespace rn::reclaim
