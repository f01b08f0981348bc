// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace rn {

void assertion_failed(const char* expression, const char* file, int line, const char* why) {
  std::fprintf(stderr, "assertion failed: %s at %s:%d: %s\n", expression, file, line, why);
  std::fflush(stderr);
  std::abort();
}

}  // namespace rn
