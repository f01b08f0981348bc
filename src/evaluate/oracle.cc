// SPDX-License-Identifier: Apache-2.0
#include "evaluate/oracle.h"

#include <algorithm>
#include <limits>

namespace rn::evaluate {

namespace {
constexpr double kMostOfLine = 2.5e9 / 8;  ///< of the way to the file server behind it, bytes/s
constexpr double kCare = 3;                ///< others may send at the same time
constexpr double kCare_s = 5;
constexpr double kLooks_s = 60;  ///< between looks at who is there
}  // namespace

Oracle::Oracle(const std::vector<Interruption>& interruptions) : Requeue({}) {
  for (const Interruption& one : by_time(interruptions)) {
    if (one.node >= coming_.size()) coming_.resize(one.node + 1);
    coming_[one.node].push_back(one);
  }
}

void Oracle::begin(World& world) {
  Requeue::begin(world);
  const std::size_t nodes = world.campus().nodes.size();
  coming_.resize(nodes);
  spells_.resize(nodes, 0);
  for (const CampusNode& node : world.campus().nodes) rates_.push_back({{0, node.line}});
  for (const LineChange& change : world.campus().changes)
    rates_[change.node].push_back({change.at_s, change.rate});
}

const Interruption* Oracle::next(NodeNumber node) const {
  const double now_s = seconds_of(world().now());
  const auto found =
      std::find_if(coming_[node].begin(), coming_[node].end(), [&](const Interruption& one) {
        return one.deadline_s > now_s;
      });
  return found == coming_[node].end() ? nullptr : &*found;
}

double Oracle::bytes_at(NodeNumber node) const {
  double bytes = 0;
  for (const JobNumber job : jobs_at(node)) bytes += world().kind(job).bytes;
  return bytes;
}

/// So long before `until_s` the save of so many bytes has to begin.
double Oracle::lead_s(NodeNumber node, double bytes, double until_s) const {
  double left = kCare * bytes;
  double at_s = until_s;
  const std::vector<Rate>& rates = rates_[node];
  for (auto rate = rates.rbegin(); rate != rates.rend() && left > 0; ++rate) {
    if (rate->from_s >= at_s) continue;
    const double bytes_per_s = std::min(rate->bytes_per_s, kMostOfLine);
    const double takes_s = std::min(at_s - rate->from_s, left / bytes_per_s);
    left -= takes_s * bytes_per_s;
    at_s -= takes_s;
  }
  if (left > 0) return std::numeric_limits<double>::infinity();
  return until_s - at_s + bytes / state_kinds().front().pause_bytes_per_s + kCare_s;
}

void Oracle::on_lent(NodeNumber node) {
  Requeue::on_lent(node);
  look(node, ++spells_[node]);
}

void Oracle::look(NodeNumber node, std::size_t spell) {
  if (spells_[node] != spell) return;
  const Interruption* const coming = next(node);
  if (coming == nullptr) return;
  const double now_s = seconds_of(world().now());
  const double due_s = coming->deadline_s - lead_s(node, bytes_at(node), coming->deadline_s);
  if (now_s >= due_s)
    return clear_out(node, run_end_of(coming->kind), moment_of(coming->deadline_s));
  const double next_s = std::min(due_s, now_s + kLooks_s);
  world().agenda().at(moment_of(next_s) + Moment(1), [this, node, spell] { look(node, spell); });
}

std::optional<Requeue::Rank> Oracle::rank(JobNumber job, NodeNumber node) const {
  const Interruption* const coming = next(node);
  if (coming == nullptr) return Rank(-std::numeric_limits<double>::infinity(), free_gpus(node));
  const double bytes = world().kind(job).bytes;
  const double now_s = seconds_of(world().now());
  const double saved_s = lead_s(node, bytes_at(node) + bytes, coming->deadline_s);
  const double loaded_s = now_s + lead_s(node, bytes, coming->deadline_s);
  if (loaded_s + 2 * kLooks_s + saved_s > coming->deadline_s) return std::nullopt;
  return Rank(-coming->deadline_s, free_gpus(node));
}

}  // namespace rn::evaluate
