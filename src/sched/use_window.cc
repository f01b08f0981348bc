// SPDX-License-Identifier: Apache-2.0
#include "sched/use_window.h"

#include <algorithm>
#include <chrono>

namespace rn::sched {

namespace {

constexpr double kSeenShare = 0.75;

double in_seconds(nanoseconds value) {
  return std::chrono::duration<double>(value).count();
}

}  // namespace

UseWindow::UseWindow(nanoseconds window)
    : window_(std::max<nanoseconds>(window, std::chrono::seconds(kParts))) {}

std::int64_t UseWindow::number_at(Instant now) const {
  return to_ns(now) / (window_ / static_cast<std::int64_t>(kParts)).count();
}

void UseWindow::add(Instant now, nanoseconds span, double percent) {
  if (span.count() <= 0) return;
  if (!began_) began_ = now - span;
  const std::int64_t number = number_at(now);
  Part& part = parts_[static_cast<std::size_t>(number) % parts_.size()];
  if (part.number != number) part = Part{.number = number};
  part.seen_s += in_seconds(span);
  part.sum += percent * in_seconds(span);
}

std::optional<double> UseWindow::mean(Instant now) const {
  if (!began_ || now - *began_ < window_) return std::nullopt;
  const std::int64_t newest = number_at(now);
  double seen_s = 0;
  double sum = 0;
  for (const Part& part : parts_) {
    if (part.number < 0 || part.number + static_cast<std::int64_t>(kParts) < newest) continue;
    seen_s += part.seen_s;
    sum += part.sum;
  }
  if (seen_s < kSeenShare * in_seconds(window_)) return std::nullopt;
  return sum / seen_s;
}

}  // namespace rn::sched
