// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "reclaim/link_budget.h"

// The policy by which evacuations share links, and a play of it into the future. Pure.
namespace rn::reclaim {

/// An evacuation as the play sees it. Bytes, seconds after now.
struct Flow {
  double bytes = 0;
  double due_s = 0;
  double cap_bytes_per_s = std::numeric_limits<double>::infinity();  ///< the sender's own
  LinkPath path;
  std::uint32_t transfer = 0;  ///< the caller's number; no meaning here
};

/// Indices into the flows, ascending: a subset.
using FlowSet = std::vector<std::uint32_t>;

/// The policy at one instant, for a set of flows:
///
///   path budget b(u) = least of the sender's cap and the budgets of the path's links at time u
///   minimum rate     = bytes · b(now) / ∫ b from now to due   (constant b: bytes / time left)
///   1. a link is tight if the minimum rates of its flows together exceed its budget; a flow that
///      crosses no tight link gets its minimum rate
///   2. then the others, in order of due times, their minimum rates as far as they go
///   3. what is left goes to all in order of due times, as much as each path takes
///
/// On one link it meets every set of due times that any policy meets. For let Q be the bytes due
/// until d and W = ∫ budget from now to d. Either all that the link carries goes to flows due until
/// d, and W − Q stays; or each of those has its minimum rate, together at least Q / W of the
/// budget, and Q / W does not grow. So Q ≤ W, which is the demand bound, goes on to hold. On
/// several links that is not so: a set which the play meets is feasible, one that it misses may be
/// feasible to another policy.
class FluidPlay {
 public:
  /// `flows` ascend by due time; their paths' links index `budgets`; neither is empty-pathed nor
  /// checked here (RN_ASSERT). Time and memory: flows · (steps of all budgets, at most 256).
  FluidPlay(const std::vector<BudgetCurve>& budgets, std::vector<Flow> flows);

  /// The first of `members` that misses its due time when they all begin now; none if all meet
  /// theirs. With more than 64 members, no flow ends sooner than 1/256 of the horizon after the
  /// last event (its rate is held down to that), which bounds the events of a play.
  std::optional<std::uint32_t> first_late(const FlowSet& members);

  /// Plays to the end and leaves out each flow when it misses: the others, which met theirs.
  FlowSet without_late(const FlowSet& members);

  struct Rates {
    std::vector<double> minimum;  ///< by flow; 0 for those that are not members; all that is
                                  ///< granted to a flow which crosses a tight link
    std::vector<double> granted;
  };

  /// The policy now.
  Rates rates_now(const FlowSet& members);

  /// True if not even the whole path until its due time is enough.
  bool is_hopeless(std::uint32_t flow) const;

  /// ∫ b from now to due.
  double most_bytes(std::uint32_t flow) const { return whole_window_[flow]; }

  /// False if `flow` beside `members` breaks the demand bound of a link that it crosses: then the
  /// play misses one of them. Cheap.
  bool links_allow(const FlowSet& members, std::uint32_t flow);
  /// True if both cross a link that can be short.
  bool share_a_link(std::uint32_t a, std::uint32_t b) const;

  /// True if the flows together can ask for more than the link has at some time.
  bool can_be_short(LinkIndex link) const { return can_be_short_[link] != 0; }

  /// The budget of one link as the play sees it.
  BudgetCurve curve_of(LinkIndex link) const;

  const std::vector<Flow>& flows() const { return flows_; }

  std::size_t links() const { return links_; }

  /// Steps done so far, one per flow and instant: what bounds the time of a decision.
  std::uint64_t work() const { return work_; }

 private:
  struct At {
    double t_s = 0;
    std::size_t interval = 0;
  };

  void lay_grid(const std::vector<BudgetCurve>& budgets);
  void weigh_flows();
  void find_short_links();

  double budget(LinkIndex link, std::size_t interval) const {
    return budget_[interval * links_ + link];
  }

  double path_budget(std::uint32_t flow, std::size_t interval) const {
    return path_budget_[interval * flows_.size() + flow];
  }

  double window(std::uint32_t flow, At at) const;

  std::span<const LinkIndex> path(std::uint32_t flow) const {
    return {path_links_.data() + path_begin_[flow], path_begin_[flow + 1] - path_begin_[flow]};
  }

  bool crosses(std::uint32_t flow, LinkIndex link) const;
  void give(std::uint32_t flow, double wanted);
  bool allocate(const FlowSet& active, At at, double quantum_s);
  bool shares_fit_later(const FlowSet& active, At at);
  double next_event_s(const FlowSet& active, At at) const;
  std::optional<std::uint32_t> play(FlowSet& active, FlowSet* late);

  std::vector<Flow> flows_;
  std::size_t links_ = 0;
  std::vector<double> grid_s_;       ///< where budgets change; begins with 0
  std::vector<double> budget_;       ///< [interval][link]
  std::vector<double> path_budget_;  ///< [interval][flow]
  std::vector<double> sent_until_;   ///< [interval][flow]: ∫ b from now to the interval's begin
  std::vector<double> whole_window_;
  std::vector<double> carried_until_;      ///< [interval][link]: ∫ budget until its begin
  std::vector<std::size_t> due_interval_;  ///< [flow]
  std::vector<LinkIndex> path_links_;      ///< all paths, one after the other
  std::vector<std::size_t> path_begin_;    ///< [flow], and the end of the last
  std::vector<char> can_be_short_;
  std::uint64_t work_ = 0;

  // Scratch of a play, by flow and by link.
  std::vector<double> left_;
  std::vector<double> share_;  ///< bytes left / ∫ b from here to due
  std::vector<double> minimum_;
  std::vector<char> is_eased_;  ///< it crosses no tight link
  std::vector<double> rate_;
  std::vector<double> most_;  ///< the sender's cap, or what ends the flow after one quantum
  std::vector<double> load_;
  std::vector<double> residual_;
};

}  // namespace rn::reclaim
