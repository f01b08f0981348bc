// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "sched/candidates.h"

// Which nodes take the members of a gang, together (ADR 0027). Pure: the nodes themselves decide.
namespace rn::sched {

struct GangDemand {
  Demand member;  ///< of each alike; what is chosen, preferred or avoided there counts for nothing
  std::uint32_t size = 0;
  bool is_spread = true;    ///< members on different nodes; else a node counts as often as they fit
  std::vector<NodeId> had;  ///< by rank: where it ran before; empty = nowhere, or nothing to keep
  std::set<NodeId> avoided;  ///< where members failed lately
};

struct GangSeat {
  std::size_t index = 0;  ///< into the candidates
  std::uint32_t cpu_milli = 0;
  double speed = 1;
  double survival = 0;  ///< over the first hour
};

struct GangChoice {
  std::vector<GangSeat> seats;  ///< by rank
  double value = 0;
  std::string group;  ///< the switch at which all of them hang; empty = not one
};

/// The choice of the greatest value among all that are possible:
///
///   value = lowest speed · product of the nodes' worth (score() without speed)
///           · 1.05 for each member that is back where it ran before · 0.5 for each avoided node
///           · 1.1 if all hang at one switch
///
/// Members are in lockstep, so the slowest sets the pace, and the first owner who comes back ends
/// it for all. `groups` names the switch of each candidate, "" = not known; no list = of none.
/// Equal values: the faster, then the smaller ids. nullopt if there is no room for all. O(n²).
std::optional<GangChoice> choose_gang(
    const GangDemand& demand,
    const std::vector<Candidate>& candidates,
    const std::vector<std::string>& groups
);

/// For how many members there is room now, at most `size`.
std::uint32_t room_now(const GangDemand& demand, const std::vector<Candidate>& candidates);

/// The same of one node, as it is now, and as it would be if nobody ran there and it lent.
std::uint32_t room_now_at(const GangDemand& demand, const Candidate& candidate);
std::uint32_t room_ever_at(const GangDemand& demand, const Candidate& candidate);

/// For how many members there would ever be room, at most `size`, whoever runs there now.
std::uint32_t room_ever(const GangDemand& demand, const std::vector<Candidate>& candidates);

}  // namespace rn::sched
