// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/fs_crash.h"
#include "base/time.h"
#include "model/job.h"

namespace rn::sim {

/// The simulated training script: each step hashes the one before, so the state after n steps is
/// one known number, and a run that resumed from anything but a whole checkpoint ends with another.
/// It knows nothing of the platform: it saves every `save_every` steps to `model.safetensors` and
/// looks for that file when it starts.
inline constexpr const char* kDataSet = "digits";

struct Training {
  std::uint32_t steps = 200;
  std::uint32_t save_every = 20;
  std::uint32_t step_ms = 1000;               ///< on a full core
  bool saves_in_place = false;                ///< else: writes a new file and renames it
  bool handles_term = false;                  ///< saves on SIGTERM and goes on
  bool leaves_at_term = false;                ///< … and leaves with 0 instead, as many scripts do
  std::uint32_t crash_at_step = 0;            ///< exits with 1 once when it gets there; 0 = never
  std::uint32_t fails_at_step = 0;            ///< exits with 1 whenever it gets there; 0 = never
  std::optional<std::uint32_t> failing_task;  ///< of an array it is this task alone that fails

  std::uint32_t copies = 1;  ///< durable copies that its user asks for
  std::uint32_t gpus = 0;    ///< that it asks for
  bool wants_data = false;   ///< reads the data set kDataSet

  /// Most of its file is layers that no step changes: a later save is new by its last chunk alone.
  bool has_frozen_layers = false;

  // A member of a gang, whose step needs what all others have computed in the one before.
  std::string gang;                ///< its id; empty: it computes alone
  std::uint32_t rank = 0;          ///< of it
  std::uint32_t size = 1;          ///< of its gang
  bool all_save = true;            ///< each rank its own state; else rank 0 that of all
  std::int32_t gives_up_with = 1;  ///< its exit code when the others have been silent for too long

  bool is_member() const { return size > 1; }

  /// It writes checkpoints, in this file; who does not reads those of rank 0.
  bool saves() const { return !is_member() || all_save || rank == 0; }

  std::string checkpoint_name() const;

  JobSpec spec() const;
  /// Of a job of its own, or of the array's task with this index: it never gets to its last step.
  bool fails(std::optional<std::uint32_t> task) const;
  static Training from(const std::map<std::string, std::string>& env);
};

struct TrainingState {
  std::uint64_t step = 0;
  std::uint64_t chain = 0x243f6a8885a308d3ULL;
  std::uint32_t rank = 0;
  std::uint32_t size = 1;  ///< more: of a gang's member
};

/// The chains of a gang's members after the same step, by rank.
using GangChains = std::vector<std::uint64_t>;

/// One step of the training.
TrainingState next(TrainingState state);
/// The same of a gang: each member's chain follows from its own and from all others'.
GangChains next(const GangChains& chains);
/// The state after `steps` steps from the start; of a gang of more than one, that of this rank.
TrainingState state_after(std::uint64_t steps, std::uint32_t rank = 0, std::uint32_t size = 1);

inline constexpr std::size_t kCheckpointBytesMost = 512U << 10;

/// A complete safetensors file, and back. Reading answers the start state if there is no whole
/// file: that is what scripts do.
Blob checkpoint_of(const TrainingState& state, bool has_frozen_layers);
TrainingState read_checkpoint(FileSystem& fs, const std::string& path);
/// nullopt unless the bytes are a whole checkpoint. Of one that a gang's member wrote: its own
/// state.
Result<TrainingState> parse_checkpoint(BlobView bytes);

/// What the member writes at this step: its own chain, or those of all.
Blob gang_checkpoint_of(const Training& member, std::uint64_t step, const GangChains& chains);
/// The state that the member goes on from; its start state if there is no whole file of its gang's,
/// with something of its rank.
TrainingState read_gang_checkpoint(FileSystem& fs, const std::string& path, const Training& member);

}  // namespace rn::sim
