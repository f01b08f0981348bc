// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/rows.h"

namespace rn::coordinator {

// I12: the events are the truth. Each change of the state of a job, an attempt, a node, a reclaim
// or a gang stands in an event of the same transaction (EventRow::states), so that the events
// alone, replayed in their order, give the states that the tables have.

/// By name: "job j-…" → "running", "attempt j-… 3.1" → "ended crashed", "node n-…" → "lost",
/// "reclaim n-… r-…" → "cut", "gang g-…" → "preparing".
using States = std::map<std::string, std::string, std::less<>>;

std::string state_name(const JobId& job);
std::string state_name(const JobId& job, LeaseEpoch epoch);
std::string state_name(const GangId& gang);

struct NamedState {
  std::string name;
  std::string state;
};

/// What a write makes of the state machine that its row belongs to; nullopt = it has none.
std::optional<NamedState> state_set_by(const Write& write);

/// What the tables say.
States states_of(const Snapshot& snapshot);

/// What the events say, one after the other.
void replay(const EventRow& event, States& states);

/// Puts every change against `told` into an event: into one of the same batch about the same job or
/// node, otherwise into one that is appended. `told` is then what the events say.
void record_states(std::vector<Write>& writes, States& told, std::int64_t wall_ms);

}  // namespace rn::coordinator
