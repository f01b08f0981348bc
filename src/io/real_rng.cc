// SPDX-License-Identifier: Apache-2.0
#include "io/real_rng.h"

#include <cerrno>

#include <sys/random.h>

#include "base/assert.h"

namespace rn::io {

void RealRng::fill(std::span<std::uint8_t> out) {
  while (!out.empty()) {
    const ssize_t got = getrandom(out.data(), out.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    RN_ASSERT(got > 0, "without randomness there are no safe keys");
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace rn::io
