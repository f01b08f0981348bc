// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/event_queue.h"
#include "base/rng.h"
#include "base/time.h"
#include "sim/lines.h"
#include "sim/network.h"
#include "sim/point_faults.h"

namespace rn::sim {

/// Which faults a run may have, and how often. A swarm run switches a random subset on.
struct FaultPlan {
  double crash_per_point = 0;  ///< probability that a passed crash point kills its process
  std::set<std::string, std::less<>> hot_points;  ///< crash points that kill more often,
  double crash_per_hot_point = 0;                 ///< with this probability
  double strikes_per_hour = 0;                    ///< see Striker
  std::set<PointFault> strikes;                   ///< of which kinds
  double partitions_per_hour = 0;     ///< symmetric and asymmetric cuts between two hosts
  double host_losses_per_hour = 0;    ///< a node loses power and comes back after a while
  double pauses_per_hour = 0;         ///< a process is stopped (SIGSTOP) for up to two minutes
  double clock_jumps_per_hour = 0;    ///< wall clocks, by up to ten years
  double reclaims_per_hour = 0;       ///< owners, all kinds
  double disk_full_per_hour = 0;      ///< a node's disk, or the coordinator's, for a while
  double sync_failures_per_hour = 0;  ///< a node's disk loses what it was told to keep, and says so
  double windows_per_hour = 0;        ///< an owner's lending window ends soon
  double forgeries_per_hour = 0;      ///< a node says what its agent did not say
  double liars = 0;                   ///< share of the nodes that serve changed chunks
  double rots_per_hour = 0;        ///< a bit of what a node keeps, while another one has it whole
  bool has_hollow_holder = false;  ///< one node signs for what it does not keep
  double connection_loss = 0;      ///< per message
  double duplicate = 0;            ///< per message
  double reorder = 0;              ///< per message
};

/// Every place where a process may die: PROCESS.what-comes-next. A point that is passed and not
/// listed is a violation, so the list is the whole truth for coverage tables.
const std::set<std::string, std::less<>>& crash_points();

/// What every part of the simulated world shares: true time, randomness, the network, crash points,
/// and the run's fingerprint.
class World {
 public:
  explicit World(std::uint64_t seed);

  EventQueue& queue() { return queue_; }

  SeededRng& rng() { return rng_; }

  Network& network() { return network_; }

  TrueTime now() const { return queue_.now(); }

  std::uint64_t seed() const { return seed_; }

  FaultPlan& faults() { return faults_; }

  Lines& lines() { return lines_; }

  /// One line of the run's history; part of the fingerprint. Kept (the newest ones) for a failure's
  /// report.
  void trace(std::string_view host, std::string_view what);

  std::uint64_t fingerprint() const { return fingerprint_; }

  const std::vector<std::string>& history() const { return history_; }

  void echo_history(bool on) { echo_ = on; }

  /// True if the process that passes this point dies here. Every passed point and all that happens
  /// at one is counted for the coverage table.
  bool crashes_at(std::string_view point, const std::string& process);
  /// The `nth` next passing (0 = next) of the point crashes, whatever the plan says.
  void plan_crash(const std::string& point, std::uint64_t nth);
  /// The same for any fault, which `on_strike` carries out; one after the other where there are
  /// several. They are forgotten at disarm().
  void arm(PointFault fault, const std::string& point, std::uint64_t nth);
  void disarm();

  /// All of the fault but the death of the process that passes the point. False if it cannot happen
  /// now.
  std::function<bool(PointFault fault, const std::string& process)> on_strike;

  struct Coverage {
    std::uint64_t passed = 0;
    std::array<std::uint64_t, kPointFaults> hit{};  ///< by fault

    std::uint64_t crashed() const { return hit[std::size_t(PointFault::kKill)]; }
  };

  const std::map<std::string, Coverage, std::less<>>& coverage() const { return coverage_; }

  /// Reports a violated invariant; the run stops at the end of the current event.
  void violate(std::string_view invariant, const std::string& how);

  bool is_violated() const { return !violations_.empty(); }

  const std::vector<std::string>& violations() const { return violations_; }

 private:
  bool strikes_at(std::string_view point, const std::string& process, Coverage& cell);

  std::uint64_t seed_;
  EventQueue queue_;
  SeededRng rng_;
  SeededRng network_rng_;
  Network network_;
  FaultPlan faults_;
  Lines lines_;
  std::uint64_t fingerprint_ = 0xcbf29ce484222325ULL;
  std::vector<std::string> history_;
  bool echo_ = false;
  std::map<std::string, Coverage, std::less<>> coverage_;
  std::map<std::string, std::uint64_t, std::less<>> planned_;

  struct Armed {
    PointFault fault;
    std::uint64_t nth;
  };

  std::map<std::string, std::deque<Armed>, std::less<>> armed_;  ///< by point
  std::vector<std::string> violations_;
};

/// A machine's own idea of time: its boot clock starts at its boot, its wall clock may be wrong and
/// may jump.
class HostClock final : public Clock {
 public:
  HostClock(World& world, nanoseconds wall_error) : world_(world), wall_error_(wall_error) {}

  Now now() const override;

  void reboot() { booted_ = world_.now(); }

  void jump_wall(nanoseconds by) { wall_error_ += by; }

 private:
  World& world_;
  TrueTime booted_{-seconds(100)};
  nanoseconds wall_error_;
};

/// A process of the simulated world: hears nothing while it is stopped (everything waits), and
/// nothing of what was meant for an earlier life of it.
class Process {
 public:
  Process(World& world, std::string name) : world_(world), name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  bool is_up() const { return is_up_; }

  bool is_paused() const { return is_paused_; }

  /// Runs `action` in this life of the process, now or when it is continued; never in a later life.
  void run(std::function<void()> action);
  /// run() after a delay.
  void later(nanoseconds delay, std::function<void()> action);

  void begin_life();
  void end_life();

  void pause() { is_paused_ = true; }

  /// For how long it has been up and not stopped.
  nanoseconds alive_for() const {
    return is_up_ && !is_paused_ ? world_.now() - running_since_ : nanoseconds(0);
  }

  void resume();

  std::uint64_t life() const { return life_; }

 private:
  World& world_;
  std::string name_;
  bool is_up_ = false;
  bool is_paused_ = false;
  TrueTime running_since_{0};  ///< its start, or the end of its last pause
  std::uint64_t life_ = 0;
  std::vector<std::pair<std::uint64_t, std::function<void()>>> waiting_;
};

}  // namespace rn::sim
