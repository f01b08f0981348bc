// SPDX-License-Identifier: Apache-2.0
#include "io/real_clock.h"

#include <ctime>

#include "base/assert.h"

namespace rn::io {
namespace {

std::int64_t read_ns(clockid_t clock) {
  timespec time{};
  RN_ASSERT(clock_gettime(clock, &time) == 0, "the kernel has this clock");
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Now RealClock::now() const {
  return Now{
      instant_from_ns(read_ns(CLOCK_BOOTTIME)), wall_from_ms(read_ns(CLOCK_REALTIME) / 1'000'000)};
}

nanoseconds thread_cpu_time() {
  return nanoseconds(read_ns(CLOCK_THREAD_CPUTIME_ID));
}

}  // namespace rn::io
