// SPDX-License-Identifier: Apache-2.0
#include "sim/striker.h"

#include <algorithm>

namespace rn::sim {

namespace {
constexpr std::uint64_t kStrikesPerHourMax = 80;
constexpr std::uint64_t kPassedBefore = 4;  // of a cell's point, less than so often
constexpr std::string_view kWarden = ".warden";
constexpr auto kSoon = nanoseconds(0);  // when the event in which the point is passed is over
}  // namespace

Striker::Striker(World& world, Cluster& cluster, Forger& forger)
    : world_(world), cluster_(cluster), forger_(forger), rng_(world.seed() ^ 0x737472696b65ULL) {
  world_.on_strike = [this](PointFault fault, const std::string& process) {
    return strike(fault, process);
  };
}

void Striker::draw_plan() {
  FaultPlan& plan = world_.faults();
  if (rng_.below(4) == 0) return;
  plan.strikes_per_hour = double(kStrikesPerHourMax) * rng_.unit();
  for (std::size_t i = 0; i < kPointFaults; ++i) {
    if (rng_.below(2) == 0) plan.strikes.insert(PointFault(i));
  }
}

void Striker::start() {
  const FaultPlan& plan = world_.faults();
  for (const std::string& point : crash_points()) {
    for (const PointFault fault : plan.strikes) {
      if (fault == PointFault::kLie && plan.has_hollow_holder) continue;
      if (applies(fault, point)) cells_.emplace_back(fault, point);
    }
  }
  is_on_ = plan.strikes_per_hour > 0 && !cells_.empty();
  if (is_on_) arm_next();
}

void Striker::stop() {
  is_on_ = false;
  world_.disarm();
}

void Striker::arm_next() {
  const double mean_ns = 3600e9 / world_.faults().strikes_per_hour;
  world_.queue().after(nanoseconds(std::int64_t(mean_ns * 2 * rng_.unit())), [this] {
    if (!is_on_) return;
    const auto& [fault, point] = cells_[rng_.below(cells_.size())];
    world_.arm(fault, point, rng_.below(kPassedBefore));
    arm_next();
  });
}

nanoseconds Striker::some_seconds(std::uint64_t low, std::uint64_t high) {
  return milliseconds(static_cast<std::int64_t>(1000 * low + rng_.below(1000 * (high - low))));
}

bool Striker::strike(PointFault fault, const std::string& process) {
  std::string_view host = process;
  if (host.ends_with(kWarden)) host.remove_suffix(kWarden.size());
  const std::size_t node = cluster_.find_node(host);  // none: the coordinator's host
  switch (fault) {
    case PointFault::kCut:
      cut(std::string(host), true, true);
      return true;
    case PointFault::kCutOut:
      cut(std::string(host), true, false);
      return true;
    case PointFault::kCutIn:
      cut(std::string(host), false, true);
      return true;
    case PointFault::kBreak:
      world_.network().break_host(std::string(host));
      return true;
    case PointFault::kTwice:
      world_.network().repeat_next(std::string(host));
      return true;
    case PointFault::kLate:
      world_.network().hold_back_next(std::string(host));
      return true;
    case PointFault::kClock: {
      static constexpr std::int64_t kSeconds[] = {1, 3600, 315'360'000};
      const auto by = seconds(kSeconds[rng_.below(3)] * (rng_.below(2) == 0 ? 1 : -1));
      cluster_.jump_clock(node, by);
      world_.queue().after(some_seconds(30, 600), [this, node, by] {
        cluster_.jump_clock(node, -by);
      });
      return true;
    }
    case PointFault::kKill:
    case PointFault::kPower:
    case PointFault::kStop:
    case PointFault::kDiskFull:
    case PointFault::kFailedSync:
    case PointFault::kNow:
    case PointFault::kNotice:
    case PointFault::kOther:
    case PointFault::kCoordinator:
    case PointFault::kEngine:
    case PointFault::kLie:
      return strike_process(fault, process, node);
  }
  return false;
}

bool Striker::strike_process(PointFault fault, const std::string& process, std::size_t node) {
  const bool is_coordinator = node == cluster_.nodes().size();
  if (fault == PointFault::kStop) {
    Process* stopped = is_coordinator               ? &cluster_.coordinator().process()
                       : process.ends_with(kWarden) ? &cluster_.nodes()[node].warden->process()
                                                    : &cluster_.nodes()[node].agent->process();
    stopped->pause();
    world_.queue().after(some_seconds(1, 120), [stopped] { stopped->resume(); });
    return true;
  }
  if (fault == PointFault::kDiskFull && is_coordinator) {
    cluster_.coordinator().fill_disk(true);
    world_.queue().after(some_seconds(5, 300), [this] { cluster_.coordinator().fill_disk(false); });
    return true;
  }
  if (fault == PointFault::kOther) {
    const bool is_agent = is_coordinator || process.ends_with(kWarden);
    const std::size_t there = is_coordinator ? rng_.below(cluster_.nodes().size()) : node;
    Node& other = cluster_.nodes()[there];
    if (!(is_agent ? other.agent->process() : other.warden->process()).is_up()) return false;
    world_.queue().after(kSoon, [this, there, is_agent, back = some_seconds(0, 10)] {
      if (is_agent) return cluster_.kill_agent(there, back);
      cluster_.kill_warden(there, back);
    });
    return true;
  }
  return !is_coordinator && strike_node(fault, node);
}

bool Striker::strike_node(PointFault fault, std::size_t node) {
  Node& mine = cluster_.nodes()[node];
  switch (fault) {
    case PointFault::kPower:
      world_.queue().after(kSoon, [this, node, back = some_seconds(5, 200)] {
        cluster_.lose_power(node, back);
      });
      return true;
    case PointFault::kDiskFull:
      cluster_.fill_disk(node, some_seconds(5, 300));
      return true;
    case PointFault::kFailedSync: {
      const bool is_folder = rng_.below(4) == 0;
      const auto kind = is_folder ? CrashFs::Operation::kSyncFolder : CrashFs::Operation::kSync;
      mine.machine->disk().fail_once(kind, 0, ErrorCode::kInternal);
      return true;
    }
    case PointFault::kNow:
    case PointFault::kNotice:
      return take(node, fault == PointFault::kNow);
    case PointFault::kCoordinator:
      if (!cluster_.coordinator().process().is_up()) return false;
      world_.queue().after(kSoon, [this, back = some_seconds(0, 20)] {
        cluster_.kill_coordinator(back);
      });
      return true;
    case PointFault::kEngine:
      mine.warden->slow_engine(some_seconds(5, 90));
      return true;
    case PointFault::kLie:
      return lie(node);
    case PointFault::kKill:
    case PointFault::kStop:
    case PointFault::kCut:
    case PointFault::kCutOut:
    case PointFault::kCutIn:
    case PointFault::kBreak:
    case PointFault::kTwice:
    case PointFault::kLate:
    case PointFault::kClock:
    case PointFault::kOther:
      break;
  }
  return false;
}

void Striker::cut(const std::string& host, bool is_outward, bool is_inward) {
  if (is_outward) world_.network().cut(host, "*");
  if (is_inward) world_.network().cut("*", host);
  world_.queue().after(some_seconds(1, 120), [this, host, is_outward, is_inward] {
    if (is_outward) world_.network().heal(host, "*");
    if (is_inward) world_.network().heal("*", host);
  });
}

bool Striker::take(std::size_t node, bool is_now) {
  if (cluster_.nodes()[node].is_owner_using) return false;
  const ReclaimKind kind = is_now               ? ReclaimKind::kEmergency
                           : rng_.below(2) == 0 ? ReclaimKind::kNotice
                                                : ReclaimKind::kAnnounced;
  const auto notice_s = static_cast<std::uint32_t>(rng_.below(120));
  world_.queue().after(kSoon, [this, node, kind, notice_s] {
    if (cluster_.nodes()[node].is_owner_using) return;
    cluster_.owner_takes(node, kind, notice_s);
  });
  world_.queue().after(some_seconds(60, 900), [this, node] { cluster_.owner_releases(node); });
  return true;
}

/// Of whatever kind is possible now.
bool Striker::lie(std::size_t node) {
  const NodeId& id = cluster_.nodes()[node].agent->identity().node;
  world_.queue().after(kSoon, [this, node] {
    const auto& kinds = Forger::kinds();
    const std::size_t first = rng_.below(kinds.size());
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      if (forger_.forge(node, kinds[(first + i) % kinds.size()])) return;
    }
  });
  if (cluster_.site().is_liar(id)) return true;
  cluster_.set_liar(node, true);
  world_.queue().after(seconds(60), [this, node] { cluster_.set_liar(node, false); });
  return true;
}

}  // namespace rn::sim
