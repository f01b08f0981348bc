// SPDX-License-Identifier: Apache-2.0
#include "deadline_bounds.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

namespace rn::reclaim {
namespace {

constexpr double kStretch_s = 2;
constexpr int kSteps = 400;
/// Of the mean value of a byte.
constexpr double kFirstStep = 0.02;
constexpr int kEqualPrices = 60;
constexpr double kEqualStep = 0.02;

/// Prices and what is bought, by link and stretch of time.
class Market {
 public:
  explicit Market(const Evening& evening) : evening_(evening) {
    double end_s = 0;
    double value = 0;
    double bytes = 0;
    for (const Arrival& one : evening.arrivals) {
      end_s = std::max(end_s, one.at_s + one.transfer.deadline_s);
      value += one.transfer.value;
      bytes += one.transfer.bytes;
    }
    stretches_ = static_cast<std::size_t>(end_s / kStretch_s) + 1;
    price_.assign(evening.links.size() * stretches_, 0);
    mean_ = bytes > 0 ? value / bytes : 0;
  }

  /// The least of all that were seen: first at one price for all links and times, then, from the
  /// best of these, by subgradient steps.
  double least_bound() {
    double least = 0;
    double best = 0;
    for (int i = 0; i <= kEqualPrices; ++i) {
      const double price = mean_ * kEqualStep * i;
      std::fill(price_.begin(), price_.end(), price);
      const double bound = round();
      if (i > 0 && bound >= least) continue;
      least = bound;
      best = price;
    }
    std::fill(price_.begin(), price_.end(), best);
    std::vector<double> sum(price_.size());
    for (int step = 1; step <= 2 * kSteps; ++step) {
      least = std::min(least, round());
      move_prices(step);
      if (step <= kSteps) continue;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += price_[i];
    }
    // Single prices swing about the right ones; their mean does not.
    for (std::size_t i = 0; i < sum.size(); ++i) price_[i] = sum[i] / kSteps;
    return std::min(least, round());
  }

 private:
  double& price(std::uint32_t link, std::size_t stretch) {
    return price_[link * stretches_ + stretch];
  }

  /// The bound at these prices; notes what would be bought.
  double round() {
    bought_.assign(price_.size(), 0);
    double bound = 0;
    for (std::uint32_t link = 0; link < evening_.links.size(); ++link) {
      for (std::size_t s = 0; s < stretches_; ++s)
        bound += price(link, s) * evening_.links[link].capacity * kStretch_s;
    }
    for (const Arrival& one : evening_.arrivals) bound += surplus(one);
    return bound;
  }

  struct Offer {
    double price;
    double bytes;
    std::size_t stretch;
  };

  /// What this one gains at these prices, at least nothing.
  double surplus(const Arrival& one) {
    const Transfer& transfer = one.transfer;
    double rate = transfer.max_rate;
    for (const std::uint32_t link : transfer.links)
      rate = std::min(rate, evening_.links[link].capacity);
    const double end_s = one.at_s + transfer.deadline_s;
    offers_.clear();
    for (auto s = static_cast<std::size_t>(one.at_s / kStretch_s); s < stretches_; ++s) {
      const double from_s = std::max(one.at_s, static_cast<double>(s) * kStretch_s);
      const double to_s = std::min(end_s, static_cast<double>(s + 1) * kStretch_s);
      if (to_s <= from_s) break;
      double each = 0;
      for (const std::uint32_t link : transfer.links) each += price(link, s);
      offers_.push_back({each, rate * (to_s - from_s), s});
    }
    std::sort(offers_.begin(), offers_.end(), [](const Offer& a, const Offer& b) {
      return a.price < b.price;
    });
    double left = transfer.bytes;
    double cost = 0;
    std::size_t taken = 0;
    for (; taken < offers_.size() && left > 0; ++taken) {
      Offer& offer = offers_[taken];
      offer.bytes = std::min(offer.bytes, left);
      left -= offer.bytes;
      cost += offer.bytes * offer.price;
    }
    if (left > 0 || cost >= transfer.value) return 0;
    for (std::size_t i = 0; i < taken; ++i) {
      for (const std::uint32_t link : transfer.links)
        bought_[link * stretches_ + offers_[i].stretch] += offers_[i].bytes;
    }
    return transfer.value - cost;
  }

  /// Dearer where more was bought than there is, cheaper where less, in ever smaller steps.
  void move_prices(int step) {
    const double by = mean_ * kFirstStep / std::sqrt(step);
    for (std::uint32_t link = 0; link < evening_.links.size(); ++link) {
      const double room = evening_.links[link].capacity * kStretch_s;
      for (std::size_t s = 0; s < stretches_; ++s) {
        const double over = bought_[link * stretches_ + s] / room - 1;
        double& mine = price(link, s);
        mine = std::max(0.0, mine + by * std::min(over, 2.0));
      }
    }
  }

  const Evening& evening_;
  std::size_t stretches_ = 0;
  double mean_ = 0;  ///< value of a byte
  std::vector<double> price_;
  std::vector<double> bought_;
  std::vector<Offer> offers_;
};

}  // namespace

double value_bound(const Evening& evening) {
  double all = 0;
  for (const Arrival& one : evening.arrivals) all += one.transfer.value;
  return std::min(all, Market(evening).least_bound());
}

double best_set_bound(std::span<const Transfer> set, std::span<const Link> links) {
  assert(set.size() <= kMostTogether);
  std::vector<std::size_t> order(set.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return set[a].deadline_s < set[b].deadline_s;
  });
  double best = 0;
  std::vector<double> asked(links.size());
  for (std::uint64_t chosen = 1; chosen < std::uint64_t{1} << set.size(); ++chosen) {
    double value = 0;
    bool fits = true;
    std::fill(asked.begin(), asked.end(), 0);
    for (std::size_t at = 0; at < order.size() && fits; ++at) {
      if ((chosen >> at & 1U) == 0) continue;
      const Transfer& one = set[order[at]];
      value += one.value;
      for (const std::uint32_t link : one.links) {
        asked[link] += one.bytes;
        fits = fits && asked[link] <= links[link].capacity * one.deadline_s;
      }
    }
    if (fits) best = std::max(best, value);
  }
  return best;
}

}  // namespace rn::reclaim
