// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "coordinator/core_state.h"

// What happens to gangs after their commit (ADR 0027, section 3). Where a job's own life decides
// something of a member, it asks here instead: members are started, stopped, queued and ended
// together. The functions below only take note and tell members to stop; that a gang goes on to
// another state is settled once, after the event, in its transaction.
namespace rn::coordinator {

/// Its node reports what its attempt does, in an event, a heartbeat or a hello.
void member_reported(
    State& state, JobEntry& job, AttemptEntry& attempt, const wire::AttemptReport& report
);
/// Its agent came anew, with this attempt of its: it may have been started again.
void member_greeted(State& state, const JobEntry& job, LeaseEpoch epoch);
/// Its attempt is in another phase than before.
void member_moved(State& state, JobEntry& job, AttemptEntry& attempt);
/// Its attempt has ended, as its node says or because it holds it no more; the row is closed.
void member_ended(State& state, JobEntry& job, AttemptEntry& attempt, AttemptEnd end);
/// Its node is lost. The attempt counts again if the node is back before the gang has stopped.
void member_lost(State& state, JobEntry& job, const NodeId& node, const std::string& reason);
/// Its node no longer had the place; the attempt's row is closed.
void member_not_granted(State& state, JobEntry& job, const NodeId& node, const std::string& reason);
/// Its node is taken back for its owner, by then.
void member_called_back(State& state, const JobId& job, ReclaimKind kind, Instant deadline);

/// A stop that somebody asked for, or that its time is up. Idempotent.
void stop_gang(
    State& state,
    GangEntry& gang,
    AttemptEnd end,
    bool saves_first,
    std::uint32_t deadline_ms,
    const std::string& reason
);
/// All other members use as little of their GPUs, over the same time.
bool are_others_idle(State& state, const JobEntry& job, double below_percent);

/// After each event: gangs go on, whose members something has happened to.
void settle_gangs(State& state);
/// Timeouts, stops that are repeated, tickets that end; from ticks.
void look_at_gangs(State& state);
/// Of a start, when jobs, attempts and generations are there.
void restore_gangs(State& state);

}  // namespace rn::coordinator
