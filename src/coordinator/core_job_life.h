// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "coordinator/core_state.h"

// What happens to jobs and their attempts after the lease. Every effect of an attempt is fenced: it
// counts only from the node that holds it, with the job's newest epoch, while the job is not over.
namespace rn::coordinator {

/// A change in an attempt's life, repeated by the agent until acknowledged. Ends:
///
///   succeeded            outputs checked first, then the job succeeded
///   crashed              the job failed; but back to the queue without the generation that it
///   resumed
///                        from if that was less than Config::crash_after_resume_s ago
///   crashed while noticed, reclaimed, migrated, lost
///                        displaced: head of the queue, with a resume point
///   exit 85              restart, here if possible; counts as a restart only if nothing new is
///   durable exit 75 / 99         restart elsewhere / anywhere, counts refused              the
///   node could not start it: elsewhere, counts cancelled, timed_out the job is cancelled / failed
void on_attempt_event(State& state, NodeEntry& sender, const wire::AttemptEvent& event);
void on_log_append(State& state, NodeEntry& sender, const wire::LogAppend& message);
void on_log_stored(State& state, const LogStored& event);
void on_publish_outputs(State& state, NodeEntry& sender, const wire::PublishOutputs& message);
void on_outputs_checked(State& state, const OutputsChecked& event);

/// Verdicts on what a node reports, and consequences of what it does not: an attempt that it holds
/// no more is lost; one whose node was lost is reattached if its successor's epoch is not yet
/// issued.
std::vector<wire::AttemptVerdict> reconcile_hello(
    State& state, NodeEntry& node, const std::vector<wire::AttemptReport>& reports
);
std::vector<wire::AttemptVerdict> reconcile_beat(
    State& state, NodeEntry& node, const std::vector<wire::AttemptReport>& reports
);

/// The node is lost or gone: its jobs go to the head of the queue. Their epochs stay valid until a
/// successor's is issued.
void lose_attempts_of(State& state, NodeEntry& node);

/// Ends an attempt's row. The epoch is burnt: a later message with it is refused.
/// Whatever it published is void too, unless it ends with success.
void close_attempt(State& state, AttemptEntry& attempt, AttemptEnd end, const std::string& detail);
/// Back into the queue at the head of its class, with a resume point.
void displace(
    State& state,
    JobEntry& job,
    const NodeId& from,
    const std::string& reason,
    bool is_homecoming = false
);
/// The job is over.
void finish(State& state, JobEntry& job, JobState state_to, const std::string& reason);

/// Ends a job, or asks its node to. Idempotent.
void stop_job(
    State& state,
    JobEntry& job,
    AttemptEnd end,
    bool saves_first,
    std::uint32_t deadline_ms,
    const std::string& reason
);

/// Timeouts: drains that last too long, stops that were not obeyed, starts that take too long.
void look_at_attempts(State& state);

}  // namespace rn::coordinator
