// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/time.h"

namespace rn::sched {

/// The mean of samples over a window that slides by a twelfth of itself: a short burst weighs what
/// it lasts, and neither begins the count anew nor hides the hours before it. Pure.
class UseWindow {
 public:
  explicit UseWindow(nanoseconds window);

  nanoseconds window() const { return window_; }

  /// `percent` was so for `span` up to now. Times do not go back.
  void add(Instant now, nanoseconds span, double percent);
  /// Of the samples in the window; nullopt as long as it was not looked at for so long, or for less
  /// than three quarters of it.
  std::optional<double> mean(Instant now) const;

 private:
  static constexpr std::size_t kParts = 12;

  struct Part {
    std::int64_t number = -1;  ///< of all parts of time
    double seen_s = 0;
    double sum = 0;  ///< percent times seconds
  };

  std::int64_t number_at(Instant now) const;

  nanoseconds window_;
  std::optional<Instant> began_;
  std::array<Part, kParts + 1> parts_{};
};

}  // namespace rn::sched
