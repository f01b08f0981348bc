// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/time.h"

namespace rn::io {

/// CLOCK_BOOTTIME and CLOCK_REALTIME. Thread-safe.
class RealClock final : public Clock {
 public:
  Now now() const override;
};

}  // namespace rn::io
