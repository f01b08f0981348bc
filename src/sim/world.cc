// SPDX-License-Identifier: Apache-2.0
#include "sim/world.h"

#include <cstdio>

#include "sim/crash_points.h"

namespace rn::sim {

namespace {

constexpr std::size_t kHistoryLines = 4000;
constexpr std::int64_t kWallStartMs = 1'790'000'000'000;

std::uint64_t mix(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ULL;
  return (hash ^ 0xff) * 0x100000001b3ULL;
}

// Those of the warden's effects and the agent's works are in crash_points.h.
constexpr std::string_view kPoints[] = {
    // Around durability.
    "coordinator.before_commit",
    "coordinator.after_commit",
    "coordinator.before_log_sync",
    "agent.before_journal",
    "agent.after_journal",
    "warden.before_journal",
    "warden.after_journal",
    // Before each kind of effect.
    "coordinator.send.welcome",
    "coordinator.send.refused",
    "coordinator.send.heartbeat_ack",
    "coordinator.send.probe",
    "coordinator.send.cancel_hold",
    "coordinator.send.commit",
    "coordinator.send.stop_attempt",
    "coordinator.send.generation_committed",
    "coordinator.send.grants",
    "coordinator.send.log_ack",
    "coordinator.send.attempt_ack",
    "coordinator.send.reclaim_ack",
    "coordinator.send.collect_garbage",
    "coordinator.send.transfer_rates",
    "coordinator.send.gang_go",
    "coordinator.close",
    "coordinator.reply",
    "coordinator.append_log",
    "coordinator.check_outputs",
    "agent.send.hello",
    "agent.send.heartbeat",
    "agent.send.node_update",
    "agent.send.probe_reply",
    "agent.send.commit_reply",
    "agent.send.attempt_event",
    "agent.send.commit_generation",
    "agent.send.grant_request",
    "agent.send.log_append",
    "agent.send.publish_outputs",
    "agent.send.reclaim_report",
    "agent.send.leave",
    "agent.send.holdings",
    "agent.send.transfers",
    "agent.close",
    "agent.ask_warden",
    "agent.watch",
    "agent.left",
    // In each kind of work, and after it.
    "agent.cancel",
    "agent.release",
    "agent.set_rate",
    "agent.work_half_done",
    "agent.work_done",
    "agent.peer_before_frame",
    "agent.peer_after_frame",
    // In each kind of call of its disk.
    "agent.disk.create",
    "agent.disk.append",
    "agent.disk.sync",
    "agent.disk.rename",
    "agent.disk.remove",
    "agent.disk.make_folder",
    "agent.disk.sync_folder"};

}  // namespace

const std::set<std::string, std::less<>>& crash_points() {
  static const auto kSet = [] {
    std::set<std::string, std::less<>> points(std::begin(kPoints), std::end(kPoints));
    points.insert(kWardenEffectPoints.begin(), kWardenEffectPoints.end());
    points.insert(kWorkPoints.begin(), kWorkPoints.end());
    return points;
  }();
  return kSet;
}

World::World(std::uint64_t seed)
    : seed_(seed), rng_(seed), network_rng_(seed ^ 0x6e657477ULL), network_(queue_, network_rng_) {}

void World::trace(std::string_view host, std::string_view what) {
  const std::string time = std::to_string(queue_.now().count() / 1000);
  fingerprint_ = mix(mix(mix(fingerprint_, time), host), what);
  if (echo_)
    std::printf(
        "%14s us  %-14.*s %.*s\n",
        time.c_str(),
        int(host.size()),
        host.data(),
        int(what.size()),
        what.data()
    );
  if (history_.size() >= kHistoryLines)
    history_.erase(history_.begin(), history_.begin() + kHistoryLines / 2);
  history_.push_back(time + " us " + std::string(host) + " " + std::string(what));
}

bool World::crashes_at(std::string_view point, const std::string& process) {
  auto found = coverage_.find(point);
  if (found == coverage_.end()) {
    if (!crash_points().contains(point))
      violate("setup", "crash point " + std::string(point) + " is not listed");
    found = coverage_.emplace(std::string(point), Coverage{}).first;
  }
  Coverage& cell = found->second;
  ++cell.passed;
  bool crash = false;
  if (const auto plan = planned_.find(point); plan != planned_.end()) {
    crash = plan->second == 0;
    if (crash)
      planned_.erase(plan);
    else
      --plan->second;
  }
  const double chance =
      faults_.hot_points.contains(point) ? faults_.crash_per_hot_point : faults_.crash_per_point;
  crash = crash || (chance > 0 && rng_.unit() < chance);
  if (crash) {
    ++cell.hit[std::size_t(PointFault::kKill)];
    trace("world", "crash at " + std::string(point));
  }
  return crash || (!armed_.empty() && strikes_at(point, process, cell));
}

bool World::strikes_at(std::string_view point, const std::string& process, Coverage& cell) {
  const auto found = armed_.find(point);
  if (found == armed_.end()) return false;
  Armed& next = found->second.front();
  if (next.nth-- > 0) return false;
  const PointFault fault = next.fault;
  found->second.pop_front();
  if (found->second.empty()) armed_.erase(found);
  const bool is_death = fault == PointFault::kKill || fault == PointFault::kPower;
  if (fault != PointFault::kKill && !(on_strike && on_strike(fault, process))) return false;
  ++cell.hit[std::size_t(fault)];
  trace("world", std::string(kPointFaultNames[std::size_t(fault)]) + " at " + std::string(point));
  return is_death;
}

void World::arm(PointFault fault, const std::string& point, std::uint64_t nth) {
  armed_[point].push_back({fault, nth});
}

void World::disarm() {
  armed_.clear();
}

void World::plan_crash(const std::string& point, std::uint64_t nth) {
  planned_[point] = nth;
}

void World::violate(std::string_view invariant, const std::string& how) {
  violations_.push_back(std::string(invariant) + ": " + how);
  trace("CHECKER", violations_.back());
}

Now HostClock::now() const {
  const TrueTime wall = world_.now() + wall_error_;
  return {
      Instant(world_.now() - booted_),
      WallTime(milliseconds(kWallStartMs) + std::chrono::duration_cast<milliseconds>(wall))};
}

void Process::run(std::function<void()> action) {
  if (!is_up_) return;
  if (is_paused_) {
    waiting_.emplace_back(life_, std::move(action));
    return;
  }
  action();
}

void Process::later(nanoseconds delay, std::function<void()> action) {
  world_.queue().after(delay, [this, life = life_, action = std::move(action)]() mutable {
    if (life == life_) run(std::move(action));
  });
}

void Process::begin_life() {
  ++life_;
  is_up_ = true;
  is_paused_ = false;
  running_since_ = world_.now();
  waiting_.clear();
}

void Process::end_life() {
  ++life_;
  is_up_ = false;
  is_paused_ = false;
  waiting_.clear();
}

void Process::resume() {
  if (!is_paused_) return;
  is_paused_ = false;
  running_since_ = world_.now();
  auto waiting = std::move(waiting_);
  waiting_.clear();
  for (auto& [life, action] : waiting) {
    if (life == life_) run(std::move(action));
  }
}

}  // namespace rn::sim
