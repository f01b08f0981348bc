// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace rn {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

/// CLOCK_BOOTTIME: monotonic and counts suspend. Leases and deadlines use it, never wall time.
/// Values of two machines, or of two boots, must not be compared.
struct BootClock {
  using duration = nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock, duration>;
  static constexpr bool is_steady = true;
};

using Instant = BootClock::time_point;

/// Milliseconds since the Unix epoch: for people, certificates and calendars only.
struct WallClock {
  using duration = milliseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<WallClock, duration>;
  static constexpr bool is_steady = false;
};

using WallTime = WallClock::time_point;

/// The time handed to a core with every event.
struct Now {
  Instant boot;
  WallTime wall;
};

constexpr std::int64_t to_ns(Instant t) {
  return t.time_since_epoch().count();
}

constexpr std::int64_t to_ms(WallTime t) {
  return t.time_since_epoch().count();
}

constexpr Instant instant_from_ns(std::int64_t ns) {
  return Instant(nanoseconds(ns));
}

constexpr WallTime wall_from_ms(std::int64_t ms) {
  return WallTime(milliseconds(ms));
}

/// Source of time. Real (io), manual (tests) and simulated implementations.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Now now() const = 0;
};

/// A clock that moves only when told to. For tests.
class ManualClock final : public Clock {
 public:
  Now now() const override { return now_; }

  void advance(nanoseconds by) {
    now_.boot += by;
    now_.wall =
        WallTime(now_.wall.time_since_epoch() + std::chrono::duration_cast<milliseconds>(by));
  }

  void set_wall(WallTime wall) { now_.wall = wall; }

 private:
  Now now_{Instant(seconds(1000)), WallTime(milliseconds(1'700'000'000'000))};
};

}  // namespace rn
