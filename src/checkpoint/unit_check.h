// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fs.h"
#include "checkpoint/completeness.h"
#include "checkpoint/watch.h"

namespace rn::checkpoint {

/// The structural verdict on a unit. Of a folder: kIncomplete if one file is incomplete, or if its
/// layout is known and its last file is missing (torch distributed: `.metadata` beside `*.distcp`;
/// Hugging Face Trainer: `trainer_state.json` beside `training_args.bin` or `rng_state.pth`, or
/// beside `optimizer.pt` in a folder `checkpoint-NUMBER`), or if its name says that it is temporary
/// (Orbax), or if a marker was declared and is missing; kComplete if that last file, or the marker,
/// is there and whole; else kUnknownKind. A unit that is gone is incomplete. Blocking.
Result<StructuralVerdict> check_unit(Folder& folder, const Unit& unit, const WatchRules& rules);

/// The state of each regular file of the unit that a snapshot takes. Empty for the whole work
/// folder, where others than the job's checkpoint write too; for a unit that is gone; and for one
/// of more than kSeenFilesMax files. Errors: the disk's. Blocking.
Result<SeenFiles> look_at(Folder& folder, const Unit& unit, const WatchRules& rules);

inline constexpr std::size_t kSeenFilesMax = 20'000;

}  // namespace rn::checkpoint
