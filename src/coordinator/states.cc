// SPDX-License-Identifier: Apache-2.0
#include "coordinator/states.h"

#include <algorithm>

#include "base/planted.h"

namespace rn::coordinator {

namespace {

std::string state_of(const Attempt& attempt) {
  std::string state(to_string(attempt.state));
  if (attempt.state == AttemptState::kEnded) state += " " + std::string(to_string(attempt.end));
  return state;
}

NamedState named(const JobRow& row) {
  return {state_name(row.job.id), std::string(to_string(row.job.state))};
}

NamedState named(const AttemptRow& row) {
  return {state_name(row.attempt.job, row.attempt.epoch), state_of(row.attempt)};
}

NamedState named(const NodeRow& row) {
  return {"node " + row.node.str(), std::string(to_string(row.state))};
}

NamedState named(const ReclaimRow& row) {
  return {
      "reclaim " + row.record.node.str() + " " + row.record.id.str(),
      std::string(to_string(row.record.phase))};
}

NamedState named(const GangRow& row) {
  return {state_name(row.id), std::string(to_string(row.state))};
}

/// An event that only says what has changed.
EventRow plain_event(const Write& write, const std::string& state) {
  EventRow event;
  event.message = "is " + state;
  if (const auto* job = std::get_if<PutJob>(&write)) {
    event.kind = "job.state";
    event.job = job->row.job.id;
    event.epoch = job->row.job.epoch;
    event.node = job->row.job.node;
    event.lab = job->row.job.lab;
    event.user = job->row.job.owner;
  } else if (const auto* attempt = std::get_if<PutAttempt>(&write)) {
    event.kind = "attempt.state";
    event.job = attempt->row.attempt.job;
    event.epoch = attempt->row.attempt.epoch;
    event.node = attempt->row.attempt.node;
  } else if (const auto* node = std::get_if<PutNode>(&write)) {
    event.kind = "node.state";
    event.node = node->row.node;
    event.lab = node->row.lab;
  } else if (const auto* reclaim = std::get_if<PutReclaim>(&write)) {
    event.kind = "reclaim.state";
    event.node = reclaim->row.record.node;
  } else if (const auto* gang = std::get_if<PutGang>(&write)) {
    event.kind = "gang.state";
    if (!gang->row.members.empty()) event.job = gang->row.members.front();
    event.epoch = gang->row.epoch;
    event.lab = gang->row.lab;
    event.user = gang->row.owner;
  }
  return event;
}

std::string subject_of(const EventRow& event) {
  return event.job.empty() ? "node " + event.node.str() : "job " + event.job.str();
}

/// By whom they are about, the places of the events among the writes, ascending.
using EventPlaces = std::map<std::string, std::vector<std::size_t>>;

EventPlaces places_of(const std::vector<Write>& writes) {
  EventPlaces places;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const auto* event = std::get_if<AppendEvent>(&writes[i]);
    if (event != nullptr) places[subject_of(event->row)].push_back(i);
  }
  return places;
}

}  // namespace

std::string state_name(const JobId& job) {
  return "job " + job.str();
}

std::string state_name(const JobId& job, LeaseEpoch epoch) {
  return "attempt " + job.str() + " " + to_string(epoch);
}

std::string state_name(const GangId& gang) {
  return "gang " + gang.str();
}

std::optional<NamedState> state_set_by(const Write& write) {
  if (const auto* job = std::get_if<PutJob>(&write)) return named(job->row);
  if (const auto* attempt = std::get_if<PutAttempt>(&write)) return named(attempt->row);
  if (const auto* node = std::get_if<PutNode>(&write)) return named(node->row);
  if (const auto* reclaim = std::get_if<PutReclaim>(&write)) return named(reclaim->row);
  if (const auto* gang = std::get_if<PutGang>(&write)) return named(gang->row);
  return std::nullopt;
}

States states_of(const Snapshot& snapshot) {
  States states;
  const auto add = [&](const auto& rows) {
    for (const auto& row : rows) {
      NamedState one = named(row);
      states[std::move(one.name)] = std::move(one.state);
    }
  };
  add(snapshot.jobs);
  add(snapshot.attempts);
  add(snapshot.nodes);
  add(snapshot.reclaims);
  add(snapshot.gangs);
  return states;
}

void replay(const EventRow& event, States& states) {
  for (const auto& [name, state] : event.states) states[name] = state;
}

void record_states(std::vector<Write>& writes, States& told, std::int64_t wall_ms) {
  std::map<std::string, std::size_t> newest;  // the event that tells of an earlier change
  std::optional<EventPlaces> places;          // most outputs change no state
  const std::size_t size = writes.size();
  for (std::size_t i = 0; i < size; ++i) {
    const auto set = state_set_by(writes[i]);
    if (!set) continue;
    std::string& known = told[set->name];
    if (known == set->state) continue;
    known = set->state;
    if (planted("coordinator.ends_in_silence") && set->state.starts_with("ended")) continue;
    if (!places) places = places_of(writes);
    EventRow plain = plain_event(writes[i], set->state);
    std::vector<std::size_t>& about = (*places)[subject_of(plain)];
    const auto before = newest.find(set->name);
    const std::size_t from = before == newest.end() ? 0 : before->second + 1;
    auto at = std::lower_bound(about.begin(), about.end(), from);
    if (at == about.end()) {
      plain.at_wall_ms = wall_ms;
      at = about.insert(about.end(), writes.size());
      writes.emplace_back(AppendEvent{std::move(plain)});
    }
    std::get<AppendEvent>(writes[*at]).row.states[set->name] = set->state;
    newest[set->name] = *at;
  }
}

}  // namespace rn::coordinator
