// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coordinator/core_state.h"

// Copies that go ahead of a reclaim: where a job would go on, whether what goes there is likely to
// be of use, and what of it stays there (ADR 0010). Plans are made of it in core_copies.cc.
namespace rn::coordinator {

/// Where a job would go on if its node were taken back now.
struct LikelyPlaces {
  NodeId first;   ///< empty: nobody could take it
  NodeId second;  ///< if that one could not; empty: nobody else
};

/// By the choice of a reclaim, as if its state lay with everybody already, beside the guests of the
/// same node, who would leave with it. Where it was expected to go it is until another place is
/// noticeably better.
LikelyPlaces likely_places(
    const State& state, const JobEntry& job, const AttemptEntry& attempt, const NodeEntry& source
);

/// The node, if a copy of the job's may lie there that is of use when its source goes; else
/// nullptr.
const NodeEntry* place_ahead(
    const State& state, const JobEntry& job, const NodeEntry& source, const NodeId& id
);

/// What is durable is to go from its node to `to`: the job changes less than the way carries, and
/// will probably not have rewritten it when the owner comes.
bool is_worth_sending_ahead(
    const State& state, const JobEntry& job, const NodeEntry& from, const NodeEntry& to
);

/// The oldest generation of the job that the node is to keep. Where copies go ahead that is the
/// newest one that is there, however old: it is what the next one shares most with.
std::uint32_t kept_from(const State& state, const JobEntry& job, const NodeId& node);

}  // namespace rn::coordinator
