// SPDX-License-Identifier: Apache-2.0
#include "reclaim/admission_price.h"

#include <algorithm>
#include <cmath>

namespace rn::reclaim {
namespace {

/// Who offers again later than this offers something new.
constexpr double kOfferedAnew_s = 10;

double density_of(const Transfer& transfer) {
  const bool has_value = std::isfinite(transfer.value) && transfer.value > 0;
  return has_value ? transfer.value / transfer.bytes : 0;
}

bool is_counted(const Transfer& transfer) {
  return transfer.kind == TransferClass::kEvacuation && std::isfinite(transfer.deadline_s) &&
         std::isfinite(transfer.bytes) && transfer.bytes > 0 && !transfer.links.empty();
}

/// Of what is promised over `link`, the bytes before `due`: as if each were sent evenly.
double promised_before(
    double due,
    std::uint32_t link,
    std::span<const Transfer> transfers,
    const std::vector<bool>& is_in
) {
  double bytes = 0;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& one = transfers[i];
    if (!is_in[i] || !is_counted(one)) continue;
    if (std::find(one.links.begin(), one.links.end(), link) == one.links.end()) continue;
    const double its = due_s(one);
    bytes += its > due ? one.bytes * due / its : one.bytes;
  }
  return bytes;
}

}  // namespace

void AdmissionPrices::remember(double now_s, std::span<const Transfer> transfers) {
  for (const Transfer& one : transfers) {
    if (!is_counted(one)) continue;
    const auto [known, is_new] = offers_.try_emplace(one.id);
    if (is_new) known->second = {now_s, now_s, one.bytes, density_of(one), one.links};
    known->second.seen_s = now_s;
  }
  std::erase_if(offers_, [&](const auto& known) {
    // What is offered still is not taken for new later on.
    return known.second.at_s < now_s - kPriceMemory_s &&
           known.second.seen_s < now_s - kOfferedAnew_s;
  });
  while (offers_.size() > kPriceOffers) {
    offers_.erase(std::min_element(offers_.begin(), offers_.end(), [](auto& a, auto& b) {
      return a.second.at_s < b.second.at_s;
    }));
  }
}

double AdmissionPrices::median_density() const {
  std::vector<double> densities;
  for (const auto& [id, offer] : offers_) densities.push_back(offer.density);
  if (densities.empty()) return 0;
  const auto middle = densities.begin() + static_cast<std::ptrdiff_t>(densities.size() / 2);
  std::nth_element(densities.begin(), middle, densities.end());
  return *middle;
}

std::vector<double> AdmissionPrices::critical_densities(double now_s, std::span<const double> rates)
    const {
  std::vector<const Offer*> densest;
  for (const auto& [id, offer] : offers_) {
    if (offer.at_s >= now_s - kPriceMemory_s) densest.push_back(&offer);
  }
  std::stable_sort(densest.begin(), densest.end(), [](auto a, auto b) {
    return a->density > b->density;
  });
  std::vector<double> room;
  for (const double rate : rates) room.push_back(kPricedLoad * rate * kPriceMemory_s);
  std::vector<double> critical(rates.size());
  for (const Offer* const offer : densest) {
    for (const std::uint32_t link : offer->links) {
      if (link >= rates.size()) continue;  // of a topology that is no longer
      if (room[link] >= 0 && room[link] < offer->bytes) critical[link] = offer->density;
      room[link] -= offer->bytes;
    }
  }
  return critical;
}

std::vector<bool> AdmissionPrices::are_worth_it(
    double now_s,
    std::span<const Transfer> transfers,
    const std::vector<bool>& is_promised,
    std::span<const double> rates
) {
  std::vector<bool> is_worth_it(transfers.size(), true);
  std::vector<std::size_t> asking;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    if (is_counted(transfers[i]) && !is_promised[i]) asking.push_back(i);
  }
  const std::vector<double> critical = critical_densities(now_s, rates);
  const double median = median_density();
  remember(now_s, transfers);
  std::stable_sort(asking.begin(), asking.end(), [&](auto a, auto b) {
    return density_of(transfers[a]) > density_of(transfers[b]);
  });
  std::vector<bool> is_in = is_promised;
  for (const std::size_t i : asking) {
    const Transfer& one = transfers[i];
    double price = 0;
    for (const std::uint32_t link : one.links) {
      if (critical[link] <= 0) continue;
      const double room = rates[link] * due_s(one);
      const double taken = promised_before(due_s(one), link, transfers, is_in);
      const double share = room > taken ? taken / room : 1;
      price = std::max({price, median * share * share, critical[link] * std::min(1.0, 2 * share)});
    }
    is_worth_it[i] = density_of(one) >= price;
    is_in[i] = is_worth_it[i];
  }
  return is_worth_it;
}

}  // namespace rn::reclaim
