// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rn::warden_cli {

/// Command `doctor`: asks the kernel for what guests' and copies' traffic rests on, in a network
/// namespace that goes with the answers, and prints a line for each. Returns the exit code.
int look_at_kernel();

}  // namespace rn::warden_cli
