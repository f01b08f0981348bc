// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.h"

namespace rn::warden_cli {

/// Commands `kill` and `verify`, by the kill socket, and by hand where no daemon answers in time.
/// They print what was done or what remains, and return the exit code.
int order_kill(Options& options);
int look_whether_clear(Options& options);

}  // namespace rn::warden_cli
