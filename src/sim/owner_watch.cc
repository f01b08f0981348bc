// SPDX-License-Identifier: Apache-2.0
#include "sim/owner_watch.h"

#include <algorithm>

namespace rn::sim {

namespace {
constexpr auto kStartsUnderWay = seconds(1);  // asked for before, created after
constexpr auto kKillTime = seconds(3);
constexpr auto kTimeToTell = seconds(60);  // twice what an agent waits for a warden's answer
constexpr auto kLastMoment = seconds(2);
constexpr auto kCalendarError = seconds(2);
constexpr auto kOrderCounts = seconds(15) + seconds(1);  // for the coordinator to hear it
}  // namespace

void OwnerWatch::on_ordered(const std::string& node) {
  on_wanted({node, {}});
  ordered_[node] = world_.now();
}

void OwnerWatch::on_carried_out(const std::string& node) {
  ++checks_;
  const auto ordered = ordered_.find(node);
  const bool counts = ordered != ordered_.end() && world_.now() <= ordered->second + kOrderCounts;
  if (!counts)
    world_.violate("I9", node + " is taken back by an order that does not count any more");
}

void OwnerWatch::on_emergency(const Place& place) {
  taken_[place] = {world_.now(), world_.now(), true, false, {}};
}

void OwnerWatch::on_accepted(const Place& place, nanoseconds left) {
  const auto [taking, is_new] = taken_.emplace(place, Taking{world_.now(), {}, false, false, {}});
  taking->second.is_release_asked = false;
  const TrueTime deadline = world_.now() + std::max(left, nanoseconds(0));
  if (is_new || deadline < taking->second.deadline) taking->second.deadline = deadline;
}

void OwnerWatch::on_window(const Place& place, TrueTime end, TrueTime until) {
  windows_[place] = {end, until, false};
  with_an_end_.insert(place);
}

void OwnerWatch::on_release(const Place& place) {
  for (auto& [taken, taking] : taken_) {
    const bool is_meant = taken.node == place.node && (!place.gpu || taken.gpu == place.gpu);
    if (!is_meant) continue;
    taking.is_release_asked = true;
    taking.released = world_.now();
  }
}

void OwnerWatch::on_clock_jump(const std::string& node) {
  std::erase_if(windows_, [&](const auto& entry) { return entry.first.node == node; });
}

void OwnerWatch::violate(
    const Machine& machine, const Machine::Container& container, const char* what
) {
  world_.violate(
      "I9",
      container.guest.job.str() + " epoch " + to_string(container.guest.epoch) + " " + what +
          " on " + machine.name() + ", which its owner has taken"
  );
}

std::vector<const OwnerWatch::Taking*> OwnerWatch::takings_of(
    const Machine& machine, const Machine::Container& container
) const {
  std::vector<const Taking*> out;
  for (auto at = taken_.lower_bound({machine.name(), {}});
       at != taken_.end() && at->first.node == machine.name();
       ++at) {
    const auto& gpu = at->first.gpu;
    if (!gpu || Machine::has_gpu(container, *gpu)) out.push_back(&at->second);
  }
  return out;
}

/// The times of one boot.
void OwnerWatch::check_cleared(const Machine& machine, const ReclaimRecord& record) {
  const bool is_in_order = record.cut_ns != 0 && record.declared_ns <= record.cut_ns &&
                           record.cut_ns <= record.cleared_ns;
  if (!record.gpus.empty() && !is_in_order)
    return world_.violate(
        "I9", "a GPU of " + machine.name() + " is called cleared, and was not cut before"
    );
  for (const auto& [guest, container] : machine.containers()) {
    const bool is_meant =
        record.gpus.empty() ||
        std::any_of(record.gpus.begin(), record.gpus.end(), [&held = container](std::uint32_t gpu) {
          return Machine::has_gpu(held, gpu);
        });
    if (is_meant && container.state != Machine::ContainerState::kExited)
      return violate(machine, container, "is there while the warden says that all is cleared,");
  }
}

/// Whether the warden holds the ends of the windows that are still to come.
void OwnerWatch::note_told(Machine& machine, const warden::Journal& journal) {
  for (auto& [place, window] : windows_) {
    if (place.node != machine.name() || world_.now() >= window.end) continue;
    std::int64_t deadline_ns = place.gpu ? 0 : journal.announced.deadline_ns;
    for (const warden_wire::AnnouncedGpu& ahead : journal.announced_gpus) {
      if (place.gpu != ahead.gpu) continue;
      deadline_ns = ahead.deadline_ns;
      for (const ReclaimRecord& record : journal.reclaims) {
        if (record.id == ahead.reclaim) deadline_ns = record.deadline_ns;
      }
    }
    const nanoseconds left(deadline_ns - to_ns(machine.clock().now().boot));
    const bool is_in_time = world_.now() + left <= window.end + kCalendarError;
    window.is_told = deadline_ns > 0 && is_in_time;
  }
}

void OwnerWatch::on_journal(Machine& machine, const warden::Journal& journal) {
  ++checks_;
  note_told(machine, journal);
  const bool has_heard_all = journal.emergencies_seen == machine.emergencies().size();
  std::erase_if(taken_, [&](const auto& entry) {
    const auto& [place, taking] = entry;
    if (place.node != machine.name() || !taking.is_release_asked || !has_heard_all) return false;
    const bool is_returned = std::all_of(
        journal.reclaims.begin(),
        journal.reclaims.end(),
        [&gpu = place.gpu](const ReclaimRecord& record) {
          return !is_of(record, gpu) || record.phase == ReclaimPhase::kReturned;
        }
    );
    const auto wanted = wanted_.find(place);
    const bool is_old = wanted != wanted_.end() && wanted->second < taking.released;
    if (is_returned && is_old) wanted_.erase(wanted);
    return is_returned;
  });
  for (const ReclaimRecord& record : journal.reclaims) {
    if (record.phase == ReclaimPhase::kCleared) check_cleared(machine, record);
  }
}

void OwnerWatch::on_clear(Machine& machine, const warden::Clear& order) {
  ++checks_;
  const Place all{machine.name(), {}};
  if (wanted_.contains(all) || with_an_end_.contains(all)) return;
  if (order.is_whole_node)
    return world_.violate(
        "I9", machine.name() + " is cleared, of which its owner has not taken all"
    );
  for (const warden::GuestRecord& guest : order.guests) {
    const Machine::Container* container = machine.find(guest.guest);
    if (container == nullptr || container->state == Machine::ContainerState::kExited) continue;
    const bool is_wanted =
        std::any_of(container->gpus.begin(), container->gpus.end(), [&](std::uint32_t gpu) {
          const Place place{machine.name(), gpu};
          return wanted_.contains(place) || with_an_end_.contains(place);
        });
    if (is_wanted) continue;
    world_.violate(
        "I9",
        guest.guest.job.str() + " is cleared from " + machine.name() +
            ", and has no GPU that its owner has taken"
    );
  }
}

void OwnerWatch::on_create(const Machine& machine, const Machine::Container& container) {
  ++checks_;
  for (const Taking* taking : takings_of(machine, container)) {
    const bool is_under_way = world_.now() - taking->accepted < kStartsUnderWay;
    if (!is_under_way) return violate(machine, container, "was started");
  }
}

/// In the last moments before the deadline.
void OwnerWatch::check_told(
    const Machine& machine,
    const Machine::Container& container,
    const Taking& taking,
    nanoseconds both_alive
) {
  const auto now = world_.now();
  const bool had_time = taking.deadline - taking.accepted >= kTimeToTell &&
                        now - container.started >= kTimeToTell && both_alive >= kTimeToTell;
  const bool is_due = now + kLastMoment >= taking.deadline;
  if (!had_time || !is_due || container.is_told || taking.is_release_asked) return;
  world_.violate(
      "evacuation",
      container.guest.job.str() + " was not told to leave " + machine.name() +
          ", which its owner has at once"
  );
}

void OwnerWatch::on_step(
    const Machine& machine,
    const Machine::Container& container,
    nanoseconds warden_alive,
    nanoseconds agent_alive
) {
  ++checks_;
  for (const auto& [place, window] : windows_) {
    const bool is_its_own =
        place.node == machine.name() && (!place.gpu || Machine::has_gpu(container, *place.gpu));
    if (is_its_own && window.is_told && world_.now() < window.until &&
        world_.now() > window.end + kKillTime + kCalendarError && warden_alive > kKillTime)
      violate(machine, container, "did a step after the end of the lending window");
  }
  for (const Taking* taking : takings_of(machine, container)) {
    if (taking->is_at_once) return violate(machine, container, "did a step");
    check_told(machine, container, *taking, std::min(warden_alive, agent_alive));
    const nanoseconds late = world_.now() - taking->deadline;
    if (late > kKillTime && warden_alive > kKillTime)
      return violate(machine, container, "did a step after the deadline");
  }
}

void OwnerWatch::check_taken(const Machine& machine, nanoseconds warden_alive) {
  ++checks_;
  const auto patience = kKillTime + kStartsUnderWay;
  if (warden_alive <= patience) return;
  for (const auto& [guest, container] : machine.containers()) {
    if (container.state == Machine::ContainerState::kExited) continue;
    for (const Taking* taking : takings_of(machine, container)) {
      const bool is_due = !taking->is_release_asked && world_.now() - taking->deadline > patience;
      if (is_due) return violate(machine, container, "is still there");
    }
  }
}

}  // namespace rn::sim
