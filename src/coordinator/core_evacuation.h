// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core_state.h"

// Where the jobs go whose nodes are taken back, chosen for all of them together
// (reclaim/evacuation.h) from what the core knows: free slots, who holds which generation, hazards,
// the network as it was declared and as it was measured.
//
// Chosen anew when a reclaim is told, of the node or of GPUs that guests have, when a guest hears
// of one, when a node is lost, when a destination refuses the guest or its copy, leaves, is silent
// or is taken back itself, and once a heartbeat while somebody has nowhere to go. A choice directs
// the copies of what the guest saves last (CopyPlan: the holder first, told at once) and its next
// placement (the destination is asked first, and its place is kept from others until the deadline
// and the drain's time after it, at most a quarter of an hour ahead). After an emergency or a loss
// nothing is copied any more, and who has what is durable counts (stranded jobs). A choice that
// differs from the one before is an event `evacuation.chosen` with its numbers. A job that three
// nodes did not take while it waited is placed as any other (`evacuation.given_up`), and so is what
// is beyond kPlannedAtOnce (`evacuation.not_chosen`).
//
// In memory only: after a restart, what agents report is chosen for anew.
namespace rn::coordinator {

/// A reclaim of this node was told or has changed, or a guest of it was noticed or has come back.
void note_evacuees(State& state, NodeEntry& node);
/// The job has lost its node and waits in the queue: what is durable is what there is.
void note_displaced(State& state, const JobId& job, const NodeId& from);
/// Of a start: the open reclaims that the store knows, and who waits.
void restore_evacuations(State& state);
/// For so many at most the causes are told together.
void want_choice(State& state, std::string cause);

/// The node was asked for the job and did not take it. Nothing happens if it was not its
/// destination.
void note_turned_down(State& state, const JobId& job, const NodeId& node, const std::string& why);
/// The job's agent could copy nothing to these nodes.
void note_copies_refused(State& state, const JobId& job, const std::vector<NodeId>& tried);
/// A generation of it became durable: somewhere else than it was sent to is a reason to choose
/// anew.
void note_held(State& state, const JobId& job, const GenerationRow& row);
/// It runs elsewhere, is over, or its owner gave the node back.
void end_evacuation(State& state, const JobId& job);

/// A copy on its way that does not arrive in time.
struct CopyShortage {
  NodeId peer;
  double bytes = 0;   ///< of the whole copy to it
  double left_s = 0;  ///< until its deadline
  /// What a copy to that node can have until the deadline, bytes/s; infinite: as it is forecast.
  std::function<double(const NodeId& to)> rate_to;
};

struct CopyElsewhere {
  NodeId holder;
  double bytes = 0;
};

/// Chooses anew for a job whose last generation is on the wire. If something arrives in time, it is
/// sent there and what is under way is broken off; else nothing changes.
std::optional<CopyElsewhere> choose_by_what_is_left(
    State& state, const JobId& job, const CopyShortage& shortage
);

/// Looks at destinations and at what has lasted too long; from ticks.
void look_at_evacuations(State& state);
/// Chooses, if there is a reason to. After each event, before anything is placed.
void settle_evacuations(State& state);

/// Whether somebody can take the job of an attempt whose node is taken back later. kUntold: it is
/// not chosen for.
Departure departure_of(const State& state, const JobId& job, const NodeId& from);
/// Whose place is kept for the job now; empty = nobody's.
NodeId kept_destination(const State& state, const JobId& job);
/// Where the job's last copies shall go first; empty = as always.
NodeId directed_holder(const State& state, const JobId& job);
/// A reclaim of the whole node is told that is not over; what its heartbeats say of its lending may
/// be older.
bool is_taken_back(const State& state, const NodeId& node);
/// GPUs of it that its owner has back, or will have.
std::set<std::uint32_t> gpus_taken_back(const State& state, const NodeId& node);

/// Who has departed, against what was forecast of everybody (ForecastTrust). Just before the hazard
/// model is told.
void learn_trust(State& state, const NodeId& departed);
/// What the copies of a generation that became durable say of the network.
void learn_rates(State& state, const NodeEntry& source, const GenerationRow& row);

/// What the way between two nodes carries nine times of ten, in bytes a second: as measured, else
/// as declared; 0 if nothing is known.
double sure_rate(const State& state, const NodeEntry& from, const NodeEntry& to);

/// The state that a choice is made from. Borrows the state's topology.
struct EvacuationInputs {
  std::vector<JobId> ids;
  std::vector<NodeId> nodes;
  reclaim::EvacuationSite site;
  std::vector<reclaim::EvacuatingJob> jobs;
  std::vector<double> deltas;  ///< of each job, in bytes: what no other node has, by estimate
  reclaim::EvacuationPolicy policy;
};

inline constexpr std::size_t kPlannedAtOnce = 256;  ///< the others are placed as always
inline constexpr std::size_t kCopiedAtOnce = 64;    ///< of them, whose state is copied in time
inline constexpr std::uint32_t kTriesAtMost = 3;    ///< nodes that do not take it while it waits
inline constexpr std::size_t kSiteNodes = 512;      ///< that are looked at for one choice

/// Who leaves, from where and by when: State::evacuations, or what is only imagined.
using Leavings = std::map<JobId, Evacuation>;

EvacuationInputs evacuation_inputs(
    const State& state, const std::vector<JobId>& jobs, const Leavings& leavings
);

/// The share of the switches above `a` that `b` hangs at, too: 0 if either has no place, or is at
/// the root.
double shared_switches(const State& state, const NodeEntry& a, const NodeEntry& b);

}  // namespace rn::coordinator
