// SPDX-License-Identifier: Apache-2.0
#include "evaluate/flows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/assert.h"

namespace rn::evaluate {

namespace {
constexpr double kWholeByte = 0.5;  ///< less than that is nothing left
}

Flows::Flows(Agenda& agenda, const reclaim::Topology& topology)
    : agenda_(agenda), topology_(topology), bytes_by_link_(topology.links().size(), 0) {
  for (const auto& link : topology.links()) lines_.push_back(link.rate);
}

Flows::Id Flows::start(Transfer transfer) {
  settle();
  const auto path = topology_.path(transfer.from, transfer.to);
  Flow flow;
  flow.links = path.links;
  flow.left = std::max(transfer.bytes, 0.0);
  flow.most = transfer.most;
  flow.latency = moment_of(path.latency_s);
  flow.on_arrived = std::move(transfer.on_arrived);
  RN_ASSERT(
      !flow.links.empty() || std::isfinite(flow.most), "something bounds the rate of a transfer"
  );
  flows_.emplace(next_, std::move(flow));
  want_rates();
  return next_++;
}

double Flows::left_now(const Flow& flow) const {
  return std::max(0.0, flow.left - flow.rate * seconds_of(agenda_.now() - settled_at_));
}

double Flows::sent(Id id) const {
  const Flow& flow = flows_.at(id);
  return flow.sent + (flow.left - left_now(flow));
}

double Flows::rate(Id id) const {
  return flows_.at(id).rate;
}

bool Flows::is_full(std::uint32_t link) const {
  constexpr double kFull = 0.98;  // packets come in bursts: a queue stands before all of it is used
  double carried = 0;
  for (const auto& [id, flow] : flows_) {
    if (std::find(flow.links.begin(), flow.links.end(), link) != flow.links.end())
      carried += flow.rate;
  }
  return carried >= lines_[link] * kFull;
}

std::size_t Flows::full_links(Id id) const {
  const auto& links = flows_.at(id).links;
  return static_cast<std::size_t>(std::count_if(links.begin(), links.end(), [this](auto link) {
    return is_full(link);
  }));
}

void Flows::pace(Id id, double most) {
  Flow& flow = flows_.at(id);
  if (flow.asked == most) return;
  settle();
  flow.asked = most;
  want_rates();
}

double Flows::stop(Id id) {
  settle();
  const auto found = flows_.find(id);
  const double sent = found->second.sent;
  tell_of(found->second);
  flows_.erase(found);
  want_rates();
  return sent;
}

void Flows::close() {
  settle();
  for (const auto& [id, flow] : flows_) tell_of(flow);
}

/// Between processes of one machine nothing is on a line.
void Flows::tell_of(const Flow& flow) const {
  if (on_carried_ && !flow.links.empty() && flow.sent > 0) on_carried_(flow.sent);
}

void Flows::set_line(std::uint32_t link, double rate) {
  if (lines_[link] == rate) return;
  settle();
  lines_[link] = rate;
  want_rates();
}

/// Bytes are counted up to now, at the rates that held until now.
void Flows::settle() {
  if (agenda_.now() == settled_at_) return;
  for (auto& [id, flow] : flows_) {
    const double left = left_now(flow);
    const double moved = flow.left - left;
    flow.sent += moved;
    flow.left = left;
    if (!flow.links.empty()) bytes_ += moved;
    for (const std::uint32_t link : flow.links) bytes_by_link_[link] += moved;
  }
  settled_at_ = agenda_.now();
}

/// All changes of a moment are one.
void Flows::want_rates() {
  if (std::exchange(is_wanted_, true)) return;
  agenda_.after(Moment(0), [this] { find_rates(); });
}

void Flows::find_rates() {
  is_wanted_ = false;
  settle();
  share_links();
  arrange_end();
}

/// Progressive filling: the smallest share, of a link or of a flow's own bound, is given out first.
void Flows::share_links() {
  std::vector<double> room = lines_;
  std::vector<std::uint32_t> users(lines_.size(), 0);
  std::vector<Flow*> open;
  for (auto& [id, flow] : flows_) {
    flow.rate = 0;
    if (flow.left < kWholeByte) continue;
    open.push_back(&flow);
    for (const std::uint32_t link : flow.links) ++users[link];
  }
  while (!open.empty()) {
    double least = std::numeric_limits<double>::infinity();
    std::vector<double> share(open.size());
    for (std::size_t i = 0; i < open.size(); ++i) {
      share[i] = std::min(open[i]->most, open[i]->asked);
      for (const std::uint32_t link : open[i]->links)
        share[i] = std::min(share[i], room[link] / users[link]);
      least = std::min(least, share[i]);
    }
    std::vector<Flow*> rest;
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (share[i] > least * (1 + 1e-9)) {
        rest.push_back(open[i]);
        continue;
      }
      open[i]->rate = share[i];
      for (const std::uint32_t link : open[i]->links) {
        room[link] = std::max(0.0, room[link] - share[i]);
        --users[link];
      }
    }
    open = std::move(rest);
  }
}

void Flows::arrange_end() {
  if (end_) agenda_.cancel(*end_);
  end_.reset();
  double soonest = std::numeric_limits<double>::infinity();
  for (const auto& [id, flow] : flows_) {
    if (flow.left < kWholeByte) {
      soonest = 0;
    } else if (flow.rate > 0) {
      soonest = std::min(soonest, flow.left / flow.rate);
    }
  }
  if (!std::isfinite(soonest)) return;
  // A nanosecond later, so that what is left is surely nothing.
  end_ = agenda_.after(moment_of(soonest) + Moment(1), [this] {
    end_.reset();
    end_those_that_arrived();
  });
}

void Flows::end_those_that_arrived() {
  settle();
  std::vector<std::pair<Moment, std::function<void()>>> arrived;
  for (auto at = flows_.begin(); at != flows_.end();) {
    const auto here = at++;
    if (here->second.left >= std::max(kWholeByte, here->second.rate * 4e-9)) continue;
    tell_of(here->second);
    arrived.emplace_back(here->second.latency, std::move(here->second.on_arrived));
    flows_.erase(here);
  }
  want_rates();
  for (auto& [latency, on_arrived] : arrived) agenda_.after(latency, std::move(on_arrived));
}

}  // namespace rn::evaluate
