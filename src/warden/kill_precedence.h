// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "base/time.h"
#include "io/precedence.h"

namespace rn::warden {

/// What a thread with standing precedence may use of a processor: `kShare` of each `kWindow`, so
/// that a flood of clients takes no processor from everybody. Pure.
class PrecedenceBudget {
 public:
  static constexpr milliseconds kWindow{1000};
  static constexpr milliseconds kShare{20};

  /// `used` is the processor time of the thread since it began. False: until `until()` it must run
  /// like everybody.
  bool allows(Instant now, nanoseconds used);

  Instant until() const { return begun_ + kWindow; }

 private:
  Instant begun_{};
  nanoseconds used_before_{0};
  bool is_spent_ = false;
};

/// Precedence of the calling thread from before an order comes: the order itself has not to wait
/// for a processor. For a thread that sleeps while nobody asks; look() after each of its turns.
class StandingPrecedence {
 public:
  explicit StandingPrecedence(const Clock& clock);

  /// Takes it away from a thread that has spent its budget, and gives it back in the next window.
  void look();

  /// For what is no order: runs like everybody until the next look().
  void lower() { raised_.reset(); }

  /// Until look() gives it back; -1: nothing is to be done until the next turn.
  int wait_ms() const;

 private:
  const Clock& clock_;
  PrecedenceBudget budget_;
  std::optional<io::Precedence> raised_;
  bool is_spent_ = false;
};

}  // namespace rn::warden
