// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/time.h"

namespace rn::io {

/// CLOCK_BOOTTIME and CLOCK_REALTIME. Thread-safe.
class RealClock final : public Clock {
 public:
  Now now() const override;
};

/// Processor time that the calling thread has had so far, the kernel's work for it included.
nanoseconds thread_cpu_time();

}  // namespace rn::io
