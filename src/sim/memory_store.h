// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "coordinator/rows.h"

namespace rn::sim {

/// The coordinator's tables in memory, with the conditions that the database enforces. What is in
/// here is durable.
class MemoryStore {
 public:
  /// One transaction. kConflict if a condition does not hold: a broken invariant of the core, after
  /// which nothing is used.
  Status commit(const std::vector<coordinator::Write>& writes);
  coordinator::Snapshot load() const;
  /// Everything is as in `backup`, an older copy of this store.
  void restore(const MemoryStore& backup);
  /// As a coordinator of the first schema left it, which counted departures and learnt nothing
  /// else.
  void rewrite_history(const NodeId& node, const NodeHistory& history);

  const std::map<NodeId, coordinator::NodeRow>& nodes() const { return nodes_; }

  const std::map<JobId, coordinator::JobRow>& jobs() const { return jobs_; }

  const std::map<std::pair<JobId, LeaseEpoch>, coordinator::AttemptRow>& attempts() const {
    return attempts_;
  }

  const std::map<std::pair<JobId, std::uint32_t>, coordinator::GenerationRow>& generations() const {
    return generations_;
  }

  const std::map<std::pair<NodeId, ReclaimId>, coordinator::ReclaimRow>& reclaims() const {
    return reclaims_;
  }

  const std::map<GangId, coordinator::GangRow>& gangs() const { return gangs_; }

  const std::vector<coordinator::EventRow>& events() const { return events_; }

  const std::map<std::pair<JobId, LeaseEpoch>, coordinator::OutputsRow>& outputs() const {
    return outputs_;
  }

  /// Called with every committed write, for the checkers.
  std::function<void(const coordinator::Write&)> on_write;
  /// Called after every transaction.
  std::function<void()> on_committed;

 private:
  Status check(const coordinator::Write& write) const;
  void apply(const coordinator::Write& write);

  std::map<std::string, std::string> meta_;
  std::map<JobId, coordinator::JobRow> jobs_;
  std::map<std::pair<JobId, LeaseEpoch>, coordinator::AttemptRow> attempts_;
  std::map<NodeId, coordinator::NodeRow> nodes_;
  std::map<std::pair<JobId, std::uint32_t>, coordinator::GenerationRow> generations_;
  std::map<std::pair<NodeId, ReclaimId>, coordinator::ReclaimRow> reclaims_;
  std::map<std::string, Image> images_;
  std::map<std::string, coordinator::TokenRow> tokens_;
  std::map<UserId, coordinator::UserRow> users_;
  std::map<std::pair<UserId, LabId>, coordinator::UsageRow> usage_;
  std::map<std::pair<JobId, LeaseEpoch>, coordinator::OutputsRow> outputs_;
  std::vector<coordinator::EventRow> events_;
  std::optional<reclaim::CampusHazard> campus_hazard_;
  std::map<LabId, reclaim::LabHazard> lab_hazards_;
  std::map<NodeId, reclaim::NodeHazard> node_hazards_;
  std::map<std::pair<std::string, std::string>, Quota> quotas_;
  std::map<std::tuple<std::int64_t, UserId, LabId, std::string>, coordinator::GpuHourRow>
      gpu_hours_;
  std::map<GangId, coordinator::GangRow> gangs_;
};

}  // namespace rn::sim
