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
  /// became true (which is looked at every tenth of a second).
  bool take(std::size_t bytes, const std::atomic<bool>& is_over) {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (is_over) return false;
      refill();
      if (bps_ == 0 || budget_ > 0) break;
      const double wait_s = -budget_ / per_s() + 0.0005;
      changed_.wait_for(lock, std::chrono::duration<double>(std::min(wait_s, 0.1)));
    }
    sent_ += bytes;
    if (bps_ != 0) budget_ -= static_cast<double>(std::max(bytes, kLeast));
    return true;
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
