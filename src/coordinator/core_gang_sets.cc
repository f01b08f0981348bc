// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_gang_sets.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/planted.h"
#include "coordinator/core_gang_members.h"
#include "coordinator/core_garbage.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kPendingFirst = 4;  // in no set yet: the oldest ones, for who saves late
constexpr std::size_t kPendingLast = 4;   // and the newest ones
constexpr std::size_t kUnmetTold = 4;     // generations without a set, until the author is told
constexpr int kBareBeats = 2;

using Rows = std::map<std::uint32_t, GenerationRow>;

const Rows& rows_of(const State& state, const JobId& job) {
  static const Rows kNone;
  const auto found = state.generations.find(job);
  return found == state.generations.end() ? kNone : found->second;
}

std::uint32_t number_in_set(const GangSet& set, std::uint32_t rank) {
  return rank < set.refs.size() ? set.refs[rank].generation : 0;
}

const GangEntry* gang_with(const State& state, const JobEntry& job) {
  if (!job.row.job.gang) return nullptr;
  const auto found = state.gangs.find(job.row.job.gang->gang);
  return found == state.gangs.end() ? nullptr : &found->second;
}

/// What may become part of the next set: of this epoch, newer than the newest set, and not given
/// up.
std::vector<GenerationRef> pending_of(
    const State& state, const GangEntry& gang, std::uint32_t rank, const JobId& job
) {
  std::vector<GenerationRef> pending;
  const Rows& rows = rows_of(state, job);
  for (auto at = rows.upper_bound(number_in_set(gang.row.set, rank)); at != rows.end(); ++at) {
    const GenerationRow& row = at->second;
    if (!row.is_collected && row.generation.epoch == gang.row.epoch)
      pending.push_back(row.generation);
  }
  return pending;
}

/// By mark; of two of one mark the newer. Without a mark it is in no set.
std::map<std::int64_t, GenerationRef> marks_of(
    const State& state, const GangEntry& gang, std::uint32_t rank, const JobId& job
) {
  std::map<std::int64_t, GenerationRef> marks;
  for (const GenerationRef& ref : pending_of(state, gang, rank, job)) {
    const bool is_newer = gang.row.set.number == 0 || ref.step > gang.row.set.mark;
    if (ref.step >= 0 && is_newer) marks[ref.step] = ref;
  }
  return marks;
}

void tell_members(State& state, const GangEntry& gang) {
  for (const MemberView& member : members_of(state, gang)) {
    const auto& refs = gang.row.set.refs;
    member.job->of_set = member.rank < refs.size() ? refs[member.rank] : GenerationRef();
  }
}

void take_set(State& state, GangEntry& gang, GangSet set) {
  set.number = gang.row.set.number + 1;
  set.epoch = gang.row.epoch;
  gang.row.previous = std::exchange(gang.row.set, std::move(set));
  gang.row.is_fallback = false;
  tell_members(state, gang);
  state.save(gang);
  auto& durable_at = life_of(state, gang).durable_at;
  durable_at.erase(durable_at.begin(), durable_at.upper_bound(number_in_set(gang.row.set, 0)));
  note_gang(
      state,
      gang,
      "gang.set",
      set_words(gang.row.set) + " is complete: all members would go on from it",
      {{"set", std::to_string(gang.row.set.number)}, {"mark", std::to_string(gang.row.set.mark)}}
  );
  for (const MemberView& member : members_of(state, gang)) tell_holders(state, *member.job);
}

/// The largest mark that each member has.
std::optional<GangSet> complete_set(State& state, const GangEntry& gang) {
  std::vector<std::map<std::int64_t, GenerationRef>> all;
  for (std::uint32_t rank = 0; rank < gang.row.members.size(); ++rank) {
    all.push_back(marks_of(state, gang, rank, gang.row.members[rank]));
    if (all.back().empty()) return std::nullopt;
  }
  const bool is_mixed = planted("coordinator.mixes_sets");
  for (auto mark = all.front().rbegin(); mark != all.front().rend(); ++mark) {
    GangSet set{.mark = mark->first};
    for (const auto& marks : all) {
      const auto found = is_mixed ? std::prev(marks.end()) : marks.find(mark->first);
      if (found == marks.end()) break;
      set.refs.push_back(found->second);
    }
    if (set.refs.size() == all.size()) return set;
  }
  return std::nullopt;
}

GangSet set_of_first(const GangEntry& gang, const GenerationRef& ref) {
  GangSet set{.mark = ref.step};
  set.refs.resize(gang.row.members.size());
  set.refs.front() = ref;
  return set;
}

/// The newest generation of rank 0's of which the others are known to have had nothing beside it.
void settle_auto(State& state, GangEntry& gang) {
  const GangLife& life = life_of(state, gang);
  if (life.durable_at.empty()) return;
  std::optional<Instant> heard;
  for (std::size_t rank = 1; rank < life.members.size(); ++rank) {
    const GangMember& member = life.members[rank];
    if (member.ended_bare) continue;
    heard = heard ? std::min(*heard, member.heard_bare) : member.heard_bare;
  }
  const Rows& rows = rows_of(state, gang.row.members.front());
  for (auto at = life.durable_at.rbegin(); at != life.durable_at.rend(); ++at) {
    if (heard && *heard < at->second + kBareBeats * state.heartbeat()) continue;
    const auto row = rows.find(at->first);
    if (row == rows.end() || row->second.is_collected) continue;
    take_set(state, gang, set_of_first(gang, row->second.generation));
    return;
  }
}

std::string marks_words(const State& state, const GangEntry& gang) {
  std::string text;
  for (std::uint32_t rank = 0; rank < gang.row.members.size(); ++rank) {
    text += (rank == 0 ? "rank " : "; rank ") + std::to_string(rank) + ":";
    const auto pending = pending_of(state, gang, rank, gang.row.members[rank]);
    if (pending.empty()) text += " nothing";
    for (const GenerationRef& ref : pending)
      text += ref.step < 0 ? " no step" : " " + std::to_string(ref.step);
  }
  return text.substr(0, 1000);
}

/// Marks that never meet would mean no set, ever.
void say_unmet(State& state, const GangEntry& gang) {
  GangLife& life = life_of(state, gang);
  if (life.is_no_set_told) return;
  bool is_unmet = false;
  for (std::uint32_t rank = 0; rank < gang.row.members.size(); ++rank) {
    const auto pending = pending_of(state, gang, rank, gang.row.members[rank]);
    is_unmet = is_unmet || pending.size() >= kUnmetTold;
  }
  if (!is_unmet) return;
  life.is_no_set_told = true;
  note_gang(
      state,
      gang,
      "gang.no_set",
      "the members' saves do not belong together, so that nothing can be gone on from: steps by "
      "rank are " +
          marks_words(state, gang) +
          ". Put the step into the name, as ckpt-{step}.pt, at the same steps on all ranks, or let "
          "one rank save (saves: first)"
  );
}

void give_up(State& state, const JobEntry& job, GenerationRow& row) {
  row.is_collected = true;
  state.write(PutGeneration{.row = row, .required_epoch = job.row.job.epoch});
}

/// What older epochs have left, and of this one's the middle if there are too many.
void drop_unmet(State& state, const GangEntry& gang, std::uint32_t rank, const JobEntry& job) {
  Rows& rows = state.generations[job.row.job.id];
  std::vector<GenerationRow*> pending;
  for (auto at = rows.upper_bound(number_in_set(gang.row.set, rank)); at != rows.end(); ++at) {
    if (at->second.is_collected) continue;
    if (at->second.generation.epoch != gang.row.epoch) {
      give_up(state, job, at->second);
    } else {
      pending.push_back(&at->second);
    }
  }
  while (pending.size() > kPendingFirst + kPendingLast) {
    give_up(state, job, *pending[kPendingFirst]);
    pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(kPendingFirst));
  }
}

}  // namespace

void note_member_durable(State& state, JobEntry& job, const GenerationRef& ref) {
  GangEntry* gang = state.gang_of(job);
  if (gang == nullptr || gang->row.state == GangState::kOver || ref.epoch != gang->row.epoch)
    return;
  const std::uint32_t rank = job.row.job.gang->rank;
  if (is_saver(*gang, gang->row.size - 1)) {
    if (auto set = complete_set(state, *gang)) {
      take_set(state, *gang, *std::move(set));
    } else {
      say_unmet(state, *gang);
    }
  } else if (rank == 0 && gang->row.saves == GangSaves::kFirst) {
    take_set(state, *gang, set_of_first(*gang, ref));
  } else if (rank == 0) {
    life_of(state, *gang).durable_at[ref.generation] = state.now.boot;
    settle_auto(state, *gang);
  }
  drop_unmet(state, *gang, rank, job);
  state.stirred.insert(gang->row.id);
}

void note_found(State& state, JobEntry& job, const wire::AttemptReport& report) {
  GangEntry* gang = state.gang_of(job);
  const bool is_open =
      gang != nullptr && gang->row.state != GangState::kOver && report.epoch == gang->row.epoch;
  if (!is_open) return;
  const std::uint32_t rank = job.row.job.gang->rank;
  GangMember& member = life_of(state, *gang).members.at(rank);
  if (report.checkpoints_found == 0) {
    // What was found once may be forgotten by an agent that was started again.
    if (!member.has_found) member.heard_bare = state.now.boot;
  } else {
    member.has_found = true;
  }
  if (gang->row.saves != GangSaves::kAuto || gang->row.all_save) return;
  if (rank == 0 || !member.has_found) return settle_auto(state, *gang);
  gang->row.all_save = true;
  state.save(*gang);
  note_gang(
      state,
      *gang,
      "gang.all_save",
      "rank " + std::to_string(rank) +
          " saves, too: from now on what all have saved at the same step belongs together",
      {{"rank", std::to_string(rank)}}
  );
  if (auto set = complete_set(state, *gang)) take_set(state, *gang, *std::move(set));
}

void note_last_found(State& state, const JobEntry& job, bool is_told) {
  GangEntry* gang = state.gang_of(job);
  if (gang == nullptr || gang->row.state == GangState::kOver || !is_told) return;
  const std::uint32_t rank = job.row.job.gang->rank;
  GangMember& member = life_of(state, *gang).members.at(rank);
  if (member.has_found) return;
  member.ended_bare = true;
  if (gang->row.saves == GangSaves::kAuto && !gang->row.all_save) settle_auto(state, *gang);
}

void condemn_set(State& state, GangEntry& gang, const std::string& why) {
  const GangSet condemned = std::exchange(gang.row.set, std::exchange(gang.row.previous, {}));
  gang.row.is_fallback = true;
  tell_members(state, gang);
  state.save(gang);
  note_gang(
      state,
      gang,
      "gang.condemned",
      why + ": " + set_words(condemned) + " is not gone on from any more; next is " +
          (gang.row.set.number == 0 ? "the start" : set_words(gang.row.set)),
      {{"set", std::to_string(condemned.number)}, {"mark", std::to_string(condemned.mark)}}
  );
}

void restore_sets(State& state, GangEntry& gang) {
  tell_members(state, gang);
  const bool is_first_alone = gang.row.saves == GangSaves::kAuto && !gang.row.all_save;
  if (!is_first_alone || gang.row.members.empty()) return;
  GangLife& life = life_of(state, gang);
  for (const GenerationRef& ref : pending_of(state, gang, 0, gang.row.members.front()))
    life.durable_at[ref.generation] = state.now.boot;
  for (const MemberView& member : members_of(state, gang)) {
    if (member.attempt == nullptr || member.attempt->is_live()) continue;
    const AttemptEnd end = member.attempt->row.attempt.end;
    // Had it found one, the gang's row would say that all save.
    member.known->ended_bare = end != AttemptEnd::kLost && end != AttemptEnd::kFenced;
  }
}

bool is_numbered_from_set(const State& state, const JobEntry& job, const GenerationRef& ref) {
  const GangEntry* gang = gang_with(state, job);
  return gang != nullptr && job.row.job.durable.epoch < ref.epoch &&
         ref.generation > number_in_set(gang->row.set, job.row.job.gang->rank);
}

MemberKeep kept_of_member(const State& state, const JobEntry& job) {
  MemberKeep keep;
  const GangEntry* gang = gang_with(state, job);
  if (gang == nullptr) return keep;
  const std::uint32_t rank = job.row.job.gang->rank;
  const std::uint32_t newest = number_in_set(gang->row.set, rank);
  const Rows& rows = rows_of(state, job.row.job.id);
  if (planted("coordinator.collects_a_set") && !rows.empty()) {
    keep.from = rows.rbegin()->first;
    return keep;
  }
  for (const std::uint32_t number : {number_in_set(gang->row.previous, rank), newest}) {
    if (number > 0) keep.older.push_back(number);
  }
  // What is above is of this epoch and not durable yet, whatever older epochs have used its number
  // for.
  std::uint32_t known = newest;
  for (auto at = rows.upper_bound(newest); at != rows.end(); ++at) {
    if (at->second.generation.epoch == gang->row.epoch) known = at->first;
  }
  keep.from = newest;
  for (auto at = rows.upper_bound(newest); at != rows.end(); ++at) {
    if (at->second.is_collected) {
      keep.from = std::min(at->first, known) + 1;
    } else {
      keep.older.push_back(at->first);
    }
  }
  std::sort(keep.older.begin(), keep.older.end());
  std::erase_if(keep.older, [&](std::uint32_t number) { return number >= keep.from; });
  return keep;
}

bool is_in_set(const State& state, const JobEntry& job, std::uint32_t generation) {
  const GangEntry* gang = gang_with(state, job);
  if (gang == nullptr || generation == 0) return false;
  const std::uint32_t rank = job.row.job.gang->rank;
  return number_in_set(gang->row.set, rank) == generation ||
         number_in_set(gang->row.previous, rank) == generation;
}

std::string set_words(const GangSet& set) {
  if (set.number == 0) return "nothing: no set is complete yet";
  return "set " + std::to_string(set.number) +
         (set.mark < 0 ? "" : " (step " + std::to_string(set.mark) + ")");
}

}  // namespace rn::coordinator
