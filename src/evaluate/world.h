// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "evaluate/agenda.h"
#include "evaluate/campus.h"
#include "evaluate/flows.h"
#include "evaluate/interruptions.h"
#include "evaluate/record.h"
#include "evaluate/workload.h"

// A site in which a policy has to make do: owners who take their machines back, people who submit,
// lines, and guests that compute and can be saved. What is in here is the same for every policy
// (ADR 0014).
namespace rn::evaluate {

class World;

/// How a site is run. It is told what such a system could see, at the moment when it could, and
/// acts on the World that it is given; of what is to come the World says nothing.
class Policy {
 public:
  virtual ~Policy() = default;

  virtual std::string name() const = 0;
  /// Once, before time passes. Nodes that are lent from the beginning on follow as on_lent().
  virtual void begin(World& world) = 0;
  virtual void on_submit(JobNumber job) = 0;
  virtual void on_lent(NodeNumber node) = 0;
  /// The owner says when they will be there. Announced and notice only.
  virtual void on_declared(NodeNumber node, ReclaimKind kind, Moment deadline) = 0;
  /// The owner is there, and whoever runs there has to be ended now. At an emergency that has
  /// happened: no run is left.
  virtual void on_taken(NodeNumber node, ReclaimKind kind) = 0;
  /// The machine has no power from now on: its runs are gone, and it sends nothing. That is for the
  /// policy's processes on it; others must not hear of it but by its silence.
  virtual void on_gone(NodeNumber node) = 0;
  /// All work of the run is done; it has ended.
  virtual void on_finished(RunNumber run) = 0;
};

struct Setting {
  Campus campus;
  std::vector<Interruption> interruptions;
  std::vector<SubmittedJob> jobs;  ///< by time
  double days = 0;
  double state_factor = 1;            ///< of the states in state_kinds()
  std::vector<StateKind> kinds = {};  ///< in place of these
  /// Links of the topology that carry something else than is declared, bytes/s, by their names.
  std::map<std::string, double> carries = {};
};

class World {
 public:
  /// kInvalid if the campus's lines are no topology, or an interruption or a job cannot be. `rows`
  /// as in Record.
  static Result<std::unique_ptr<World>> make(
      Setting setting, std::function<void(const std::string&)> rows
  );
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// All of the setting's days, once.
  void run(Policy& policy);
  Figures figures() const;

  // ---- what a policy sees

  Agenda& agenda() { return agenda_; }

  Moment now() const { return agenda_.now(); }

  Flows& flows() { return flows_; }

  const Campus& campus() const { return setting_.campus; }

  /// Where a node, or the store, hangs.
  Flows::Place place(NodeNumber node) const { return places_[node]; }

  Flows::Place store() const { return store_; }

  /// Of jobs that were submitted by now (asserted). The length is for the policy's model of the
  /// guest alone: no decision may know it.
  const SubmittedJob& job(JobNumber job) const;

  const StateKind& kind(JobNumber job) const { return kinds_[this->job(job).kind]; }

  bool is_lent(NodeNumber node) const { return nodes_[node].is_lent; }

  std::uint32_t free_gpus(NodeNumber node) const { return nodes_[node].free_gpus; }

  bool has_run(RunNumber run) const { return runs_.contains(run); }

  /// The job's, if it runs.
  std::optional<RunNumber> run_of(JobNumber job) const;

  JobNumber job_of(RunNumber run) const { return runs_.at(run).job; }

  /// The first, of several.
  NodeNumber node_of(RunNumber run) const { return runs_.at(run).nodes.front(); }

  /// Work that the run has done, with what it began from.
  double progress_s(RunNumber run) const { return record_.progress_s(now(), run); }

  /// Work that the job's newest run had done when it ended, with what it began from; 0 if none
  /// has. For those whose state outlives the machine, in the memory of others.
  double left_at_s(JobNumber job) const;

  // ---- what a policy does

  /// The job computes on this node from now on, from this state. Asserted: the node is lent and has
  /// so many GPUs left, and the job runs nowhere else.
  RunNumber start(JobNumber job, NodeNumber node, double progress_s);
  /// The same on several machines at once, with so many GPUs on each; one may be named twice. It
  /// ends whole when one of them is taken at once, and counts with all of the job's GPUs.
  RunNumber start_spread(
      JobNumber job, std::vector<NodeNumber> nodes, std::uint32_t gpus_each, double progress_s
  );
  /// Its processes are ended now. Of several machines, `at` is the one for which they are.
  void stop(RunNumber run, RunEnd end, std::optional<NodeNumber> at = std::nullopt);
  /// The guest writes its state: it stands still until that is done, and the state is the one at
  /// the beginning. Nothing comes of it if the run ends before. One that is being written already
  /// is waited for.
  void save(RunNumber run, std::function<void(double progress_s)> on_saved);
  /// All its work is done now, whatever its length says.
  void finish(RunNumber run);
  /// The run is slower by this share of its speed while it is (0 = as fast as it can).
  void slow(RunNumber run, double share);

 private:
  struct Run {
    JobNumber job = 0;
    std::vector<NodeNumber> nodes = {};
    std::uint32_t gpus_each = 0;
    double slowed = 0;
    bool is_paused = false;
    std::vector<std::function<void(double)>> waiting = {};  ///< for the save under way
    std::optional<Agenda::Handle> end = {};
  };

  struct Node {
    bool is_lent = false;
    std::uint32_t free_gpus = 0;
    std::set<RunNumber> runs;
  };

  World(Setting setting, reclaim::Topology topology, std::function<void(const std::string&)> rows);
  void arrange();
  void lend(NodeNumber node);
  void declare(const Interruption& one);
  void take(const Interruption& one);
  void look_for_overstayers(NodeNumber node, std::uint64_t take);
  void set_speed(RunNumber number);

  Setting setting_;
  std::vector<StateKind> kinds_;
  reclaim::Topology topology_;
  Agenda agenda_;
  Flows flows_;
  Record record_;
  std::vector<Flows::Place> places_;
  Flows::Place store_;
  std::vector<Node> nodes_;
  std::map<RunNumber, Run> runs_;
  std::set<JobNumber> running_;
  std::map<JobNumber, double> left_at_s_;
  std::vector<std::uint64_t> takes_;  ///< by node
  std::size_t submitted_ = 0;
  RunNumber next_run_ = 1;
  Policy* policy_ = nullptr;
};

}  // namespace rn::evaluate
