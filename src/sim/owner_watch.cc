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
}  // namespace

void OwnerWatch::on_emergency(const std::string& node) {
  taken_[node] = {world_.now(), world_.now(), true, false};
}

void OwnerWatch::on_accepted(const std::string& node, nanoseconds left) {
  const auto [taking, is_new] = taken_.emplace(node, Taking{world_.now(), {}, false, false});
  taking->second.is_release_asked = false;
  const TrueTime deadline = world_.now() + std::max(left, nanoseconds(0));
  if (is_new || deadline < taking->second.deadline) taking->second.deadline = deadline;
}

void OwnerWatch::on_window(const std::string& node, TrueTime end, TrueTime until) {
  windows_[node] = {end, until, false};
}

void OwnerWatch::on_release(const std::string& node) {
  const auto taking = taken_.find(node);
  if (taking != taken_.end()) taking->second.is_release_asked = true;
}

void OwnerWatch::on_clock_jump(const std::string& node) {
  windows_.erase(node);
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

void OwnerWatch::on_journal(Machine& machine, const warden::Journal& journal) {
  ++checks_;
  const auto window = windows_.find(machine.name());
  if (window != windows_.end() && world_.now() < window->second.end) {
    const auto& told = journal.announced;
    const nanoseconds left(told.deadline_ns - to_ns(machine.clock().now().boot));
    const bool is_in_time = world_.now() + left <= window->second.end + kCalendarError;
    window->second.is_told = told.deadline_ns > 0 && is_in_time;
  }
  const auto taking = taken_.find(machine.name());
  const bool is_returned =
      journal.emergencies_seen == machine.emergencies().size() &&
      std::all_of(journal.reclaims.begin(), journal.reclaims.end(), [](const auto& record) {
        return !record.gpus.empty() || record.phase == ReclaimPhase::kReturned;
      });
  if (taking != taken_.end() && taking->second.is_release_asked && is_returned)
    taken_.erase(taking);
  const bool is_cleared =
      std::any_of(journal.reclaims.begin(), journal.reclaims.end(), [](const auto& record) {
        return record.gpus.empty() && record.phase == ReclaimPhase::kCleared;
      });
  if (!is_cleared) return;
  for (const auto& [guest, container] : machine.containers()) {
    if (container.state != Machine::ContainerState::kExited)
      return violate(machine, container, "is there while the warden says that all is cleared,");
  }
}

void OwnerWatch::on_create(const Machine& machine, const Machine::Container& container) {
  ++checks_;
  const auto taking = taken_.find(machine.name());
  if (taking == taken_.end()) return;
  const bool is_under_way = world_.now() - taking->second.accepted < kStartsUnderWay;
  if (!is_under_way) violate(machine, container, "was started");
}

/// In the last moments before the deadline.
void OwnerWatch::check_told(
    const Machine& machine, const Machine::Container& container, nanoseconds both_alive
) {
  const Taking& taking = taken_.at(machine.name());
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
  const auto window = windows_.find(machine.name());
  if (window != windows_.end() && window->second.is_told && world_.now() < window->second.until &&
      world_.now() > window->second.end + kKillTime + kCalendarError && warden_alive > kKillTime)
    violate(machine, container, "did a step after the end of the lending window");
  const auto taking = taken_.find(machine.name());
  if (taking == taken_.end()) return;
  if (taking->second.is_at_once) return violate(machine, container, "did a step");
  check_told(machine, container, std::min(warden_alive, agent_alive));
  const nanoseconds late = world_.now() - taking->second.deadline;
  if (late > kKillTime && warden_alive > kKillTime)
    violate(machine, container, "did a step after the deadline");
}

void OwnerWatch::check_taken(const Machine& machine, nanoseconds warden_alive) {
  ++checks_;
  const auto taking = taken_.find(machine.name());
  const auto patience = kKillTime + kStartsUnderWay;
  if (taking == taken_.end() || taking->second.is_release_asked || warden_alive <= patience ||
      world_.now() - taking->second.deadline <= patience)
    return;
  for (const auto& [guest, container] : machine.containers()) {
    if (container.state != Machine::ContainerState::kExited)
      return violate(machine, container, "is still there");
  }
}

}  // namespace rn::sim
