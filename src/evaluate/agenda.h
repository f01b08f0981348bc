// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/event_queue.h"
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

/// What happens when.
using Agenda = EventQueue;

}  // namespace rn::evaluate
