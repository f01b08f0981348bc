// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "coordinator/core_quota.h"
#include "coordinator/core_state.h"
#include "sched/gang_choice.h"

// How gangs are placed: all members or none (ADR 0027).
//
// One gang at a time is in a round: as many nodes as it has members are asked at once. Who refuses,
// is silent or vanishes is one member's trouble: the next best node is asked for it. When all hold
// their places at one instant, one output has the rows of all members' attempts, in one epoch, and
// then the commits. A round that lasts for too long gives everything back. Nothing of it is on the
// disk, and holds run out by themselves.
//
// A gang that was tried in vain for long is gathered: places that become free are kept for it, in
// memory, until there are enough together; one gang at a time, and for a bounded time.
namespace rn::coordinator {

inline constexpr std::uint32_t kGangReplacements = 3;  ///< in a round
inline constexpr std::chrono::seconds kGangRoundMost{3};
inline constexpr milliseconds kGangHold{10'000};

/// Those that are in the queue, or in a round, by id; not those that wait for other jobs.
std::vector<const GangEntry*> waiting_gangs(const State& state);

/// What the scheduler must know of it.
sched::GangDemand demand_of(const State& state, const GangEntry& gang);

/// Why it is not tried now, whatever places there are: its image, a holder that is away, quotas.
/// Empty: it may be. Says so in the members' reasons and histories, as it is said of a job.
std::string gang_obstacle(State& state, const GangEntry& gang, const QuotaBook& quotas);

/// Of one that waits: asks for all of its places if there are enough. `candidates` are what others
/// see; they and `quotas` then know what is asked for. False: it was not judged by the nodes, as it
/// is asked for already, waits for its pause or for another one's round, or something bars it
/// wherever it goes.
bool place_gang(
    State& state, GangEntry& gang, std::vector<sched::Candidate>& candidates, QuotaBook& quotas
);

/// Of a member of a gang that is in a round. A node that takes no part in it any more is told so.
void on_seat_reply(
    State& state, const JobEntry& member, NodeEntry& node, const wire::ProbeReply& reply
);
void on_seat_gone(State& state, const JobEntry& member, NodeEntry& node, const ProbeId& probe);
/// The member's node is waited for there, or offered this hold.
bool is_seat_wanted(
    State& state, const JobEntry& member, const NodeEntry& node, const HoldId& hold
);
/// Silent nodes, holds that end soon, rounds that last for too long.
void look_at_gang_rounds(State& state);
Instant gang_rounds_wake(const State& state, Instant otherwise);
/// Everything that the gang of this member holds is given back; it waits as before.
void cancel_gang_round(State& state, const JobEntry& member);

/// What the attempt of a member is given of the others' saves. The node keeps it under the others'
/// names, and will be told to delete it.
std::vector<wire::SharedGeneration> shares_for(
    State& state, const JobEntry& member, NodeEntry& node
);

// ---- gathering
// ----------------------------------------------------------------------------------------------

/// Before each pass: whose turn it is, and what is kept.
void gather_gangs(State& state);
bool is_gathered(const State& state, const GangEntry& gang);
/// "2 places are kept for gang g-…, which waits for 4 at once"; empty if none are.
std::string kept_words(const State& state);

// ---- for people
// ----------------------------------------------------------------------------------------------

/// Why a gang of such members can never be placed: "2 of its 4 members could ever …". Empty: it
/// can.
std::string gang_never_words(
    const sched::GangDemand& demand, const std::vector<sched::Candidate>& candidates
);
/// What lacks for all at once: "there is room for 2 of its 4 members; of the other nodes: …".
std::string gang_lacks_words(
    const sched::GangDemand& demand, const std::vector<sched::Candidate>& candidates
);
/// What a member waits for that is in the queue.
std::string why_gang_waits(const State& state, const JobEntry& member);

}  // namespace rn::coordinator
