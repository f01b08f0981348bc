// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_state.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/assert.h"
#include "base/log.h"
#include "base/planted.h"

namespace rn::coordinator {

void Latency::add(nanoseconds value) {
  ring_[count_ % ring_.size()] = value.count();
  ++count_;
}

nanoseconds Latency::p99() const {
  const std::size_t n = std::min(count_, ring_.size());
  if (n < 8) return first_;
  std::array<std::int64_t, 128> sorted = ring_;
  const std::size_t at = n * 99 / 100;
  std::nth_element(
      sorted.begin(),
      sorted.begin() + static_cast<std::ptrdiff_t>(at),
      sorted.begin() + static_cast<std::ptrdiff_t>(n)
  );
  return nanoseconds(sorted[at]);
}

void State::send(const NodeEntry& node, wire::Message message) {
  if (node.connection != 0) act(SendToAgent{node.connection, std::move(message)});
}

void State::send(const NodeId& node, wire::Message message) {
  if (const NodeEntry* entry = find_node(node)) send(*entry, std::move(message));
}

void State::note(const JobEntry& job, std::string kind, std::string message, EventData data) {
  log::info(kind, {{"job", job.row.job.id.str()}, {"what", message}});
  EventRow row;
  row.kind = std::move(kind);
  row.message = std::move(message);
  row.job = job.row.job.id;
  row.epoch = job.row.job.epoch;
  row.node = job.row.job.node;
  row.lab = job.row.job.lab;
  row.user = job.row.job.owner;
  row.at_wall_ms = wall_ms();
  row.data = std::move(data);
  write(AppendEvent{std::move(row)});
}

void State::note(const NodeEntry& node, std::string kind, std::string message, EventData data) {
  log::info(kind, {{"node", node.row.node.str()}, {"what", message}});
  EventRow row;
  row.kind = std::move(kind);
  row.message = std::move(message);
  row.node = node.row.node;
  row.lab = node.row.lab;
  row.at_wall_ms = wall_ms();
  row.data = std::move(data);
  write(AppendEvent{std::move(row)});
}

void State::move_unsaved(JobEntry& job, JobState to, std::string reason) {
  const JobState from = job.row.job.state;
  RN_ASSERT(may_follow(from, to), "illegal change of a job's state (I12)");
  const JobId id = job.row.job.id;
  if (from != to) job.state_since = now.boot;
  job.row.job.state = to;
  job.row.job.reason = std::move(reason);
  if (to == JobState::kQueued) {
    // A member waits with its gang, which has one place in the queue.
    const bool waits_alone = !job.row.job.gang;
    if (waits_alone && !planted("coordinator.forgets_the_displaced")) queued.insert(id);
    is_dispatch_wanted = true;
  } else {
    queued.erase(id);
  }
  if (to == JobState::kPlacing) {
    placing.insert(id);
  } else {
    placing.erase(id);
  }
  if (is_terminal(to) && unfinished.erase(id) > 0) {
    auto& count = unfinished_of[job.row.job.owner];
    if (count > 0) --count;
    leave_waits(job);
    moved.push_back(id);
  }
}

void State::move(GangEntry& gang, GangState to) {
  if (gang.row.state != to) gang.state_since = now.boot;
  gang.row.state = to;
  if (to == GangState::kOver) {
    open_gangs.erase(gang.row.id);
  } else {
    open_gangs.insert(gang.row.id);
  }
  if (to == GangState::kWaiting) is_dispatch_wanted = true;
  save(gang);
}

void State::enter_waits(const JobEntry& job) {
  const Job& j = job.row.job;
  const bool is_over = is_terminal(j.state);
  if (!is_over && job.row.is_held) held.insert(j.id);
  for (const AfterJob& after : job.row.waits_for) {
    if (!is_over) waiters[after.job].insert(j.id);
  }
  if (!j.array) return;
  ArrayEntry& array = arrays[j.array->array];
  array.tasks[j.number] = j.id;
  if (is_over) return;
  if (!job.row.is_held) {
    ++array.released;
  } else if (job.row.waits_for.empty()) {
    array.in_turn.insert(j.number);
  }
}

void State::leave_waits(const JobEntry& job) {
  const Job& j = job.row.job;
  held.erase(j.id);
  for (const AfterJob& after : job.row.waits_for) {
    const auto found = waiters.find(after.job);
    if (found == waiters.end()) continue;
    found->second.erase(j.id);
    if (found->second.empty()) waiters.erase(found);
  }
  if (!j.array) return;
  ArrayEntry& array = arrays.at(j.array->array);
  array.in_turn.erase(j.number);
  if (!job.row.is_held) --array.released;
}

void State::move(JobEntry& job, JobState to, std::string reason) {
  move_unsaved(job, to, std::move(reason));
  save(job);
}

JobEntry* State::find_job(const JobId& id) {
  const auto found = jobs.find(id);
  return found == jobs.end() ? nullptr : &found->second;
}

NodeEntry* State::find_node(const NodeId& id) {
  const auto found = nodes.find(id);
  return found == nodes.end() ? nullptr : &found->second;
}

GangEntry* State::find_gang(const GangId& id) {
  const auto found = gangs.find(id);
  return found == gangs.end() ? nullptr : &found->second;
}

GangEntry* State::gang_of(const JobEntry& job) {
  return job.row.job.gang ? find_gang(job.row.job.gang->gang) : nullptr;
}

bool State::is_waiting(const JobEntry& job) const {
  if (!job.row.job.gang) return queued.contains(job.row.job.id);
  const auto gang = gangs.find(job.row.job.gang->gang);
  const bool is_asked = gang != gangs.end() && gang->second.round;
  return job.row.job.state == JobState::kQueued && !job.row.is_held && !is_asked;
}

const Asked* State::seat_of(const JobEntry& job) const {
  if (!job.row.job.gang) return nullptr;
  const auto gang = gangs.find(job.row.job.gang->gang);
  if (gang == gangs.end() || !gang->second.round) return nullptr;
  const std::vector<Asked>& seats = gang->second.round->seats;
  const std::size_t rank = job.row.job.gang->rank;
  if (rank >= seats.size() || seats[rank].phase == Asked::Phase::kOver) return nullptr;
  return &seats[rank];
}

AttemptEntry* State::find_attempt(const JobId& id, LeaseEpoch epoch) {
  const auto found = attempts.find({id, epoch});
  return found == attempts.end() ? nullptr : &found->second;
}

AttemptEntry* State::newest_attempt(const JobEntry& job) {
  return find_attempt(job.row.job.id, job.row.job.epoch);
}

bool State::is_current(const JobId& id, LeaseEpoch epoch) {
  const JobEntry* job = find_job(id);
  if (job == nullptr || is_terminal(job->row.job.state)) return false;
  if (planted("coordinator.accepts_stale_epochs")) return true;
  return !epoch.is_none() && job->row.job.epoch == epoch;
}

std::string State::name_of(const NodeId& node) const {
  const auto found = nodes.find(node);
  if (found == nodes.end()) return node.str();
  const NodeRow& row = found->second.row;
  return row.lab.str() + "/" + (row.facts.hostname.empty() ? node.str() : row.facts.hostname);
}

JobEntry& State::adopt(JobRow row) {
  if (planted("coordinator.revives_finished_jobs") && row.job.state == JobState::kSucceeded)
    row.job.state = JobState::kQueued;
  const JobId id = row.job.id;
  const bool is_over = is_terminal(row.job.state);
  jobs_by_number[row.job.number] = id;
  const bool is_forgotten = planted("coordinator.forgets_keys_at_start") && connections.empty();
  if (!row.idempotency_key.empty() && !is_forgotten)
    jobs_by_key[{row.job.owner, row.idempotency_key}] = id;
  if (!is_over) {
    unfinished.insert(id);
    ++unfinished_of[row.job.owner];
  }
  const bool is_lost = planted("coordinator.forgets_the_queue") && connections.empty();
  const bool waits_alone = row.job.state == JobState::kQueued && !row.is_held && !row.job.gang;
  if (waits_alone && !is_lost) queued.insert(id);
  JobEntry& entry = jobs[id];
  entry.row = std::move(row);
  enter_waits(entry);
  entry.state_since = now.boot;
  return entry;
}

GangEntry& State::adopt(GangRow row) {
  const GangId id = row.id;
  if (row.state != GangState::kOver) open_gangs.insert(id);
  GangEntry& entry = gangs[id];
  entry.row = std::move(row);
  entry.state_since = now.boot;
  return entry;
}

void State::keep(ReclaimRow row) {
  const std::pair key(row.record.node, row.record.id);
  if (is_over(row.record)) {
    open_reclaims.erase(key);
  } else {
    open_reclaims.insert(key);
  }
  reclaims.insert_or_assign(key, std::move(row));
}

bool is_over(const ReclaimRecord& record) {
  return record.phase == ReclaimPhase::kReturned || record.kind == ReclaimKind::kLost;
}

Output State::take_output() {
  record_states(output.writes, told, wall_ms());
  return std::exchange(output, Output());
}

namespace {

/// With the last of its members that is remembered.
void forget_gang(State& state, const GangId& id) {
  const GangEntry* gang = state.find_gang(id);
  if (gang == nullptr) return;
  const bool is_remembered =
      std::any_of(gang->row.members.begin(), gang->row.members.end(), [&](const JobId& member) {
        return state.jobs.contains(member);
      });
  if (is_remembered || gang->row.state != GangState::kOver) return;
  state.told.erase(state_name(id));
  state.gangs.erase(id);
}

}  // namespace

void State::forget_old_jobs() {
  const std::size_t limit = unfinished.size() + config.max_finished_jobs_kept;
  for (auto at = jobs_by_number.begin(); at != jobs_by_number.end() && jobs.size() > limit;) {
    const JobEntry* job = find_job(at->second);
    RN_ASSERT(job != nullptr, "the index of numbers names a job that is not there");
    const JobId id = job->row.job.id;
    if (!is_terminal(job->row.job.state)) {
      ++at;
      continue;
    }
    if (!job->row.idempotency_key.empty())
      jobs_by_key.erase({job->row.job.owner, job->row.idempotency_key});
    const auto first = attempts.lower_bound({id, LeaseEpoch{}});
    const auto end = attempts.upper_bound({id, LeaseEpoch{0xffffffff, 0xffffffff}});
    for (auto attempt = first; attempt != end; ++attempt)
      told.erase(state_name(id, attempt->first.second));
    told.erase(state_name(id));
    if (job->row.job.array) {
      const auto array = arrays.find(job->row.job.array->array);
      array->second.tasks.erase(job->row.job.number);
      if (array->second.tasks.empty()) arrays.erase(array);
    }
    const std::optional<GangPlace> place = job->row.job.gang;
    attempts.erase(first, end);
    generations.erase(id);
    jobs.erase(id);
    if (place) forget_gang(*this, place->gang);
    at = jobs_by_number.erase(at);
  }
}

namespace {

/// The place is not yet taken by its own probe or attempt there.
bool is_place_kept(const State& state, const JobId& id, const Evacuation& e, const NodeId& node) {
  if (e.destination != node || state.now.boot >= e.kept_until) return false;
  if (planted("coordinator.gives_kept_places_away")) return false;
  const auto job = state.jobs.find(id);
  if (job == state.jobs.end() || job->second.placement) return false;
  return !state.nodes.at(node).attempts.contains({id, job->second.row.job.epoch});
}

}  // namespace

sched::Candidate candidate_of(
    const State& state, const NodeEntry& node, const std::set<JobId>& without
) {
  sched::Candidate c;
  c.node = node.row.node;
  c.lab = node.row.lab;
  c.facts = &node.row.facts;
  c.contract = &node.row.contract;
  c.telemetry = &node.telemetry;
  c.lending = node.lending;
  c.is_up = state.is_up(node);
  c.has_peer_port = !node.row.address.peer.empty();
  c.outlook = node.outlook;
  const auto use = [&c](const Resources& resources, std::uint32_t cpu_milli) {
    c.used_gpus += resources.gpus;
    c.used_cpu_milli += cpu_milli;
    c.used_memory_mib += resources.memory_mib;
    ++c.guests;
  };
  for (const AttemptKey& key : node.attempts) {
    if (without.contains(key.first)) continue;
    const auto job = state.jobs.find(key.first);
    const auto attempt = state.attempts.find(key);
    if (job == state.jobs.end() || attempt == state.attempts.end()) continue;
    // What only uploads no longer computes.
    if (attempt->second.row.attempt.state == AttemptState::kDraining) continue;
    use(job->second.row.job.spec.resources,
        static_cast<std::uint32_t>(attempt->second.row.granted_cpu_milli));
  }
  for (const auto& [probe, resources] : node.probes) use(resources, resources.cpu_milli_min);
  for (const auto& [id, evacuation] : state.evacuations) {
    if (without.contains(id) || !is_place_kept(state, id, evacuation, node.row.node)) continue;
    const Resources& wanted = state.jobs.at(id).row.job.spec.resources;
    use(wanted, wanted.cpu_milli_min);
  }
  return c;
}

void count_kept(const State& state, sched::Candidate& c) {
  if (!state.gathering) return;
  const auto kept = state.gathering->kept.find(c.node);
  const auto gang = state.gangs.find(state.gathering->gang);
  if (kept == state.gathering->kept.end() || gang == state.gangs.end()) return;
  const auto first = state.jobs.find(gang->second.row.members.front());
  if (first == state.jobs.end()) return;
  const Resources& member = first->second.row.job.spec.resources;
  c.used_gpus += member.gpus * kept->second;
  c.used_cpu_milli += member.cpu_milli_min * kept->second;
  c.used_memory_mib += member.memory_mib * kept->second;
  c.guests += kept->second;
}

std::vector<sched::Candidate> candidates_of(const State& state, bool may_have_kept) {
  std::vector<sched::Candidate> result;
  result.reserve(state.nodes.size());
  for (const auto& [id, node] : state.nodes) {
    if (node.row.is_revoked || node.row.state == NodeState::kLeft) continue;
    result.push_back(candidate_of(state, node));
    if (!may_have_kept) count_kept(state, result.back());
  }
  return result;
}

sched::Demand demand_of(const JobEntry& job) {
  const Job& j = job.row.job;
  sched::Demand demand;
  demand.resources = j.spec.resources;
  demand.user = j.owner;
  demand.lab = j.lab;
  demand.image_digest = j.image_digest;
  demand.only_labs = j.spec.only_labs;
  demand.data = j.spec.data;
  demand.preferred = job.row.home;
  demand.avoided = job.row.avoid;
  demand.notice_s = j.spec.notice_s;
  demand.is_member = j.gang.has_value();
  if (j.spec.max_duration_s > 0) demand.horizon_s = j.spec.max_duration_s;
  return demand;
}

std::string decimal(double value, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string short_duration(std::int64_t ms) {
  const std::int64_t s = std::max<std::int64_t>(0, ms) / 1000;
  if (s < 120) return std::to_string(s) + " s";
  if (s < 2 * 3600) return std::to_string(s / 60) + " min";
  return decimal(static_cast<double>(s) / 3600, 1) + " h";
}

}  // namespace rn::coordinator
