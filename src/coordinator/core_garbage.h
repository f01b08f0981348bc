// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "coordinator/core_state.h"

// What holders of checkpoints may delete, and who is told so.
namespace rn::coordinator {

/// The number of the oldest generation from which holders keep all of the job's.
std::uint32_t kept_by_holders(const State& state, const JobEntry& job);

/// More is garbage than what lies before `garbage_from`. Who has it is told at once, and so is the
/// job's node, which went on from one of them; whoever may have what no row speaks of, because it
/// was named to the job's node as a place, with every eighth.
void collect_replaced(
    State& state, const JobEntry& job, const NodeEntry& source, std::uint32_t garbage_from
);

/// After the job is over: tells everybody who is connected and may hold something of it to delete
/// that. Who is away is told when it says hello.
void collect_job(State& state, const JobEntry& job);
/// Tells everybody who may hold something of the job what may be deleted of it now.
void tell_holders(State& state, const JobEntry& job);
void greet_holder(State& state, NodeEntry& node);
/// What a node says that it keeps: of jobs that it was not known to hold, it is told what it may
/// delete.
void on_holdings(State& state, NodeEntry& node, const wire::Holdings& message);
/// The second heartbeat after a job-over collection on one connection proves that it arrived.
void count_beat_for_garbage(State& state, NodeEntry& node);

}  // namespace rn::coordinator
