// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "base/error.h"
#include "base/time.h"

namespace rn::io {

/// Repeats a step that others may keep from succeeding for a moment (a dying process holds files,
/// mounts and control groups) until it succeeds or `limit` is over; answers its last result. The
/// step is tried once at least. Blocking, by real time.
Status patiently(
    milliseconds limit, const std::function<Status()>& step, milliseconds every = milliseconds(50)
);

}  // namespace rn::io
