// SPDX-License-Identifier: Apache-2.0
#include "coordinator/transfer_book.h"

#include <algorithm>

#include "coordinator/core_state.h"

namespace rn::coordinator {

namespace {

constexpr double kLookSpan_s = 0.05;  ///< a shorter one says nothing of a rate

}  // namespace

void TransferEntry::see(double got, double left, Instant now) {
  sent += std::max(got, 0.0);
  const double span_s = seconds_between(heard, now);
  if (span_s < kLookSpan_s || got < 0) return;
  const double granted = std::min(rate, shown.most());
  shown.observe(got / span_s, granted, left > granted * kRatesTick_s);
}

void TransferBook::end(std::map<TransferKey, TransferEntry>::iterator at, Instant now) {
  entries.erase(at);
  freed_at = now;
  is_changed = true;
}

std::string megabytes(double bytes) {
  return decimal(bytes / 1e6, bytes < 10e6 ? 1 : 0) + " MB";
}

std::string megabits(double bytes_per_s) {
  return decimal(bytes_per_s * 8 / 1e6, bytes_per_s < 1.25e6 ? 1 : 0) + " Mbit/s";
}

}  // namespace rn::coordinator
