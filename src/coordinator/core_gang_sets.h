// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/core_state.h"

// Which generations of a gang's members belong together (ADR 0027, section 5). A set is one of each
// member that saves, of one epoch and of one mark (the step that its name says), all durable. It is
// written in the transaction in which the last of them becomes durable, and all members resume from
// it and from nothing else.
//
// GangSaves::kAuto: as long as no agent of another rank has found a checkpoint, a generation of
// rank 0's is a set when each of the others was heard two heartbeats after it and has found none,
// or has told its end and that there is none.
namespace rn::coordinator {

/// A member's generation is durable: a set may be complete. Also gives up what no set will need.
void note_member_durable(State& state, JobEntry& job, const GenerationRef& ref);
/// What its agent says of checkpoints that it has found.
void note_found(State& state, JobEntry& job, const wire::AttemptReport& report);
/// Its node has told its end; `is_told`: not only that it is gone.
void note_last_found(State& state, const JobEntry& job, bool is_told);

/// The newest set is not to be resumed from: all go on from the one before it, or from the start.
void condemn_set(State& state, GangEntry& gang, const std::string& why);

/// Of a start: what the members resume from, and what may yet become a set.
void restore_sets(State& state, GangEntry& gang);

/// The next attempt of a member numbers what it saves from the set on, which may be behind what the
/// member itself has durable: of a newer epoch such a generation counts.
bool is_numbered_from_set(const State& state, const JobEntry& job, const GenerationRef& ref);

/// What holders keep of a member: of its gang's two newest sets, and what may become one.
struct MemberKeep {
  std::uint32_t from = 0;            ///< and all newer ones
  std::vector<std::uint32_t> older;  ///< below it; ascending
};

MemberKeep kept_of_member(const State& state, const JobEntry& job);
/// One of its gang's two newest sets has it.
bool is_in_set(const State& state, const JobEntry& job, std::uint32_t generation);

/// "set 3 (step 400)"; of none: "nothing: no set is complete yet".
std::string set_words(const GangSet& set);

}  // namespace rn::coordinator
