// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rn {

/// Prints the broken invariant and aborts. Recovery is designed for a crash; going on with broken
/// state is not.
[[noreturn]] void assertion_failed(
    const char* expression, const char* file, int line, const char* why
);

}  // namespace rn

/// A broken invariant is not an error: this stays on in release builds.
#define RN_ASSERT(expression, why)         \
  (static_cast<bool>(expression) ? void(0) \
                                 : ::rn::assertion_failed(#expression, __FILE__, __LINE__, why))
