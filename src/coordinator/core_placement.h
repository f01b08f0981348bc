// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coordinator/core_state.h"

// Probe, hold, commit: the coordinator ranks, the node decides.
//
// The best two candidates are probed. The best offer is committed as soon as everybody has
// answered, or when the time for the others' answers is over; other holds are cancelled. A hold is
// asked to live for that time, and twice the p99 of a probe's and of a commit's round trip (which
// contains the commit of our own row), at least 50 ms. Answers that come late or twice are
// cancelled; refusals are remembered for `why` and not asked again at once.
// The members of a gang are asked for together (core_gang_placement.h), with the same steps.
namespace rn::coordinator {

/// So many nodes are asked for a job at once.
inline constexpr std::size_t kProbed = 2;
/// Who stays for an hour with less is a degraded place.
inline constexpr double kVolatileSurvival = 0.5;

/// Starts placements for waiting jobs in the order of the queue, as far as nodes and bounds admit.
void dispatch(State& state);
/// Placements whose time is over, commits that nobody answered.
void look_at_placements(State& state);
void on_probe_reply(State& state, NodeEntry& node, const wire::ProbeReply& reply);
void on_commit_reply(State& state, NodeEntry& node, const wire::CommitReply& reply);
/// Cancels holds; the job waits again.
void cancel_placement(State& state, JobEntry& job);
/// The node's connection is gone: nobody waits for its answers.
void forget_probes(State& state, NodeEntry& node);
/// The node changed: what it refused before may be asked again.
void forget_refusals(State& state, const NodeId& node);
/// When look_at_placements wants to be called, at the latest.
Instant placement_wake(const State& state, Instant otherwise);
/// Waiting jobs, first to be tried first (sched/queue.h); `also`, if there is one, as if it waited,
/// too.
std::vector<JobId> queue_order(const State& state, const JobEntry* also = nullptr);

// ---- the steps
// ----------------------------------------------------------------------------------------------

/// What the node refused to this job is over, and it may be asked.
bool is_askable(const State& state, const JobEntry& job, const NodeId& node);
/// Asks the node; `asked` gets the probe's name and time.
void send_probe(
    State& state, const JobEntry& job, NodeEntry& node, Asked& asked, milliseconds hold
);
/// Nothing more is waited for, and the node's place no longer counted for it.
void close_probe(State& state, const Asked& asked);
/// The hold is wanted no more. A connection that is gone took its holds' use with it.
void cancel_hold(State& state, const Asked& asked);
void take_offer(Asked& asked, const wire::ProbeReply& reply);
bool is_image_listed(const State& state, const JobEntry& job);
/// Issues the epoch to the node that holds a place: the attempt's row is in the same output as the
/// message, hence durable before it.
void issue(State& state, JobEntry& job, const Asked& chosen, LeaseEpoch epoch, bool is_degraded);

}  // namespace rn::coordinator
