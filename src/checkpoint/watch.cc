// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/watch.h"

#include <algorithm>

#include "checkpoint/glob.h"

namespace rn::checkpoint {

namespace {

constexpr std::string_view kDefaultMarker = ".complete";

std::string_view name_of(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string folder_of(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string() : std::string(path.substr(0, slash));
}

bool is_marker(const WatchRules& rules, std::string_view path) {
  if (name_of(path) == kDefaultMarker) return true;
  if (rules.complete_marker.empty()) return false;
  return path == rules.complete_marker || name_of(path) == rules.complete_marker;
}

/// Patterns like "checkpoint*/" name folders; for the folder's own path the slash goes.
bool names_folder(const std::vector<std::string>& patterns, std::string_view folder) {
  return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) {
    if (pattern.size() > 1 && pattern.ends_with('/')) pattern.remove_suffix(1);
    return matches_glob(pattern, folder);
  });
}

}  // namespace

const std::vector<std::string>& usual_checkpoint_names() {
  static const std::vector<std::string> kNames = {
      "checkpoint*/",
      "*.pt",
      "*.pth",
      "*.pt.tar",
      "*.pth.tar",
      "*.ckpt",
      "*.safetensors",
      "*_submitted.pkl"};  // submitit's: the function and where it is
  return kNames;
}

bool is_settling(const SeenFiles& seen, WallTime now, milliseconds quiet) {
  const std::int64_t now_ns = now.time_since_epoch() / nanoseconds(1);
  const std::int64_t quiet_ns = (quiet - quiet / 10) / nanoseconds(1);
  return std::any_of(seen.begin(), seen.end(), [&](const auto& file) {
    const std::int64_t age_ns = now_ns - file.second.changed_ns;
    return age_ns >= 0 && age_ns < quiet_ns;
  });
}

std::optional<Unit> unit_of(const WatchRules& rules, std::string_view path, bool is_folder) {
  if (path.empty() || matches_any(rules.temporary, path)) return std::nullopt;
  const auto& patterns = rules.paths.empty() ? usual_checkpoint_names() : rules.paths;
  for (auto slash = path.find('/'); slash != std::string_view::npos;
       slash = path.find('/', slash + 1)) {
    const std::string_view above = path.substr(0, slash);
    if (names_folder(patterns, above)) return Unit{std::string(above), true};
  }
  if (is_folder)
    return names_folder(patterns, path) ? std::optional(Unit{std::string(path), true})
                                        : std::nullopt;
  if (is_marker(rules, path)) return Unit{folder_of(path), true};
  if (matches_any(patterns, path)) return Unit{std::string(path), false};
  return std::nullopt;
}

void GenerationDetector::make_room() {
  if (pending_.size() < kUnitsMax) return;
  const auto oldest =
      std::min_element(pending_.begin(), pending_.end(), [](const auto& a, const auto& b) {
        return a.second.changed_at < b.second.changed_at;
      });
  pending_.erase(oldest);
}

void GenerationDetector::expect(const std::vector<std::pair<std::string, WallTime>>& files) {
  std::map<Unit, WallTime> changed;
  for (const auto& [path, at] : files) {
    const auto unit = unit_of(rules_, path, false);
    if (!unit || (changed.size() >= kUnitsMax && !changed.contains(*unit))) continue;
    const auto [place, is_new] = changed.try_emplace(*unit, at);
    if (!is_new) place->second = std::max(place->second, at);
  }
  std::vector<std::pair<WallTime, Unit>> round;
  for (const auto& [unit, at] : changed) round.emplace_back(at, unit);
  std::sort(round.begin(), round.end());
  auto first = round.empty() ? round.begin() : std::prev(round.end());
  while (first != round.begin() && first->first - std::prev(first)->first < rules_.companion / 2)
    --first;
  if (std::distance(first, round.end()) < 2) return;
  for (auto it = first; std::next(it) != round.end(); ++it)
    followed_[it->second] = {std::next(it)->second, std::next(it)->first - it->first};
  followed_[round.back().second] = {first->second, rules_.companion};
}

/// Of a unit that was found whole: what came before it is followed by it.
void GenerationDetector::learn(const Unit& unit, const Pending& pending) {
  if (last_whole_ && last_whole_->first == unit) followed_.erase(unit);  // nothing came between
  if (last_whole_ && last_whole_->first != unit) {
    if (followed_.size() >= kUnitsMax) followed_.clear();
    const nanoseconds after =
        std::max(pending.first_at - last_whole_->second, Instant::duration(0));
    followed_[last_whole_->first] = {unit, after};
  }
  last_whole_ = {unit, pending.changed_at};
}

/// Nothing for the last file of a save: the longest pause of the round comes after it. The round is
/// known once it has closed.
nanoseconds GenerationDetector::wait_for_companion(const Unit& unit) const {
  const auto own = followed_.find(unit);
  if (own == followed_.end() || own->second.after >= rules_.companion / 2) return nanoseconds(0);
  nanoseconds longest(0);
  Unit next = own->second.by;
  for (std::size_t steps = 0; next != unit; ++steps) {
    const auto found = followed_.find(next);
    if (found == followed_.end() || steps > followed_.size()) return nanoseconds(0);
    longest = std::max(longest, found->second.after);
    next = found->second.by;
  }
  if (longest < own->second.after * 2) return nanoseconds(0);
  return std::min<nanoseconds>(own->second.after * 2 + seconds(1), rules_.companion);
}

/// In the round of files that follow each other.
bool GenerationDetector::comes_after(const Unit& unit, const Unit& other) const {
  Unit next = unit;
  for (std::size_t steps = 0; steps <= followed_.size(); ++steps) {
    const auto found = followed_.find(next);
    if (found == followed_.end()) return false;
    next = found->second.by;
    if (next == other) return true;
    if (next == unit) return false;
  }
  return false;
}

void GenerationDetector::on_event(const FileEvent& event, Instant now) {
  const auto unit = unit_of(rules_, event.path, event.is_folder);
  if (!unit) return;
  const bool is_whole_unit = unit->path == event.path;
  if (event.kind == FileEventKind::kDeleted && is_whole_unit) {
    pending_.erase(*unit);
    return;
  }
  const bool is_new = !pending_.contains(*unit);
  if (is_new) make_room();
  Pending& pending = pending_[*unit];
  if (is_new) pending.first_at = now;
  pending.sequence = next_sequence_++;
  pending.changed_at = now;
  pending.is_asked = false;
  pending.is_held = false;
  pending.rechecks = 0;
  pending.is_renamed = event.kind == FileEventKind::kMovedTo && is_whole_unit;
  pending.is_marked = event.kind != FileEventKind::kDeleted && is_marker(rules_, event.path);

  const bool is_final = pending.is_renamed || pending.is_marked;
  const bool is_closed_file = event.kind == FileEventKind::kCloseWrite && is_whole_unit;
  pending.due_at = now + (is_final         ? milliseconds(0)
                          : is_closed_file ? rules_.quiet_after_close
                                           : rules_.quiet);
  for (auto& [other, held] : pending_) {  // it has come, and takes its time
    if (!held.is_held || !comes_after(other, *unit)) continue;
    held.due_at = std::min(
        std::max(held.due_at, pending.due_at + rules_.companion),
        held.changed_at + 3 * rules_.companion
    );
  }
}

GenerationReady GenerationDetector::on_declared(Instant now) {
  pending_.clear();
  return {Unit{"", true}, false, true, now, now, {}};
}

std::optional<Instant> GenerationDetector::next_check() const {
  std::optional<Instant> next;
  for (const auto& [unit, pending] : pending_) {
    if (!pending.is_asked && (!next || pending.due_at < *next)) next = pending.due_at;
  }
  return next;
}

std::vector<DueCheck> GenerationDetector::due(Instant now) {
  std::vector<DueCheck> checks;
  for (auto& [unit, pending] : pending_) {
    const bool is_changing = now - pending.changed_at < rules_.quiet;
    if (is_changing && !pending.is_restless_told && now - pending.first_at >= rules_.restless) {
      pending.is_restless_told = true;
      given_up_.push_back({unit, "it never holds still", true});
    }
    if (pending.is_asked || pending.due_at > now) continue;
    pending.is_asked = true;
    checks.push_back({unit, pending.sequence});
  }
  return checks;
}

std::optional<GenerationReady> GenerationDetector::on_checked(
    const DueCheck& check, const StructuralVerdict& verdict, Instant now, SeenFiles seen
) {
  const auto found = pending_.find(check.unit);
  if (found == pending_.end() || found->second.sequence != check.sequence) return std::nullopt;
  Pending& pending = found->second;
  pending.is_asked = false;
  pending.seen = std::move(seen);
  switch (verdict.completeness) {
    case Completeness::kComplete:
      break;
    case Completeness::kUnknownKind:
      if (!pending.is_renamed && !pending.is_marked && now < pending.changed_at + rules_.quiet) {
        pending.due_at = pending.changed_at + rules_.quiet;
        return std::nullopt;
      }
      break;
    case Completeness::kIncomplete:
      if (pending.rechecks >= kRecheckMax) {
        given_up_.push_back({check.unit, verdict.reason});
        pending_.erase(found);
      } else {
        pending.due_at = now + rules_.quiet * (1 << pending.rechecks);
        ++pending.rechecks;
      }
      return std::nullopt;
  }
  if (!pending.is_held) {
    learn(check.unit, pending);
    const nanoseconds wait = pending.is_marked ? nanoseconds(0) : wait_for_companion(check.unit);
    if (wait > nanoseconds(0)) {
      pending.is_held = true;
      pending.due_at = now + wait;
      return std::nullopt;
    }
  }
  GenerationReady ready{
      check.unit,
      pending.is_renamed,
      pending.is_marked,
      pending.changed_at,
      pending.first_at,
      std::move(pending.seen)};
  pending_.erase(found);
  std::erase_if(pending_, [&](const auto& other) {  // of the same save
    if (!other.second.is_held) return false;
    ready.began_at = std::min(ready.began_at, other.second.first_at);
    ready.seen.insert(other.second.seen.begin(), other.second.seen.end());
    return true;
  });
  return ready;
}

void GenerationDetector::on_unstable(const Unit& unit, Instant now) {
  if (pending_.contains(unit)) return;  // a newer event is already followed
  make_room();
  Pending& pending = pending_[unit];
  pending.sequence = next_sequence_++;
  pending.first_at = pending.changed_at = now;
  pending.due_at = now + rules_.quiet_after_close;
}

}  // namespace rn::checkpoint
