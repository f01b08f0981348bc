// SPDX-License-Identifier: Apache-2.0
#include "reclaim/fluid_play.h"

#include <algorithm>
#include <cmath>

#include "base/assert.h"
#include "reclaim/demand_bound.h"

namespace rn::reclaim {

namespace {

constexpr std::size_t kMaxIntervals = 256;
constexpr std::size_t kExactMembers = 64;
constexpr double kQuanta = 256;
constexpr double kInstant_s = 1e-9;         // times closer than this are one
constexpr double kFitTolerance = 1 + 1e-9;  // rounding of a sum of shares

/// Least budget of `curve` between two times: an interval that was merged promises no more.
double least_between(const BudgetCurve& curve, double from_s, double to_s) {
  double least = curve.at(from_s);
  for (const BudgetCurve::Step& step : curve.steps()) {
    if (step.from_s > from_s && step.from_s < to_s) least = std::min(least, step.bytes_per_s);
  }
  return least;
}

}  // namespace

FluidPlay::FluidPlay(const std::vector<BudgetCurve>& budgets, std::vector<Flow> flows)
    : flows_(std::move(flows)), links_(budgets.size()) {
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    RN_ASSERT(!flows_[i].path.empty(), "a flow crosses a link");
    RN_ASSERT(i == 0 || flows_[i - 1].due_s <= flows_[i].due_s, "flows ascend by due time");
  }
  path_begin_ = {0};
  for (const Flow& flow : flows_) {
    path_links_.insert(path_links_.end(), flow.path.begin(), flow.path.end());
    path_begin_.push_back(path_links_.size());
  }
  lay_grid(budgets);
  weigh_flows();
  find_short_links();
  left_.resize(flows_.size());
  share_.resize(flows_.size());
  minimum_.resize(flows_.size());
  is_eased_.resize(flows_.size());
  rate_.resize(flows_.size());
  most_.resize(flows_.size());
  load_.resize(links_);
  residual_.resize(links_);
}

void FluidPlay::lay_grid(const std::vector<BudgetCurve>& budgets) {
  const double horizon_s = flows_.empty() ? 0 : flows_.back().due_s;
  grid_s_ = {0};
  for (const BudgetCurve& curve : budgets) {
    for (const BudgetCurve::Step& step : curve.steps()) {
      if (step.from_s > 0 && step.from_s < horizon_s) grid_s_.push_back(step.from_s);
    }
  }
  std::sort(grid_s_.begin(), grid_s_.end());
  grid_s_.erase(std::unique(grid_s_.begin(), grid_s_.end()), grid_s_.end());
  if (grid_s_.size() > kMaxIntervals) grid_s_.resize(kMaxIntervals);
  budget_.resize(grid_s_.size() * links_);
  for (std::size_t k = 0; k < grid_s_.size(); ++k) {
    const double end_s = k + 1 < grid_s_.size() ? grid_s_[k + 1] : horizon_s;
    for (std::size_t l = 0; l < links_; ++l)
      budget_[k * links_ + l] = least_between(budgets[l], grid_s_[k], end_s);
  }
}

void FluidPlay::weigh_flows() {
  const std::size_t intervals = grid_s_.size();
  carried_until_.assign(intervals * links_, 0);
  for (std::size_t k = 1; k < intervals; ++k) {
    for (std::size_t l = 0; l < links_; ++l)
      carried_until_[k * links_ + l] =
          carried_until_[(k - 1) * links_ + l] +
          budget_[(k - 1) * links_ + l] * (grid_s_[k] - grid_s_[k - 1]);
  }
  path_budget_.resize(flows_.size() * intervals);
  sent_until_.resize(flows_.size() * intervals);
  whole_window_.resize(flows_.size());
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    double sum = 0;
    for (std::size_t k = 0; k < intervals; ++k) {
      double least = flows_[i].cap_bytes_per_s;
      for (const LinkIndex link : flows_[i].path) {
        RN_ASSERT(link < links_, "a path names links that are there");
        least = std::min(least, budget(link, k));
      }
      path_budget_[k * flows_.size() + i] = least;
      sent_until_[k * flows_.size() + i] = sum;
      const double end_s =
          k + 1 < intervals ? std::min(grid_s_[k + 1], flows_[i].due_s) : flows_[i].due_s;
      if (end_s > grid_s_[k]) sum += least * (end_s - grid_s_[k]);
    }
    whole_window_[i] = sum;
    const auto after = std::upper_bound(grid_s_.begin() + 1, grid_s_.end(), flows_[i].due_s);
    due_interval_.push_back(static_cast<std::size_t>(after - grid_s_.begin()) - 1);
  }
}

void FluidPlay::find_short_links() {
  std::vector<double> least(links_, std::numeric_limits<double>::infinity());
  std::vector<double> peak(links_, 0);
  for (std::size_t k = 0; k < grid_s_.size(); ++k) {
    for (std::size_t l = 0; l < links_; ++l) {
      least[l] = std::min(least[l], budget_[k * links_ + l]);
      peak[l] = std::max(peak[l], budget_[k * links_ + l]);
    }
  }
  std::vector<double> asked(links_, 0);
  for (const Flow& flow : flows_) {
    for (const LinkIndex link : flow.path) {
      double elsewhere = flow.cap_bytes_per_s;  // what the rest of its path lets through at most
      for (const LinkIndex other : flow.path) {
        if (other != link) elsewhere = std::min(elsewhere, peak[other]);
      }
      asked[link] += elsewhere;
    }
  }
  can_be_short_.resize(links_);
  for (std::size_t l = 0; l < links_; ++l) can_be_short_[l] = asked[l] > least[l] ? 1 : 0;
}

BudgetCurve FluidPlay::curve_of(LinkIndex link) const {
  BudgetCurve curve(budget(link, 0));
  for (std::size_t k = 1; k < grid_s_.size(); ++k) curve.add(grid_s_[k], budget(link, k));
  return curve;
}

bool FluidPlay::is_hopeless(std::uint32_t flow) const {
  const double bytes = flows_[flow].bytes;
  return bytes - whole_window_[flow] > rounding_bytes(bytes);
}

bool FluidPlay::crosses(std::uint32_t flow, LinkIndex link) const {
  const auto links = path(flow);
  return std::find(links.begin(), links.end(), link) != links.end();
}

bool FluidPlay::links_allow(const FlowSet& members, std::uint32_t flow) {
  for (const LinkIndex link : path(flow)) {
    if (can_be_short_[link] == 0) continue;
    work_ += members.size() / 4;  // one step of play costs about four of these
    const auto is_short = [&](std::uint32_t i, double bytes) {
      const std::size_t k = due_interval_[i];
      const double carried =
          carried_until_[k * links_ + link] + budget(link, k) * (flows_[i].due_s - grid_s_[k]);
      return bytes - carried > rounding_bytes(bytes);
    };
    double bytes = 0;
    std::size_t next = 0;
    for (; next < members.size() && members[next] < flow; ++next)
      if (crosses(members[next], link)) bytes += flows_[members[next]].bytes;
    bytes += flows_[flow].bytes;
    if (is_short(flow, bytes)) return false;
    for (; next < members.size(); ++next) {
      if (!crosses(members[next], link)) continue;
      bytes += flows_[members[next]].bytes;
      if (is_short(members[next], bytes)) return false;
    }
  }
  return true;
}

bool FluidPlay::share_a_link(std::uint32_t a, std::uint32_t b) const {
  for (const LinkIndex link : path(a))
    if (can_be_short_[link] != 0 && crosses(b, link)) return true;
  return false;
}

double FluidPlay::window(std::uint32_t flow, At at) const {
  const double sent = sent_until_[at.interval * flows_.size() + flow] +
                      path_budget(flow, at.interval) * (at.t_s - grid_s_[at.interval]);
  return whole_window_[flow] - sent;
}

/// Adds to a flow's rate what its path still has, up to `wanted`.
void FluidPlay::give(std::uint32_t flow, double wanted) {
  for (const LinkIndex link : path(flow)) wanted = std::min(wanted, residual_[link]);
  if (wanted <= 0) return;
  rate_[flow] += wanted;
  for (const LinkIndex link : path(flow)) residual_[link] -= wanted;
}

/// Fills minimum_ and rate_ of the active flows; true if no link is tight.
bool FluidPlay::allocate(const FlowSet& active, At at, double quantum_s) {
  work_ += active.size();
  for (const std::uint32_t i : active) {
    for (const LinkIndex link : path(i)) {
      load_[link] = 0;
      residual_[link] = budget(link, at.interval);
    }
  }
  for (const std::uint32_t i : active) {
    const double left = window(i, at);
    share_[i] = left > 0 ? left_[i] / left : 2;  // above 1: behind its schedule for good
    minimum_[i] = share_[i] * path_budget(i, at.interval);
    most_[i] = flows_[i].cap_bytes_per_s;
    if (quantum_s > 0) most_[i] = std::min(most_[i], left_[i] / quantum_s);
    for (const LinkIndex link : path(i)) load_[link] += minimum_[i];
  }
  bool all_fit = true;
  for (const std::uint32_t i : active) {
    bool fits = share_[i] <= kFitTolerance;
    for (const LinkIndex link : path(i))
      fits = fits && load_[link] <= budget(link, at.interval) * kFitTolerance;
    is_eased_[i] = fits ? 1 : 0;
    rate_[i] = 0;
    all_fit = all_fit && fits;
    if (fits) give(i, std::min(minimum_[i], most_[i]));
  }
  for (const std::uint32_t i : active) {
    if (is_eased_[i] == 0) give(i, std::min(minimum_[i], most_[i]));
  }
  for (const std::uint32_t i : active) give(i, most_[i] - rate_[i]);
  return all_fit;
}

/// True if the shares that fit now also fit in all later intervals: then all due times are met.
bool FluidPlay::shares_fit_later(const FlowSet& active, At at) {
  for (std::size_t k = at.interval + 1; k < grid_s_.size(); ++k) {
    for (const std::uint32_t i : active) {
      for (const LinkIndex link : path(i)) load_[link] = 0;
    }
    for (const std::uint32_t i : active) {
      if (flows_[i].due_s <= grid_s_[k]) continue;
      const double rate = share_[i] * path_budget(i, k);
      for (const LinkIndex link : path(i)) {
        load_[link] += rate;
        if (load_[link] > budget(link, k) * kFitTolerance) return false;
      }
    }
    work_ += active.size();
  }
  return true;
}

double FluidPlay::next_event_s(const FlowSet& active, At at) const {
  double step_s = std::numeric_limits<double>::infinity();
  for (const std::uint32_t i : active) {
    if (rate_[i] > 0) step_s = std::min(step_s, left_[i] / rate_[i]);
  }
  step_s = std::min(step_s, flows_[active.front()].due_s - at.t_s);
  if (at.interval + 1 < grid_s_.size())
    step_s = std::min(step_s, grid_s_[at.interval + 1] - at.t_s);
  return step_s;
}

/// With `late` it goes on without those that miss, and answers none.
std::optional<std::uint32_t> FluidPlay::play(FlowSet& active, FlowSet* late) {
  if (active.empty()) return std::nullopt;
  const double quantum_s =
      active.size() > kExactMembers ? flows_[active.back()].due_s / kQuanta : 0;
  for (const std::uint32_t i : active) left_[i] = flows_[i].bytes;
  At at;
  while (true) {
    std::erase_if(active, [&](std::uint32_t i) {
      return left_[i] <= rounding_bytes(flows_[i].bytes);
    });
    while (!active.empty() && flows_[active.front()].due_s <= at.t_s + kInstant_s) {
      if (late == nullptr) return active.front();
      late->push_back(active.front());
      active.erase(active.begin());
    }
    if (active.empty()) return std::nullopt;
    while (at.interval + 1 < grid_s_.size() && grid_s_[at.interval + 1] <= at.t_s + kInstant_s)
      ++at.interval;
    if (allocate(active, at, quantum_s) && shares_fit_later(active, at)) return std::nullopt;
    const double step_s = next_event_s(active, at);
    for (const std::uint32_t i : active) left_[i] -= rate_[i] * step_s;
    at.t_s += step_s;
  }
}

std::optional<std::uint32_t> FluidPlay::first_late(const FlowSet& members) {
  FlowSet active = members;
  return play(active, nullptr);
}

FlowSet FluidPlay::without_late(const FlowSet& members) {
  FlowSet active = members;
  FlowSet late;
  (void)play(active, &late);
  FlowSet met;
  std::set_difference(
      members.begin(), members.end(), late.begin(), late.end(), std::back_inserter(met)
  );
  return met;
}

FluidPlay::Rates FluidPlay::rates_now(const FlowSet& members) {
  Rates rates{std::vector<double>(flows_.size(), 0), std::vector<double>(flows_.size(), 0)};
  for (const std::uint32_t i : members) left_[i] = flows_[i].bytes;
  allocate(members, At{}, 0);
  for (const std::uint32_t i : members) {
    rates.minimum[i] = is_eased_[i] != 0 ? std::min(minimum_[i], rate_[i]) : rate_[i];
    rates.granted[i] = rate_[i];
  }
  return rates;
}

}  // namespace rn::reclaim
