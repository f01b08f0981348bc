// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.h"

namespace rn::warden_cli {

/// Command `leave`: ends the daemon and removes what it made; prints what went and what stays.
/// Returns the exit code.
int leave(Options& options);

}  // namespace rn::warden_cli
