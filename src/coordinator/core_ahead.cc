// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_ahead.h"

#include <algorithm>

#include "coordinator/core_copies.h"
#include "coordinator/core_evacuation.h"
#include "reclaim/precopy.h"

namespace rn::coordinator {

namespace {

constexpr std::uint32_t kLeastNotice_s = 60;  // of an owner who gives none: as if there were some
constexpr double kUnknownWay = 12.5e6;        // bytes a second: 100 Mbit/s
constexpr double kPause_s = 0;  // each save is a round: nobody knows when the last one was
constexpr double kDay_s = 86'400;

template <class T>
void take_from(T& free, T taken) {
  free -= std::min(free, taken);
}

/// Guests of the same node leave at the same time, and take the places where they are expected.
void keep_places_of_others(
    const State& state, const NodeEntry& source, const JobId& id, EvacuationInputs& in
) {
  for (const AttemptKey& key : source.attempts) {
    const auto other = state.attempts.find(key);
    if (key.first == id || other == state.attempts.end()) continue;
    const NodeId& next = other->second.next;
    const auto at = std::lower_bound(in.nodes.begin(), in.nodes.end(), next);
    if (next.empty() || at == in.nodes.end() || *at != next) continue;
    const Resources& needs = state.jobs.at(key.first).row.job.spec.resources;
    reclaim::Slots& free = in.site.nodes[static_cast<std::size_t>(at - in.nodes.begin())].free;
    take_from(free.guests, 1U);
    take_from(free.gpus, needs.gpus);
    take_from(free.cpu_milli, needs.cpu_milli_min);
    take_from(free.memory_mib, needs.memory_mib);
  }
}

/// From the save before to the newest; 0 if there are not two of this attempt.
double gap_of(const Job& job) {
  if (job.previous.generation == 0 || job.previous.epoch != job.durable.epoch) return 0;
  return static_cast<double>(job.durable.created_wall_ms - job.previous.created_wall_ms) / 1e3;
}

/// Departures of its owner in a second, also those that are told.
double departures_of(const NodeEntry& node) {
  const double told = node.outlook.leaves_in_s > 0 ? 1 / node.outlook.leaves_in_s : 0;
  return std::max(node.departures_per_day / kDay_s, told);
}

bool goes_ahead_to(const AttemptEntry& attempt, const NodeId& node) {
  const auto& places = attempt.plan.precopies;
  return attempt.next == node ||
         std::any_of(places.begin(), places.end(), [&](const PeerGrant& peer) {
           return peer.node == node;
         });
}

}  // namespace

LikelyPlaces likely_places(
    const State& state, const JobEntry& job, const AttemptEntry& attempt, const NodeEntry& source
) {
  const JobId& id = job.row.job.id;
  Leavings leavings;
  Evacuation& e = leavings[id];
  e.source = source.row.node;
  e.deadline = state.now.boot + seconds(std::max(source.row.contract.notice_s, kLeastNotice_s));
  EvacuationInputs in = evacuation_inputs(state, {id}, leavings);
  std::vector<reclaim::EvacuationOption>& options = in.jobs.front().options;
  for (std::size_t n = 0; n < options.size(); ++n) {
    options[n].bytes = std::min(options[n].bytes, in.deltas.front());
    options[n].is_prepared = in.nodes[n] == attempt.next;
  }
  keep_places_of_others(state, source, id, in);
  const auto choice = reclaim::choose_evacuation(in.site, in.jobs, in.policy).front();
  LikelyPlaces places;
  if (choice.destination) places.first = in.nodes[*choice.destination];
  if (choice.runner_up) places.second = in.nodes[*choice.runner_up];
  return places;
}

const NodeEntry* place_ahead(
    const State& state, const JobEntry& job, const NodeEntry& source, const NodeId& id
) {
  const auto found = state.nodes.find(id);
  if (found == state.nodes.end()) return nullptr;
  const NodeEntry& node = found->second;
  const bool takes_it = state.is_up(node) && !node.row.is_revoked &&
                        !node.row.address.peer.empty() && !node.row.facts.are_transfers_cut &&
                        room_for_copies(node) >= job.row.job.durable.bytes;
  const bool is_apart = failure_domain_of(node) != failure_domain_of(source);
  const bool is_allowed = is_copy_place(job.row.job.spec.checkpoint.destinations, node);
  return takes_it && is_apart && is_allowed ? &node : nullptr;
}

bool is_worth_sending_ahead(
    const State& state, const JobEntry& job, const NodeEntry& from, const NodeEntry& to
) {
  const Job& j = job.row.job;
  const double sure = sure_rate(state, from, to);
  const double way = sure > 0 ? sure : kUnknownWay;
  const auto bytes = static_cast<double>(j.durable.bytes);
  const auto fresh = static_cast<double>(j.durable.new_bytes);
  const double gap_s = gap_of(j);
  if (j.previous.generation == 0 || j.previous.epoch != j.durable.epoch)
    return reclaim::goes_another_round({.whole_s = bytes / way, .dirty = 0}, kPause_s);
  const double dirty = gap_s > 0 ? fresh / gap_s / way : 1;
  const reclaim::AheadUse use{
      .state_bytes = bytes, .new_bytes = fresh, .gap_s = gap_s, .departures = departures_of(from)};
  return reclaim::goes_another_round({.whole_s = bytes / way, .dirty = dirty}, kPause_s) &&
         reclaim::used_share(use) >= reclaim::kUsedLeast;
}

std::uint32_t kept_from(const State& state, const JobEntry& job, const NodeId& node) {
  const Job& j = job.row.job;
  const std::uint32_t all =
      j.previous.generation > 0 ? j.previous.generation : j.durable.generation;
  const auto attempt = state.attempts.find({j.id, j.epoch});
  const auto rows = state.generations.find(j.id);
  const bool is_ahead = attempt != state.attempts.end() && attempt->second.is_live() &&
                        goes_ahead_to(attempt->second, node);
  if (!is_ahead || rows == state.generations.end()) return all;
  for (auto at = rows->second.rbegin(); at != rows->second.rend(); ++at) {
    if (is_holder(&at->second, node)) return std::min(all, at->first);
  }
  return all;
}

}  // namespace rn::coordinator
