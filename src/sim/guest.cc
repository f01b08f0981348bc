// SPDX-License-Identifier: Apache-2.0
#include "sim/guest.h"

#include <algorithm>
#include <optional>

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

std::uint64_t stirred(std::uint64_t chain) {
  std::uint64_t z = chain + 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

GangChains first_chains(std::uint32_t size) {
  GangChains chains;
  for (std::uint32_t rank = 0; rank < size; ++rank)
    chains.push_back(stirred(TrainingState{}.chain + rank + 1));
  return chains;
}

// Of a gang: step, rank that wrote it, size of the gang, and one chain or all.
constexpr std::size_t kGangWords = 3;
constexpr std::size_t kGangHeaderBytes = 128;

Blob gang_head(std::size_t words) {
  const std::string bytes = std::to_string(8 * words);
  std::string header = "{\"gang\":{\"dtype\":\"U64\",\"shape\":[" + std::to_string(words) +
                       "],\"data_offsets\":[0," + bytes + "]}}";
  header.resize(kGangHeaderBytes, ' ');
  Blob out;
  put64(out, header.size());
  out.insert(out.end(), header.begin(), header.end());
  return out;
}

struct GangFile {
  std::uint64_t step = 0;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  GangChains chains;  ///< of `rank`, or of all
};

std::optional<GangFile> gang_file_in(BlobView bytes) {
  constexpr std::size_t kHead = 8 + kGangHeaderBytes;
  if (bytes.size() < kHead + 8 * (kGangWords + 1) || (bytes.size() - kHead) % 8 != 0)
    return std::nullopt;
  const std::size_t words = (bytes.size() - kHead) / 8;
  const Blob head = gang_head(words);
  if (!std::equal(head.begin(), head.end(), bytes.begin())) return std::nullopt;
  const auto word = [&](std::size_t at) { return get64(bytes.subspan(kHead + 8 * at)); };
  GangFile out;
  out.step = word(0);
  out.rank = static_cast<std::uint32_t>(word(1));
  out.size = static_cast<std::uint32_t>(word(2));
  for (std::size_t at = kGangWords; at < words; ++at) out.chains.push_back(word(at));
  const bool is_whole = out.size > 1 && out.rank < out.size &&
                        (out.chains.size() == 1 || out.chains.size() == out.size);
  return is_whole ? std::optional(std::move(out)) : std::nullopt;
}

std::uint32_t number(
    const std::map<std::string, std::string>& env, const std::string& key, std::uint32_t otherwise
) {
  const auto found = env.find(key);
  return found == env.end() ? otherwise : static_cast<std::uint32_t>(std::stoul(found->second));
}

}  // namespace

std::string Training::checkpoint_name() const {
  const bool is_rank_0s = !is_member() || !all_save || rank == 0;
  return is_rank_0s ? "model.safetensors" : "model-" + std::to_string(rank) + ".safetensors";
}

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
  // What the network does to its members is no fault of the program's, and counts all the same.
  constexpr std::uint32_t kGangRestarts = 1000;  // the most that a job may ask for
  if (is_member()) {
    spec.env["GANG_SAVES"] = all_save ? "all" : "first";
    spec.env["GIVES_UP_WITH"] = std::to_string(gives_up_with);
    spec.max_restarts = kGangRestarts;
  }
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
  if (const auto gang = env.find("RECLAIM_GANG"); gang != env.end()) {
    out.gang = gang->second;
    out.rank = number(env, "RECLAIM_NODE_RANK", 0);
    out.size = number(env, "RECLAIM_NODES_NUM", 1);
    const auto saves = env.find("GANG_SAVES");
    out.all_save = saves == env.end() || saves->second == "all";
    out.gives_up_with = static_cast<std::int32_t>(number(env, "GIVES_UP_WITH", 1));
  }
  return out;
}

TrainingState next(TrainingState state) {
  return {state.step + 1, stirred(state.chain)};
}

GangChains next(const GangChains& chains) {
  std::uint64_t all = 0;
  for (const std::uint64_t chain : chains) all = stirred(all ^ chain);
  GangChains out;
  for (const std::uint64_t chain : chains) out.push_back(stirred(chain ^ all));
  return out;
}

TrainingState state_after(std::uint64_t steps, std::uint32_t rank, std::uint32_t size) {
  if (size > 1) {
    // Asked at each save of each member: what was computed once is kept, by size.
    thread_local std::map<std::uint32_t, std::vector<GangChains>> known;
    std::vector<GangChains>& rows = known[size];
    if (rows.empty()) rows.push_back(first_chains(size));
    while (rows.size() <= steps) rows.push_back(next(rows.back()));
    return {steps, rows[steps].at(rank), rank, size};
  }
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
  if (const auto file = gang_file_in(bytes))
    return TrainingState{
        file->step,
        file->chains.size() == 1 ? file->chains.front() : file->chains[file->rank],
        file->rank,
        file->size};
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

Blob gang_checkpoint_of(const Training& member, std::uint64_t step, const GangChains& chains) {
  const GangChains saved = member.all_save ? GangChains{chains.at(member.rank)} : chains;
  Blob out = gang_head(kGangWords + saved.size());
  for (const std::uint64_t word : {step, std::uint64_t{member.rank}, std::uint64_t{member.size}})
    put64(out, word);
  for (const std::uint64_t chain : saved) put64(out, chain);
  return out;
}

TrainingState read_gang_checkpoint(
    FileSystem& fs, const std::string& path, const Training& member
) {
  const TrainingState start = state_after(0, member.rank, member.size);
  const auto bytes = read_all(fs, path, kCheckpointBytesMost);
  if (!bytes) return start;
  const auto file = gang_file_in(*bytes);
  if (!file || file->size != member.size) return start;
  const bool has_all = file->chains.size() == member.size;
  if (!has_all && file->rank != member.rank) return start;
  return {
      file->step,
      has_all ? file->chains[member.rank] : file->chains.front(),
      member.rank,
      member.size};
}

}  // namespace rn::sim
