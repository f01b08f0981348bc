// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "reclaim/transfer.h"

// What room on a link costs while more evacuations come than the links carry. Pure. Seconds, bytes,
// value per byte.
namespace rn::reclaim {

/// For so long it is remembered what was offered.
inline constexpr double kPriceMemory_s = 120;
/// Of what a link carries in that time: if more was offered, its room has a price.
inline constexpr double kPricedLoad = 0.9;
/// Offers that are remembered at most; beyond, the oldest are forgotten.
inline constexpr std::size_t kPriceOffers = 1024;

/// Who promises whatever fits has no room for what comes a moment later and is worth more. So where
/// more comes than the links carry, a promise is made only for what is worth its room: the dearer,
/// the more of that room is promised already (the threshold policies of online knapsacks and of
/// revenue management; ours adds two thresholds).
///
/// A link's price is 0 unless what was first offered over it in the last `kPriceMemory_s` is more
/// than `kPricedLoad` of what it carries in that time. Then, with u the share of the room until the
/// candidate is due that is promised, and densities the values per byte of what was offered:
///     max(median density · u², critical density · min(1, 2u))
/// where the critical density is the least that still finds room when the densest go first (0 if
/// all do). So an empty link takes anything, also in the worst of times; and what is offered in one
/// moment is weighed against what came before it alone, for of such a set the planner itself finds
/// the best part.
class AdmissionPrices {
 public:
  /// Per transfer: whether a promise of it is worth its room, at a time that never goes back. True
  /// for what is promised already, and for what is no evacuation with a deadline. `rates`: what
  /// each link carries (bytes/s). What is offered for the first time is remembered afterwards.
  /// O(n·(n + k)) for n transfers and what is remembered of k links.
  std::vector<bool> are_worth_it(
      double now_s,
      std::span<const Transfer> transfers,
      const std::vector<bool>& is_promised,
      std::span<const double> rates
  );

 private:
  struct Offer {
    double at_s = 0;
    double seen_s = 0;
    double bytes = 0;
    double density = 0;
    std::vector<std::uint32_t> links;
  };

  void remember(double now_s, std::span<const Transfer> transfers);
  double median_density() const;
  std::vector<double> critical_densities(double now_s, std::span<const double> rates) const;

  std::map<std::uint64_t, Offer> offers_;  ///< by the transfer's id
};

}  // namespace rn::reclaim
