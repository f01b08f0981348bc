// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the coordinator tells the agents of a gang's members beside what each job is told
// (ADR 0027, docs/formats/wire.md). An older agent skips these messages, and is given no member.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/checkpoint.h"
#include "model/fields.h"

namespace rn::wire {

/// Another member's generation of the set that all go on from. Its checkpoint files are put beside
/// a member's own where it has none of that name; lower ranks first.
struct SharedGeneration {
  std::uint32_t rank = 0;
  GenerationRef generation;
  std::vector<PeerGrant> resume_from;

  RN_FIELDS(SharedGeneration, rank, generation, resume_from)
};

/// Where one member of the gang is.
struct GangPeer {
  std::uint32_t rank = 0;
  JobId job;
  NodeId node;
  std::string address;  ///< its agent's peer port, "host:port"
  /// To reach it: TicketAction::kLink, of that member's job and the gang's epoch, from the node
  /// that is told to that member's. Of the member itself: empty.
  Ticket ticket_out;

  RN_FIELDS(GangPeer, rank, job, node, address, ticket_out)
};

/// All members are ready: begin. It also says where links go, and renews their tickets when it is
/// sent again. Nothing for an attempt that was told already, or of another epoch.
struct GangGo {
  JobId job;
  LeaseEpoch epoch;
  std::vector<GangPeer> members;  ///< all of them, by rank

  RN_FIELDS(GangGo, job, epoch, members)
};

/// All members that save have: a guest that was told to save may be stopped before its deadline.
/// Nothing when it comes again, or of another epoch; if it is lost the deadline stops the guest.
struct GangSaved {
  JobId job;
  LeaseEpoch epoch;

  RN_FIELDS(GangSaved, job, epoch)
};

}  // namespace rn::wire
