// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_evacuation.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/planted.h"
#include "coordinator/core_copies.h"

namespace rn::coordinator {

namespace {

using reclaim::EvacuationChoice;
using reclaim::EvacuationWay;

constexpr std::chrono::minutes kKeptAhead{15};  // of a deadline: the longest notice of a contract
constexpr std::chrono::hours kNoticeBelieved{24};  // of what a node says
constexpr std::uint32_t kChoicesTold = 32;  // per job and reclaim: owners must not fill the history
constexpr std::size_t kCausesTold = 4;

bool is_pending_reclaim(const ReclaimRecord& record) {
  const bool is_ahead =
      record.phase == ReclaimPhase::kDeclared || record.phase == ReclaimPhase::kEvacuating;
  return is_ahead && record.gpus.empty() && record.kind != ReclaimKind::kEmergency &&
         record.kind != ReclaimKind::kLost;
}

template <class Visit>
void for_reclaims_of(const State& state, const NodeId& node, const Visit& visit) {
  for (auto at = state.reclaims.lower_bound({node, ReclaimId()});
       at != state.reclaims.end() && at->first.first == node;
       ++at)
    visit(at->second);
}

/// The two times are what a node says, and may be any: their distance is taken without a sign.
nanoseconds notice_of(const ReclaimRecord& record) {
  if (record.deadline_ns <= record.declared_ns) return nanoseconds(0);
  const std::uint64_t notice = static_cast<std::uint64_t>(record.deadline_ns) -
                               static_cast<std::uint64_t>(record.declared_ns);
  constexpr auto kMost = static_cast<std::uint64_t>(nanoseconds(kNoticeBelieved).count());
  return nanoseconds(static_cast<std::int64_t>(std::min(notice, kMost)));
}

/// A record may stay as it is for ever, if a warden lost its journal: after its time the node's own
/// word counts, which heartbeats bring.
bool is_recent(const State& state, const ReclaimRow& row, nanoseconds length) {
  const nanoseconds age = milliseconds(std::abs(state.wall_ms() - row.reported_wall_ms));
  return age < length + 3 * state.heartbeat();
}

/// The one with the earliest deadline; nullptr if none is open.
const ReclaimRecord* open_reclaim(const State& state, const NodeId& node) {
  const ReclaimRecord* first = nullptr;
  for_reclaims_of(state, node, [&](const ReclaimRow& row) {
    if (!is_pending_reclaim(row.record) || !is_recent(state, row, notice_of(row.record))) return;
    if (first == nullptr || row.record.deadline_ns < first->deadline_ns) first = &row.record;
  });
  return first;
}

/// On this clock. What the node says is believed within its own notice: never before now, and never
/// later than if it had been declared now.
Instant deadline_of(const State& state, const NodeEntry& node, const ReclaimRecord& record) {
  const nanoseconds notice = notice_of(record);
  constexpr std::int64_t kFar_ms = 1'000'000'000'000'000;
  const std::int64_t declared_ms = std::clamp(record.declared_wall_ms, -kFar_ms, kFar_ms) +
                                   std::clamp(node.clock_offset_ms, -kFar_ms, kFar_ms);
  const std::int64_t passed_ms = std::clamp<std::int64_t>(
      state.wall_ms() - declared_ms, 0, std::chrono::duration_cast<milliseconds>(notice).count()
  );
  return state.now.boot + notice - milliseconds(passed_ms);
}

bool may_evacuate(const State& state, const AttemptKey& key) {
  const auto job = state.jobs.find(key.first);
  const auto attempt = state.attempts.find(key);
  if (job == state.jobs.end() || attempt == state.attempts.end()) return false;
  const JobEntry& entry = job->second;
  const bool is_kept =
      entry.row.stop_end == AttemptEnd::kNone || entry.row.stop_end == AttemptEnd::kMigrated;
  return attempt->second.is_live() && attempt->second.is_granted && is_kept &&
         entry.row.job.epoch == key.second && entry.row.job.state != JobState::kQueued &&
         entry.row.job.state != JobState::kPlacing;
}

bool is_computing(const State& state, const JobId& id) {
  const auto job = state.jobs.find(id);
  if (job == state.jobs.end()) return false;
  const auto attempt = state.attempts.find({id, job->second.row.job.epoch});
  return attempt != state.attempts.end() &&
         attempt->second.row.attempt.state <= AttemptState::kNoticed;
}

void want_choice(State& state, std::string cause) {
  if (state.evacuation_causes.size() < kCausesTold)
    state.evacuation_causes.insert(std::move(cause));
}

/// Whether the node can still take what was chosen for it.
bool can_still_take(const State& state, const NodeId& id, bool as_guest) {
  const auto found = state.nodes.find(id);
  if (found == state.nodes.end()) return false;
  const NodeEntry& node = found->second;
  if (!state.is_up(node) || node.row.is_revoked || is_taken_back(state, id)) return false;
  return !as_guest || node.lending == LendingState::kOpen;
}

/// What is chosen is under way: its last generation is on the wire, or it waits for its lease.
bool is_under_way(const State& state, const JobEntry& job, const Evacuation& evacuation) {
  if (evacuation.destination.empty()) return false;
  if (job.placement || job.row.job.state == JobState::kPlacing) return true;
  if (job.row.job.state == JobState::kQueued) return true;
  const auto attempt = state.attempts.find({job.row.job.id, job.row.job.epoch});
  return attempt != state.attempts.end() &&
         attempt->second.row.attempt.state == AttemptState::kDraining;
}

std::string all_causes(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : "; ") + word;
  return text;
}

State::EventData data_of(const api::EvacuationView& v) {
  return {
      {"way", v.way},
      {"destination", v.destination},
      {"holder", v.holder},
      {"bytes", std::to_string(v.bytes)},
      {"rate_q10", decimal(v.rate_q10, 0)},
      {"arrives_s", decimal(v.arrives_s, 1)},
      {"notice_s", decimal(v.notice_s, 1)},
      {"chance", decimal(v.chance, 3)},
      {"downtime_s", decimal(v.downtime_s, 1)},
      {"stay_s", decimal(v.stay_s, 0)},
      {"speed", decimal(v.speed, 2)},
      {"group_risk", decimal(v.group_risk, 3)},
      {"utility", decimal(v.utility, 0)},
      {"regret", decimal(v.regret, 0)},
      {"next_best", v.next_best},
      {"together", std::to_string(v.together)},
      {"trust", decimal(v.trust, 2)},
      {"because", v.because}};
}

api::EvacuationView view_of_choice(
    const EvacuationInputs& in, std::size_t j, const EvacuationChoice& c, std::string because
) {
  api::EvacuationView v;
  v.way = std::string(to_string(c.way));
  if (c.destination) v.destination = in.nodes[*c.destination].str();
  if (c.holder) v.holder = in.nodes[*c.holder].str();
  v.bytes = static_cast<std::uint64_t>(std::max(0.0, c.bytes));
  v.rate_q10 = std::isfinite(c.rate) ? c.rate : 0;
  v.arrives_s = c.arrives_s;
  v.notice_s = in.jobs[j].notice_s;
  v.chance = c.chance;
  v.downtime_s = c.downtime_s;
  v.stay_s = c.stay_s;
  v.speed = c.speed;
  v.group_risk = c.group_risk;
  v.utility = c.utility;
  v.regret = c.regret;
  v.next_best = c.next_best;
  v.together = static_cast<std::uint32_t>(in.jobs.size());
  v.trust = in.policy.trust;
  v.because = std::move(because);
  v.sentence = c.sentence;
  return v;
}

/// Nothing of it moves any more: the sentence begins with where it goes on.
std::string waiting_words(const std::string& sentence) {
  const auto at = sentence.find("; ");
  return "it waits with what is durable" + (at == std::string::npos ? "" : sentence.substr(at));
}

/// Told at once: the next heartbeat may be most of the notice away.
void push_plan(State& state, JobEntry& job) {
  AttemptEntry* attempt = state.newest_attempt(job);
  if (attempt == nullptr || !attempt->is_live() || !attempt->is_granted) return;
  NodeEntry* node = state.find_node(attempt->row.attempt.node);
  if (node == nullptr || node->connection == 0) return;
  attempt->plan_made = Instant{};
  refresh_plan(state, job, *attempt);
  if (attempt->plan.job.empty()) return;
  wire::HeartbeatAck ack;
  ack.clock_offset_ms = node->clock_offset_ms;
  ack.plans.push_back(attempt->plan);
  state.send(*node, std::move(ack));
}

void apply_choice(
    State& state,
    const EvacuationInputs& in,
    std::size_t j,
    const EvacuationChoice& choice,
    const std::string& because
) {
  JobEntry& job = *state.find_job(in.ids[j]);
  Evacuation& e = state.evacuations.at(in.ids[j]);
  // Nothing of it is saved any more, or yet.
  const bool is_waiting =
      job.row.job.state == JobState::kQueued || job.row.job.state == JobState::kStarting;
  api::EvacuationView view = view_of_choice(in, j, choice, because);
  if (is_waiting) view.sentence = waiting_words(view.sentence);
  const bool is_other = e.view.way != view.way || e.view.destination != view.destination ||
                        e.view.holder != view.holder;
  e.destination = NodeId(view.destination);
  e.holder = NodeId(view.holder);
  if (e.view.way.empty()) e.first_chosen_at = state.now.boot;
  e.chosen_at = state.now.boot;
  e.kept_until = std::min(e.deadline, e.first_chosen_at + nanoseconds(kKeptAhead)) +
                 milliseconds(state.config.drain_wait_ms);
  if (is_waiting) e.kept_until = state.now.boot + milliseconds(state.config.drain_wait_ms);
  e.view = std::move(view);
  if (!is_other) return;
  if (e.told < kChoicesTold) {
    ++e.told;
    state.note(job, "evacuation.chosen", e.view.sentence, data_of(e.view));
  }
  if (!is_waiting) push_plan(state, job);
}

std::vector<EvacuationChoice> choose_together(const EvacuationInputs& in) {
  if (!planted("coordinator.promises_places_twice"))
    return reclaim::choose_evacuation(in.site, in.jobs, in.policy);
  std::vector<EvacuationChoice> each;
  for (const reclaim::EvacuatingJob& job : in.jobs)
    each.push_back(reclaim::choose_evacuation(in.site, {job}, in.policy).front());
  return each;
}

/// Those that a choice is wanted for; what is over is dropped.
std::vector<JobId> evacuees(State& state) {
  std::vector<JobId> result;
  std::vector<JobId> over;
  for (auto& [id, e] : state.evacuations) {
    const JobEntry* job = state.find_job(id);
    if (job == nullptr || is_terminal(job->row.job.state)) {
      over.push_back(id);
      continue;
    }
    if (!e.destination.empty() && !can_still_take(state, e.destination, true) &&
        !planted("coordinator.sends_to_taken_nodes"))
      e.destination = NodeId();
    if (!e.holder.empty() && !can_still_take(state, e.holder, false))
      e.holder = e.destination = NodeId();
    if (!is_under_way(state, *job, e)) result.push_back(id);
  }
  for (const JobId& id : over) state.evacuations.erase(id);
  // More than that at once: the heaviest first.
  std::stable_sort(result.begin(), result.end(), [&](const JobId& a, const JobId& b) {
    return state.jobs.at(a).row.job.spec.resources.gpus >
           state.jobs.at(b).row.job.spec.resources.gpus;
  });
  if (result.size() > kEvacueesAtOnce) result.resize(kEvacueesAtOnce);
  return result;
}

/// Everybody who computes there has to go, by the record's deadline.
void note_attempts(State& state, NodeEntry& node, const ReclaimRecord& record) {
  for (const AttemptKey& key : node.attempts) {
    if (!may_evacuate(state, key)) continue;
    Evacuation& e = state.evacuations[key.first];
    const bool is_known = e.source == node.row.node && e.reclaim == record.id;
    if (!is_known) e = Evacuation{};
    e.source = node.row.node;
    e.reclaim = record.id;
    const Instant deadline = deadline_of(state, node, record);
    const bool is_moved = !is_known || std::chrono::abs(deadline - e.deadline) > seconds(2);
    if (is_moved) e.deadline = deadline;
    if (is_moved || e.view.way.empty())
      want_choice(state, state.name_of(node.row.node) + " is taken back");
  }
}

}  // namespace

bool is_taken_back(const State& state, const NodeId& node) {
  bool is_taken = false;
  for_reclaims_of(state, node, [&](const ReclaimRow& row) {
    const ReclaimRecord& record = row.record;
    if (!record.gpus.empty() || record.kind == ReclaimKind::kLost ||
        record.phase == ReclaimPhase::kReturned)
      return;
    is_taken =
        is_taken ||
        is_recent(state, row, is_pending_reclaim(record) ? notice_of(record) : nanoseconds(0));
  });
  return is_taken;
}

void note_evacuees(State& state, NodeEntry& node) {
  const ReclaimRecord* record = open_reclaim(state, node.row.node);
  if (record == nullptr) {
    // Called off: who still computes there stays. After a cut, who left goes to where it was sent.
    std::vector<JobId> back;
    for (const auto& [id, e] : state.evacuations) {
      if (e.source != node.row.node || is_taken_back(state, e.source)) continue;
      if (is_computing(state, id)) back.push_back(id);
    }
    for (const JobId& id : back) state.evacuations.erase(id);
  } else {
    note_attempts(state, node, *record);
  }
  // Somebody may be on the way to it.
  for (const auto& [id, e] : state.evacuations) {
    const bool is_sent_there = e.destination == node.row.node || e.holder == node.row.node;
    if (is_sent_there && is_taken_back(state, node.row.node))
      want_choice(state, state.name_of(node.row.node) + " is taken back");
  }
}

void restore_evacuations(State& state) {
  for (auto& [id, node] : state.nodes) {
    if (!node.attempts.empty()) note_evacuees(state, node);
  }
}

void note_turned_down(State& state, const JobId& job, const NodeId& node, const std::string& why) {
  const auto found = state.evacuations.find(job);
  if (found == state.evacuations.end() || found->second.destination != node) return;
  found->second.refused_guest.insert(node);
  found->second.destination = NodeId();
  want_choice(state, state.name_of(node) + " does not take it: " + why.substr(0, 120));
}

void note_copies_refused(State& state, const JobId& job, const std::vector<NodeId>& tried) {
  const auto found = state.evacuations.find(job);
  if (found == state.evacuations.end()) return;
  Evacuation& e = found->second;
  if (std::find(tried.begin(), tried.end(), e.holder) == tried.end()) return;
  for (const NodeId& node : tried) {
    if (state.find_node(node) != nullptr) e.refused_copy.insert(node);
  }
  // Its place there is of use only with the state beside it, or near: chosen anew.
  want_choice(state, state.name_of(e.holder) + " takes no copy");
  e.holder = NodeId();
  e.destination = NodeId();
}

void note_held(State& state, const JobId& job, const GenerationRow& row) {
  const auto found = state.evacuations.find(job);
  if (found == state.evacuations.end() || found->second.holder.empty()) return;
  Evacuation& e = found->second;
  const bool is_there =
      std::any_of(row.receipts.begin(), row.receipts.end(), [&](const Receipt& r) {
        return r.holder == e.holder;
      });
  if (is_there || row.receipts.empty()) return;
  want_choice(state, "its state went to " + state.name_of(row.receipts.front().holder));
  e.destination = NodeId();
}

void end_evacuation(State& state, const JobId& job) {
  state.evacuations.erase(job);
}

void look_at_evacuations(State& state) {
  if (state.evacuations.empty()) return;
  const bool is_due = state.now.boot - state.evacuations_looked_at >= state.heartbeat() / 4;
  if (!is_due) return;
  state.evacuations_looked_at = state.now.boot;
  std::vector<JobId> over;
  for (auto& [id, e] : state.evacuations) {
    const JobEntry* job = state.find_job(id);
    const bool is_waiting = job != nullptr && job->row.job.state == JobState::kQueued;
    if (job == nullptr || is_terminal(job->row.job.state)) {
      over.push_back(id);
      continue;
    }
    const bool is_late = state.now.boot >= e.kept_until && !e.view.way.empty();
    if (is_late && (is_waiting || state.now.boot >= e.deadline + nanoseconds(kKeptAhead))) {
      over.push_back(id);
      continue;
    }
    if (!e.destination.empty() && !can_still_take(state, e.destination, true)) {
      want_choice(state, state.name_of(e.destination) + " can take nobody any more");
    } else if (!e.holder.empty() && !can_still_take(state, e.holder, false)) {
      want_choice(state, state.name_of(e.holder) + " can keep nothing any more");
    } else if (e.destination.empty() && state.now.boot - e.chosen_at >= state.heartbeat()) {
      want_choice(state, "nobody could take it");
    }
  }
  for (const JobId& id : over) state.evacuations.erase(id);
}

void settle_evacuations(State& state) {
  if (state.evacuation_causes.empty()) return;
  const std::string because = all_causes(std::exchange(state.evacuation_causes, {}));
  const std::vector<JobId> jobs = evacuees(state);
  if (jobs.empty()) return;
  const EvacuationInputs in = evacuation_inputs(state, jobs, state.evacuations);
  const auto choices = choose_together(in);
  for (std::size_t j = 0; j < jobs.size(); ++j) apply_choice(state, in, j, choices[j], because);
  state.is_dispatch_wanted = true;
}

NodeId kept_destination(const State& state, const JobId& job) {
  const auto found = state.evacuations.find(job);
  if (found == state.evacuations.end() || state.now.boot >= found->second.kept_until) return {};
  return found->second.destination;
}

NodeId directed_holder(const State& state, const JobId& job) {
  const auto found = state.evacuations.find(job);
  return found == state.evacuations.end() ? NodeId() : found->second.holder;
}

void learn_trust(State& state, const NodeId& departed) {
  std::vector<double> rates;
  std::size_t who = 0;
  bool is_among = false;
  for (const auto& [id, node] : state.nodes) {
    const auto* known = state.hazard.find_node(id);
    if (known == nullptr || !known->is_lent) continue;
    if (id == departed) {
      who = rates.size();
      is_among = true;
    }
    rates.push_back(node.departures_per_day);
  }
  if (is_among) state.trust.departed(rates, who);
}

}  // namespace rn::coordinator
