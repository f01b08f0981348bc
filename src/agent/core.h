// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/core_types.h"
#include "agent/gang_link_rules.h"
#include "base/rng.h"
#include "reclaim/deadline_rates.h"

namespace rn::agent {

struct CoreConfig {
  NodeId node;
  LabId lab;
  std::string version;
  std::string machine_id;
  std::string boot_id;
  NodeAddress address;
  Digest box_key{};                       ///< public
  Digest verify_key{};                    ///< public
  std::vector<std::string> data_sets;     ///< that the owner offers, as AgentConfig has them
  std::uint16_t coordinator_port = 7443;  ///< connections to it are no transfers
  std::uint16_t rest_port = 7444;         ///< nor are those from it; 0 = none
  std::string expiry;  ///< why the coordinator cannot welcome it, and what to do; empty = nothing
  milliseconds tick{100};
  milliseconds repeat{2000};       ///< until an acknowledgement comes, and after a failed work
  milliseconds log_interval{500};  ///< between looks at a guest's log
  milliseconds start_patience{120'000};   ///< with a warden or engine that cannot start a guest
  milliseconds holder_patience{120'000};  ///< with holders of the generation that give no word
  milliseconds no_save_after{600'000};    ///< a guest that has saved nothing for so long is told of
  milliseconds unsaved_after{120'000};    ///< so are snapshots that fail for so long
  milliseconds telemetry_trusted{60'000};  ///< what is measured too seldom lets nobody in
  milliseconds reply_timeout{60000};       ///< of the warden; then the request is sent again
  /// Of a study (as coordinator::Study; a node has the defaults): else each guest's saves are
  /// planned as if it had the uplink alone, and are copied when they are made, beside others'.
  bool plans_saves_together = true;
  reclaim::RateRule rates = reclaim::RateRule::kDeadlines;  ///< and which rule shares the uplink
  milliseconds longest_look{10'000};  ///< more between two ticks counts as so much of a save's wait
  std::uint32_t log_append_bytes = 256u << 10;  ///< one LogAppend is under way per attempt
  std::size_t works_max = 6;   ///< running at once; more wait, evacuations first, then by age
  std::size_t copies_max = 4;  ///< of these, copies to peers
  std::size_t attempts_max = 64;
};

/// The agent's state machine: no I/O, no clock, no threads. Owns attempts, holds and leases of one
/// node. Output commit as in ADR 0001; the order of a process's life is restore(), Started, then
/// anything.
///
/// Phases of an attempt (journalled before they are acted on, idempotent on replay):
///   leased → fetching → loading → mounting → restoring → adopting → starting → running
///   → noticed → stopping → saving → draining → publishing → closing → ended
/// ended attempts stay until the coordinator acknowledged the end and the warden removed the guest.
class Core {
 public:
  /// `rng` names holds; it outlives the core.
  Core(CoreConfig config, Rng& rng);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// Rows of the journal in any order, before the first event. kCorrupt names the row that cannot
  /// be read; nothing is restored then.
  Status restore(const std::vector<JournalRow>& rows);

  Output handle(const Event& event, Now now);

  /// True if nothing is under way: until the next event of another kind, and as long as the machine
  /// is measured as before, ticks and acknowledgements that say nothing lead to heartbeats that say
  /// what the newest one said, and to nothing else. NothingHappened stands for all of these
  /// together. Of a node with guests, with windows or with an idle rule it is never true.
  bool rests(Now now) const;

  NodeView view(Now now) const;
  /// Members of gangs whose guests may be reached now by the others, and reach them: told to go,
  /// and not yet told to end.
  std::vector<LinkedGuest> linked_guests() const;
  /// What the owner has the kernel let through of the agent's traffic; 0 = no bound.
  std::uint64_t granted_bps() const;
  /// Every attempt held, for tests and checkers.
  std::vector<wire::AttemptReport> reports(Now now) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace rn::agent
