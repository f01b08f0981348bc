// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "coordinator/core_state.h"

// Jobs that wait for others, or for their turn in their array (ADR 0021). While one does, it is
// queued and held: it is in State::held and not in State::queued, so that placement does not see
// it. It is released once, in the output in which the last of what it waits for ends or begins, and
// so in the same transaction.
namespace rn::coordinator {

/// Of spec.after what has not happened yet, by ids. kNotFound for a job or array that is unknown or
/// another user's, kConflict for what cannot happen any more.
Result<std::vector<AfterJob>> unmet_of(
    const State& state, const Caller& caller, const JobSpec& spec
);

/// Releases who waited for what has happened in this event, and cancels who waits for what can
/// happen no more; and so on with who waited for these. Linear in the number of jobs that this
/// concerns.
void settle_waiting(State& state);

/// "waits until job 17 (train) has succeeded", for a held job's row.
std::string waiting_words(const State& state, const JobEntry& job);

/// The same with what those jobs do now, for `why`.
std::string waiting_words_now(const State& state, const JobEntry& job);

}  // namespace rn::coordinator
