// SPDX-License-Identifier: Apache-2.0
#include "sched/gang_choice.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace rn::sched {

namespace {

constexpr double kSameSwitch = 1.1;
constexpr double kBackAgain = 1.05;
constexpr double kAvoidedNode = 0.5;

/// Room for one member.
struct MemberPlace {
  GangSeat seat;
  std::uint32_t nth = 0;  ///< on its node
  double worth = 0;
};

void seat_one(const Resources& member, Candidate& c) {
  c.used_gpus += member.gpus;
  c.used_cpu_milli += member.cpu_milli_min;
  c.used_memory_mib += member.memory_mib;
  ++c.guests;
}

/// visit(judgement) for each member that fits there, beside those before it.
template <class Visit>
void for_room(const GangDemand& demand, const Candidate& candidate, const Visit& visit) {
  const std::uint32_t most = demand.is_spread ? std::min(demand.size, 1u) : demand.size;
  Candidate c = candidate;
  for (std::uint32_t nth = 0; nth < most; ++nth) {
    const Judgement judgement = judge(demand.member, c);
    if (judgement.fit != Fit::kFits) return;
    visit(nth, judgement, c);
    seat_one(demand.member.resources, c);
  }
}

/// Best first; ties by id, so that it is the same on every machine. On one node the first is never
/// behind the second, which has neither more cores nor more worth.
std::vector<MemberPlace> places_of(
    const GangDemand& demand, const std::vector<Candidate>& candidates
) {
  std::map<NodeId, std::uint32_t> at_home;
  for (const NodeId& node : demand.had) {
    if (!node.empty()) ++at_home[node];
  }
  std::vector<MemberPlace> places;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const NodeId& node = candidates[i].node;
    const auto home = at_home.find(node);
    const std::uint32_t back = home == at_home.end() ? 0 : home->second;
    for_room(
        demand,
        candidates[i],
        [&](std::uint32_t nth, const Judgement& judgement, const Candidate& c) {
          const Ranked ranked = score(demand.member, c, i, judgement.cpu_milli);
          MemberPlace place{.nth = nth, .worth = ranked.worth};
          place.seat = {
              .index = i,
              .cpu_milli = judgement.cpu_milli,
              .speed = ranked.speed,
              .survival = ranked.survival};
          if (nth < back) place.worth *= kBackAgain;
          if (demand.avoided.contains(node)) place.worth *= kAvoidedNode;
          places.push_back(place);
        }
    );
  }
  std::sort(places.begin(), places.end(), [&](const MemberPlace& a, const MemberPlace& b) {
    if (a.worth != b.worth) return a.worth > b.worth;
    return std::tie(candidates[a.seat.index].node, a.nth) <
           std::tie(candidates[b.seat.index].node, b.nth);
  });
  return places;
}

/// Of `places`, as many as are wanted.
struct Chosen {
  std::vector<std::size_t> places;
  double value = -1;
  std::string group;
};

/// The best among `among` (ascending), by the lowest speed that is admitted.
void choose_among(
    const GangDemand& demand,
    const std::vector<MemberPlace>& places,
    const std::vector<std::size_t>& among,
    const std::string& group,
    Chosen& best
) {
  if (among.size() < demand.size) return;
  std::set<double> speeds;
  for (const std::size_t i : among) speeds.insert(places[i].seat.speed);
  for (auto least = speeds.rbegin(); least != speeds.rend(); ++least) {
    std::vector<std::size_t> taken;
    double product = group.empty() ? 1 : kSameSwitch;
    double slowest = 1;
    for (const std::size_t i : among) {
      if (taken.size() == demand.size) break;
      if (places[i].seat.speed < *least) continue;
      taken.push_back(i);
      product *= places[i].worth;
      slowest = std::min(slowest, places[i].seat.speed);
    }
    if (taken.size() < demand.size || slowest * product <= best.value) continue;
    best = {.places = std::move(taken), .value = slowest * product, .group = group};
  }
}

/// Who ran on one of the chosen nodes is back there; the others take what is left, in order.
std::vector<GangSeat> seats_by_rank(
    const GangDemand& demand,
    const std::vector<Candidate>& candidates,
    const std::vector<MemberPlace>& places,
    const Chosen& chosen
) {
  std::vector<std::optional<GangSeat>> seats(demand.size);
  std::vector<std::size_t> left = chosen.places;
  for (std::size_t rank = 0; rank < demand.size && rank < demand.had.size(); ++rank) {
    if (demand.had[rank].empty()) continue;
    const auto at = std::find_if(left.begin(), left.end(), [&](std::size_t i) {
      return candidates[places[i].seat.index].node == demand.had[rank];
    });
    if (at == left.end()) continue;
    seats[rank] = places[*at].seat;
    left.erase(at);
  }
  std::vector<GangSeat> result;
  auto next = left.begin();
  for (const std::optional<GangSeat>& seat : seats)
    result.push_back(seat ? *seat : places[*next++].seat);
  return result;
}

}  // namespace

std::optional<GangChoice> choose_gang(
    const GangDemand& demand,
    const std::vector<Candidate>& candidates,
    const std::vector<std::string>& groups
) {
  const std::vector<MemberPlace> places = places_of(demand, candidates);
  if (demand.size == 0 || places.size() < demand.size) return std::nullopt;
  std::vector<std::size_t> all;
  std::map<std::string, std::vector<std::size_t>> by_group;
  for (std::size_t i = 0; i < places.size(); ++i) {
    all.push_back(i);
    const std::size_t index = places[i].seat.index;
    if (index < groups.size() && !groups[index].empty()) by_group[groups[index]].push_back(i);
  }
  Chosen best;
  for (const auto& [group, among] : by_group) choose_among(demand, places, among, group, best);
  choose_among(demand, places, all, "", best);
  if (best.places.empty()) return std::nullopt;
  return GangChoice{
      .seats = seats_by_rank(demand, candidates, places, best),
      .value = best.value,
      .group = best.group};
}

std::uint32_t room_now_at(const GangDemand& demand, const Candidate& candidate) {
  std::uint32_t room = 0;
  for_room(demand, candidate, [&](std::uint32_t, const Judgement&, const Candidate&) { ++room; });
  return room;
}

std::uint32_t room_ever_at(const GangDemand& demand, const Candidate& candidate) {
  const NodeTelemetry nobody;
  Candidate c = candidate;
  std::optional<NodeFacts> uncut;
  if (candidate.facts->are_transfers_cut) {
    uncut = *candidate.facts;
    uncut->are_transfers_cut = false;
    c.facts = &*uncut;
  }
  c.telemetry = &nobody;
  c.lending = LendingState::kOpen;
  c.is_up = true;
  c.used_gpus = c.used_cpu_milli = c.guests = 0;
  c.used_memory_mib = 0;
  return room_now_at(demand, c);
}

std::uint32_t room_now(const GangDemand& demand, const std::vector<Candidate>& candidates) {
  std::uint32_t room = 0;
  for (const Candidate& c : candidates) {
    if (room >= demand.size) break;
    room += room_now_at(demand, c);
  }
  return std::min(room, demand.size);
}

std::uint32_t room_ever(const GangDemand& demand, const std::vector<Candidate>& candidates) {
  std::uint32_t room = 0;
  for (const Candidate& c : candidates) {
    if (room >= demand.size) break;
    room += room_ever_at(demand, c);
  }
  return std::min(room, demand.size);
}

}  // namespace rn::sched
