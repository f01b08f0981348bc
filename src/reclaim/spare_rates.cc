// SPDX-License-Identifier: Apache-2.0
#include "reclaim/spare_rates.h"

#include <algorithm>
#include <numeric>

#include "base/assert.h"

namespace rn::reclaim {

namespace {

/// Smaller comes first.
int spare_rank(const Transfer& transfer, bool is_promised) {
  if (is_promised) return 0;
  switch (transfer.kind) {
    case TransferClass::kRestore:
      return 1;
    case TransferClass::kCheckpoint:
      return 2;
    case TransferClass::kPrefetch:
      return 3;
    case TransferClass::kEvacuation:
      return 4;
  }
  return 4;
}

}  // namespace

void give_spare(
    std::span<const Transfer> transfers,
    std::span<const Link> links,
    const LinkGuard& guard,
    RatePlan& plan
) {
  RN_ASSERT(plan.rates.size() == transfers.size(), "a plan for other transfers");
  std::vector<double> used(links.size());
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    for (const std::uint32_t link : transfers[i].links) used[link] += plan.rates[i];
  }
  std::vector<std::size_t> order(transfers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const int x = spare_rank(transfers[a], plan.is_admitted[a]);
    const int y = spare_rank(transfers[b], plan.is_admitted[b]);
    if (x != y || x != 0) return x < y;
    return transfers[a].deadline_s < transfers[b].deadline_s;
  });
  for (const std::size_t i : order) {
    double rate = transfers[i].max_rate > plan.rates[i] ? transfers[i].max_rate - plan.rates[i] : 0;
    for (const std::uint32_t at : transfers[i].links) {
      const bool has_burst = plan.is_admitted[i] && links[at].burst_left_s > 0;
      const double most = has_burst ? burst_rate(links[at], guard) : guarded_rate(links[at], guard);
      rate = std::min(rate, std::max(most - used[at], 0.0));
    }
    plan.rates[i] += rate;
    for (const std::uint32_t at : transfers[i].links) used[at] += rate;
  }
}

}  // namespace rn::reclaim
