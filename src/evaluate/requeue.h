// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "evaluate/world.h"

namespace rn::evaluate {

/// What baselines without a migration have in common: a queue, and jobs that start over, or from
/// what they saved last on the site's file server, when they lose their place. As strong as it can
/// honestly be made: jobs keep their rank when they are queued again, later jobs pass one that
/// does not fit anywhere, places are chosen by best fit, saves are uploaded while the guest goes
/// on, and what is saved counts from the moment when its last byte has arrived. Who saves because
/// it has to go computes no more after that: that work would be in no state.
class Requeue : public Policy {
 public:
  void begin(World& world) override;
  void on_submit(JobNumber job) override;
  void on_lent(NodeNumber node) override;
  void on_declared(NodeNumber node, ReclaimKind kind, Moment deadline) override;
  void on_taken(NodeNumber node, ReclaimKind kind) override;
  void on_gone(NodeNumber node) override;
  void on_finished(RunNumber run) override;

 protected:
  struct Times {
    Moment pass = seconds(3);       ///< from a reason to place until it is done
    Moment start = seconds(1);      ///< of a job's processes, without its state
    Moment silence = seconds(300);  ///< until a machine without power is missed
  };

  explicit Requeue(Times times) : times_(times) {}

  /// Between the begins of saves; none: it does not save now.
  virtual std::optional<double> interval_s(JobNumber job) = 0;

  /// Saves when its owner says that they come, and leaves when that has arrived.
  virtual bool saves_at_notice() const { return false; }

  /// After a notice it is killed at the latest after so long; none: at the deadline.
  virtual std::optional<Moment> grace() const { return std::nullopt; }

  /// The least of the places that have room; none: the job does not go there.
  using Rank = std::pair<double, double>;

  /// Best fit: what leaves the fewest GPUs over; of those, the least GPU memory.
  virtual std::optional<Rank> rank(JobNumber job, NodeNumber node) const;

  /// A machine was taken back or lost: for those who learn from it.
  virtual void hear_of_loss(NodeNumber) {}

  /// What the job saved has arrived, so long after the save began.
  virtual void hear_of_save(JobNumber, double) {}

  /// Nobody is placed there any more, and who is there saves and leaves, as at a notice.
  void clear_out(NodeNumber node, RunEnd end, Moment deadline);

  std::uint32_t free_gpus(NodeNumber node) const { return places_[node].free_gpus; }

  /// That are there, or are on their way there.
  std::vector<JobNumber> jobs_at(NodeNumber node) const;

  World& world() { return *world_; }

  const World& world() const { return *world_; }

 private:
  struct Stay {
    JobNumber job = 0;
    RunNumber run = 0;  ///< 0: its state is being loaded
    std::optional<Flows::Id> load;
    std::optional<Flows::Id> upload;
    std::uint64_t save = 0;           ///< voids what was meant for an earlier save
    Moment saved_at{0};               ///< when the newest save began, or the run
    bool is_saving = false;           ///< written or uploaded
    std::optional<RunEnd> leaves_as;  ///< when its last save has arrived
  };

  struct Place {
    bool is_open = false;
    std::uint32_t free_gpus = 0;
    std::map<std::uint64_t, Stay> stays;  ///< by a number that is used once
  };

  void want_pass();
  void pass();
  std::optional<NodeNumber> find_place(JobNumber job) const;
  void begin_stay(JobNumber job, NodeNumber node);
  void run(NodeNumber node, std::uint64_t stay);
  void look_at_save(NodeNumber node, std::uint64_t stay);
  void save(NodeNumber node, std::uint64_t stay);
  void upload(NodeNumber node, std::uint64_t stay, std::uint64_t save, double progress_s);
  void uploaded(NodeNumber node, std::uint64_t stay, std::uint64_t save, double progress_s);
  void end_stay(NodeNumber node, std::uint64_t stay);
  bool is_better_ended(const Stay& stay, Moment left) const;
  void kill_at_grace_end(NodeNumber node, const std::vector<std::uint64_t>& stays);
  Stay* find(NodeNumber node, std::uint64_t stay);

  Times times_;
  World* world_ = nullptr;
  std::vector<Place> places_;
  std::set<JobNumber> queue_;  ///< by rank: the order of submission
  std::map<JobNumber, double> saved_s_;
  std::map<NodeNumber, std::set<JobNumber>> missed_;  ///< ran where it is silent now
  std::map<RunNumber, std::pair<NodeNumber, std::uint64_t>> by_run_;
  std::uint64_t next_stay_ = 1;
  bool is_pass_wanted_ = false;
};

}  // namespace rn::evaluate
