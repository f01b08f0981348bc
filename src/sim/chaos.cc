// SPDX-License-Identifier: Apache-2.0
#include "sim/chaos.h"

#include <algorithm>
#include <memory>

#include "sim/cluster.h"

namespace rn::sim {

namespace {

/// Each seed has its own mixture; a fault that is always on hides the bugs that need its absence.
FaultPlan draw_plan(Rng& rng) {
  const auto coin = [&](double value) { return rng.below(2) == 0 ? value : 0.0; };
  FaultPlan plan;
  plan.crash_per_point = coin(0.0005 * rng.unit());
  plan.partitions_per_hour = coin(20 * rng.unit());
  plan.host_losses_per_hour = coin(6 * rng.unit());
  plan.pauses_per_hour = coin(20 * rng.unit());
  plan.clock_jumps_per_hour = coin(6 * rng.unit());
  plan.reclaims_per_hour = coin(40 * rng.unit());
  plan.connection_loss = coin(0.01 * rng.unit());
  plan.duplicate = coin(0.05 * rng.unit());
  return plan;
}

/// Injects what the plan asks for, at random instants.
class Nemesis {
 public:
  Nemesis(World& world, Cluster& cluster)
      : world_(world), cluster_(cluster), rng_(world.rng().next()) {}

  void start() {
    const FaultPlan& plan = world_.faults();
    repeat(plan.partitions_per_hour, "partition", [this] { partition(); });
    repeat(plan.host_losses_per_hour, "power loss", [this] {
      cluster_.lose_power(any_node(), some_seconds(5, 200));
    });
    repeat(plan.pauses_per_hour, "pause", [this] { pause(); });
    repeat(plan.clock_jumps_per_hour, "clock jump", [this] { jump(); });
    repeat(plan.reclaims_per_hour, "reclaim", [this] { reclaim(); });
  }

  void stop() { is_on_ = false; }

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
    Process* process = rng_.below(4) == 0 ? &cluster_.coordinator().process()
                                          : &cluster_.nodes()[any_node()].agent->process();
    if (!process->is_up()) return;
    world_.trace("nemesis", "stops " + process->name());
    process->pause();
    world_.queue().after(some_seconds(1, 120), [process] { process->resume(); });
  }

  void jump() {
    static constexpr std::int64_t kSeconds[] = {1, 3600, 315'360'000};
    const std::int64_t by = kSeconds[rng_.below(3)] * (rng_.below(2) == 0 ? 1 : -1);
    const std::uint64_t who = rng_.below(cluster_.nodes().size() + 1);
    world_.trace("nemesis", "clock jump of " + std::to_string(by) + " s");
    HostClock& clock =
        who == 0 ? cluster_.coordinator().clock() : cluster_.nodes()[who - 1].machine->clock();
    clock.jump_wall(seconds(by));
    world_.queue().after(some_seconds(30, 600), [&clock, by] { clock.jump_wall(seconds(-by)); });
  }

  void reclaim() {
    const std::size_t node = any_node();
    if (cluster_.nodes()[node].is_owner_using) return;
    static constexpr ReclaimKind kKinds[] = {
        ReclaimKind::kNotice, ReclaimKind::kAnnounced, ReclaimKind::kEmergency};
    cluster_.owner_takes(node, kKinds[rng_.below(3)], static_cast<std::uint32_t>(rng_.below(120)));
    world_.queue().after(some_seconds(60, 900), [this, node] { cluster_.owner_releases(node); });
  }

  World& world_;
  Cluster& cluster_;
  SeededRng rng_;
  bool is_on_ = true;
  std::map<std::string, std::uint64_t> injected_;
};

Training draw_training(Rng& rng) {
  Training training;
  training.steps = static_cast<std::uint32_t>(300 + rng.below(3000));
  training.save_every = static_cast<std::uint32_t>(10 + rng.below(60));
  training.step_ms = static_cast<std::uint32_t>(500 + rng.below(1500));
  training.saves_in_place = rng.below(2) == 0;
  training.handles_term = rng.below(2) == 0;
  return training;
}

}  // namespace

ChaosReport run_chaos(const ChaosOptions& options) {
  World world(options.seed);
  world.echo_history(options.echo);
  ClusterOptions size;
  size.compute_nodes = static_cast<std::uint32_t>(2 + world.rng().below(4));
  size.storage_nodes = static_cast<std::uint32_t>(1 + world.rng().below(2));
  Cluster cluster(world, size);
  world.faults() = draw_plan(world.rng());
  NetworkFaults faults;
  faults.loss = world.faults().connection_loss;
  faults.duplicate = world.faults().duplicate;
  world.network().set_faults(faults);
  Nemesis nemesis(world, cluster);
  cluster.start();
  nemesis.start();
  for (std::uint32_t i = 0; i < options.jobs; ++i) {
    const auto when = nanoseconds(static_cast<std::int64_t>(
        world.rng().unit() * static_cast<double>(options.length.count()) / 2
    ));
    world.queue().at(when, [&cluster, i, training = draw_training(world.rng())] {
      cluster.submit("key-" + std::to_string(i), training);
    });
  }
  const bool good = cluster.run_until(options.length);
  nemesis.stop();
  if (good) cluster.run_to_the_end(options.liveness);

  ChaosReport report;
  report.seed = options.seed;
  report.fingerprint = world.fingerprint();
  report.events = world.queue().executed();
  report.checks = cluster.checkers().checks();
  report.simulated = world.now();
  report.violations = world.violations();
  report.coverage = world.coverage();
  report.faults = nemesis.injected();
  if (!report.violations.empty()) report.history = world.history();
  return report;
}

}  // namespace rn::sim
