// SPDX-License-Identifier: Apache-2.0
// The inputs of a joint choice of destinations, read from the core's state.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/planted.h"
#include "coordinator/core_ahead.h"
#include "coordinator/core_copies.h"
#include "coordinator/core_evacuation.h"
#include "coordinator/core_topology.h"

namespace rn::coordinator {

namespace {

using reclaim::EvacuatingJob;
using reclaim::EvacuationNode;
using reclaim::EvacuationOption;
using reclaim::EvacuationSite;

constexpr double kUnknownLine = 12.5e6;  // bytes a second: 100 Mbit/s
constexpr double kSureShare = 0.6;  // of a declared rate, nine times of ten, until it is measured
constexpr double kUsualShare = 0.9;
constexpr double kNoBound = std::numeric_limits<double>::infinity();
constexpr double kSaveGuess_s = 5;       // from a notice to the first byte that may leave
constexpr double kUnknownState = 256e6;  // bytes of a job that has saved nothing yet
constexpr double kGroupHorizon_s = 4 * 3600.0;
constexpr double kJobHorizon_s = 4 * 3600.0;  // as sched::Demand's

double seconds_in(nanoseconds value) {
  return std::chrono::duration<double>(value).count();
}

/// Its owner bounds what copies send, whatever the line carries.
bool is_bounded(const NodeEntry& node) {
  return node.row.facts.are_transfers_cut || sent_bps_most(node.row.contract, node.row.facts) > 0;
}

/// Of `rate`, what its copies may send together, in bytes a second.
double sent_most(const NodeEntry& node, double rate) {
  if (node.row.facts.are_transfers_cut) return 0;
  const std::uint64_t bps = sent_bps_most(node.row.contract, node.row.facts);
  return bps == 0 ? rate : std::min(rate, static_cast<double>(bps) / 8);
}

/// GPUs that are lent, and neither taken back, nor outside their own windows, nor the owner's own,
/// nor wedged or sick now.
std::uint32_t usable_gpus(const NodeEntry& node, const std::set<std::uint32_t>& taken) {
  std::uint32_t count = 0;
  for (const Gpu& gpu : node.row.facts.gpus) {
    if (!is_gpu_lent(node.row.contract, gpu.index) || taken.contains(gpu.index)) continue;
    const auto& live = node.telemetry.gpus;
    const bool is_busy = std::any_of(live.begin(), live.end(), [&](const GpuTelemetry& t) {
      return t.index == gpu.index && (t.is_wedged || t.is_outside_window || !t.sickness.empty() ||
                                      is_owners_own(node.row.contract, t));
    });
    if (!is_busy) ++count;
  }
  return count;
}

template <class T>
T left_of(T all, T used) {
  return all - std::min(all, used);
}

reclaim::Slots free_slots(
    const NodeEntry& node, const sched::Candidate& c, const std::set<std::uint32_t>& taken
) {
  const Contract& contract = node.row.contract;
  return {
      .guests = left_of(contract.max_guests, c.guests),
      .gpus = left_of(usable_gpus(node, taken), c.used_gpus),
      .cpu_milli = left_of(lent_cpu_milli(contract, node.row.facts), c.used_cpu_milli),
      .memory_mib = left_of(lent_memory_mib(contract, node.row.facts), c.used_memory_mib)};
}

reclaim::StayCurve stay_curve(const sched::SurvivalCurve& outlook) {
  reclaim::StayCurve curve;
  curve.samples.reserve(sched::kHorizons_s.size());
  for (std::size_t i = 0; i < sched::kHorizons_s.size(); ++i)
    curve.samples.push_back({sched::kHorizons_s[i], outlook.cautious[i]});
  curve.leaves_in_s = outlook.leaves_in_s;
  return curve;
}

/// What every node of the site holds of one job: the newest durable generation that it has and was
/// not told to delete.
std::map<NodeId, std::uint32_t> newest_held(const State& state, const JobId& id) {
  std::map<NodeId, std::uint32_t> held;
  const auto rows = state.generations.find(id);
  if (rows == state.generations.end()) return held;
  const JobEntry& job = state.jobs.at(id);
  for (const auto& entry : rows->second) {
    const GenerationRow& row = entry.second;
    if (row.is_collected) continue;
    const auto has_it = [&](const NodeId& node) {
      if (entry.first >= kept_from(state, job, node)) held[node] = entry.first;
    };
    for (const Receipt& receipt : row.receipts) has_it(receipt.holder);
    has_it(row.source);
  }
  return held;
}

/// Ciphertext of the generations after `number`.
double bytes_after(const State& state, const JobId& job, std::uint32_t number) {
  double bytes = 0;
  const auto rows = state.generations.find(job);
  if (rows == state.generations.end()) return 0;
  for (auto at = rows->second.upper_bound(number); at != rows->second.end(); ++at)
    bytes += static_cast<double>(at->second.generation.new_bytes);
  return bytes;
}

/// Builds the inputs; one object per choice.
class SiteReader {
 public:
  SiteReader(const State& state, const std::vector<JobId>& jobs, const Leavings& leavings)
      : state_(state), jobs_(jobs), leavings_(leavings) {
    for (const JobId& id : jobs) {
      leaving_.insert(id);
      held_[id] = newest_held(state, id);
    }
  }

  EvacuationInputs read() {
    choose_nodes();
    for (const NodeEntry* node : nodes_) read_node(*node);
    read_groups();
    read_links();
    for (const JobId& id : jobs_) read_job(id);
    std::vector<std::optional<reclaim::Topology::Place>> places;
    for (const NodeEntry* node : nodes_) places.push_back(place_of(state_, *node));
    // Known are the ways from sources and holders; others, which are seldom asked for, are found.
    out_.site.path = [known = std::move(paths_),
                      lines = std::move(lines_),
                      places = std::move(places),
                      topology = &state_.config.topology](std::size_t from, std::size_t to) {
      std::vector<std::uint32_t> links;
      const auto found = known.find(from * places.size() + to);
      if (found != known.end()) return found->second;
      if (from == to) return links;
      links = topology->path(places[from], places[to]).links;
      if (!places[from]) links.push_back(lines[from].first);
      if (!places[to]) links.push_back(lines[to].second);
      return links;
    };
    out_.policy.trust = state_.trust.trust();
    out_.policy.rule = state_.config.study.destinations;
    if (state_.config.study.ignores_groups) out_.policy.group_risk_s = 0;
    return std::move(out_);
  }

 private:
  void choose_nodes();
  void read_node(const NodeEntry& node);
  void read_groups();
  void read_links();
  void read_paths(std::size_t from);
  void read_job(const JobId& id);
  void read_bytes(const JobEntry& job, const AttemptEntry* attempt, EvacuatingJob& out);
  EvacuationOption option_at(
      std::size_t n,
      const JobEntry& job,
      const sched::Demand& demand,
      const Evacuation& evacuation,
      const NodeEntry* source
  ) const;
  bool can_give(const NodeEntry& node, const Evacuation& evacuation) const;
  std::size_t index_of(const NodeId& id) const;

  const State& state_;
  const std::vector<JobId>& jobs_;
  const Leavings& leavings_;
  std::set<JobId> leaving_;
  std::map<JobId, std::map<NodeId, std::uint32_t>> held_;  ///< newest_held() of each
  EvacuationInputs out_;
  std::vector<const NodeEntry*> nodes_;
  std::vector<sched::Candidate> empty_;  ///< as if nobody ran there
  std::map<std::size_t, std::vector<std::uint32_t>> paths_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> lines_;  ///< up and down, of each node
  double full_ = 0;   ///< of the job being read: state and delta
  double delta_ = 0;  ///< what nobody else has
};

/// Sources and holders are always looked at; of a very large site then as many as are bounded.
void SiteReader::choose_nodes() {
  std::set<NodeId> needed;
  for (const JobId& id : jobs_) {
    needed.insert(leavings_.at(id).source);
    for (const auto& [node, number] : held_.at(id)) needed.insert(node);
  }
  for (const auto& [id, node] : state_.nodes) {
    if (node.row.is_revoked && !needed.contains(id)) continue;
    const bool is_useful = state_.is_up(node) && !node.row.is_revoked;
    if (!needed.contains(id) && (!is_useful || nodes_.size() >= kSiteNodes)) continue;
    nodes_.push_back(&node);
    out_.nodes.push_back(id);
  }
}

std::size_t SiteReader::index_of(const NodeId& id) const {
  const auto at = std::lower_bound(out_.nodes.begin(), out_.nodes.end(), id);
  return static_cast<std::size_t>(at - out_.nodes.begin());
}

void SiteReader::read_node(const NodeEntry& node) {
  const NodeId& id = node.row.node;
  sched::Candidate c = candidate_of(state_, node, leaving_);
  EvacuationNode out;
  out.node = id;
  out.name = state_.name_of(id);
  const bool is_taken = is_taken_back(state_, id) && !planted("coordinator.sends_to_taken_nodes");
  const bool is_open = state_.is_up(node) && node.lending == LendingState::kOpen && !is_taken;
  if (is_open || planted("coordinator.sends_to_taken_nodes"))
    out.free = free_slots(node, c, gpus_taken_back(state_, id));
  out.room_bytes = static_cast<double>(room_for_copies(node));
  out.is_storage = !node.row.contract.lends;
  out.restore_s = node.restore_s;
  out.stays = stay_curve(node.outlook);
  out_.site.nodes.push_back(std::move(out));
  if (planted("coordinator.sends_to_taken_nodes")) c.lending = LendingState::kOpen;
  c.used_gpus = c.used_cpu_milli = c.guests = 0;
  c.used_memory_mib = 0;
  empty_.push_back(std::move(c));
}

/// Labs, and the switches of the declared network. A group of one is the node's own risk. That all
/// of a group goes is at most as likely as that its most staying node does.
void SiteReader::read_groups() {
  std::map<std::string, std::vector<std::size_t>> members;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    members["lab " + nodes_[n]->row.lab.str()].push_back(n);
    const auto place = place_of(state_, *nodes_[n]);
    if (!place) continue;
    for (const std::string& name : state_.config.topology.switches_above(*place))
      members["switch " + name].push_back(n);
  }
  for (const auto& [name, nodes] : members) {
    if (nodes.size() < 2) continue;
    reclaim::EvacuationGroup group{.name = name, .within_s = kGroupHorizon_s};
    double most_staying = 0;
    for (const std::size_t n : nodes) {
      most_staying =
          std::max(most_staying, sched::cautious_survival(nodes_[n]->outlook, kGroupHorizon_s));
      for (const AttemptKey& key : nodes_[n]->attempts)
        group.jobs += leaving_.contains(key.first) ? 0 : 1;
      out_.site.nodes[n].groups.push_back(out_.site.groups.size());
    }
    group.reclaim_chance = 1 - most_staying;
    out_.site.groups.push_back(std::move(group));
  }
}

/// The declared network's links first; then a line in each direction for every node without a place
/// in it; then, with the paths, one more for what was measured between two nodes.
void SiteReader::read_links() {
  const auto& topology = state_.config.topology;
  const auto line_of = [](double rate) {
    return reclaim::Bandwidth{.q10 = kSureShare * rate, .median = kUsualShare * rate};
  };
  const std::map<NodeId, double> seen = state_.path_rates.best();
  for (const auto& link : topology.links())
    out_.site.links.push_back(line_of(link.rate - link.background));
  for (const NodeEntry* node : nodes_) {
    const double told = static_cast<double>(node->row.facts.uplink_bps) / 8;
    const double rate =
        told > 0
            ? told
            : std::max(kUnknownLine, seen.contains(node->row.node) ? seen.at(node->row.node) : 0);
    const auto first = static_cast<std::uint32_t>(out_.site.links.size());
    lines_.emplace_back(first, first + 1);
    // Of a place in the topology the line is there already: this one is what its owner bounds.
    const bool is_bound_alone = is_bounded(*node) && place_of(state_, *node);
    out_.site.links.push_back(line_of(sent_most(*node, is_bound_alone ? kNoBound : rate)));
    out_.site.links.push_back(line_of(rate));
  }
  std::set<std::size_t> ends;
  for (const JobId& id : jobs_) {
    ends.insert(index_of(leavings_.at(id).source));
    for (const auto& [node, number] : held_.at(id)) ends.insert(index_of(node));
  }
  for (const std::size_t from : ends) {
    if (from < nodes_.size()) read_paths(from);
  }
}

void SiteReader::read_paths(std::size_t from) {
  const auto& topology = state_.config.topology;
  const auto start = place_of(state_, *nodes_[from]);
  for (std::size_t to = 0; to < nodes_.size(); ++to) {
    if (to == from) continue;
    const auto end = place_of(state_, *nodes_[to]);
    std::vector<std::uint32_t> links = topology.path(start, end).links;
    if (!start || is_bounded(*nodes_[from])) links.push_back(lines_[from].first);
    if (!end) links.push_back(lines_[to].second);
    if (const auto rate = state_.path_rates.find(out_.nodes[from], out_.nodes[to])) {
      links.push_back(static_cast<std::uint32_t>(out_.site.links.size()));
      out_.site.links.push_back(*rate);
    }
    paths_[from * nodes_.size() + to] = std::move(links);
  }
}

/// What moves: the state as it was last durable, and what is new since then and until the last
/// save.
void SiteReader::read_bytes(const JobEntry& job, const AttemptEntry* attempt, EvacuatingJob& out) {
  const Job& j = job.row.job;
  const GenerationRef& durable = j.durable;
  const bool saves = attempt != nullptr && !j.spec.checkpoint.is_stateless &&
                     attempt->row.attempt.state >= AttemptState::kRunning;
  const double one = durable.generation == 0 ? kUnknownState
                     : durable.new_bytes > 0 ? static_cast<double>(durable.new_bytes)
                                             : static_cast<double>(durable.bytes);
  double pending = 0;
  if (saves) {
    pending =
        attempt->row.safe_generation - std::min(attempt->row.safe_generation, durable.generation);
    if (attempt->row.attempt.state < AttemptState::kDraining) pending += 1;
  }
  const double state_bytes = static_cast<double>(durable.bytes);
  delta_ = durable.generation == 0 ? std::min(pending, 1.0) * one
                                   : std::min(pending * one, std::max(state_bytes, one));
  full_ = state_bytes + delta_;
  out.stored_bytes = full_;
}

EvacuationOption SiteReader::option_at(
    std::size_t n,
    const JobEntry& job,
    const sched::Demand& demand,
    const Evacuation& evacuation,
    const NodeEntry* source
) const {
  const NodeEntry& node = *nodes_[n];
  const NodeId& id = node.row.node;
  const Job& j = job.row.job;
  EvacuationOption option;
  const sched::Judgement judgement = sched::judge(demand, empty_[n]);
  const bool is_taken = is_taken_back(state_, id) && !planted("coordinator.sends_to_taken_nodes");
  const bool is_source = id == evacuation.source;
  option.can_run = judgement.fit == sched::Fit::kFits && (!is_source || evacuation.may_return) &&
                   !is_taken && !evacuation.refused_guest.contains(id);
  const std::uint32_t wanted = j.spec.resources.cpu_milli;
  if (j.spec.resources.gpus == 0 && wanted > 0) {
    const std::uint32_t granted = std::min(judgement.cpu_milli, out_.site.nodes[n].free.cpu_milli);
    option.speed = std::min(1.0, static_cast<double>(granted) / wanted);
  }
  if (id == job.row.avoid) option.speed *= 0.5;
  const bool is_apart = source == nullptr || failure_domain_of(node) != failure_domain_of(*source);
  option.can_store = state_.is_up(node) && !node.row.is_revoked && !node.row.address.peer.empty() &&
                     is_apart && !is_taken && !node.row.facts.are_transfers_cut &&
                     !evacuation.refused_copy.contains(id) &&
                     is_copy_place(j.spec.checkpoint.destinations, node);
  if (j.spec.checkpoint.is_stateless || is_source) option.can_store = option.can_run;
  return option;
}

/// From who is cut, or whose transfers are, nothing is fetched, also if its agent would still
/// serve.
bool SiteReader::can_give(const NodeEntry& node, const Evacuation& evacuation) const {
  const bool is_left = node.row.node == evacuation.source &&
                       (!evacuation.may_return || node.lending != LendingState::kOpen);
  return !is_left && state_.is_up(node) && !node.row.is_revoked &&
         !node.row.facts.are_transfers_cut && !node.row.address.peer.empty();
}

void SiteReader::read_job(const JobId& id) {
  const JobEntry& job = state_.jobs.at(id);
  const Evacuation& evacuation = leavings_.at(id);
  const Job& j = job.row.job;
  const auto found = state_.attempts.find({id, j.epoch});
  const bool runs = found != state_.attempts.end() && found->second.is_live() &&
                    found->second.row.attempt.state >= AttemptState::kRunning &&
                    !evacuation.is_stranded && j.state != JobState::kQueued &&
                    j.state != JobState::kPlacing;
  const AttemptEntry* attempt = runs ? &found->second : nullptr;
  EvacuatingJob out;
  out.job = id;
  out.name = "job " + std::to_string(j.number);
  out.source = index_of(evacuation.source);
  const auto source = state_.nodes.find(evacuation.source);
  const NodeEntry* from = source == state_.nodes.end() ? nullptr : &source->second;
  if (attempt != nullptr) {
    out.notice_s = std::max(0.0, seconds_in(evacuation.deadline - state_.now.boot));
    out.save_s = attempt->row.attempt.state < AttemptState::kDraining ? kSaveGuess_s : 0;
    out.may_stay = evacuation.is_announced && attempt->row.attempt.state == AttemptState::kRunning;
    const bool has_saved = j.durable.generation > 0 && j.durable.epoch == j.epoch;
    const std::int64_t since_ms =
        has_saved ? j.durable.created_wall_ms + (from != nullptr ? from->clock_offset_ms : 0)
                  : attempt->row.attempt.started_wall_ms;
    if (since_ms > 0 && !j.spec.checkpoint.is_stateless)
      out.lost_s = std::max(0.0, static_cast<double>(state_.wall_ms() - since_ms) / 1e3);
  } else {
    out.is_stranded = true;
    out.save_s = 0;
  }
  out.remaining_s = kJobHorizon_s;
  if (j.spec.max_duration_s > 0) out.remaining_s = j.spec.max_duration_s;
  out.weight = std::max(1U, j.spec.resources.gpus);
  const Resources& r = j.spec.resources;
  out.needs = {
      .guests = 1, .gpus = r.gpus, .cpu_milli = r.cpu_milli_min, .memory_mib = r.memory_mib};
  if (r.gpus == 0) out.cpu_wanted_milli = r.cpu_milli;
  read_bytes(job, attempt, out);
  const auto& held = held_.at(id);
  const NodeId next = found == state_.attempts.end() ? NodeId() : found->second.next;
  const sched::Demand demand = demand_of(job);
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    EvacuationOption option = option_at(n, job, demand, evacuation, from);
    const auto has = held.find(nodes_[n]->row.node);
    option.bytes = full_;
    if (has != held.end()) {
      option.has_parent = has->second == j.durable.generation &&
                          (!out.is_stranded || can_give(*nodes_[n], evacuation));
      option.bytes = std::min(full_, delta_ + bytes_after(state_, id, has->second));
      option.is_prepared = nodes_[n]->row.node == next;
    }
    if (n == out.source && evacuation.may_return) option.bytes = 0;
    out.options.push_back(option);
  }
  out_.ids.push_back(id);
  out_.deltas.push_back(delta_);
  out_.jobs.push_back(std::move(out));
}

}  // namespace

EvacuationInputs evacuation_inputs(
    const State& state, const std::vector<JobId>& jobs, const Leavings& leavings
) {
  return SiteReader(state, jobs, leavings).read();
}

double shared_switches(const State& state, const NodeEntry& a, const NodeEntry& b) {
  const auto place = place_of(state, a);
  const auto other = place_of(state, b);
  return place && other ? state.config.topology.shared_switches(*place, *other) : 0;
}

double sure_rate(const State& state, const NodeEntry& from, const NodeEntry& to) {
  if (const auto seen = state.path_rates.find(from.row.node, to.row.node))
    return sent_most(from, seen->q10);
  const auto start = place_of(state, from);
  const auto end = place_of(state, to);
  double rate = static_cast<double>(to.row.facts.uplink_bps) / 8;
  if (start && end) rate = state.config.topology.path(start, end).rate;
  const double sent = sent_most(from, rate > 0 ? rate : kNoBound);
  return std::isfinite(sent) ? kSureShare * sent : 0;
}

void learn_rates(State& state, const NodeEntry& source, const GenerationRow& row) {
  // What a cap of the owner's held back says nothing of the line.
  if (source.row.contract.uplink_bps_normal > 0 || is_bounded(source)) return;
  const GenerationRef& ref = row.generation;
  const auto rows = state.generations.find(ref.job);
  for (const Receipt& receipt : row.receipts) {
    const NodeEntry* holder = state.find_node(receipt.holder);
    if (holder == nullptr) continue;
    // Only who had the parent was sent exactly what is new.
    bool had_parent = ref.generation == 1;
    if (rows != state.generations.end()) {
      const auto before = rows->second.find(ref.generation - 1);
      if (before != rows->second.end())
        for (const Receipt& old : before->second.receipts)
          had_parent = had_parent || old.holder == receipt.holder;
    }
    if (!had_parent) continue;
    // From the begin of the snapshot, so that it is never more than the path carries.
    const std::int64_t ms = receipt.verified_wall_ms + holder->clock_offset_ms -
                            ref.created_wall_ms - source.clock_offset_ms;
    state.path_rates.add(
        source.row.node,
        receipt.holder,
        static_cast<double>(ref.new_bytes),
        static_cast<double>(ms) / 1e3,
        state.now.boot
    );
  }
}

}  // namespace rn::coordinator
