// SPDX-License-Identifier: Apache-2.0
#include "coordinator/transfer_links.h"

#include <algorithm>

namespace rn::coordinator {

namespace {

constexpr seconds kBurst{120};      ///< for so long evacuations may press the owner's traffic
constexpr seconds kBurstRest{600};  ///< from its beginning until the next one may begin
constexpr double kLanRoundTrip_s = 0.001;

double line_rate(std::uint64_t bps) {
  return static_cast<double>(bps) / 8;
}

}  // namespace

std::uint32_t TransferLinks::add(const std::string& name, double capacity, double background) {
  const auto [at, is_new] = by_name_.emplace(name, static_cast<std::uint32_t>(links_.size()));
  if (is_new) {
    links_.push_back({capacity, std::min(background, capacity), 0});
    names_.push_back(name);
    has_evacuation_.push_back(false);
  }
  return at->second;
}

std::vector<std::uint32_t> TransferLinks::of(
    State& state,
    const NodeId& sender,
    const NodeId& receiver,
    bool is_normal,
    bool is_bound,
    double* rtt_s
) {
  const NodeRow ourselves;
  const NodeRow& from = sender.empty() ? ourselves : state.find_node(sender)->row;
  const NodeRow& to = receiver.empty() ? ourselves : state.find_node(receiver)->row;
  const reclaim::Topology& topology = state.config.topology;
  const auto place_of = [&](const NodeId& id, const NodeRow& row) {
    return id.empty() ? topology.find(kCoordinatorPlace, state.config.hostname)
                      : topology.find(id.str(), row.facts.hostname);
  };
  const auto place = place_of(sender, from);
  const auto target = place_of(receiver, to);
  const auto told = state.transfers.foreign_bps.find(sender);
  const double foreign = told == state.transfers.foreign_bps.end() ? 0 : line_rate(told->second);
  std::vector<std::uint32_t> out;
  if (!place && from.facts.uplink_bps > 0)
    out.push_back(add(state.name_of(sender) + " up", line_rate(from.facts.uplink_bps), foreign));
  const reclaim::Topology::Path path = topology.path(place, target);
  for (std::size_t i = 0; i < path.links.size(); ++i) {
    const reclaim::Topology::Link& link = topology.links()[path.links[i]];
    const double seen = place && i == 0 ? foreign : 0;
    out.push_back(add(link.name, link.rate, std::max(link.background, seen)));
  }
  if (!target && to.facts.uplink_bps > 0)
    out.push_back(add(state.name_of(receiver) + " down", line_rate(to.facts.uplink_bps), 0));
  *rtt_s = 2 * path.latency_s + kLanRoundTrip_s;
  const auto grant = [&](std::uint64_t bps, const char* when) {
    if (bps > 0)
      out.push_back(add("the contract of " + state.name_of(sender) + when, line_rate(bps), 0));
  };
  const auto held = [&](const NodeRow& row) {
    if (row.facts.are_transfers_cut)
      out.push_back(add("the transfers of " + state.name_of(row.node) + ", cut by its owner,", 0, 0)
      );
  };
  if (from.facts.transfers_bps > 0)
    out.push_back(
        add("what the owner of " + state.name_of(sender) + " grants to transfers",
            line_rate(from.facts.transfers_bps),
            0)
    );
  held(from);
  // An owner's edge knows the agents' connections, and not ours.
  if (!sender.empty()) held(to);
  grant(from.contract.uplink_bps_evacuation, "");
  if (is_normal) grant(from.contract.uplink_bps_normal, " in normal times");
  for (const std::uint32_t link : out) has_evacuation_[link] = has_evacuation_[link] || is_bound;
  return out;
}

void TransferLinks::lend_bursts(TransferBook& book, Instant now) {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (!has_evacuation_[i]) continue;
    const Instant since = book.burst_since.emplace(names_[i], now).first->second;
    links_[i].burst_left_s =
        std::max(std::chrono::duration<double>(since + kBurst - now).count(), 0.0);
  }
  std::erase_if(book.burst_since, [&](const auto& burst) {
    const auto at = by_name_.find(burst.first);
    const bool is_used = at != by_name_.end() && has_evacuation_[at->second];
    return !is_used && now - burst.second >= kBurstRest;
  });
}

}  // namespace rn::coordinator
