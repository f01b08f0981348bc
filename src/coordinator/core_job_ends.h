// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coordinator/core_state.h"

// How attempts end, and what that means for their jobs. Part of core_job_life.
namespace rn::coordinator {

/// How many of the newest attempts ended so, one after the other.
std::uint32_t ended_in_a_row(const State& state, const JobEntry& job, AttemptEnd end);

/// The exit code of a program that has saved and wants to begin again.
bool asks_for_restart(std::int32_t exit_code);
/// For how long its guest ran, at least.
std::int64_t ran_ms(const State& state, const AttemptEntry& attempt);

/// The lease is there: said by the node in a reply, a report or an event.
void grant(State& state, JobEntry& job, AttemptEntry& attempt);
/// Records the end that the attempt's node reported, and moves the job.
void end_attempt(
    State& state, JobEntry& job, AttemptEntry& attempt, const wire::AttemptEvent& event
);
/// The asked stop has happened, or there is nothing left that could be stopped.
void finish_stopped(State& state, JobEntry& job);
/// Back into the queue, with nothing counted.
void queue_again(State& state, JobEntry& job, const std::string& reason);
/// The pause before the next try after so many in a row: doubles from backoff_first to backoff_max.
std::int64_t backoff_ms(const Config& config, std::uint32_t times);
void send_stop(State& state, JobEntry& job, AttemptEntry& attempt);
/// Counts a refused effect; the first of an attempt becomes an event.
void say_fenced(State& state, NodeEntry& node, AttemptEntry& attempt, const std::string& what);

}  // namespace rn::coordinator
