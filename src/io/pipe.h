// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "io/errno_error.h"
#include "io/fd.h"

namespace rn::io {

struct Pipe {
  Fd read;
  Fd write;
};

/// Both ends are closed on exec.
inline Result<Pipe> make_pipe() {
  std::array<int, 2> raw{};
  if (pipe2(raw.data(), O_CLOEXEC) != 0) return fail(error_from_errno(errno, "making a pipe"));
  return Pipe{Fd(raw[0]), Fd(raw[1])};
}

}  // namespace rn::io
