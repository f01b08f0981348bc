// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "evaluate/world.h"

namespace rn::evaluate {

/// Redundancy instead of frequent saves: after Bamboo (Thorpe and others, NSDI'23; constants of the
/// simulator in uclasystem/bamboo, commit 80809293).
///
/// A job of several GPUs is a pipeline of as many stages on as many machines, each of which also
/// keeps and computes the stage of the next one in what else were bubbles:
///
///   - undisturbed it is slower by `overhead` (5 to 20 %; 5 unless told);
///   - when a stage's machine goes, all stand still for the local rendezvous (20 s for language
///     models, 10 s, 5 s for vision), then the one before it does both, at 1/1.5 of the speed, and
///     nothing is lost;
///   - until the lost stage has been loaded from there by another machine, and all have stood still
///     for the global rendezvous of 30 s;
///   - when two neighbours are missing at once nobody has the state: the job is queued, and goes on
///     from what was saved to the site's file server at a fixed interval, as Slurm's S1 does.
///
/// Stronger here than there: machines run already and load in a second (45 s for a cloud's
/// instance), stages are spread over labs (or kept in one: the worse of the two, to be shown
/// beside it), a notice is used to load the stage elsewhere before its machine goes, and who is
/// queued is placed by events as in Requeue.
///
/// A job that is no pipeline has a warm shadow. This extension is ours, for Bamboo has nothing for
/// it: a second machine, in another lab if there is one, keeps GPUs for it and gets its state
/// again and again, as fast as the lines carry what differs and as saving stops the guest for no
/// more than `overhead`. When its machine goes, the shadow computes after the local rendezvous,
/// from the newest state that it has whole; at a notice after one last of these, for which the
/// guest stands still. Jobs that wait go before shadows, whose GPUs they take. Only when both are
/// gone, or before the first state is there, what was saved to the file server counts.
class Redundancy final : public Policy {
 public:
  struct Options {
    bool has_pipelines = true;  ///< else jobs of several GPUs have a shadow, too
    bool is_spread = true;      ///< stages over labs; else in one lab if possible
    double interval_s = 1800;   ///< between saves to the file server
    double overhead = 0.05;
    std::string name = "bamboo";
  };

  explicit Redundancy(Options options) : options_(std::move(options)) {}

  std::string name() const override { return options_.name; }

  void begin(World& world) override;
  void on_submit(JobNumber job) override;
  void on_lent(NodeNumber node) override;
  void on_declared(NodeNumber node, ReclaimKind kind, Moment deadline) override;
  void on_taken(NodeNumber node, ReclaimKind kind) override;
  void on_gone(NodeNumber node) override;
  void on_finished(RunNumber run) override;

 private:
  /// Another machine that loads a stage.
  struct Successor {
    NodeNumber node = 0;
    NodeNumber from = 0;
    std::optional<Flows::Id> flow = {};
  };

  /// Of a pipeline one stage, of another job all of it.
  struct Seat {
    NodeNumber node = 0;
    bool is_there = true;
    std::optional<RunEnd> leaves_as = {};  ///< its machine's owner is coming,
    Moment leaves_at{0};                   ///< and is there then
    std::optional<Successor> next = {};
  };

  struct Shadow {
    NodeNumber node = 0;
    std::uint64_t number = 0;  ///< of this replication: voids what was meant for an earlier one
    Moment began{0};
    std::optional<double> holds_s = {};
    std::optional<Flows::Id> flow = {};
  };

  /// A job that has its places.
  struct Work {
    std::vector<Seat> seats;
    std::uint32_t gpus_each = 0;
    RunNumber run = 0;       ///< 0: it is loaded, or stands still to form anew
    std::uint64_t turn = 0;  ///< voids what was meant for an earlier run
    double state_s = 0;      ///< from which the next run goes
    bool has_begun = false;  ///< its state is in these machines' memory
    std::set<Flows::Id> loads = {};
    std::uint64_t save = 0;  ///< to the file server: voids an earlier one
    std::set<Flows::Id> uploads = {};
    bool is_saving = false;
    Moment saved_at{0};
    std::optional<RunEnd> leaves_as = {};  ///< when its last save is at the file server
    std::optional<Shadow> shadow = {};
  };

  // ---- redundancy.cc: the queue, places, the file server
  bool is_pipeline(const Work& work) const { return work.seats.size() > 1; }

  double pause_s(JobNumber job) const;
  void want_pass();
  void pass();
  std::vector<NodeNumber> choose_seats(JobNumber job, bool shadows_go) const;
  /// Where the job's others are, or will be: those then have `gpus_later` each to take there.
  std::optional<NodeNumber> choose_one(
      JobNumber job,
      std::uint32_t gpus,
      const std::vector<NodeNumber>& others,
      std::uint32_t gpus_later,
      bool shadows_go
  ) const;
  std::uint32_t room(NodeNumber node, bool shadows_go) const;
  void occupy(NodeNumber node, std::uint32_t gpus);
  void begin_work(JobNumber job, const std::vector<NodeNumber>& nodes);
  void load(JobNumber job);
  void run(JobNumber job);
  void give_up(JobNumber job, std::optional<NodeNumber> silent);
  void release(JobNumber job);
  void leave(JobNumber job, NodeNumber node, RunEnd end, bool is_silent);
  void end_saving(Work& work);
  void stop_flow(std::optional<Flows::Id>& flow);
  void stop_flows(std::set<Flows::Id>& flows);
  void look_at_save(JobNumber job, std::uint64_t turn);
  void save(JobNumber job);
  void upload(JobNumber job, std::uint64_t save, double progress_s);
  void uploaded(JobNumber job, std::uint64_t save, Flows::Id flow, double progress_s);
  Work* find(JobNumber job);

  // ---- redundancy_pipeline.cc
  bool is_lost(const Work& work) const;
  void lose_stages(JobNumber job, NodeNumber node, bool is_silent);
  void form_anew(JobNumber job, double after_s);
  void seek_successors(JobNumber job);
  void load_stage(JobNumber job, std::size_t stage);
  void join(JobNumber job, std::size_t stage);
  double speed_lost(const Work& work) const;

  // ---- redundancy_shadow.cc
  void seek_shadow(JobNumber job);
  void drop_shadow(JobNumber job);
  void replicate(JobNumber job);
  void send(JobNumber job, std::uint64_t number, double progress_s);
  void replicated(JobNumber job, std::uint64_t number, double progress_s);
  void promote(JobNumber job, double after_s);
  void hand_over(JobNumber job);
  bool is_better_ended(JobNumber job, Flows::Id flow) const;

  struct Place {
    bool is_open = false;
    std::uint32_t free_gpus = 0;
    std::uint32_t shadow_gpus = 0;  ///< kept for shadows
  };

  Options options_;
  World* world_ = nullptr;
  std::vector<Place> places_;
  std::set<JobNumber> queue_;  ///< by rank: the order of submission
  std::map<JobNumber, Work> works_;
  std::map<JobNumber, double> saved_s_;
  std::map<NodeNumber, std::set<JobNumber>> missed_;  ///< ran where it is silent now
  std::map<RunNumber, JobNumber> by_run_;
  std::uint64_t next_turn_ = 1;
  bool is_pass_wanted_ = false;
};

}  // namespace rn::evaluate
