// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "command_line.h"

namespace rn {

/// Adds `reclaim-sim evaluate`; what it answers carries the command out and answers the program's
/// status.
std::function<int()> add_evaluate(CLI::App& app);

}  // namespace rn
