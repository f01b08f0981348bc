// SPDX-License-Identifier: Apache-2.0
#include "reclaim/transfer_admission.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "reclaim/demand_bound.h"

namespace rn::reclaim {

namespace {

bool contains(const FlowSet& set, std::uint32_t flow) {
  return std::binary_search(set.begin(), set.end(), flow);
}

FlowSet with(FlowSet set, std::uint32_t flow) {
  set.insert(std::lower_bound(set.begin(), set.end(), flow), flow);
  return set;
}

FlowSet minus(const FlowSet& a, const FlowSet& b) {
  FlowSet rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return rest;
}

FlowSet common(const FlowSet& a, const FlowSet& b) {
  FlowSet both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

FlowSet joined(const FlowSet& a, const FlowSet& b) {
  FlowSet both;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

constexpr std::size_t kLarge = 64;  // beyond, a set is not corrected one by one

class Selection {
 public:
  Selection(FluidPlay& play, const std::vector<double>& value, const AdmissionLimits& limits)
      : play_(play), value_(value), limits_(limits), work_end_(play.work() + limits.work) {}

  Admission choose(const FlowSet& candidates, const FlowSet& incumbents) {
    Admission admission;
    for (const FlowSet& group : groups_of(candidates))
      admission.admitted = joined(admission.admitted, choose_in(group, common(group, incumbents)));
    admission.was_cut_short = was_cut_short_;
    return admission;
  }

 private:
  bool is_over() {
    if (play_.work() < work_end_) return false;
    was_cut_short_ = true;
    return true;
  }

  bool is_met(const FlowSet& set) { return !play_.first_late(set); }

  double sum(const FlowSet& set) const {
    double total = 0;
    for (const std::uint32_t i : set) total += value_[i];
    return total;
  }

  double density(std::uint32_t i) const { return value_[i] / play_.flows()[i].bytes; }

  bool is_less_dense(std::uint32_t a, std::uint32_t b) const {
    if (density(a) != density(b)) return density(a) < density(b);
    return a > b;
  }

  FlowSet by_value(FlowSet set) const {
    std::stable_sort(set.begin(), set.end(), [&](std::uint32_t a, std::uint32_t b) {
      return value_[a] > value_[b];
    });
    return set;
  }

  std::vector<FlowSet> groups_of(const FlowSet& candidates) const;
  FlowSet choose_in(const FlowSet& group, const FlowSet& incumbents);
  FlowSet first_guess(const FlowSet& group);
  FlowSet drop_by_links(const FlowSet& group, double share) const;
  FlowSet drop_until_met(FlowSet set);
  FlowSet part_that_is_met(FlowSet set);
  FlowSet add_again(FlowSet set, const FlowSet& dropped);
  FlowSet exchange(FlowSet set, const FlowSet& group);
  FlowSet make_room(const FlowSet& set, std::uint32_t incoming);
  FlowSet search(const FlowSet& best, const FlowSet& group);
  FlowSet contested(const FlowSet& best, const FlowSet& group) const;
  void branch(std::size_t position, const FlowSet& chosen, double total);

  FluidPlay& play_;
  const std::vector<double>& value_;
  const AdmissionLimits& limits_;
  const std::uint64_t work_end_;
  bool was_cut_short_ = false;

  // One exhaustive search.
  FlowSet free_;                    ///< by value, highest first
  std::vector<double> value_from_;  ///< of free_[i] and all after it
  FlowSet best_;
  double best_value_ = 0;
  std::size_t sets_left_ = 0;
};

/// Candidates that share a link which can be short, directly or through others.
std::vector<FlowSet> Selection::groups_of(const FlowSet& candidates) const {
  std::vector<LinkIndex> leader(play_.links());
  std::iota(leader.begin(), leader.end(), LinkIndex{0});
  const auto find = [&](LinkIndex link) {
    while (leader[link] != link) link = leader[link] = leader[leader[link]];
    return link;
  };
  const auto first_short = [&](std::uint32_t i) {
    for (const LinkIndex link : play_.flows()[i].path)
      if (play_.can_be_short(link)) return link;
    return play_.flows()[i].path.front();
  };
  for (const std::uint32_t i : candidates) {
    for (const LinkIndex link : play_.flows()[i].path)
      if (play_.can_be_short(link)) leader[find(link)] = find(first_short(i));
  }
  std::map<LinkIndex, FlowSet> groups;
  for (const std::uint32_t i : candidates) groups[find(first_short(i))].push_back(i);
  std::vector<FlowSet> list;
  for (auto& [link, group] : groups) list.push_back(std::move(group));
  return list;
}

FlowSet Selection::choose_in(const FlowSet& group, const FlowSet& incumbents) {
  if (is_met(group)) return group;
  FlowSet able;
  for (const std::uint32_t i : group)
    if (!play_.is_hopeless(i)) able.push_back(i);
  FlowSet best = first_guess(able);
  best = add_again(std::move(best), minus(able, best));
  if (!incumbents.empty() && is_met(incumbents)) {
    FlowSet kept = add_again(incumbents, minus(able, incumbents));
    if (sum(kept) >= sum(best)) best = std::move(kept);
  }
  best = exchange(std::move(best), able);
  return search(best, able);
}

/// Links that depend on each other are never all full: a large group is tried at less than full
/// links as well.
FlowSet Selection::first_guess(const FlowSet& group) {
  if (group.size() <= kLarge) return drop_until_met(drop_by_links(group, 1));
  FlowSet best;
  for (const double share : {1.0, 0.92, 0.84}) {
    FlowSet set = part_that_is_met(drop_by_links(group, share));
    if (best.empty() || sum(set) > sum(best)) best = std::move(set);
    if (is_over()) break;
  }
  return best;
}

/// Least dense first, until each link by itself could carry the rest with `share` of its budget.
FlowSet Selection::drop_by_links(const FlowSet& group, double share) const {
  std::map<LinkIndex, FlowSet> on_link;
  for (const std::uint32_t i : group) {
    for (const LinkIndex link : play_.flows()[i].path)
      if (play_.can_be_short(link)) on_link[link].push_back(i);
  }
  FlowSet kept = group;
  for (const auto& [link, flows] : on_link) {
    FlowSet asked;
    std::vector<Demand> demands;
    for (const std::uint32_t i : flows) {
      if (!contains(kept, i)) continue;
      asked.push_back(i);
      demands.push_back({play_.flows()[i].bytes / share, play_.flows()[i].due_s, value_[i]});
    }
    FlowSet dropped;
    for (const std::size_t index : drop_least_dense(play_.curve_of(link), demands))
      dropped.push_back(asked[index]);
    kept = minus(kept, dropped);
  }
  return kept;
}

FlowSet Selection::drop_until_met(FlowSet set) {
  while (const auto late = play_.first_late(set)) {
    if (is_over()) return part_that_is_met(std::move(set));
    std::uint32_t victim = *late;
    for (const std::uint32_t i : set) {
      if (play_.flows()[i].due_s > play_.flows()[*late].due_s) break;
      if (play_.share_a_link(i, *late) && is_less_dense(i, victim)) victim = i;
    }
    std::erase(set, victim);
  }
  return set;
}

/// Two or three plays mostly: without the late ones, others are earlier on one link, where they may
/// stand in the way of what was met before.
FlowSet Selection::part_that_is_met(FlowSet set) {
  while (true) {
    FlowSet met = play_.without_late(set);
    if (met.size() == set.size()) return met;
    set = std::move(met);
  }
}

FlowSet Selection::add_again(FlowSet set, const FlowSet& dropped) {
  for (const std::uint32_t i : by_value(dropped)) {
    if (is_over()) return set;
    if (!play_.links_allow(set, i)) continue;
    FlowSet more = with(set, i);
    if (is_met(more)) set = std::move(more);
  }
  return set;
}

/// `incoming` and what of `set` fits beside it: least dense of those that share a link go first.
/// Empty if the work ran out.
FlowSet Selection::make_room(const FlowSet& set, std::uint32_t incoming) {
  FlowSet rivals;
  for (const std::uint32_t i : set)
    if (play_.share_a_link(i, incoming)) rivals.push_back(i);
  std::stable_sort(rivals.begin(), rivals.end(), [&](std::uint32_t a, std::uint32_t b) {
    return is_less_dense(a, b);
  });
  FlowSet next = with(set, incoming);
  double lost = 0;
  for (const std::uint32_t rival : rivals) {
    lost += value_[rival];
    if (lost >= value_[incoming] || is_over()) return {};
    std::erase(next, rival);
    if (is_met(next)) return next;
  }
  return {};
}

FlowSet Selection::exchange(FlowSet set, const FlowSet& group) {
  for (const std::uint32_t incoming : by_value(minus(group, set))) {
    if (is_over()) return set;
    if (contains(set, incoming)) continue;  // came in beside an earlier one
    FlowSet next = make_room(set, incoming);
    if (next.empty()) continue;
    next = add_again(std::move(next), minus(group, next));
    if (sum(next) > sum(set)) set = std::move(next);
  }
  return set;
}

/// What an exhaustive search is about: the group if it is small, else the dropped ones of highest
/// value and the least dense of those that share links with them.
FlowSet Selection::contested(const FlowSet& best, const FlowSet& group) const {
  if (group.size() <= limits_.exact) return group;
  FlowSet dropped = by_value(minus(group, best));
  dropped.resize(std::min(dropped.size(), limits_.exact / 2));
  FlowSet rivals;
  for (const std::uint32_t i : best) {
    const bool is_rival = std::any_of(dropped.begin(), dropped.end(), [&](std::uint32_t d) {
      return play_.share_a_link(i, d);
    });
    if (is_rival) rivals.push_back(i);
  }
  std::stable_sort(rivals.begin(), rivals.end(), [&](std::uint32_t a, std::uint32_t b) {
    return is_less_dense(a, b);
  });
  rivals.resize(std::min(rivals.size(), limits_.exact - dropped.size()));
  dropped.insert(dropped.end(), rivals.begin(), rivals.end());
  std::sort(dropped.begin(), dropped.end());
  return dropped;
}

FlowSet Selection::search(const FlowSet& best, const FlowSet& group) {
  if (best.size() == group.size()) return best;
  const FlowSet free = contested(best, group);
  best_ = best;
  best_value_ = sum(best);
  free_ = by_value(free);
  sets_left_ = limits_.sets;
  value_from_.assign(free_.size() + 1, 0);
  for (std::size_t i = free_.size(); i > 0; --i)
    value_from_[i - 1] = value_from_[i] + value_[free_[i - 1]];
  const FlowSet fixed = minus(best, free);
  branch(0, fixed, sum(fixed));
  return best_;
}

void Selection::branch(std::size_t position, const FlowSet& chosen, double total) {
  if (total > best_value_) {
    best_ = chosen;
    best_value_ = total;
  }
  if (position == free_.size() || total + value_from_[position] <= best_value_) return;
  if (sets_left_ == 0 || is_over()) return;
  --sets_left_;
  const std::uint32_t next = free_[position];
  const FlowSet more = with(chosen, next);
  if (play_.links_allow(chosen, next) && is_met(more))
    branch(position + 1, more, total + value_[next]);
  branch(position + 1, chosen, total);
}

}  // namespace

Admission admit(
    FluidPlay& play,
    const FlowSet& candidates,
    const FlowSet& incumbents,
    const std::vector<double>& value,
    const AdmissionLimits& limits
) {
  return Selection(play, value, limits).choose(candidates, incumbents);
}

}  // namespace rn::reclaim
