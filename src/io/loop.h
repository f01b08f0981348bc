// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/time.h"

namespace boost::asio {
class io_context;
}

namespace rn::io {

/// Names a timer or a watch of one loop. The default value names none; names are never used twice.
struct TimerId {
  std::uint64_t value = 0;
};

struct WatchId {
  std::uint64_t value = 0;
};

/// One event loop. The thread that calls run() is the loop thread; all callbacks run on it, to
/// completion, and must not block. Timers count CLOCK_BOOTTIME, so a suspend does not stretch them.
/// The first Loop of a process ignores SIGPIPE.
///
/// Except for post() and stop(), call the members on the loop thread, or before run() starts.
/// Servers and clients made on a loop must be destroyed before it, on its thread or after run() has
/// returned.
class Loop {
 public:
  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Runs callbacks until stop(). May be called again afterwards.
  void run();
  /// Runs what is ready now, then returns without waiting. For tests that step.
  void poll();
  /// Makes run() return after the callback that is running. Any thread, repeatable. Later posts
  /// wait for the next run().
  void stop();

  /// Runs `fn` on the loop thread, in the order posted. Any thread. Never runs it before returning.
  /// Unbounded: the poster bounds what it has outstanding.
  void post(std::function<void()> fn);

  /// Runs `fn` once, not earlier than `delay` from now. A delay ≤ 0 means at the next turn.
  TimerId run_after(nanoseconds delay, std::function<void()> fn);
  /// Runs `fn` every `period` > 0, first after one period, without catching up on missed ones.
  TimerId run_every(nanoseconds period, std::function<void()> fn);
  /// Afterwards the timer's function will not run. Fired, cancelled and none names are fine.
  void cancel(TimerId timer);

  /// Calls `fn(signal)` on the loop for each of `signals` (e.g. SIGTERM, SIGINT). A second call
  /// replaces the first.
  Status on_signal(const std::vector<int>& signals, std::function<void(int)> fn);

  /// Calls `fn` whenever `fd` is readable (level-triggered: the callback must read or unwatch).
  /// Borrows the descriptor: unwatch before closing it. kUnsupported for regular files.
  Result<WatchId> watch_readable(int fd, std::function<void()> fn);
  void unwatch(WatchId watch);

  bool is_loop_thread() const;  ///< false while run() is not active
  Now now() const;              ///< the real clock

  boost::asio::io_context& context();  ///< for io's own .cc files

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rn::io
