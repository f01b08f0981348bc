// SPDX-License-Identifier: Apache-2.0
#pragma once

// Small things that several files of the warden ask of the kernel.

#include <cerrno>
#include <string>

#include <time.h>

#include "base/error.h"
#include "base/time.h"
#include "io/errno_error.h"

namespace rn::warden {

/// Of the system call that has just failed.
inline Error from_errno(const std::string& what) {
  return io::error_from_errno(errno, what);
}

/// Blocks for less than a second; a signal ends it early.
inline void pause_for(milliseconds time) {
  const timespec step{0, static_cast<long>(nanoseconds(time).count())};
  nanosleep(&step, nullptr);
}

}  // namespace rn::warden
