// SPDX-License-Identifier: Apache-2.0
// Who has to go, and why: what nodes say of their reclaims, and jobs that have lost their node.
#include <algorithm>

#include "coordinator/core_evacuation.h"
#include "coordinator/core_gang_life.h"

namespace rn::coordinator {

namespace {

constexpr std::chrono::hours kNoticeBelieved{24};  // of what a node says
constexpr std::size_t kCausesTold = 4;

bool is_ahead(const ReclaimRecord& record) {
  const bool is_before_cut =
      record.phase == ReclaimPhase::kDeclared || record.phase == ReclaimPhase::kEvacuating;
  return is_before_cut && record.kind != ReclaimKind::kEmergency &&
         record.kind != ReclaimKind::kLost;
}

/// Those that are not over.
template <class Visit>
void for_reclaims_of(const State& state, const NodeId& node, const Visit& visit) {
  for (auto at = state.open_reclaims.lower_bound({node, ReclaimId()});
       at != state.open_reclaims.end() && at->first == node;
       ++at)
    visit(state.reclaims.at(*at));
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

bool is_in_force(const State& state, const ReclaimRow& row) {
  return is_recent(state, row, is_ahead(row.record) ? notice_of(row.record) : nanoseconds(0));
}

/// Of single GPUs: whose guest has one of them. An agent that does not tell its guests' GPUs says
/// at least which of them it has told to go.
bool covers(const State& state, const ReclaimRecord& record, const AttemptKey& key) {
  if (record.gpus.empty()) return true;
  const AttemptEntry& attempt = state.attempts.at(key);
  if (attempt.gpus.empty())
    return attempt.was_noticed && state.jobs.at(key.first).row.job.spec.resources.gpus > 0;
  return std::any_of(attempt.gpus.begin(), attempt.gpus.end(), [&](std::uint32_t gpu) {
    return std::find(record.gpus.begin(), record.gpus.end(), gpu) != record.gpus.end();
  });
}

/// What makes it leave, with the earliest deadline: an emergency before all others. nullptr:
/// nothing does.
const ReclaimRecord* reason_to_leave(
    const State& state, const NodeId& node, const AttemptKey& key
) {
  const ReclaimRecord* first = nullptr;
  for_reclaims_of(state, node, [&](const ReclaimRow& row) {
    const ReclaimRecord& record = row.record;
    const bool is_cut = record.kind == ReclaimKind::kEmergency;
    if (!(is_cut || is_ahead(record)) || !is_in_force(state, row) || !covers(state, record, key))
      return;
    if (first == nullptr || (is_cut && first->kind != ReclaimKind::kEmergency)) {
      first = &record;
    } else if (is_ahead(record) && is_ahead(*first) && record.deadline_ns < first->deadline_ns) {
      first = &record;
    }
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

bool is_computing(const State& state, const AttemptKey& key) {
  const auto attempt = state.attempts.find(key);
  return may_evacuate(state, key) && attempt->second.row.attempt.state <= AttemptState::kNoticed;
}

/// It has to go, by the record's deadline.
void note_attempt(
    State& state, const NodeEntry& node, const AttemptKey& key, const ReclaimRecord& record
) {
  const bool is_cut = record.kind == ReclaimKind::kEmergency;
  Evacuation& e = state.evacuations[key.first];
  const bool is_known = e.source == node.row.node && e.reclaim == record.id;
  const bool is_draining = state.attempts.at(key).row.attempt.state == AttemptState::kDraining;
  // What it saved last is on the way there.
  if (!is_known && is_cut && is_draining && !e.destination.empty()) return;
  if (!is_known) e = Evacuation{};
  e.source = node.row.node;
  e.reclaim = record.id;
  e.is_stranded = is_cut;
  e.is_announced = record.kind == ReclaimKind::kAnnounced;
  e.may_return = !record.gpus.empty();
  const Instant deadline = is_cut ? state.now.boot : deadline_of(state, node, record);
  const bool is_moved =
      !is_known || (!is_cut && std::chrono::abs(deadline - e.deadline) > seconds(2));
  if (is_moved) e.deadline = deadline;
  member_called_back(state, key.first, record.kind, e.deadline);
  if (!is_moved && !e.view.way.empty()) return;
  const std::string what = record.gpus.empty() ? " is taken back" : ": a GPU is taken back";
  want_choice(state, state.name_of(node.row.node) + what + (is_cut ? " at once" : ""));
}

std::string loss_words(const State& state, const AttemptEntry& attempt) {
  const NodeId& from = attempt.row.attempt.node;
  const auto node = state.nodes.find(from);
  const bool is_lost = node != state.nodes.end() && node->second.row.state == NodeState::kLost;
  const bool is_taken = attempt.row.attempt.end == AttemptEnd::kReclaimed || attempt.was_noticed;
  if (is_lost) return state.name_of(from) + " is lost";
  if (is_taken) return state.name_of(from) + " is taken back";
  return state.name_of(from) + (attempt.is_live() ? " keeps it too long" : " has it no more");
}

}  // namespace

void want_choice(State& state, std::string cause) {
  if (state.evacuation_causes.size() < kCausesTold)
    state.evacuation_causes.insert(std::move(cause));
}

bool is_taken_back(const State& state, const NodeId& node) {
  bool is_taken = false;
  for_reclaims_of(state, node, [&](const ReclaimRow& row) {
    is_taken = is_taken || (row.record.gpus.empty() && is_in_force(state, row));
  });
  return is_taken;
}

std::set<std::uint32_t> gpus_taken_back(const State& state, const NodeId& node) {
  std::set<std::uint32_t> gpus;
  for_reclaims_of(state, node, [&](const ReclaimRow& row) {
    // No heartbeat says it anew: what a node forgot to give back is not believed for ever.
    if (!is_recent(state, row, nanoseconds(kNoticeBelieved))) return;
    gpus.insert(row.record.gpus.begin(), row.record.gpus.end());
  });
  return gpus;
}

void note_evacuees(State& state, NodeEntry& node) {
  const NodeId& id = node.row.node;
  for (const AttemptKey& key : node.attempts) {
    if (!may_evacuate(state, key)) continue;
    if (const ReclaimRecord* record = reason_to_leave(state, id, key))
      note_attempt(state, node, key, *record);
  }
  // Called off: who still computes there stays. After a cut, who left goes to where it was sent.
  std::vector<JobId> back;
  for (const auto& [job, e] : state.evacuations) {
    if (e.source != id || !state.jobs.contains(job)) continue;
    const AttemptKey key{job, state.jobs.at(job).row.job.epoch};
    if (!is_computing(state, key)) continue;
    bool is_leaving = false;
    for_reclaims_of(state, id, [&](const ReclaimRow& row) {
      is_leaving = is_leaving || (is_in_force(state, row) && covers(state, row.record, key));
    });
    if (!is_leaving) back.push_back(job);
  }
  for (const JobId& job : back) state.evacuations.erase(job);
  // Somebody may be on the way to it.
  if (!is_taken_back(state, id)) return;
  for (const auto& [job, e] : state.evacuations) {
    if (e.destination == id || e.holder == id)
      want_choice(state, state.name_of(id) + " is taken back");
  }
}

void note_displaced(State& state, const JobId& job, const NodeId& from) {
  const AttemptEntry* attempt = state.newest_attempt(state.jobs.at(job));
  if (attempt == nullptr || attempt->row.attempt.node != from) return;
  Evacuation& e = state.evacuations[job];
  if (e.source != from) e = Evacuation{};
  e.waits_since = state.now.boot;
  const bool is_sent = !e.destination.empty() && state.now.boot < e.kept_until;
  if (is_sent) return;
  e.source = from;
  e.destination = e.holder = NodeId();
  e.is_stranded = true;
  e.may_return = true;  // if it is open by then
  e.deadline = state.now.boot;
  want_choice(state, loss_words(state, *attempt));
}

void restore_evacuations(State& state) {
  for (auto& [id, node] : state.nodes) {
    if (!node.attempts.empty()) note_evacuees(state, node);
  }
  for (const JobId& id : state.queued) {
    const JobEntry& job = state.jobs.at(id);
    const AttemptEntry* attempt = state.newest_attempt(job);
    if (!job.row.is_displaced || attempt == nullptr) continue;
    const AttemptEnd end = attempt->row.attempt.end;
    if (attempt->is_live() || end == AttemptEnd::kReclaimed || end == AttemptEnd::kLost)
      note_displaced(state, id, attempt->row.attempt.node);
  }
}

}  // namespace rn::coordinator
