// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coordinator/core_state.h"

// Who is there: connections, hello, heartbeats, silence, reclaims as nodes report them.
namespace rn::coordinator {

void on_connected(State& state, const AgentConnected& event);
void on_disconnected(State& state, const AgentDisconnected& event);
/// The first message of a connection. Refusals say what to do next and close the connection:
/// another protocol, an unknown or revoked identity, a key or a machine that is not the node's own
/// (clone), a second live connection.
///
/// Two connections of one node: the same boot means that the older one is dead without knowing it,
/// so the newer wins and the older is closed. Another boot while the older one was heard within
/// lost_after heartbeats means two machines: the newer is refused, and may retry after that time.
void on_hello(State& state, ConnectionId id, const wire::Hello& hello);
/// After a start nothing is placed for lost_after heartbeats, so that running attempts report
/// first; no longer than until every node has said hello that was up before.
void end_grace_if_all_are_back(State& state);
void on_heartbeat(State& state, NodeEntry& node, const wire::Heartbeat& beat);
void on_still_there(State& state, const StillThere& event);
void on_node_update(State& state, NodeEntry& node, const wire::NodeUpdate& update);
void on_reclaim_report(State& state, NodeEntry& node, const ReclaimRecord& record);
void on_leave(State& state, NodeEntry& node, const std::string& reason);
/// Silence: suspect after one missed heartbeat and a half, lost after lost_after and a half. While
/// this process itself stood still nobody was silent: what was said then lies unread.
void look_for_silence(State& state);
/// Takes back the node's identity; its jobs move.
void revoke(State& state, NodeEntry& node, const std::string& reason);

}  // namespace rn::coordinator
