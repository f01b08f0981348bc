// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coordinator/core_state.h"

// What nodes fetch when they start a job, in the plan of rates (core_transfers.h): from their peers
// by the peers' word, and from the coordinator itself by what its own sockets show (ADR 0008).
namespace rn::coordinator {

/// Fetches for attempts of those who ask, by who has what they ask for, are taken; no others.
void take_fetch(State& state, const NodeEntry& node, const wire::FetchReport& report);

/// What the shell sends to nodes now: images, and the folders that users submitted. The blob that
/// was asked last says how much of an image is left, for nodes ask in its order; that never grows
/// by asking again.
void on_blobs_sent(State& state, const BlobsSent& event);

/// How long its guest has waited, in seconds of its processors or GPUs.
double worth_of_start(const State& state, const JobId& id, LeaseEpoch epoch);

/// A job's state is never larger than the disk that it was given.
double most_bytes(const State& state, const JobId& job);

/// Of a job that has not started: what its node fetches from whom, and how fast. Of one that is
/// over: the same of its outputs. Empty if nothing.
std::string fetch_words(const State& state, const JobEntry& job);

}  // namespace rn::coordinator
