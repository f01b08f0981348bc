// SPDX-License-Identifier: Apache-2.0
#include "sim/evacuation_watch.h"

#include <algorithm>
#include <cstdlib>

namespace rn::sim {

namespace {

/// What a node says of its lending is heard within so long.
constexpr seconds kHeardWithin{10};

nanoseconds notice_told(const ReclaimRecord& record) {
  if (record.deadline_ns <= record.declared_ns) return nanoseconds(0);
  const std::uint64_t notice = static_cast<std::uint64_t>(record.deadline_ns) -
                               static_cast<std::uint64_t>(record.declared_ns);
  constexpr auto kMost = static_cast<std::uint64_t>(nanoseconds(std::chrono::hours(24)).count());
  return nanoseconds(static_cast<std::int64_t>(std::min(notice, kMost)));
}

}  // namespace

void EvacuationWatch::on_write(const coordinator::Write& write) {
  if (const auto* put = std::get_if<coordinator::PutNode>(&write)) {
    places_[put->row.node] = put->row.contract.max_guests;
    names_[put->row.node] = put->row.facts.hostname;
  } else if (const auto* reclaim = std::get_if<coordinator::PutReclaim>(&write)) {
    on_reclaim(reclaim->row.record);
  } else if (const auto* attempt = std::get_if<coordinator::PutAttempt>(&write)) {
    on_attempt(attempt->row);
  } else if (const auto* job = std::get_if<coordinator::PutJob>(&write)) {
    if (is_terminal(job->row.job.state)) promises_.erase(job->row.job.id);
  } else if (const auto* event = std::get_if<coordinator::AppendEvent>(&write)) {
    on_event(event->row);
  }
}

void EvacuationWatch::on_committed() {
  for (const auto& [node, job] : std::exchange(given_, {})) check_places(node, job);
}

void EvacuationWatch::on_restore() {
  given_.clear();
  reclaims_.clear();
  running_.clear();
  promises_.clear();
}

void EvacuationWatch::on_reclaim(const ReclaimRecord& record) {
  reclaims_[{record.node, record.id}] = Told{record, world_.now()};
  if (record.phase != ReclaimPhase::kReturned) return;
  std::erase_if(promises_, [&](const auto& promise) {
    return promise.second.source == record.node;
  });
}

void EvacuationWatch::on_attempt(const coordinator::AttemptRow& row) {
  const std::pair key{row.attempt.job, row.attempt.epoch};
  const bool computes = row.attempt.state < AttemptState::kDraining;
  if (computes) {
    running_[key] = row.attempt.node;
  } else {
    running_.erase(key);
  }
  if (!seen_.insert(key).second || !computes) return;
  promises_.erase(row.attempt.job);
  given_.emplace_back(row.attempt.node, row.attempt.job);
}

void EvacuationWatch::on_event(const coordinator::EventRow& event) {
  if (event.kind == "coordinator.started") promises_.clear();
  if (event.kind != "evacuation.chosen") return;
  promises_.erase(event.job);
  const NodeId destination(event.data.at("destination"));
  if (destination.empty()) return;
  const double notice_s = std::strtod(event.data.at("notice_s").c_str(), nullptr);
  const auto notice = std::chrono::duration_cast<nanoseconds>(
      std::chrono::duration<double>(std::clamp(notice_s, 0.0, 900.0))
  );
  // Without notice it holds as long as its transaction: what is chosen together counts together.
  const nanoseconds held = std::max<nanoseconds>(notice, milliseconds(1));
  promises_[event.job] = {event.node, destination, world_.now() + held};
  check_taken(event.job, destination);
  given_.emplace_back(destination, event.job);
}

void EvacuationWatch::check_taken(const JobId& job, const NodeId& node) {
  ++checks_;
  if (has_clock_jumped_) return;
  for (auto at = reclaims_.lower_bound({node, ReclaimId()});
       at != reclaims_.end() && at->first.first == node;
       ++at) {
    const ReclaimRecord& record = at->second.record;
    if (!record.gpus.empty() || record.kind == ReclaimKind::kLost ||
        record.phase == ReclaimPhase::kReturned)
      continue;
    const bool is_ahead =
        record.phase == ReclaimPhase::kDeclared || record.phase == ReclaimPhase::kEvacuating;
    const nanoseconds told_for = is_ahead ? notice_told(record) : nanoseconds(0);
    if (world_.now() - at->second.at > told_for + nanoseconds(kHeardWithin)) continue;
    world_.violate(
        "evacuation",
        job.str() + " is sent to " + names_[node] + ", which its owner takes back (" +
            std::string(to_string(record.phase)) + ")"
    );
  }
}

void EvacuationWatch::check_places(const NodeId& node, const JobId& newest) {
  ++checks_;
  std::string who;
  std::size_t count = 0;
  for (const auto& [key, where] : running_) {
    if (where != node) continue;
    ++count;
    who += (who.empty() ? "" : ", ") + key.first.str();
  }
  for (const auto& [job, promise] : promises_) {
    const bool is_kept =
        promise.destination == node && (job == newest || world_.now() < promise.until);
    if (!is_kept) continue;
    ++count;
    who += (who.empty() ? "" : ", ") + job.str() + " (promised)";
  }
  const auto places = places_.find(node);
  if (places == places_.end() || count <= places->second) return;
  world_.violate(
      "evacuation",
      names_[node] + " has places for " + std::to_string(places->second) + " and gets " + who
  );
}

}  // namespace rn::sim
