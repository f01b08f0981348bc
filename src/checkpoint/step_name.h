// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "checkpoint/watch.h"

// Which training step a checkpoint is of, as far as its name says it. Shown to people; nothing is
// decided by it. Pure.
namespace rn::checkpoint {

/// 500 of "out/checkpoint-500", 1200 of "epoch=3-step=1200.ckpt", 7 of "global_step7/rank_00.pt":
/// the number that follows step, iter or iteration, else checkpoint or ckpt, in the last part of
/// the path that has one. -1 if none has; an epoch is no step.
std::int64_t step_in_path(std::string_view path);

/// The unit's; if its path names none, the greatest one of the files that were seen with it. -1 if
/// nothing names one.
std::int64_t step_of_save(const Unit& unit, const SeenFiles& seen);

}  // namespace rn::checkpoint
