// SPDX-License-Identifier: Apache-2.0
#include "sim/guest.h"

#include <cstring>

namespace rn::sim {

namespace {

// Padded to a fixed length so that the file's layout never moves.
constexpr std::string_view kHeader =
    R"({"state":{"dtype":"U64","shape":[2],"data_offsets":[0,16]}}      )";

void put64(Blob& out, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
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
  spec.checkpoint.paths = {"*.safetensors"};
  spec.checkpoint.copies = copies;
  if (wants_data) spec.data = {kDataSet};
  return spec;
}

Training Training::from(const std::map<std::string, std::string>& env) {
  Training out;
  out.steps = number(env, "STEPS", out.steps);
  out.save_every = number(env, "SAVE_EVERY", out.save_every);
  out.step_ms = number(env, "STEP_MS", out.step_ms);
  out.saves_in_place = number(env, "IN_PLACE", 0) != 0;
  out.handles_term = number(env, "HANDLES_TERM", 0) != 0;
  out.crash_at_step = number(env, "CRASH_AT", 0);
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

Blob checkpoint_of(const TrainingState& state) {
  Blob out;
  put64(out, kHeader.size());
  out.insert(out.end(), kHeader.begin(), kHeader.end());
  put64(out, state.step);
  put64(out, state.chain);
  return out;
}

Result<TrainingState> parse_checkpoint(BlobView bytes) {
  if (bytes.size() != 8 + kHeader.size() + 16 || get64(bytes) != kHeader.size() ||
      std::memcmp(bytes.data() + 8, kHeader.data(), kHeader.size()) != 0) {
    return fail(ErrorCode::kCorrupt, "not a whole checkpoint");
  }
  return TrainingState{
      get64(bytes.subspan(8 + kHeader.size())), get64(bytes.subspan(16 + kHeader.size()))};
}

TrainingState read_checkpoint(FileSystem& fs, const std::string& path) {
  const auto bytes = read_all(fs, path, 4096);
  if (!bytes) return {};
  return parse_checkpoint(*bytes).value_or(TrainingState{});
}

}  // namespace rn::sim
