// SPDX-License-Identifier: Apache-2.0
#include "io/patiently.h"

#include <thread>

#include "io/real_clock.h"

namespace rn::io {

Status patiently(milliseconds limit, const std::function<Status()>& step, milliseconds every) {
  const RealClock clock{};
  const Instant end = clock.now().boot + limit;
  for (;;) {
    Status done = step();
    if (done || clock.now().boot >= end) return done;
    std::this_thread::sleep_for(every);
  }
}

}  // namespace rn::io
