// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "coordinator/core_state.h"

// The members of a gang and what each of them is told (ADR 0027). Part of core_gang_life.
namespace rn::coordinator {

/// One member of a gang that is not over: its job is there as long as the gang is.
struct MemberView {
  std::uint32_t rank = 0;
  JobEntry* job = nullptr;
  AttemptEntry* attempt = nullptr;  ///< of the gang's epoch; nullptr before the first placement
  GangMember* known = nullptr;
};

/// What is known in memory of the gang's newest epoch; begun anew when that has changed.
GangLife& life_of(State& state, const GangEntry& gang);
/// By rank. Of a gang that is over, those that are still remembered.
std::vector<MemberView> members_of(State& state, const GangEntry& gang);

/// The node is lost or has left: what it holds can neither be told nor waited for.
bool is_node_gone(const State& state, const NodeId& node);
/// Nothing more comes of the member's attempt in this epoch that a stop waits for.
bool has_ended(const State& state, const GangEntry& gang, const MemberView& member);
/// It ended by itself, with exit code 0.
bool has_succeeded(const MemberView& member);
/// All have, or with GangEnds::kFirst rank 0 has.
bool is_done(const GangEntry& gang, const std::vector<MemberView>& members);
/// What it saves belongs to a set: rank 0's, or of everybody.
bool is_saver(const GangEntry& gang, std::uint32_t rank);

/// Why the gang's links may have broken without its program's doing, in this epoch: a member's
/// agent counts such links or came anew shortly before the stop, or its owner has cut transfers.
/// Empty: nothing of that is known.
std::string broken_links_words(State& state, const GangEntry& gang);

/// "rank 2 on lab-b/n-2"
std::string member_words(const State& state, const MemberView& member);
/// "3 of 4 are ready; lab-b/n-2 fetches the image"; of a stop: who has not ended yet.
std::string waiting_members_words(State& state, const GangEntry& gang);
/// Into the history of rank 0's job, and so into the author's.
void note_gang(
    State& state,
    const GangEntry& gang,
    const std::string& kind,
    const std::string& message,
    State::EventData data = {}
);

/// The member may begin; links go where the message says.
void send_go(State& state, const GangEntry& gang, MemberView& member);
/// To all who have not ended and do not leave by their own owner's notice; what is left of the
/// deadline is told anew each time.
void send_stops(State& state, GangEntry& gang);

}  // namespace rn::coordinator
