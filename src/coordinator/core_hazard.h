// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "coordinator/core_state.h"

// What owners do, told to the hazard model (reclaim/hazard.h), and what it expects of them, kept
// for placement. Sources: lending states and telemetry of heartbeats, reclaim records, contracts,
// loss.
//
// A departure is: a reclaim with notice, an emergency, one announced not long before that has come,
// the return where the contract has an idle rule, a restart of the machine, a loss. Ends of windows
// and what is announced are deadlines; pauses and withdrawals end the exposure and count nothing.
namespace rn::coordinator {

reclaim::HazardParameters hazard_parameters(const Config& config);

/// Takes over what was learnt before. Nothing learnt yet: begins with the nodes' histories, which
/// older versions counted. Unusable rows: the same, and an event says so. After restore of nodes.
void restore_hazard(State& state, Snapshot& snapshot);

/// The node's lending state or telemetry was told. After the reclaim records that came with it.
void follow_lending(State& state, NodeEntry& node);
/// Unannounced: counted if the node was lent. `at` may lie in the past.
void note_departure(State& state, NodeEntry& node, WallTime at);
/// After each event, before anything is placed: departures go to the disk, and lab-mates are looked
/// at anew; once, however many nodes were lost together.
void settle_departures(State& state);
/// Gone by the site's decision or its owner's leave-taking: ends the exposure.
void note_withdrawal(State& state, NodeEntry& node);
/// A reclaim of the whole node that is announced, or was (it is over, or called off).
void note_announcement(State& state, NodeEntry& node, const ReclaimRecord& record);
/// A reclaim record is new here.
void note_reclaim(State& state, NodeEntry& node, const ReclaimRecord& record);

/// What placement sees of the node, made anew.
void refresh_outlook(State& state, NodeEntry& node);
/// What the agent shall expect of its owner; nothing where it knows that already.
wire::HazardForecast news_of_hazard(State& state, NodeEntry& node);
/// The campus's clocks changed: summer time began or ended.
void set_utc_offset(State& state, std::int32_t utc_offset_s);
/// A share of the nodes per tick, so that each is looked at once a minute.
void look_at_hazards(State& state);
/// Writes what was learnt since the last time: exposure, mainly; departures are written at once.
void save_hazard(State& state);

}  // namespace rn::coordinator
