// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/time.h"

namespace rn {

/// Events in order of (time, insertion): the only source of order in a simulation, hence the same
/// run for the same seed. Time goes from event to event and does not pass in between.
class EventQueue {
 public:
  using Action = std::function<void()>;
  using Handle = std::pair<std::int64_t, std::uint64_t>;

  /// A moment that is over counts as now.
  Handle at(nanoseconds when, Action action);

  Handle after(nanoseconds delay, Action action) { return at(now_ + delay, std::move(action)); }

  /// Nothing if it has happened.
  void cancel(Handle handle) { events_.erase(handle); }

  /// Runs the next event; false when there is none.
  bool step();

  /// The next event, if there is one before `until`; else time becomes `until`. False then.
  bool step(nanoseconds until);

  nanoseconds now() const { return now_; }

  std::uint64_t executed() const { return executed_; }

  bool is_empty() const { return events_.empty(); }

 private:
  nanoseconds now_{0};
  std::uint64_t next_ = 0;
  std::uint64_t executed_ = 0;
  std::map<Handle, Action> events_;
};

}  // namespace rn
