// SPDX-License-Identifier: Apache-2.0
#include "sim/replay_check.h"

#include "coordinator/sqlite_write.h"
#include "model/codec.h"

namespace rn::sim {

void ReplayCheck::on_write(const coordinator::Write& write) {
  if (const auto set = coordinator::state_set_by(write)) {
    tables_[set->name] = set->state;
    touched_.insert(set->name);
  }
  const auto* event = std::get_if<coordinator::AppendEvent>(&write);
  if (event == nullptr) return;
  head_ = coordinator::chain_hash(head_, to_json(event->row));
  coordinator::replay(event->row, events_);
  for (const auto& [name, state] : event->row.states) touched_.insert(name);
}

void ReplayCheck::on_committed() {
  for (const std::string& name : touched_) compare(name);
  touched_.clear();
}

void ReplayCheck::compare(const std::string& name) {
  ++checks_;
  const auto in_table = tables_.find(name);
  const auto told = events_.find(name);
  const std::string is = in_table == tables_.end() ? "not there" : in_table->second;
  const std::string said = told == events_.end() ? "nothing" : told->second;
  if (is != said)
    world_.violate("I12", name + " is " + is + " in its table, and the events say " + said);
}

void ReplayCheck::on_restore(const MemoryStore& store) {
  touched_.clear();
  tables_ = coordinator::states_of(store.load());
  events_.clear();
  head_ = {};
  for (const auto& event : store.events()) {
    coordinator::replay(event, events_);
    head_ = coordinator::chain_hash(head_, to_json(event));
  }
  for (const auto& [name, state] : tables_) compare(name);
}

void ReplayCheck::check_all(const MemoryStore& store) {
  ++checks_;
  coordinator::States replayed;
  Digest head{};
  for (const auto& event : store.events()) {
    coordinator::replay(event, replayed);
    head = coordinator::chain_hash(head, to_json(event));
  }
  if (head != head_)
    world_.violate("I12", "the events are not those that were appended: their hashes differ");
  if (replayed != coordinator::states_of(store.load()))
    world_.violate("I12", "the events, replayed from the first on, do not give the tables' states");
}

}  // namespace rn::sim
