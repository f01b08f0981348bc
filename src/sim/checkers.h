// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core_types.h"
#include "coordinator/rows.h"
#include "model/checkpoint.h"
#include "sim/guest.h"
#include "sim/machine.h"
#include "sim/world.h"

namespace rn::sim {

/// The invariants of spec-reliability-security section 2.2, each as a check of what can be seen
/// from outside the cores: committed rows, effects that left a process, guests' steps, disks. The
/// first violation ends a run.
///
///   I1  acknowledged jobs stay in the store, and end once faults stop     I7  a resumed guest is
///   not behind an acknowledgement I2  one idempotency key, one job I8  the newest durable
///   generation stays on a holder I3  accepted effects carry the newest issued epoch I9  no guest
///   step on a taken node I4  epochs only grow                                                  I12
///   legal transitions only I5  acknowledged = verified on k other failure domains I13 all jobs
///   end, with bounded messages I6  a guest starts from a whole checkpoint or from nothing I14
///   stored chunks are ciphertext I15 lies cost the liar's own jobs at most
class Checkers {
 public:
  explicit Checkers(World& world) : world_(world) {}

  void on_write(const coordinator::Write& write);
  void on_submit_acknowledged(const std::string& key, const JobId& job);
  /// After a commit: acknowledged jobs are all there.
  void check_acknowledged(const std::map<JobId, coordinator::JobRow>& jobs);

  /// `state`: what the captured file holds; nullopt = it is no whole checkpoint.
  void on_snapshot(const GenerationRef& generation, const std::optional<TrainingState>& state);
  void on_guest_start(const Machine& machine, const Machine::Container& container);
  void on_guest_step(
      const Machine& machine, const Machine::Container& container, bool is_node_taken
  );
  void on_outputs(const JobId& job, BlobView final_state, const Training& training);
  void on_chunk_stored(const JobId& job, BlobView stored);
  /// `holders_with_it`: how many nodes still have the job's newest durable generation, whole.
  void on_retention(const JobId& job, std::uint32_t generation, std::size_t holders_with_it);
  /// A node was cleared with `left` to the deadline, while `newest` was its guest's newest
  /// generation.
  void on_early_clear(
      const std::string& node, const GenerationRef& newest, bool is_elsewhere, nanoseconds left
  );
  void on_minute(std::uint64_t messages, std::size_t nodes, std::size_t jobs);

  /// The state that a generation captured, by its manifest.
  const TrainingState* captured(const Digest& manifest) const;

  std::uint64_t checks() const { return checks_; }

 private:
  struct JobHistory {
    JobState state = JobState::kQueued;
    LeaseEpoch newest;
    std::map<LeaseEpoch, std::uint64_t> floor_step;  ///< durable step when the epoch was issued
    bool has_fallen_back = false;
    std::set<Digest> accepted;  ///< manifests of durable generations
    std::uint64_t durable_step = 0;
    std::uint64_t previous_step = 0;
    bool is_known = false;
  };

  void on_job(const coordinator::JobRow& row);
  void on_attempt(const coordinator::AttemptRow& row);
  void on_generation(const coordinator::PutGeneration& put);

  World& world_;
  std::map<JobId, JobHistory> jobs_;
  std::map<std::string, JobId> acknowledged_;
  std::map<std::pair<UserId, std::string>, JobId> stored_keys_;
  std::map<Digest, TrainingState> captured_;
  std::uint64_t checks_ = 0;
};

}  // namespace rn::sim
