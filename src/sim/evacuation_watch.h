// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/rows.h"
#include "sim/world.h"

namespace rn::sim {

/// Where the jobs of machines that are taken back are sent, as the coordinator's rows tell it:
///
///   - Nobody is sent to a machine while its owner takes it back.
///   - What is promised on a node, with what runs there, is never more than its contract has places
///     for; a place that is promised goes to nobody else, until its job's notice is over (without
///     notice, in the same transaction).
///
/// Promises are the coordinator's memory: a restart voids them.
class EvacuationWatch {
 public:
  explicit EvacuationWatch(World& world) : world_(world) {}

  void on_write(const coordinator::Write& write);
  /// Places are counted then: choices that are made together are several rows of one transaction.
  void on_committed();
  /// The database is an older one now.
  void on_restore();

  /// The coordinator's wall clock has jumped: how old it takes records for is not known any more.
  void on_clock_jump() { has_clock_jumped_ = true; }

  std::uint64_t checks() const { return checks_; }

 private:
  struct Promise {
    NodeId source;
    NodeId destination;
    TrueTime until{0};
  };

  struct Told {
    ReclaimRecord record;
    TrueTime at{0};
  };

  void on_event(const coordinator::EventRow& event);
  void on_attempt(const coordinator::AttemptRow& row);
  void on_reclaim(const ReclaimRecord& record);
  void check_taken(const JobId& job, const NodeId& node);
  void check_places(const NodeId& node, const JobId& newest);

  World& world_;
  std::map<NodeId, std::uint32_t> places_;  ///< guests that the contract admits
  std::map<NodeId, std::string> names_;
  std::map<std::pair<NodeId, ReclaimId>, Told> reclaims_;
  std::map<std::pair<JobId, LeaseEpoch>, NodeId> running_;
  std::set<std::pair<JobId, LeaseEpoch>> seen_;
  std::map<JobId, Promise> promises_;
  std::vector<std::pair<NodeId, JobId>> given_;  ///< places, in the transaction that is open
  bool has_clock_jumped_ = false;
  std::uint64_t checks_ = 0;
};

}  // namespace rn::sim
