// SPDX-License-Identifier: Apache-2.0
#include "sim/guest.h"

#include <algorithm>

namespace rn::sim {

namespace {

// Padded to a fixed length so that the file's layout never moves.
constexpr std::string_view kHeader =
    R"({"state":{"dtype":"U64","shape":[2],"data_offsets":[0,16]}}      )";
constexpr std::string_view kFrozenHeader =
    R"({"frozen":{"dtype":"U8","shape":[261992],"data_offsets":[0,261992]},)"
    R"("state":{"dtype":"U64","shape":[2],"data_offsets":[261992,262008]}}         )";
constexpr std::size_t kFrozenHead = 256U << 10;  // one chunk, whole, and the state in the next

void put64(Blob& out, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

/// All of the file but the state. What is frozen is noise: it is sent as long as it is.
Blob make_head(bool has_frozen_layers) {
  const std::string_view header = has_frozen_layers ? kFrozenHeader : kHeader;
  Blob out;
  put64(out, header.size());
  out.insert(out.end(), header.begin(), header.end());
  TrainingState noise;
  while (has_frozen_layers && out.size() < kFrozenHead) {
    noise = next(noise);
    put64(out, noise.chain);
  }
  return out;
}

const Blob& head_of(bool has_frozen_layers) {
  static const Blob kPlain = make_head(false);
  static const Blob kFrozen = make_head(true);
  return has_frozen_layers ? kFrozen : kPlain;
}

std::uint64_t get64(BlobView bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) value |= std::uint64_t{bytes[i]} << (8 * i);
  return value;
}

std::uint32_t number(
    const std::map<std::string, std::string>& env, const std::string& key, std::uint32_t otherwise
) {
  const auto found = env.find(key);
  return found == env.end() ? otherwise : static_cast<std::uint32_t>(std::stoul(found->second));
}

}  // namespace

JobSpec Training::spec() const {
  JobSpec spec;
  spec.name = "training";
  spec.command = {"train"};
  spec.env = {
      {"STEPS", std::to_string(steps)},
      {"SAVE_EVERY", std::to_string(save_every)},
      {"STEP_MS", std::to_string(step_ms)},
      {"IN_PLACE", std::to_string(int(saves_in_place))},
      {"HANDLES_TERM", std::to_string(int(handles_term))},
      {"CRASH_AT", std::to_string(crash_at_step)}};
  if (leaves_at_term) spec.env["LEAVES_AT_TERM"] = "1";
  if (has_frozen_layers) spec.env["FROZEN"] = "1";
  if (fails_at_step != 0) spec.env["FAILS_AT"] = std::to_string(fails_at_step);
  if (failing_task) spec.env["FAILING_TASK"] = std::to_string(*failing_task);
  // Of an array the others keep theirs, for what is not their doing.
  if (fails_at_step != 0 && !failing_task) spec.max_restarts = 0;
  spec.checkpoint.paths = {"*.safetensors"};
  spec.checkpoint.copies = copies;
  spec.resources.gpus = gpus;
  if (wants_data) spec.data = {kDataSet};
  return spec;
}

bool Training::fails(std::optional<std::uint32_t> task) const {
  return fails_at_step != 0 && (!failing_task || failing_task == task);
}

Training Training::from(const std::map<std::string, std::string>& env) {
  Training out;
  out.steps = number(env, "STEPS", out.steps);
  out.save_every = number(env, "SAVE_EVERY", out.save_every);
  out.step_ms = number(env, "STEP_MS", out.step_ms);
  out.saves_in_place = number(env, "IN_PLACE", 0) != 0;
  out.handles_term = number(env, "HANDLES_TERM", 0) != 0;
  out.leaves_at_term = number(env, "LEAVES_AT_TERM", 0) != 0;
  out.crash_at_step = number(env, "CRASH_AT", 0);
  out.fails_at_step = number(env, "FAILS_AT", 0);
  if (env.contains("FAILING_TASK")) out.failing_task = number(env, "FAILING_TASK", 0);
  std::optional<std::uint32_t> task;
  if (env.contains("SLURM_ARRAY_TASK_ID")) task = number(env, "SLURM_ARRAY_TASK_ID", 0);
  if (!out.fails(task)) out.fails_at_step = 0;
  out.has_frozen_layers = number(env, "FROZEN", 0) != 0;
  return out;
}

TrainingState next(TrainingState state) {
  std::uint64_t z = state.chain + 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return {state.step + 1, z ^ (z >> 31)};
}

TrainingState state_after(std::uint64_t steps) {
  TrainingState state;
  while (state.step < steps) state = next(state);
  return state;
}

Blob checkpoint_of(const TrainingState& state, bool has_frozen_layers) {
  Blob out = head_of(has_frozen_layers);
  put64(out, state.step);
  put64(out, state.chain);
  return out;
}

Result<TrainingState> parse_checkpoint(BlobView bytes) {
  for (const bool has_frozen_layers : {false, true}) {
    const Blob& head = head_of(has_frozen_layers);
    if (bytes.size() != head.size() + 16 || !std::equal(head.begin(), head.end(), bytes.begin()))
      continue;
    return TrainingState{get64(bytes.subspan(head.size())), get64(bytes.subspan(head.size() + 8))};
  }
  return fail(ErrorCode::kCorrupt, "not a whole checkpoint");
}

TrainingState read_checkpoint(FileSystem& fs, const std::string& path) {
  const auto bytes = read_all(fs, path, kCheckpointBytesMost);
  if (!bytes) return {};
  return parse_checkpoint(*bytes).value_or(TrainingState{});
}

}  // namespace rn::sim
