// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sim/agent_host.h"
#include "sim/agent_work.h"
#include "sim/checkers.h"
#include "sim/checkers_gangs.h"
#include "sim/coordinator_host.h"
#include "sim/evacuation_watch.h"
#include "sim/gang_floor.h"
#include "sim/machine.h"
#include "sim/owner_watch.h"
#include "sim/replay_check.h"
#include "sim/warden_host.h"
#include "sim/world.h"

namespace rn::sim {

struct ClusterOptions {
  std::uint32_t compute_nodes = 3;
  std::uint32_t storage_nodes = 1;
  std::uint32_t labs = 2;
  std::uint32_t heartbeat_ms = 5000;
  std::uint64_t line_bps = 0;  ///< of the one line out of the first `building` compute nodes
  std::uint32_t building = 0;
  bool is_coordinator_inside = false;  ///< of the building
  std::uint32_t output_mb = 0;         ///< that guests bring home; 0: in no time
  std::uint32_t image_mb = 0;          ///< that nodes fetch from the coordinator; 0: in no time
  std::uint32_t weight = 0;            ///< of a byte that copies move (Lines); 0: they take no time
  std::uint32_t guests = 16;           ///< that a node takes at once
  std::uint32_t data_nodes = 0;  ///< the first so many compute nodes have the data set kDataSet
  std::uint32_t gpus = 0;        ///< of a compute node, each with the cores that one without has
};

/// One node with everything on it.
struct Node {
  std::string name;
  std::unique_ptr<Machine> machine;
  std::unique_ptr<WardenHost> warden;
  std::unique_ptr<AgentHost> agent;
  bool is_owner_using = false;
  std::set<std::uint32_t> gpus_in_use;  ///< by the owner, taken one by one
  bool is_gone = false;
  bool has_left = false;  ///< its owner takes it out of the site for good; it may still be at it
};

struct SubmittedJob {
  std::string key;
  Training training;
  JobId id;  ///< empty until acknowledged
  std::uint32_t tries = 0;
  /// By the names that stories give to jobs and arrays; it is submitted when they are acknowledged.
  std::vector<std::pair<std::string, AfterWhen>> after = {};
  JobState ends_as = JobState::kSucceeded;  ///< by its training and by what it waits for
  bool is_task = false;
  bool may_be_stopped = false;  ///< its user may have stopped it before its end
  /// Not taken, because what it waits for could happen no more.
  bool is_refused = false;
};

/// Trainings of one submit: jobs NAME.0, NAME.1, …
struct SubmittedArray {
  Training training;
  std::uint32_t tasks = 1;
  std::uint32_t at_most = 0;
  std::vector<std::pair<std::string, AfterWhen>> after = {};
  std::string id = {};  ///< empty until acknowledged
  bool is_stopped = false;
  bool is_refused = false;  ///< as a job's
};

/// Trainings of one submit that compute together: jobs NAME.0, NAME.1, … by rank.
struct SubmittedGang {
  Training training;  ///< of all; who saves is what it does, whatever is said of it
  std::uint32_t size = 2;
  GangSaves saves = GangSaves::kAll;
  GangEnds ends = GangEnds::kAll;
  GangSpread spread = GangSpread::kNode;
  GangId id = {};  ///< empty until acknowledged
  bool is_stopped = false;
};

/// A whole site in one thread: coordinator, nodes, owners and users, with the checkers looking on.
class Cluster {
 public:
  /// On each machine before us.
  static constexpr auto kOwnersFile = "/home/owner/thesis.tex";
  static constexpr auto kOwnersWords = "years of work";

  Cluster(World& world, const ClusterOptions& options);
  ~Cluster();

  void start();
  /// Submits with an idempotency key and repeats until acknowledged.
  void submit(
      const std::string& key,
      const Training& training,
      std::vector<std::pair<std::string, AfterWhen>> after = {}
  );
  void submit_array(const std::string& key, SubmittedArray array);
  /// Its user stops all of the array, as soon as it is acknowledged; repeated until that is heard.
  /// Nobody may wait for it.
  void stop_array(const std::string& key);
  void submit_gang(const std::string& key, SubmittedGang gang);
  /// As stop_array().
  void stop_gang(const std::string& key);
  /// In the store; nullptr until it is acknowledged.
  const coordinator::GangRow* gang(const std::string& key) const;
  /// In the store: it waits for others.
  bool is_held(const std::string& key) const;

  // What owners and fate do to a node, by its number.
  // One GPU of it, if that is named.
  void owner_takes(
      std::size_t node,
      ReclaimKind kind,
      std::uint32_t notice_s,
      std::optional<std::uint32_t> gpu = {}
  );
  void owner_releases(std::size_t node, std::optional<std::uint32_t> gpu = {});
  /// A process of the owner's is on the GPU from now on, or no more.
  void owner_computes(std::size_t node, std::uint32_t gpu, bool is_computing);
  /// The owner is elsewhere, and gives the order by the coordinator (ADR 0017).
  void owner_orders(std::size_t node, ReclaimKind kind);
  /// The owner is elsewhere, and says by the coordinator that it lends at all, or does not (ADR
  /// 0024).
  void owner_edits(std::size_t node, bool lends);
  /// The owner at it accepts, or rejects, what waits there; nothing if nothing does.
  void owner_settles(std::size_t node, bool is_accepted);
  /// The state of the newest such edit, in its word; empty: there is none.
  std::string edit_of(std::size_t node) const;
  /// An administrator: no more jobs of each user run at once.
  void set_quota(std::uint32_t running);
  /// The state of the newest such order, in its word; empty: there is none.
  std::string order_of(std::size_t node) const;
  /// The contract's window, or the GPU's own, ends at the first full minute after `in`, and the
  /// next one begins `length` (at least a minute, at most half a day) later.
  void close_window(
      std::size_t node,
      nanoseconds in,
      nanoseconds length,
      std::optional<std::uint32_t> gpu = std::nullopt
  );
  void open_windows(std::size_t node);  ///< the contract lends at all times again
  void lose_power(std::size_t node, nanoseconds back_after);
  /// Never comes back, not even when faults stop.
  void lose_for_good(std::size_t node);
  /// Its owner takes it out of the site for good. Repeated until the agent hears it.
  void leave(std::size_t node);
  /// The wall clock of the node jumps; of the coordinator's host, if there is no such node.
  void jump_clock(std::size_t node, nanoseconds by);
  void kill_agent(std::size_t node, nanoseconds back_after);
  void kill_warden(std::size_t node, nanoseconds back_after);
  /// The same, and somebody removes its journal meanwhile.
  void forget_warden(std::size_t node, nanoseconds back_after);
  void kill_coordinator(nanoseconds back_after);
  void back_up_coordinator();
  void rewrite_history(std::size_t node, std::uint32_t departures, nanoseconds lent);
  void restore_coordinator(nanoseconds back_after);
  void fill_disk(std::size_t node, nanoseconds for_so_long);
  /// The owner's machine has a program that knows the agent's socket and asks the warden for a
  /// guest of its own making.
  void ask_as_a_rogue(std::size_t node);
  /// The owner's disk with the data set; only a node that once had it gets it back.
  void set_data(std::size_t node, bool is_there);
  void set_liar(std::size_t node, bool is_liar);
  /// It sends other chunks than it names to those who keep its jobs' copies.
  void set_garbler(std::size_t node, bool is_garbler);
  /// The line out of the building carries so much from now on; nobody is told.
  void set_line(std::uint64_t bps);
  /// From now on it signs for every copy that it is given, and throws it away.
  void set_hollow(std::size_t node);
  /// A bit of what the node keeps of a job that goes on rots, of what is whole on another honest
  /// node. False if there is no such thing now.
  bool rot(std::size_t node, Rng& rng);
  void cut_link(std::size_t node);  ///< both directions, from and to everybody
  void heal_link(std::size_t node);

  /// Executes events until true time `until`, or a violation. Answers whether all is well.
  bool run_until(TrueTime until);
  /// Faults stop, everything is healed and restarted; every job must end within `limit` of true
  /// time, and none may wait for long while a machine that lends has nothing to do (I13).
  bool run_to_the_end(nanoseconds limit);
  /// What the unfinished jobs need at most when nothing fails: each from its first step on, on half
  /// a core, one after the other on the machines that are there, and an hour.
  nanoseconds time_needed() const;

  bool are_all_finished() const;
  std::size_t find_node(std::string_view name) const;  ///< nodes().size() if there is none
  JobState state_of(const std::string& key) const;
  std::string node_of(const std::string& key) const;
  /// The node that the job's evacuation goes to, as the coordinator says; empty: none.
  std::string destination_of(const std::string& key) const;
  const Job* job(const std::string& key) const;

  World& world() { return world_; }

  CoordinatorHost& coordinator() { return *coordinator_; }

  std::vector<Node>& nodes() { return nodes_; }

  Checkers& checkers() { return checkers_; }

  OwnerWatch& owners() { return owners_; }

  EvacuationWatch& evacuations() { return evacuations_; }

  std::uint64_t checks() const {
    return checkers_.checks() + owners_.checks() + replay_.checks() + evacuations_.checks() +
           gang_checks_.checks();
  }

  Site& site() { return site_; }

  const std::map<std::string, SubmittedJob>& jobs() const { return jobs_; }

 private:
  void make_node(
      const std::string& name,
      const LabId& lab,
      bool lends,
      std::uint32_t cpu_milli,
      std::uint32_t gpus
  );
  void watch(Node& node);
  void free_disk(Node& node);
  void try_submit(const std::string& key);
  void try_submit_array(const std::string& key);
  void try_submit_gang(const std::string& key);
  void on_gang_submitted(const std::string& key, const api::GangAnswer& answer);
  /// How long its agent, its warden and the coordinator have all been up and not stopped.
  nanoseconds all_alive_for(const Node& node);
  /// A gang waits, and could get what becomes free.
  bool does_a_gang_wait() const;
  void check_idle_gangs(std::map<std::string, TrueTime>& idle_since);
  void check_gathering();
  void on_array_submitted(const std::string& key, const api::ArrayAnswer& answer);
  void refuse_array(const std::string& key);
  /// How a job must end that runs `training` as this task and waits for those.
  JobState end_of(
      const Training& training,
      std::optional<std::uint32_t> task,
      const std::vector<std::pair<std::string, AfterWhen>>& after
  ) const;
  bool will_happen(const std::string& name, AfterWhen when) const;
  bool is_refused(const std::string& name) const;  ///< a job, or an array
  /// For the success of what was refused itself.
  bool waits_for_nothing_that_comes(const std::vector<std::pair<std::string, AfterWhen>>& after
  ) const;
  /// With the ids of what is waited for; nothing while one of them is not acknowledged.
  std::optional<JobSpec> spec_of(
      const Training& training, const std::vector<std::pair<std::string, AfterWhen>>& after
  ) const;
  void check_evacuation(const Node& node, const warden::Clear& clear, nanoseconds left);
  void each_minute();
  void check_results();
  void check_residue();
  /// Every generation that the job may resume from, and that is here, is whole on another honest
  /// node, too.
  bool is_kept_beside(const Node& node, const JobId& job);
  bool is_there_to_lend(const Node& node) const;
  bool is_taken(const Node& node) const;
  bool could_run(const Node& node, const Training& training) const;
  void trace_unfinished();
  void check_idle(std::map<std::string, TrueTime>& idle_since);

  World& world_;
  ClusterOptions options_;
  Checkers checkers_;
  OwnerWatch owners_;
  ReplayCheck replay_;
  EvacuationWatch evacuations_;
  GangFloor floor_;
  Site site_;
  std::unique_ptr<CoordinatorHost> coordinator_;
  GangChecks gang_checks_;
  std::vector<Node> nodes_;
  std::map<std::string, SubmittedJob> jobs_;
  std::map<std::string, SubmittedArray> arrays_;
  std::map<std::string, SubmittedGang> gangs_;
  std::map<std::string, TrueTime> gangs_wait_since_;  ///< on a site where nothing fails
  Digest image_blob_{};
  std::uint64_t messages_before_ = 0;
  std::uint32_t orders_ = 0;
};

}  // namespace rn::sim
