// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/core_state.h"
#include "model/quota.h"
#include "sched/quota.h"

// What users and laboratories may have (docs/quotas.md). Quotas bound who begins: a job that runs
// goes on, and one that lost its node begins again without being asked; it counts as running while
// it waits.
namespace rn::coordinator {

/// What everybody has at one moment, beside what they may have. Borrows the state, whose jobs may
/// meanwhile only begin, each told by take().
class QuotaBook {
 public:
  /// Counts nothing where there are no quotas, unless it is for people.
  explicit QuotaBook(const State& state, bool is_for_people = false);

  /// Why the job does not begin now, on any node: "anna runs 4 of 4 GPUs". Empty: it may.
  std::string held_back(const JobEntry& job) const;
  /// The same of a node that lends GPUs of a model of which the job's user or lab has as many as
  /// they may.
  std::string barred(const JobEntry& job, const NodeRow& node) const;

  /// Whether any quota is of some GPUs alone: else no node is barred.
  bool has_models() const { return !patterns_.empty(); }

  /// It begins.
  void take(const JobEntry& job);
  /// It begins on this node, and has no place there yet that is known.
  void take_at(const JobEntry& job, const NodeId& node);

  sched::QuotaCount count(const std::string& subject, const Quota& quota) const;
  /// For each kind of GPUs the quota that counts: the subject's own, or the one of everybody.
  std::vector<const Quota*> quotas_for(const std::string& subject) const;

 private:
  void count_running(const JobEntry& job);
  std::uint32_t gpus_of_model(const JobEntry& job, const std::string& pattern) const;
  std::uint32_t gpus_at(
      const JobEntry& job,
      const NodeId& node,
      const std::vector<std::uint32_t>& known,
      const std::string& pattern
  ) const;
  double used_hours(const std::string& subject, const Quota& quota) const;

  const State& state_;
  bool is_counted_;
  std::set<std::string> patterns_;                   ///< models of quotas
  std::map<std::string, sched::QuotaCount> counts_;  ///< by subject; without hours that were used
  std::map<std::pair<std::string, std::string>, std::uint32_t> gpus_of_;  ///< subject, model
  mutable std::map<std::tuple<std::string, std::string, std::uint32_t>, double> hours_;
};

/// kExhausted if quotas never let such a job begin, or let no `count` more wait.
Status check_quotas(
    const State& state, const Caller& caller, const JobSpec& spec, std::size_t count
);
/// The same of a gang, whose members begin together or not at all.
Status check_gang_quotas(
    const State& state, const Caller& caller, const JobSpec& spec, std::uint32_t size
);

Result<Answer> set_quota(State& state, const Caller& caller, const SetQuota& command);
Result<Answer> remove_quota(State& state, const Caller& caller, const RemoveQuota& command);

/// What the caller may see of quotas, and of who has how much.
api::QuotaList quotas_seen_by(const State& state, const Caller& caller);

void restore_quotas(State& state, const Snapshot& snapshot);
/// The use of the running attempt's GPUs for so long.
void charge_gpu_hours(State& state, const AttemptEntry& attempt, const Job& job, double elapsed_s);
/// Writes what was charged since the last time.
void save_gpu_hours(State& state);

}  // namespace rn::coordinator
