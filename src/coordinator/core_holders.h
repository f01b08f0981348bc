// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "coordinator/core_state.h"

// Jobs whose last durable generation lies with machines that are away. They wait in the queue, not
// on a node's place, and nothing older is taken for it.
namespace rn::coordinator {

/// That of all who hold what the job goes on from none is there, and who they are; empty if one is
/// there, if nobody is left who held it, and for jobs that begin anew.
std::string away_words(const State& state, const JobEntry& job);

/// In the queue because of away_words(): that becomes the job's reason, and its history has it
/// once. No place is kept for it meanwhile.
void hold_back(State& state, JobEntry& job);

/// What the attempt's node says of a restore that waits: once into the job's history, and for
/// `why`. Names that hold nothing of the job are not believed.
void take_restore_wait(
    State& state, JobEntry& job, AttemptEntry& attempt, const wire::AttemptReport& report
);

/// Of the attempt's report, those that do hold something of what the job goes on from.
std::vector<NodeId> believed_holders(
    const State& state, const JobEntry& job, const std::vector<NodeId>& named
);

/// "restoring on lab-b/two waits for lab-a/one (not heard for 3 min), which alone has generation
/// 4"; empty while its restore does not wait.
std::string restore_wait_words(
    const State& state, const JobEntry& job, const AttemptEntry& attempt
);

/// The attempt gave its place back, because `attempt.waits_for` gave no word: no restart is used
/// up. The job is placed when one of them is back; or after a pause, where they are there already,
/// or others are there that should have it.
void wait_for_holder(State& state, JobEntry& job, const AttemptEntry& attempt);

/// Who waits in the queue for this node waits no longer.
void note_holder_back(State& state, const NodeId& node);

}  // namespace rn::coordinator
