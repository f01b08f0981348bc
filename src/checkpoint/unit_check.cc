// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/unit_check.h"

#include <algorithm>
#include <string_view>

#include "base/utf8.h"
#include "checkpoint/glob.h"

namespace rn::checkpoint {

namespace {

constexpr std::size_t kFilesMax = 20'000;
constexpr std::size_t kUnitDepthMax = 16;

StructuralVerdict not_whole(std::string reason) {
  return {Completeness::kIncomplete, std::move(reason)};
}

bool is_changing(ErrorCode code) {
  return code == ErrorCode::kNotFound || code == ErrorCode::kDenied ||
         code == ErrorCode::kUnsupported;
}

Result<StructuralVerdict> check_file(Folder& folder, const std::string& path) {
  const auto file = folder.open(path);
  if (!file) {
    if (is_changing(file.error().code)) return not_whole(path + " cannot be opened");
    return fail(file.error());
  }
  return check_completeness(**file, path);
}

/// What a walk over a folder unit saw.
struct Seen {
  bool has_distcp = false;
  bool has_metadata = false;
  bool has_trainer_files = false;  ///< names that only a Trainer gives
  bool has_optimizer = false;
  bool has_trainer_state = false;
  bool has_marker = false;
  std::size_t files = 0;

  void note(const std::string& name, const WatchRules& rules) {
    ++files;
    has_distcp = has_distcp || name.ends_with(".distcp");
    has_metadata = has_metadata || name == ".metadata";
    has_trainer_files = has_trainer_files || name == "training_args.bin" || name == "rng_state.pth";
    has_optimizer = has_optimizer || name == "optimizer.pt";
    has_trainer_state = has_trainer_state || name == "trainer_state.json";
    has_marker = has_marker || name == ".complete" ||
                 (!rules.complete_marker.empty() && name == rules.complete_marker);
  }
};

Result<StructuralVerdict> walk(
    Folder& folder, const std::string& path, const WatchRules& rules, std::size_t depth, Seen& seen
) {
  const StructuralVerdict fine{Completeness::kUnknownKind, "only holding still can tell"};
  if (depth > kUnitDepthMax)
    return StructuralVerdict{Completeness::kUnknownKind, "nested too deeply to check"};
  const auto names = folder.list(path);
  if (!names) {
    if (is_changing(names.error().code)) return not_whole(path + " is gone");
    return fail(names.error());
  }
  for (const std::string& name : *names) {
    const std::string inner = path.empty() ? name : path + "/" + name;
    if (matches_any(rules.temporary, inner)) continue;
    if (seen.files >= kFilesMax)
      return StructuralVerdict{Completeness::kUnknownKind, "too many files to check"};
    const auto there = folder.stat(inner);
    if (!there)
      return is_changing(there.error().code)
                 ? Result<StructuralVerdict>(not_whole(inner + " is gone"))
                 : fail(there.error());
    StructuralVerdict verdict = fine;
    if (there->kind == FileStat::Kind::kDirectory) {
      RN_TRY(verdict, walk(folder, inner, rules, depth + 1, seen));
    } else if (there->kind == FileStat::Kind::kRegular) {
      seen.note(name, rules);
      RN_TRY(verdict, check_file(folder, inner));
    }
    if (verdict.completeness == Completeness::kIncomplete)
      return not_whole(inner + ": " + verdict.reason);
  }
  return fine;
}

/// "checkpoint-500", as a Hugging Face Trainer names its folders. Others, too, write an
/// optimizer.pt.
bool is_trainers_name(std::string_view path) {
  constexpr std::string_view kBegin = "checkpoint-";
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.size() > kBegin.size() && name.starts_with(kBegin) &&
         name.find_first_not_of("0123456789", kBegin.size()) == std::string_view::npos;
}

}  // namespace

Result<StructuralVerdict> check_unit(Folder& folder, const Unit& unit, const WatchRules& rules) {
  if (!unit.is_folder) return check_file(folder, unit.path);
  if (unit.path.find(".orbax-checkpoint-tmp") != std::string::npos)
    return not_whole("an Orbax checkpoint under its temporary name");
  Seen seen;
  RN_TRY(const StructuralVerdict verdict, walk(folder, unit.path, rules, 0, seen));
  if (verdict.completeness == Completeness::kIncomplete) return verdict;
  if (seen.files == 0) return not_whole("an empty folder");
  if (seen.has_distcp && !seen.has_metadata)
    return not_whole(".metadata of the distributed checkpoint is missing");
  const bool is_trainers =
      seen.has_trainer_files || (seen.has_optimizer && is_trainers_name(unit.path));
  if (is_trainers && !seen.has_trainer_state) return not_whole("trainer_state.json is missing");
  if (!rules.complete_marker.empty() && !seen.has_marker)
    return not_whole("its marker " + rules.complete_marker + " is missing");
  // A whole work folder holds other files as well: their layout says nothing about the checkpoint.
  if (seen.has_marker || (!unit.path.empty() && (seen.has_metadata || seen.has_trainer_state))) {
    return StructuralVerdict{Completeness::kComplete, {}};
  }
  return verdict;
}

Result<SeenFiles> look_at(Folder& folder, const Unit& unit, const WatchRules& rules) {
  SeenFiles seen;
  if (unit.path.empty()) return seen;
  std::vector<std::string> waiting = {unit.path};
  while (!waiting.empty()) {
    const std::string path = std::move(waiting.back());
    waiting.pop_back();
    // As a snapshot's scan leaves them out.
    if (!is_safe_relative_path(path) || !is_utf8(path) || matches_any(rules.temporary, path))
      continue;
    const auto there = folder.stat(path);
    if (!there && is_changing(there.error().code)) continue;
    if (!there) return fail(there.error());
    if (there->kind == FileStat::Kind::kRegular) seen.emplace(path, state_of(*there));
    if (seen.size() > kSeenFilesMax) return SeenFiles{};
    if (there->kind != FileStat::Kind::kDirectory) continue;
    const auto names = folder.list(path);
    if (!names && is_changing(names.error().code)) continue;
    if (!names) return fail(names.error());
    for (const std::string& name : *names) waiting.push_back(path + "/" + name);
  }
  return seen;
}

}  // namespace rn::checkpoint
