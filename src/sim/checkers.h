// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/crypto.h"
#include "coordinator/core_types.h"
#include "coordinator/rows.h"
#include "model/checkpoint.h"
#include "sim/guest.h"
#include "sim/machine.h"
#include "sim/memory_store.h"
#include "sim/world.h"

namespace rn::sim {

class AgentHost;

double seconds_of(nanoseconds time);

/// `j-… epoch 3.1`, as violations call an attempt.
std::string attempt_name(const JobId& job, LeaseEpoch epoch);

/// The invariants, each as a check of what can be seen
/// from outside the cores: committed rows, effects that left a process, guests' steps, disks. The
/// first violation ends a run.
///
///   I1  acknowledged jobs stay in the store as they were submitted, and end once faults stop
///   I2  one idempotency key, one job
///   I3  accepted effects carry the newest issued epoch; a guest runs once per epoch, where it was
///       issued; a success was seen at the guest
///   I4  epochs only grow; none is used before its row is durable
///   I5  acknowledged = verified on k other failure domains: receipts by the true keys, and the
///       holders' disks; whatever is acknowledged to anybody is in the store by then
///   I6  a guest starts from a whole checkpoint or from nothing, all of it of one step
///   I7  a resumed guest is not behind an acknowledgement
///   I8  every holder keeps the newest durable generation and the one before it, but for those that
///       lie and what has rotted since; an attempt resumes behind one only if no honest node has it
///   I9  see OwnerWatch
///   I10 guests never get more than the owner lends, and their GPUs for themselves; nothing of ours
///       is left on a machine when the jobs are over, the owner's files are as they were (Cluster)
///   I11 what is charged to users, to labs and to the true running time agrees, in both directions
///       once faults stop; what labs lent is what others' users took there
///   I12 legal transitions only, nothing moves after an end; see ReplayCheck
///   I13 all jobs end, with bounded messages, and none waits beside an idle machine (Cluster)
///   I14 stored chunks are ciphertext, tickets and keys go to the attempt's node only
///   I15 no lie of a node changes another's job: rows, logs and outputs are what the guests did
///   I16 a guest runs only where the data sets of its job are, and sees them all
///   I17 a job that waits has no attempt, and is released once, when all that it waits for has
///       happened; no more of an array's tasks are released and not over than may run at once
///   I18 none begins that would be more than the quota of its user lets run; who lost the node is
///       not asked again, and counts
class Checkers {
 public:
  using Attempt = std::pair<JobId, LeaseEpoch>;

  explicit Checkers(World& world) : world_(world) {}

  /// What is true of a node, whatever its agent says.
  struct NodeTruth {
    std::string name;
    LabId lab;
    std::string failure_domain;
    crypto::PublicKey verify_key{};
    AgentHost* agent = nullptr;
    bool is_liar = false;    ///< serves changed bytes
    bool is_hollow = false;  ///< signs for what it does not keep, or has left with it
    bool lends = false;
    std::uint32_t cpu_milli = 0;  ///< what its owner lends
    std::uint32_t gpus = 0;
    bool is_braggart = false;  ///< says of itself what is not so
    bool has_left = false;     ///< for good
  };

  void add_node(const NodeId& id, const NodeTruth& truth) { nodes_[id] = truth; }

  void set_liar(const NodeId& id, bool is_liar) { nodes_.at(id).is_liar = is_liar; }

  /// It signs for what it does not keep, from now on.
  void set_hollow(const NodeId& id) { nodes_.at(id).is_hollow = true; }

  /// What the node keeps of the job has rotted: until it is sent again it may be found missing.
  void on_rot(const NodeId& id, const JobId& job) { rotted_[{id, job}] = world_.now(); }

  bool has_rotted(const JobId& job) const {
    return std::any_of(rotted_.begin(), rotted_.end(), [&](const auto& entry) {
      return entry.first.second == job;
    });
  }

  /// It says of itself what is not so, from now on.
  void set_braggart(const NodeId& id) { nodes_.at(id).is_braggart = true; }

  /// Generations of the member's job that its gang's sets are made of, while it goes on.
  std::function<std::set<std::uint32_t>(const JobId&)> needed_by_gang;

  // What the coordinator does.
  void on_write(const coordinator::Write& write);
  /// Just before the effect leaves; `node`: at the other end of a connection; `store`: what is
  /// durable by then; `log_bytes`: the same of the log that a LogAck speaks of.
  void on_effect(
      const coordinator::Effect& effect,
      const NodeId& node,
      const MemoryStore& store,
      std::uint64_t log_bytes
  );
  void on_submit_acknowledged(const std::string& key, const JobId& job, const JobSpec& spec);
  /// After a commit: acknowledged jobs are all there.
  void check_acknowledged(const std::map<JobId, coordinator::JobRow>& jobs);
  void on_log_stored(const JobId& job, LeaseEpoch epoch, BlobView log);

  /// The database is an older one now. What was acknowledged since is lost with it, as the operator
  /// knows; that no epoch is issued twice holds on.
  void on_restore(const MemoryStore& store);

  /// The coordinator's wall clock has jumped: decayed sums of different ages can't be compared.
  void on_clock_jump() { has_clock_jumped_ = true; }

  /// As many run as the quota of all users lets run.
  bool is_quota_full() const { return running_most_ && holding_.size() >= *running_most_; }

  // What agents and guests do.
  /// `state`: what the captured file holds; nullopt = it is no whole checkpoint.
  void on_snapshot(const GenerationRef& generation, const std::optional<TrainingState>& state);
  void on_upload(const JobId& job, LeaseEpoch epoch, const Digest& listing);
  /// The attempt's outputs have all reached the coordinator's blobs.
  bool has_uploaded(const JobId& job, LeaseEpoch epoch) const;
  void on_chunk_stored(const JobId& job, BlobView stored);
  /// The machine's agent has said goodbye.
  void on_left(const Machine& machine);
  /// An agent has collected garbage of the job.
  void on_collected(AgentHost& agent, const JobId& job);
  void on_guest_create(const Machine& machine, const Machine::Container& container);
  void on_guest_start(const Machine& machine, const Machine::Container& container);
  void on_guest_step(const Machine& machine, const Machine::Container& container);
  void on_guest_end(const Machine::Container& container);
  void on_guest_log(const Machine::Container& container, const std::string& line, bool is_whole);
  void on_power_loss(const Machine& machine);

  // From time to time.
  void check_holders(const std::map<JobId, coordinator::JobRow>& jobs);
  /// A node was cleared with `left` to the deadline, while `newest` was its guest's newest
  /// generation.
  void on_early_clear(
      const std::string& node, const GenerationRef& newest, bool is_elsewhere, nanoseconds left
  );
  void on_minute(std::uint64_t messages, std::size_t nodes, std::size_t jobs);

  // At the end of a job.
  void on_outputs(const JobId& job, BlobView final_state, const Training& training);
  void on_final_log(const JobId& job, LeaseEpoch epoch, BlobView log);

  /// Faults stop; `process_life` of the coordinator. From now on nothing that runs is charged to
  /// nobody.
  void on_calm(std::uint64_t process_life);
  /// Some time after the last job's end.
  void check_charged(std::uint64_t process_life);

  /// The state that a generation captured, by its manifest.
  const TrainingState* captured(const Digest& manifest) const;

  std::uint64_t checks() const { return checks_; }

 private:
  struct JobHistory {
    JobState state = JobState::kQueued;
    LeaseEpoch newest;
    LabId lab;
    std::uint32_t copies = 1;
    std::vector<std::string> data;  ///< sets that it asked for
    std::uint32_t gpus = 0;
    std::uint32_t durable_generation = 0;
    bool has_fallen_back = false;
    std::set<Digest> accepted;  ///< manifests of durable generations
    std::map<std::uint32_t, coordinator::GenerationRow> rows;
    std::uint64_t durable_step = 0;
    std::uint64_t previous_step = 0;
    bool is_known = false;
    bool is_held = false;
    bool has_begun = false;  ///< it runs, or has run or ended
    std::optional<ArrayTask> array;
    bool is_member = false;  ///< of a gang: it goes on from its gang's set (GangChecks)
  };

  struct AttemptHistory {
    std::uint64_t floor_step = 0;  ///< durable step when the epoch was issued
    NodeId node;
    bool is_issued = false;
    bool is_lost = false;  ///< issued after the backup that was restored
    bool has_started = false;
    bool has_ended = false;                ///< in the store
    AttemptEnd end = AttemptEnd::kNone;    ///< in the store
    std::optional<std::int32_t> own_exit;  ///< the guest ended by itself
    std::string log;                       ///< what the guest wrote
    bool is_log_torn = false;              ///< a disk lost a part of it
    std::set<Digest> uploads;
    double ran_s = 0;
    double table_s = 0;  ///< for how long its row has called it running
    std::optional<TrueTime> running_since;
    bool is_elsewhere = false;  ///< on another lab's machine than its job's
  };

  struct Acknowledged {
    JobId job;
    JobSpec spec;
  };

  struct Usage {
    double used = 0;
    double lent = 0;
    std::int64_t as_of_wall_ms = 0;
  };

  /// What is charged, and what should be, when faults stop.
  struct Calm {
    double used = 0;
    double lent = 0;
    double ran_s = 0;
    double ran_elsewhere_s = 0;
    TrueTime since{0};
    double attempts = 0;
    double running = 0;  ///< of them
  };

  /// Of a guest with GPUs each second, and the guest, counts as often as one of theirs is dearer
  /// than one of a core.
  struct Running {
    double attempts = 0;
    double running = 0;          ///< of them, by their rows
    double ran_s = 0;            ///< by the guests
    double ran_elsewhere_s = 0;  ///< of it on other labs' machines
    double table_s = 0;          ///< by the rows of the attempts
    double table_elsewhere_s = 0;
  };

  void on_job(const coordinator::JobRow& row);
  void check_gpus(const Machine& machine, const Machine::Container& container, std::uint32_t there);
  void check_node(const coordinator::NodeRow& row);
  void check_end(const coordinator::JobRow& row);
  void on_attempt(const coordinator::AttemptRow& row);
  void on_generation(const coordinator::PutGeneration& put);
  void check_copies(const coordinator::GenerationRow& row);
  void on_outputs_row(const coordinator::OutputsRow& row);
  void on_usage(const coordinator::UsageRow& row);
  Running running() const;
  void on_meta(const coordinator::SetMeta& meta);
  void on_message(
      const wire::Message& message,
      const NodeId& node,
      const MemoryStore& store,
      std::uint64_t log_bytes
  );
  void check_commit(const wire::Commit& commit, const NodeId& node, const MemoryStore& store);
  void check_peers(
      const std::vector<PeerGrant>& peers, const JobId& job, LeaseEpoch epoch, const NodeId& node
  );
  void check_collection(const wire::CollectGarbage& order, const MemoryStore& store);
  void check_event_ack(const wire::AttemptAck& ack, const MemoryStore& store);
  void check_holder(AgentHost& agent, const coordinator::GenerationRow& row);
  bool may_lack(const NodeId& node, const GenerationRef& generation) const;
  bool is_lost_everywhere(const JobHistory& history) const;
  void check_quota(const coordinator::JobRow& row);
  void check_waits(const coordinator::JobRow& row);
  bool has_happened(const AfterJob& after) const;
  std::vector<const coordinator::GenerationRow*> needed(const JobHistory& history) const;

  World& world_;
  std::map<NodeId, NodeTruth> nodes_;
  std::map<JobId, JobHistory> jobs_;
  std::map<Attempt, AttemptHistory> attempts_;
  std::map<std::string, Acknowledged> acknowledged_;
  std::map<std::pair<UserId, std::string>, JobId> stored_keys_;
  std::map<Digest, std::pair<GenerationRef, TrainingState>> captured_;
  std::map<Digest, TrueTime> captured_at_;
  std::map<std::pair<NodeId, JobId>, TrueTime> rotted_;  ///< when last
  std::map<UserId, Usage> used_by_user_;
  std::map<LabId, Usage> used_by_lab_;
  std::uint64_t generation_ = 0;  ///< of the database
  bool has_clock_jumped_ = false;
  std::optional<std::uint32_t> running_most_;  ///< of the quota of everybody
  std::set<JobId> holding_;                    ///< that count as running for it
  std::optional<Calm> calm_;
  std::uint64_t calm_life_ = 0;
  std::uint64_t checks_ = 0;
};

}  // namespace rn::sim
