// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/time.h"

namespace rn::agent {

/// What all links together may send: what copies with a rate leave of the bound, and a twentieth of
/// it, so that what members say to each other goes on. 0 = no bound, where there is none and
/// nothing was planned. Pure.
struct LinksBudget {
  std::uint64_t bound_bps = 0;    ///< by the contract and by what the owner grants; 0 = none
  std::uint64_t line_bps = 0;     ///< of the machine's uplink; 0 = not known
  std::uint64_t planned_bps = 0;  ///< of copies and fetches; 0 = none has a rate

  std::uint64_t rate_bps() const {
    constexpr std::uint64_t kUsualLine_bps = 1'000'000'000;
    if (planned_bps == 0) return bound_bps;
    const std::uint64_t line = line_bps == 0 ? kUsualLine_bps : line_bps;
    const std::uint64_t whole = bound_bps == 0 ? line : std::min(bound_bps, line);
    const std::uint64_t left = whole > planned_bps ? whole - planned_bps : 0;
    return std::max({left, whole / 20, std::uint64_t{1}});
  }
};

/// How fast all that take from it may send together. Thread-safe.
class GangPace {
 public:
  /// 0 = no bound.
  void set_rate(std::uint64_t bps) {
    const std::lock_guard lock(mutex_);
    if (bps == bps_) return;
    refill();
    bps_ = bps;
    changed_.notify_all();
  }

  /// Waits until `bytes` may go; they may pass the budget, which is then owed. False: `is_over`
  /// became true; who makes it so calls wake() afterwards.
  bool take(std::size_t bytes, const std::atomic<bool>& is_over) {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (is_over) return false;
      refill();
      if (bps_ == 0 || budget_ > 0) break;
      const double wait_s = -budget_ / per_s() + 0.0005;
      changed_.wait_for(lock, std::chrono::duration<double>(std::min(wait_s, 1.0)));
    }
    sent_ += bytes;
    if (bps_ != 0) budget_ -= static_cast<double>(std::max(bytes, kLeast));
    return true;
  }

  /// Whoever waits looks whether it is over.
  void wake() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

  std::uint64_t bytes_sent() const {
    const std::lock_guard lock(mutex_);
    return sent_;
  }

 private:
  using Steady = std::chrono::steady_clock;

  /// What a small packet costs of the budget: its way through TLS is not free either.
  static constexpr std::size_t kLeast = 256;

  double per_s() const { return static_cast<double>(bps_) / 8; }

  /// At most a twentieth of a second at once.
  void refill() {
    const Steady::time_point now = Steady::now();
    const double elapsed_s = std::chrono::duration<double>(now - at_).count();
    at_ = now;
    budget_ = bps_ == 0 ? 0 : std::min(budget_ + elapsed_s * per_s(), per_s() / 20);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t bps_ = 0;
  double budget_ = 0;  ///< bytes that may go now
  Steady::time_point at_ = Steady::now();
  std::uint64_t sent_ = 0;
};

}  // namespace rn::agent
