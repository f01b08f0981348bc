// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "coordinator/core_types.h"
#include "coordinator/rows.h"
#include "sim/machine.h"
#include "sim/memory_store.h"
#include "sim/world.h"

namespace rn::sim {

/// What must hold of gangs (ADR 0027, section 10), by the rows and by what guests do:
///
///   G1  live attempts of a gang have its epoch, and of each epoch there are as many as members, or
///       none
///   G2  none of its guests is created before its row has said "go" in that epoch, after all were
///       ready in it
///   G3  what members begin with in one epoch is one set: of one mark, or nothing for all; what a
///   set
///       names is durable when it is written
///   G4  the set's mark goes back once, by condemnation, and nothing of a set that is needed is
///       collected
///   G5  a guest does not run long after its gang's stop, where its agent and the network live; and
///       none is stopped by its agent while another one that saves has not
///   G6  no member is over while another one is not; restarts and displacements of all are equal
///   G7  holds for a gang are short, and one gang at a time is in a round
///   G8  see Cluster: who could begin does
class GangChecks {
 public:
  GangChecks(World& world, const MemoryStore& store) : world_(world), store_(store) {}

  // What the coordinator does.
  void on_write(const coordinator::Write& write);
  void on_committed();
  /// `life` of the coordinator's process: rounds end with it.
  void on_effect(const coordinator::Effect& effect, std::uint64_t life);
  /// The database is an older one now.
  void on_restore();

  // What guests do.
  void on_snapshot(const GenerationRef& generation);
  void on_create(const Machine& machine, const Machine::Container& container);
  void on_start(const Machine::Container& container);
  /// `alive`: how long its agent, its warden and the coordinator have been up and not stopped.
  void on_step(const Machine& machine, const Machine::Container& container, nanoseconds alive);
  /// `is_taken`: its machine, or a GPU of it, is its owner's.
  void on_end(
      const Machine& machine, const Machine::Container& container, nanoseconds alive, bool is_taken
  );

  /// Generations of the member's job that the gang's sets are made of; of one that is over: none.
  std::set<std::uint32_t> needed(const JobId& job) const;

  std::uint64_t checks() const { return checks_; }

 private:
  struct History {
    coordinator::GangRow row;
    bool is_set_new = false;                       ///< in this transaction
    bool is_go_new = false;                        ///< the same
    std::set<LeaseEpoch> went;                     ///< that were told to go
    std::map<LeaseEpoch, std::int64_t> begins_at;  ///< step; of no set: 0
    std::map<LeaseEpoch, std::set<JobId>> ready;
    TrueTime stopped{0};
    TrueTime stop_until{0};
    std::map<JobId, TrueTime> saved;      ///< when something of it was captured last
    std::set<JobId> computing;            ///< guests of the newest epoch that run
    std::optional<TrueTime> round_since;  ///< first and newest probe of the newest round
    TrueTime probed{0};
  };

  void on_gang(const coordinator::GangRow& row);
  void check_attempts(const History& gang);
  void check_go(const History& gang);
  void check_set(const History& gang);
  void check_ends(const History& gang);
  void end_round(History& gang);
  void on_probe(const wire::Probe& probe);
  void check_collection(const wire::CollectGarbage& order);
  History* gang_of(const JobId& job);
  bool saves_first(const History& gang) const;
  bool is_given_up(const JobId& job, LeaseEpoch epoch) const;

  World& world_;
  const MemoryStore& store_;
  std::map<GangId, History> gangs_;
  std::map<JobId, GangId> gang_of_;
  std::set<GangId> touched_;
  std::map<GuestName, TrueTime> unreached_;  ///< when its agent could not hear the coordinator
  std::uint64_t life_ = 0;
  std::uint64_t checks_ = 0;
};

}  // namespace rn::sim
