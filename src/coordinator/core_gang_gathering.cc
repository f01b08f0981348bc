// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>

#include "base/planted.h"
#include "coordinator/core_gang_placement.h"

namespace rn::coordinator {

namespace {

/// So many members at most, that others who wait still have half of what the site lends.
std::uint32_t most_kept(
    const State& state, const GangEntry& gang, const std::vector<sched::Candidate>& candidates
) {
  const bool do_others_wait = !state.queued.empty() || waiting_gangs(state).size() > 1;
  if (!do_others_wait) return gang.row.size;
  std::uint64_t gpus = 0;
  std::uint64_t cpu_milli = 0;
  for (const sched::Candidate& c : candidates) {
    if (!c.is_up || !c.contract->lends) continue;
    cpu_milli += lent_cpu_milli(*c.contract, *c.facts);
    for (const Gpu& gpu : c.facts->gpus) gpus += is_gpu_lent(*c.contract, gpu.index) ? 1 : 0;
  }
  const Resources& member = state.jobs.at(gang.row.members.front()).row.job.spec.resources;
  std::uint64_t most = gang.row.size;
  if (member.gpus > 0) most = std::min<std::uint64_t>(most, gpus / 2 / member.gpus);
  if (member.cpu_milli_min > 0)
    most = std::min<std::uint64_t>(most, cpu_milli / 2 / member.cpu_milli_min);
  return static_cast<std::uint32_t>(most);
}

bool is_patient(const State& state, const GangEntry& gang) {
  return gang.vain_since != Instant{} &&
         state.now.boot - gang.vain_since >= std::chrono::seconds(state.config.gang_patience_s);
}

/// Who waited for longest of those whose last turn is the longest ago.
const GangEntry* next_gatherer(State& state) {
  std::vector<const GangEntry*> gangs = waiting_gangs(state);
  std::erase_if(gangs, [&](const GangEntry* gang) { return !is_patient(state, *gang); });
  if (gangs.empty()) return nullptr;
  const auto key = [](const GangEntry* gang) {
    return std::tie(gang->row.gathered_wall_ms, gang->row.queued_wall_ms, gang->row.id);
  };
  std::sort(gangs.begin(), gangs.end(), [&](const GangEntry* a, const GangEntry* b) {
    return key(a) < key(b);
  });
  const std::vector<sched::Candidate> candidates = candidates_of(state, true);
  const QuotaBook quotas(state);
  for (const GangEntry* gang : gangs) {
    if (!gang_obstacle(state, *gang, quotas).empty()) continue;
    if (gang_never_words(demand_of(state, *gang), candidates).empty()) return gang;
  }
  return nullptr;
}

void begin_gathering(State& state) {
  const GangEntry* gang = next_gatherer(state);
  if (gang == nullptr) return;
  state.gathering.emplace();
  state.gathering->gang = gang->row.id;
  state.gathering->since = state.gathering->counted = state.now.boot;
  state.note(
      state.jobs.at(gang->row.members.front()),
      "gang.gathers",
      "places that become free are kept for gang " + gang->row.id.str() + " until " +
          std::to_string(gang->row.size) + " are there at once, for " +
          short_duration(std::int64_t{state.config.gang_gather_s} * 1000) + " at most",
      {{"gang", gang->row.id.str()}}
  );
}

/// In vain: the next gang has its turn, and single jobs have the places meanwhile.
void end_in_vain(State& state, GangEntry& gang) {
  const std::uint32_t most = state.gathering->most;
  state.gathering.reset();
  gang.row.gathered_wall_ms = state.wall_ms();
  gang.vain_since = state.now.boot;
  state.save(gang);
  state.note(
      state.jobs.at(gang.row.members.front()),
      "gang.gathered_in_vain",
      "in " + short_duration(std::int64_t{state.config.gang_gather_s} * 1000) + " there were " +
          std::to_string(most) + " of " + std::to_string(gang.row.size) +
          " places at once at most; it is tried on, and gathered again in its turn. Fewer members, "
          "or less for each, would begin sooner",
      {{"gang", gang.row.id.str()}, {"most", std::to_string(most)}}
  );
}

/// What is kept lies idle.
void count_idle(State& state, const GangEntry& gang) {
  GangGathering& gathering = *state.gathering;
  const double elapsed_s =
      std::chrono::duration<double>(state.now.boot - gathering.counted).count();
  gathering.counted = state.now.boot;
  std::uint32_t members = 0;
  for (const auto& [node, kept] : gathering.kept) members += kept;
  const std::uint32_t gpus = state.jobs.at(gang.row.members.front()).row.job.spec.resources.gpus;
  state.metrics.gang_gathering_idle_gpu_s += elapsed_s * members * gpus;
}

/// What was kept is kept on, where it is still free; then who ranks best.
void keep_places(State& state, const GangEntry& gang) {
  GangGathering& gathering = *state.gathering;
  const sched::GangDemand demand = demand_of(state, gang);
  const std::vector<sched::Candidate> candidates = candidates_of(state, true);
  const JobEntry& first = state.jobs.at(gang.row.members.front());
  std::vector<std::size_t> order;
  for (const sched::Ranked& ranked : sched::rank(demand.member, candidates))
    order.push_back(ranked.index);
  std::stable_partition(order.begin(), order.end(), [&](std::size_t i) {
    return gathering.kept.contains(candidates[i].node);
  });
  // Those that are asked for just now are withheld by that.
  std::uint32_t total = 0;
  if (gang.round)
    total = static_cast<std::uint32_t>(std::count_if(
        gang.round->seats.begin(),
        gang.round->seats.end(),
        [](const Asked& seat) { return seat.phase != Asked::Phase::kOver; }
    ));
  const std::uint32_t most = most_kept(state, gang, candidates);
  std::uint32_t left = most - std::min(most, total);
  std::map<NodeId, std::uint32_t> kept;
  for (const std::size_t i : order) {
    const NodeId& node = candidates[i].node;
    const auto refusal = first.refusals.find(node);
    const bool is_refused = refusal != first.refusals.end() && refusal->second.is_permanent;
    const std::uint32_t room = std::min(left, sched::room_now_at(demand, candidates[i]));
    if (is_refused || room == 0) continue;
    kept[node] = room;
    left -= room;
    total += room;
  }
  gathering.kept = std::move(kept);
  gathering.most = std::max(gathering.most, total);
}

}  // namespace

bool is_gathered(const State& state, const GangEntry& gang) {
  return state.gathering && state.gathering->gang == gang.row.id;
}

void gather_gangs(State& state) {
  if (planted("coordinator.never_gathers")) return;
  if (state.gathering) {
    GangEntry* gang = state.find_gang(state.gathering->gang);
    const auto waiting = waiting_gangs(state);
    const bool waits = std::find(waiting.begin(), waiting.end(), gang) != waiting.end();
    if (waits) count_idle(state, *gang);
    // One that is asked for just now counts in the quotas already.
    const bool may_begin =
        waits && (gang->round || gang_obstacle(state, *gang, QuotaBook(state)).empty());
    const nanoseconds longest = std::chrono::seconds(state.config.gang_gather_s);
    if (!may_begin) {
      state.gathering.reset();
    } else if (!gang->round && state.now.boot - state.gathering->since >= longest) {
      end_in_vain(state, *gang);
    }
  }
  if (!state.gathering) begin_gathering(state);
  if (!state.gathering) return;
  const GangEntry& gang = state.gangs.at(state.gathering->gang);
  // While it is asked for, what it asks is no longer free, and is counted by that.
  keep_places(state, gang);
}

std::string kept_words(const State& state) {
  if (!state.gathering) return {};
  std::uint32_t members = 0;
  for (const auto& [node, kept] : state.gathering->kept) members += kept;
  const auto gang = state.gangs.find(state.gathering->gang);
  if (members == 0 || gang == state.gangs.end()) return {};
  return std::to_string(members) + (members == 1 ? " place is" : " places are") +
         " kept for gang " + gang->first.str() + ", which waits for " +
         std::to_string(gang->second.row.size) + " at once";
}

}  // namespace rn::coordinator
