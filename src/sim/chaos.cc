// SPDX-License-Identifier: Apache-2.0
#include "sim/chaos.h"

#include <algorithm>
#include <memory>

#include "sim/chains.h"
#include "sim/cluster.h"
#include "sim/forger.h"
#include "sim/striker.h"

namespace rn::sim {

namespace {

/// Each seed has its own mixture; a fault that is always on hides the bugs that need its absence.
FaultPlan draw_plan(Rng& rng) {
  const auto coin = [&](double value) { return rng.below(2) == 0 ? value : 0.0; };
  FaultPlan plan;
  plan.crash_per_point = coin(0.0005 * rng.unit());
  // A few points that this seed looks at closely: rare ones are reached too.
  const auto& points = crash_points();
  for (int i = 0; i < 6; ++i) {
    auto point = points.begin();
    std::advance(point, static_cast<std::ptrdiff_t>(rng.below(points.size())));
    plan.hot_points.insert(*point);
  }
  plan.crash_per_hot_point = coin(0.03 * rng.unit());
  plan.partitions_per_hour = coin(20 * rng.unit());
  plan.host_losses_per_hour = coin(6 * rng.unit());
  plan.pauses_per_hour = coin(20 * rng.unit());
  plan.clock_jumps_per_hour = coin(6 * rng.unit());
  plan.reclaims_per_hour = coin(40 * rng.unit());
  plan.connection_loss = coin(0.01 * rng.unit());
  plan.duplicate = coin(0.05 * rng.unit());
  plan.reorder = coin(0.05 * rng.unit());
  plan.disk_full_per_hour = coin(4 * rng.unit());
  plan.sync_failures_per_hour = coin(6 * rng.unit());
  plan.forgeries_per_hour = coin(120 * rng.unit());
  plan.liars = coin(0.3 * rng.unit());
  plan.windows_per_hour = coin(10 * rng.unit());
  plan.rots_per_hour = coin(20 * rng.unit());
  plan.has_hollow_holder = rng.below(4) == 0;
  return plan;
}

/// Injects what the plan asks for, at random instants.
class Nemesis {
 public:
  /// `gpus`: of each machine.
  Nemesis(World& world, Cluster& cluster, std::uint32_t gpus)
      : world_(world),
        cluster_(cluster),
        gpus_(gpus),
        rng_(world.rng().next()),
        forger_(cluster, rng_),
        striker_(world, cluster, forger_) {}

  void start(bool has_strikes) {
    if (has_strikes) striker_.draw_plan();
    striker_.start();
    const FaultPlan& plan = world_.faults();
    repeat(plan.partitions_per_hour, "partition", [this] { partition(); });
    repeat(plan.host_losses_per_hour, "power loss", [this] {
      cluster_.lose_power(any_node(), some_seconds(5, 200));
    });
    repeat(plan.pauses_per_hour, "pause", [this] { pause(); });
    repeat(plan.clock_jumps_per_hour, "clock jump", [this] { jump(); });
    repeat(plan.reclaims_per_hour, "reclaim", [this] { reclaim(); });
    repeat(plan.disk_full_per_hour, "disk full", [this] { fill_disk(); });
    repeat(plan.sync_failures_per_hour, "failed sync", [this] { fail_sync(); });
    repeat(plan.forgeries_per_hour, "forgery", [this] { forge(); });
    repeat(plan.windows_per_hour, "window", [this] { close_window(); });
    repeat(plan.windows_per_hour, "data set gone", [this] {
      const std::size_t node = any_node();
      cluster_.set_data(node, false);
      world_.queue().after(some_seconds(10, 600), [this, node] { cluster_.set_data(node, true); });
    });
    repeat(plan.rots_per_hour, "rot", [this] {
      if (cluster_.rot(any_node(), rng_)) ++injected_["rotted"];
    });
    if (plan.has_hollow_holder) {
      cluster_.set_hollow(any_node());
      ++injected_["hollow holder"];
    }
    if (plan.liars <= 0 || plan.has_hollow_holder) return;
    for (std::size_t node = 0; node < cluster_.nodes().size(); ++node) {
      const bool is_liar = rng_.unit() < plan.liars;
      cluster_.set_liar(node, is_liar);
      injected_["liar"] += is_liar ? 1 : 0;
    }
  }

  /// One owner takes its machine out of the site for good. `length`: of the phase with faults.
  void plan_leaving(nanoseconds length) {
    has_leaver_ = true;
    const auto when = nanoseconds(static_cast<std::int64_t>(double(length.count()) * rng_.unit()));
    world_.queue().after(when, [this] {
      const std::size_t node = any_node();
      world_.trace("nemesis", cluster_.nodes()[node].name + " leaves the site");
      ++injected_["leave"];
      cluster_.leave(node);
    });
  }

  /// Copies are lost already, and what is promised bears one loss.
  bool loses_copies() const {
    const FaultPlan& plan = world_.faults();
    return has_leaver_ || plan.rots_per_hour > 0 || plan.has_hollow_holder;
  }

  void stop() {
    is_on_ = false;
    striker_.stop();
  }

  const std::map<std::string, std::uint64_t>& injected() const { return injected_; }

 private:
  void repeat(double per_hour, const std::string& name, std::function<void()> fault) {
    if (per_hour <= 0) return;
    // Uniform in [0, 2·mean): enough for coverage, and bounded.
    const auto wait = nanoseconds(static_cast<std::int64_t>(3600e9 / per_hour * 2 * rng_.unit()));
    world_.queue().after(wait, [this, per_hour, name, fault = std::move(fault)] {
      if (!is_on_) return;
      ++injected_[name];
      fault();
      repeat(per_hour, name, fault);
    });
  }

  std::size_t any_node() { return static_cast<std::size_t>(rng_.below(cluster_.nodes().size())); }

  nanoseconds some_seconds(std::uint64_t low, std::uint64_t high) {
    return milliseconds(static_cast<std::int64_t>(1000 * low + rng_.below(1000 * (high - low))));
  }

  void partition() {
    const std::string from = cluster_.nodes()[any_node()].name;
    const std::string to = rng_.below(2) == 0 ? std::string(CoordinatorHost::kName)
                                              : cluster_.nodes()[any_node()].name;
    const std::uint64_t direction = rng_.below(3);
    world_.trace(
        "nemesis",
        "cut " + from +
            (direction == 0   ? " <-> "
             : direction == 1 ? " -> "
                              : " <- ") +
            to
    );
    if (direction != 2) world_.network().cut(from, to);
    if (direction != 1) world_.network().cut(to, from);
    world_.queue().after(some_seconds(1, 120), [this, from, to] {
      world_.network().heal(from, to);
      world_.network().heal(to, from);
    });
  }

  void pause() {
    const std::uint64_t which = rng_.below(8);
    Process* process = which < 2    ? &cluster_.coordinator().process()
                       : which == 2 ? &cluster_.nodes()[any_node()].warden->process()
                                    : &cluster_.nodes()[any_node()].agent->process();
    if (!process->is_up()) return;
    world_.trace("nemesis", "stops " + process->name());
    process->pause();
    world_.queue().after(some_seconds(1, 120), [process] { process->resume(); });
  }

  void jump() {
    static constexpr std::int64_t kSeconds[] = {1, 3600, 315'360'000};
    const std::int64_t by = kSeconds[rng_.below(3)] * (rng_.below(2) == 0 ? 1 : -1);
    const std::size_t drawn = rng_.below(cluster_.nodes().size() + 1);
    const std::size_t who = drawn == 0 ? cluster_.nodes().size() : drawn - 1;
    world_.trace("nemesis", "clock jump of " + std::to_string(by) + " s");
    cluster_.jump_clock(who, seconds(by));
    world_.queue().after(some_seconds(30, 600), [this, who, by] {
      cluster_.jump_clock(who, seconds(-by));
    });
  }

  void fill_disk() {
    const std::uint64_t who = rng_.below(cluster_.nodes().size() + 1);
    const nanoseconds length = some_seconds(5, 300);
    if (who > 0) return cluster_.fill_disk(who - 1, length);
    cluster_.coordinator().fill_disk(true);
    world_.queue().after(length, [this] { cluster_.coordinator().fill_disk(false); });
  }

  void fail_sync() {
    CrashFs& disk = cluster_.nodes()[any_node()].machine->disk();
    const auto kind =
        rng_.below(4) == 0 ? CrashFs::Operation::kSyncFolder : CrashFs::Operation::kSync;
    disk.fail_once(kind, rng_.below(10), ErrorCode::kInternal);
  }

  void forge() {
    const auto& kinds = Forger::kinds();
    const std::string& kind = kinds[rng_.below(kinds.size())];
    if (forger_.forge(any_node(), kind)) ++injected_["forged " + kind];
  }

  void reclaim() {
    const std::size_t node = any_node();
    if (cluster_.nodes()[node].is_owner_using) return;
    if (gpus_ > 0 && rng_.below(2) == 0) return reclaim_gpu(node);
    if (rng_.below(3) == 0)
      world_.queue().after(some_seconds(2, 150), [this, node] { cluster_.ask_as_a_rogue(node); });
    cluster_.owner_takes(node, kKinds[rng_.below(3)], static_cast<std::uint32_t>(rng_.below(120)));
    world_.queue().after(some_seconds(60, 900), [this, node] { cluster_.owner_releases(node); });
  }

  void reclaim_gpu(std::size_t node) {
    Node& mine = cluster_.nodes()[node];
    const auto gpu = static_cast<std::uint32_t>(rng_.below(gpus_));
    if (mine.is_owner_using || mine.gpus_in_use.contains(gpu)) return;
    const ReclaimKind kind = kKinds[rng_.below(3)];
    cluster_.owner_takes(node, kind, static_cast<std::uint32_t>(rng_.below(120)), gpu);
    ++injected_["reclaim of a GPU"];
    world_.queue().after(some_seconds(60, 900), [this, node, gpu] {
      cluster_.owner_releases(node, gpu);
    });
  }

  void close_window() {
    const std::size_t node = any_node();
    const Contract& contract = cluster_.nodes()[node].agent->contract();
    if (!contract.lends || !contract.windows.empty()) return;
    const nanoseconds in = some_seconds(10, 300);
    const nanoseconds length = some_seconds(60, 900);
    cluster_.close_window(node, in, length);
    world_.queue().after(in + length + some_seconds(120, 300), [this, node] {
      cluster_.open_windows(node);
    });
  }

  static constexpr ReclaimKind kKinds[] = {
      ReclaimKind::kNotice, ReclaimKind::kAnnounced, ReclaimKind::kEmergency};

  World& world_;
  Cluster& cluster_;
  std::uint32_t gpus_;
  SeededRng rng_;
  Forger forger_;
  Striker striker_;
  bool is_on_ = true;
  bool has_leaver_ = false;
  std::map<std::string, std::uint64_t> injected_;
};

Training draw_training(Rng& rng) {
  Training training;
  training.steps = static_cast<std::uint32_t>(300 + rng.below(3000));
  training.save_every = static_cast<std::uint32_t>(10 + rng.below(60));
  training.step_ms = static_cast<std::uint32_t>(500 + rng.below(1500));
  training.saves_in_place = rng.below(2) == 0;
  training.handles_term = rng.below(2) == 0;
  training.copies = rng.below(4) == 0 ? 2 : 1;
  training.wants_data = rng.below(4) == 0;
  return training;
}

/// A training in lockstep. One machine may be lost, and it must fit without it.
void submit_a_gang(Cluster& cluster, Rng& rng, std::uint32_t machines, nanoseconds length) {
  if (machines < 3) return;
  SubmittedGang gang;
  gang.size = kGangSizeMin + static_cast<std::uint32_t>(rng.below(std::min(2U, machines - 2)));
  gang.training.steps = static_cast<std::uint32_t>(300 + rng.below(1500));
  gang.training.save_every = static_cast<std::uint32_t>(10 + rng.below(40));
  gang.training.step_ms = static_cast<std::uint32_t>(500 + rng.below(1000));
  gang.training.saves_in_place = rng.below(2) == 0;
  gang.training.handles_term = rng.below(2) == 0;
  // A line between two machines that is cut is nobody's fault, and a crash would be the program's.
  constexpr std::int32_t kTemporary = 75;
  gang.training.gives_up_with = kTemporary;
  static constexpr GangSaves kSaves[] = {GangSaves::kAuto, GangSaves::kFirst, GangSaves::kAll};
  gang.saves = kSaves[rng.below(3)];
  const bool is_auto = gang.saves == GangSaves::kAuto;
  gang.training.all_save = gang.saves == GangSaves::kAll || (is_auto && rng.below(2) == 0);
  const auto when =
      nanoseconds(static_cast<std::int64_t>(rng.unit() * static_cast<double>(length.count()) / 2));
  cluster.world().queue().at(when, [&cluster, gang] { cluster.submit_gang("gang", gang); });
}

/// Each fifth site has jobs that wait for others, each fourth a gang; drawn apart, as GPUs are.
void submit_others(Cluster& cluster, const ChaosOptions& options, std::uint32_t machines) {
  if (options.seed % 5 == 2) {
    SeededRng chain_rng(options.seed);
    submit_chains(cluster, chain_rng, options.length);
  }
  if (options.seed % 4 == 0) {
    SeededRng gang_rng(options.seed);
    submit_a_gang(cluster, gang_rng, machines, options.length);
  }
}

}  // namespace

ChaosReport run_chaos(const ChaosOptions& options) {
  World world(options.seed);
  world.echo_history(options.echo);
  ClusterOptions size;
  size.compute_nodes = static_cast<std::uint32_t>(2 + world.rng().below(4));
  size.storage_nodes = static_cast<std::uint32_t>(1 + world.rng().below(2));
  // One may be lost for good.
  size.data_nodes = static_cast<std::uint32_t>(2 + world.rng().below(size.compute_nodes - 1));
  // Each sixth site has two GPUs a machine, for which most of its jobs ask. Drawn apart, so that
  // the other runs are what they were.
  size.gpus = options.seed % 6 == 5 ? 2 : 0;
  SeededRng gpu_rng(options.seed);
  // On each seventh those that hear a signal leave at it, which an end is not to be mistaken for.
  const bool has_leaving_guests = options.seed % 7 == 4;
  Cluster cluster(world, size);
  world.faults() = draw_plan(world.rng());
  const bool must_leave = options.crash_at.contains("agent.left");
  if (must_leave) {
    world.faults().rots_per_hour = 0;
    world.faults().has_hollow_holder = false;
  }
  NetworkFaults faults;
  faults.loss = world.faults().connection_loss;
  faults.duplicate = world.faults().duplicate;
  faults.reorder = world.faults().reorder;
  world.network().set_faults(faults);
  for (const std::string& point : options.crash_at) world.plan_crash(point, 0);
  Nemesis nemesis(world, cluster, size.gpus);
  cluster.start();
  nemesis.start(options.has_strikes);
  const bool may_leave = world.rng().below(4) == 0 && !nemesis.loses_copies();
  if (must_leave || may_leave) nemesis.plan_leaving(options.length);
  for (std::uint32_t i = 0; i < options.jobs; ++i) {
    const auto when = nanoseconds(static_cast<std::int64_t>(
        world.rng().unit() * static_cast<double>(options.length.count()) / 2
    ));
    Training training = draw_training(world.rng());
    training.gpus = size.gpus > 0 && gpu_rng.below(4) > 0 ? 1 : 0;
    training.leaves_at_term = has_leaving_guests && training.handles_term;
    world.queue().at(when, [&cluster, i, training] {
      cluster.submit("key-" + std::to_string(i), training);
    });
  }
  submit_others(cluster, options, size.compute_nodes);
  const bool good = cluster.run_until(options.length);
  nemesis.stop();
  const bool may_not_lose = nemesis.loses_copies();
  // One of the machines is never seen again: what was promised holds without it.
  if (good && world.rng().below(3) == 0 && !may_not_lose)
    cluster.lose_for_good(static_cast<std::size_t>(world.rng().below(cluster.nodes().size())));
  if (good) cluster.run_to_the_end(std::max(options.liveness, cluster.time_needed()));

  ChaosReport report;
  report.seed = options.seed;
  report.fingerprint = world.fingerprint();
  report.events = world.queue().executed();
  report.checks = cluster.checks();
  report.simulated = world.now();
  report.violations = world.violations();
  report.coverage = world.coverage();
  report.faults = nemesis.injected();
  for (const auto& [fault, count] : world.network().injected()) report.faults[fault] += count;
  if (!report.violations.empty()) report.history = world.history();
  return report;
}

}  // namespace rn::sim
