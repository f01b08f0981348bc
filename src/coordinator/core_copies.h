// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "coordinator/core_state.h"

// Where checkpoints live and when they count: tickets, copy plans, receipts, the durable row.
namespace rn::coordinator {

std::string failure_domain_of(const NodeEntry& node);

/// The row of a generation; nullptr if it is not in memory, as of one that is long replaced.
const GenerationRow* find_generation(const State& state, const JobId& job, std::uint32_t number);

/// It signed for the generation of that row.
bool is_holder(const GenerationRow* row, const NodeId& node);

/// Whether the names that a job gives for its copies let them lie there; no names: anywhere.
bool is_copy_place(const std::vector<std::string>& names, const NodeEntry& node);

/// Of all nodes that have joined, away or not, on which the job lets its copies lie; of a gang's
/// member only those that know what its sets need.
std::set<std::string> copy_domains(const State& state, const JobEntry& job);

/// That all who held a copy of its durable generation have left for good; empty if not so.
std::string left_copies_words(const State& state, const JobEntry& job);
/// The node leaves for good: jobs whose only copies it held say so.
void note_left_copies(State& state, const NodeEntry& node);

/// Bytes of copies that the node's contract and disk still admit.
std::uint64_t room_for_copies(const NodeEntry& node);

/// Brings the attempt's plan up to date: destinations that are up, tickets good for at least half
/// of their life (so always ≥ 1 h with the default of 2 h). Cheap if nothing is due.
void refresh_plan(State& state, JobEntry& job, AttemptEntry& attempt);

/// Peers from which `node` may fetch a generation: its holders and its source, those up first.
std::vector<PeerGrant> resume_grants(
    State& state, const JobEntry& job, LeaseEpoch epoch, const NodeId& node
);
/// Peers that have the image, at most four.
std::vector<PeerGrant> image_grants(
    State& state, const JobEntry& job, LeaseEpoch epoch, const NodeId& node
);

/// The generation that the next attempt resumes from, and the one it may fall back to.
struct ResumePoint {
  GenerationRef resume;
  GenerationRef previous;
};

ResumePoint resume_point(const JobEntry& job);

void on_commit_generation(State& state, NodeEntry& sender, const wire::CommitGeneration& message);
void on_grant_request(State& state, NodeEntry& sender, const wire::GrantRequest& message);

}  // namespace rn::coordinator
