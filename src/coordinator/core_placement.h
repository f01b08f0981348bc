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
namespace rn::coordinator {

/// So many nodes are asked for a job at once.
inline constexpr std::size_t kProbed = 2;

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

}  // namespace rn::coordinator
