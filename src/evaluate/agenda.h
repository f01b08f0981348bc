// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/time.h"

namespace rn::evaluate {

/// Since the evaluation's begin, a Monday at midnight.
using Moment = nanoseconds;

constexpr Moment moment_of(double seconds) {
  return Moment(static_cast<std::int64_t>(seconds * 1e9));
}

constexpr double seconds_of(Moment moment) {
  return static_cast<double>(moment.count()) / 1e9;
}

/// What happens when, in order of time, and of entry where times are equal: hence the same run for
/// the same seed. Time goes from entry to entry and does not pass in between.
class Agenda {
 public:
  using Action = std::function<void()>;
  using Entry = std::pair<std::int64_t, std::uint64_t>;

  /// A moment that is over counts as now.
  Entry at(Moment when, Action action);

  Entry after(Moment delay, Action action) { return at(now_ + delay, std::move(action)); }

  /// Nothing if it has happened.
  void cancel(Entry entry) { entries_.erase(entry); }

  /// The next entry, if there is one before `until`; else time becomes `until`. False then.
  bool step(Moment until);

  Moment now() const { return now_; }

  std::uint64_t happened() const { return happened_; }

 private:
  Moment now_{0};
  std::uint64_t next_ = 0;
  std::uint64_t happened_ = 0;
  std::map<Entry, Action> entries_;
};

}  // namespace rn::evaluate
