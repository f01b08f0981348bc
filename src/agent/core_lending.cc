// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>

#include "agent/core_state.h"
#include "arbiter/calendar.h"

// What the contract takes back without a word of the owner's. The agent reads the contract and
// measures the machine; declaring, cutting and looking are the warden's. The end of a window is
// told ahead of time, so that it comes also when nothing is heard of the agent any more.
namespace rn::agent {

namespace {

constexpr seconds kTolerance{1};      // two instants of one end, taken from the wall clock
constexpr seconds kCalendarSlack{2};  // the agent sees the end before the warden's timer does
constexpr seconds kAheadMax{7 * 86400};
constexpr std::chrono::hours kLookAgain{1};  // a calendar that does not change for eight days

bool is_near(std::int64_t a_ns, std::int64_t b_ns) {
  return std::abs(a_ns - b_ns) <= nanoseconds(kTolerance).count();
}

template <class A, class B>
bool is_same(const A& a, const B& b) {
  if (a.deadline_ns == 0 || b.deadline_ns == 0) return a.deadline_ns == b.deadline_ns;
  return is_near(a.declare_ns, b.declare_ns) && is_near(a.deadline_ns, b.deadline_ns) &&
         a.message == b.message;
}

}  // namespace

bool Core::State::is_calendar_fresh(const std::optional<Calendar>& seen) const {
  return seen && seen->utc_offset_s == utc_offset_s_ && now_.wall >= seen->seen &&
         now_.wall < seen->seen + kLookAgain && !(seen->change && now_.wall >= *seen->change);
}

Calendar Core::State::look_at(const Contract& contract) const {
  Calendar seen;
  seen.seen = now_.wall;
  seen.utc_offset_s = utc_offset_s_;
  seen.is_inside =
      arbiter::is_inside_windows(contract, arbiter::local_time(now_.wall, utc_offset_s_));
  if (const auto ahead = arbiter::time_to_change(contract, now_.wall, utc_offset_s_))
    seen.change = std::chrono::floor<seconds>(now_.wall) + *ahead;
  return seen;
}

const Calendar& Core::State::calendar() {
  if (!is_calendar_fresh(calendar_)) calendar_ = look_at(contract_);
  return *calendar_;
}

/// Of the GPU's own windows; the machine's are another question.
const Calendar& Core::State::gpu_calendar(std::uint32_t gpu) {
  std::optional<Calendar>& seen = gpu_calendars_[gpu];
  if (!is_calendar_fresh(seen)) seen = look_at(arbiter::calendar_of_gpu(contract_, gpu));
  return *seen;
}

/// Until the present lending window ends; 0 if that is not within a week.
std::uint32_t Core::State::closes_in_s(const Calendar& windows) const {
  if (!windows.is_inside || !windows.change) return 0;
  const auto left = std::chrono::ceil<seconds>(*windows.change - now_.wall);
  if (left > kAheadMax) return 0;
  return static_cast<std::uint32_t>(std::max<std::int64_t>(1, left.count()));
}

std::uint32_t Core::State::closes_in_s() {
  return closes_in_s(calendar());
}

/// Why guests must go although nobody declared a reclaim, and in what time; none if they may stay.
std::optional<Core::State::Closing> Core::State::closing() {
  const Calendar& windows = calendar();
  const nanoseconds notice = seconds(std::max(contract_.notice_s, 1u));
  std::optional<nanoseconds> window;
  if (windows.is_inside && windows.change) window = *windows.change - now_.wall;
  const auto with_notice = [&](const char* reason) {
    return Closing{reason, window ? std::min(notice, *window) : notice};
  };
  if (node_.is_leaving) return with_notice("the node leaves for good");
  if (!contract_.lends) return with_notice("the contract no longer lends");
  if (!windows.is_inside) return with_notice("the lending window is over");
  if (arbiter_.lending(now_) == LendingState::kOwnerPresent)
    return with_notice("the owner is back at the machine");
  if (window && *window <= seconds(contract_.notice_s) + kCalendarSlack)
    return Closing{kWindowEnds, *window};
  return std::nullopt;
}

/// None as long as nobody is here; else what closes the node now, or the next end of a window.
warden_wire::Announce Core::State::wanted_announcement(const std::optional<Closing>& closing) {
  const bool has_guests = std::any_of(attempts_.begin(), attempts_.end(), [](const auto& entry) {
    return entry.second.row.phase <= Phase::kStopping;
  });
  if (!has_guests) return {};
  const std::int64_t now_ns = to_ns(now_.boot);
  if (closing) {
    // Its deadline does not move while it lasts.
    const bool is_due = announcement_.deadline_ns != 0 && announcement_.declare_ns <= now_ns;
    if (is_due) return announcement_;
    return {now_ns, now_ns + closing->left.count(), closing->reason};
  }
  const Calendar& windows = calendar();
  if (!windows.change || *windows.change - now_.wall > kAheadMax) return {};
  const std::int64_t end_ns = now_ns + nanoseconds(*windows.change - now_.wall).count();
  return {end_ns - nanoseconds(seconds(contract_.notice_s)).count(), end_ns, kWindowEnds};
}

/// The warden holds what the agent wants, or is told so; repeated until its state shows it.
void Core::State::announce(const warden_wire::Announce& wanted) {
  announcement_ = wanted;
  const bool is_held = warden_.announced.reclaim.empty() && is_same(warden_.announced, wanted);
  if (is_held) {
    announce_sent_.reset();
    return;
  }
  const bool is_sent = announce_sent_ && is_same(*announce_sent_, wanted);
  if (is_sent && !is_due(announce_sent_at_)) return;
  announce_sent_ = wanted;
  announce_sent_at_ = now_.boot;
  ask_node(Ask::kAnnounce, wanted);
}

/// Ends of windows, the owner's return, leaving and "no longer lends" are reclaims of the announced
/// kind. What a declared one means to the guests comes back with the warden's state
/// (apply_reclaim).
void Core::State::step_lending() {
  const std::optional<Closing> why = closing();
  if (!is_reconciled_) return;
  const bool is_declared = !warden_.announced.reclaim.empty();
  if (!is_declared) return announce(wanted_announcement(why));
  if (!why) return announce({});
  announcement_ = {};
}

/// Also before the warden has answered: nobody comes any more.
std::string Core::State::taken_because() const {
  const auto own = reclaims_.find(warden_.announced.reclaim);
  if (own != reclaims_.end()) return own->second.record.message;
  const bool is_due =
      announcement_.deadline_ns != 0 && announcement_.declare_ns <= to_ns(now_.boot);
  return is_due ? announcement_.message : "";
}

}  // namespace rn::agent
