// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "command_line.h"

namespace rn {

/// Adds `reclaim-sim replay`; what it answers carries the command out and answers the program's
/// status, or -1 if something else is wanted.
std::function<int()> add_replay(CLI::App& app);

}  // namespace rn
